"""Triggers from their descriptions, which a store has of the groupings of a job (`runners.millwheel.versions`).

A description is a text such as ``AfterWatermark(early=Repeatedly(part=AfterCount(count=5)), late=None)``.  It is
parsed, and never evaluated; of triggers of the user's, and of those that have functions, nothing can be made.
"""

import ast
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import triggers
from triggers.trigger import Trigger
from windowing.errors import DataflowError

#: Those whose fields are numbers, texts and other triggers.
_MADE: Mapping[str, Callable[..., Trigger]] = {
    "AfterAll": lambda parts: triggers.AfterAll(*_several(parts)),
    "AfterAny": lambda parts: triggers.AfterAny(*_several(parts)),
    "AfterBytes": triggers.AfterBytes,
    "AfterCount": triggers.AfterCount,
    "AfterEach": lambda parts: triggers.AfterEach(*_several(parts)),
    "AfterProcessingTime": lambda delay_us: triggers.AfterProcessingTime(
        timedelta(microseconds=delay_us)
    ),
    "AfterSignal": triggers.AfterSignal,
    "AfterWatermark": triggers.AfterWatermark,
    "Always": triggers.Always,
    "AtPeriod": lambda period_us, offset_us: triggers.AtPeriod(
        timedelta(microseconds=period_us), offset=timedelta(microseconds=offset_us)
    ),
    "DefaultTrigger": triggers.DefaultTrigger,
    "Never": triggers.Never,
    "OrFinally": triggers.OrFinally,
    "Repeatedly": triggers.Repeatedly,
}


def described_trigger(text: str) -> Trigger | None:
    """The trigger of a description; None: it cannot be made of it.

    Args:
        text: the description.
    """
    try:
        made = _made(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, DataflowError):
        return None
    return made if isinstance(made, Trigger) else None


def _made(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(map(_made, node.elts))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        if node.func.id not in _MADE:
            raise ValueError(f"{node.func.id} is not a trigger that can be made of its description")
        return _MADE[node.func.id](**{each.arg or "": _made(each.value) for each in node.keywords})
    raise ValueError(f"{ast.dump(node)} is no description of a trigger")


def _several(parts: Trigger | tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    """The parts of a composite; a single one in brackets is no tuple to Python."""
    return parts if isinstance(parts, tuple) else (parts,)

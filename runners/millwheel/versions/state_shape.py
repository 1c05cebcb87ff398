"""What the state of a computation is made of, so that code of a later version is not given what it cannot read.

Cells hold windows, trigger states and accumulators; productions hold partials of the grouping that they are for.  So
the shape of a grouping is its windowing, its `CombineFn` with what its empty accumulator is made of, or the state and
timers that its DoFn declares; that of a source is its class, which alone understands its splits and positions, and what
it reads.  What functions do is not part of it.

ADR 0019; MillWheel, section 3.2.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dataflow import combiner_columns
from dataflow.combine_fn import CombineFn, PassingCombineFn
from dataflow.combiners import columns_by_place
from dataflow.graph import (
    Group,
    PipelineGraph,
    Read,
    SideInputs,
    StatefulParDo,
    TransformNode,
    WriteTable,
)
from dataflow.stateful import stateful_signature
from dataflow.user_state import CombiningValueStateSpec, StateParam
from runners.core.partials.folding import Accumulation
from runners.core.stages.plan import ExecutionPlan, Stage
from windowing.window_fn import FrozenWindows, MergingWindowFn, WindowFn

#: The format of the text, with a number of its own: stored texts are compared with new ones as they are.
_FORMAT = 1
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
#: The prefix of parts of a stateful DoFn of which a later version may have more.
_STATE = "state "
#: The prefix of parts that have the version of a state, where it is not 1, and the oldest that can be read.
_VERSION = "version of state "
#: Parts that the descriptions of jobs of older versions do not have.
_NOTED_SINCE = ("input name", "accumulator", "columns", "combined by")
#: How earlier versions described what has another name now, and the same state.
_RENAMED = {"_RetractableTupleCombineFn": "TupleCombineFn"}
#: The part that says whether elements that come may be retracted.
_INPUT, _MAY_BE_RETRACTED, _NEVER_RETRACTED = "input", "may be retracted", "is never retracted"
#: The part that has the window function.
_WINDOW_FN = "window_fn"
#: The part that says whether windows emit what has changed, and not all of it again.
_EMITS, _CHANGES = "emits", "what has changed"
#: The name of an input that has none.
_NO_NAME = "None"


@attrs.frozen
class StateShape:
    """The shape of a computation's state; the senders and tables are known of it, although they are no state.

    Attributes:
        parts: what it is made of.
        senders: the computations that send to it.
        tables: the tables that its rows go to, by the label of the transform that writes them.
    """

    parts: Mapping[str, str]
    senders: tuple[str, ...] = ()
    tables: Mapping[str, str] = attrs.field(factory=dict)

    def encoded(self) -> str:
        """The shape as text for the store; the same text for the same shape."""
        found = {
            "format": _FORMAT,
            "parts": dict(self.parts),
            "senders": self.senders,
            "tables": dict(self.tables),
        }
        return json.dumps(found, sort_keys=True)

    def _migrations(self, new: "StateShape") -> tuple[list[str], set[str]]:
        """Versions of state that code of shape ``new`` does not lead on from, and parts that its migrations change."""
        behind, migrated = list[str](), set[str]()
        for name in sorted(
            {each for each in (*self.parts, *new.parts) if each.startswith(_VERSION)}
        ):
            state = name.removeprefix(_VERSION)
            migrated.add(name)
            if f"{_STATE}{state}" not in self.parts or f"{_STATE}{state}" not in new.parts:
                continue
            kept, _ = _version_of(self.parts.get(name))
            version, oldest = _version_of(new.parts.get(name))
            if not oldest <= kept <= version:
                behind.append(
                    f"state {state} was of version {kept}, is of {version}, read from {oldest} on"
                )
            elif kept < version and _is_one_kind(
                *(each[f"{_STATE}{state}"] for each in (self.parts, new.parts))
            ):
                # What is combined may be another thing: the migration makes it of what there was.
                migrated |= {f"{_STATE}{state}", f"combined by, of state {state}"}
        return behind, migrated

    @classmethod
    def decoded(cls, text: str) -> "StateShape":
        """The inverse of `encoded`."""
        found = json.loads(text)
        parts = {name: _RENAMED.get(part, part) for name, part in found["parts"].items()}
        return cls(parts, tuple(found["senders"]), found.get("tables", {}))

    def unreadable(self, new: "StateShape") -> list[str]:
        """Why code of shape ``new`` cannot read this state; empty if it can.

        State that only the new DoFn declares is empty for every key that there is already, so it can be read.  What was
        not noted of a job of an old version, or not known of its input, is assumed to be unchanged.
        """
        names = dict.fromkeys([*self.parts, *new.parts])
        behind, migrated = self._migrations(new)
        return behind + [
            f"{name} was {self.parts.get(name, 'none')}, is {new.parts.get(name, 'none')}"
            if name != _INPUT
            else _other_input(new.parts)
            for name in names
            if self.parts.get(name) != new.parts.get(name)
            and name not in migrated
            and not (name.startswith((_STATE, *_NOTED_SINCE)) and name not in self.parts)
            and not (name == "input name" and self.parts[name] == _NO_NAME)
        ]


def _other_input(parts: Mapping[str, str]) -> str:
    """Why state cannot be read of a computation whose input may be retracted, and might not, or the other way round."""
    if parts[_INPUT] == _MAY_BE_RETRACTED:
        return "its input may be retracted from here on, and what it has does not say of which values it is made"
    return (
        "its input might be retracted, and cannot be any more; an update with retract_removed retracts what is "
        "to go, and keeps the rest"
    )


def becomes_plain(plan: ExecutionPlan, name: str, old: StateShape | None, new: StateShape) -> bool:
    """Whether code of a new shape can read state, when it is converted, if its input is never retracted any more.

    What a stateful DoFn has of its own stays: it has seen the retractions, and has undone itself what it could.

    Args:
        plan: the pipeline with the old shape.
        name: of a computation.
        old: its shape; None: it is not known.
        new: the new shape.
    """
    root = plan.stages[name].root
    if old is None or old.parts.get(_INPUT) != _MAY_BE_RETRACTED:
        return False
    if new.parts.get(_INPUT) != _NEVER_RETRACTED:
        return False
    if not isinstance(root.operation, Group):
        parts = {**old.parts, _INPUT: _NEVER_RETRACTED, _WINDOW_FN: _window_fn(plan.graph, root)}
        return not attrs.evolve(old, parts=parts).unreadable(new)
    if isinstance(root.operation.combine_fn, PassingCombineFn):
        # A value that is retracted may have gone, and the retraction not.
        return False
    emits_changes = Accumulation.of(plan.graph, root).of_plain_input().emits_changes
    if emits_changes != (_EMITS in new.parts):
        return False
    parts = {**old.parts, _INPUT: _NEVER_RETRACTED, _WINDOW_FN: _window_fn(plan.graph, root)}
    parts.pop(_EMITS, None)
    if emits_changes:
        parts[_EMITS] = _CHANGES
    return not attrs.evolve(old, parts=parts).unreadable(new)


def _window_fn(graph: PipelineGraph, root: TransformNode) -> str:
    """The one function that has assigned the windows of a grouping, also where some had been grouped before."""
    found = [*window_fns_of(graph, root)]
    one = found[0]
    if any(each != one for each in found) or isinstance(one, MergingWindowFn):
        one = graph.pcollections[root.inputs[0]].strategy.window_fn
    return described(one)


def _is_one_kind(state: str, other: str) -> bool:
    return state.split(" of ", maxsplit=1)[0] == other.split(" of ", maxsplit=1)[0]


def _version_of(text: str | None) -> tuple[int, int]:
    """The version that a part has, and the oldest that its code reads."""
    version, oldest = text.split(" from ") if text else ("1", "1")
    return int(version), int(oldest)


def state_shapes(plan: ExecutionPlan) -> dict[str, StateShape]:
    """The shape of each computation, by name."""
    return {
        name: StateShape(_parts(plan, stage), plan.senders(name), _tables(stage))
        for name, stage in plan.stages.items()
    }


def _parts(plan: ExecutionPlan, stage: Stage) -> dict[str, str]:
    operation = stage.root.operation
    if isinstance(operation, Read):
        ids = operation.record_ids
        return {
            "source": type(operation.source).__qualname__,
            "input name": operation.source.input_name or _NO_NAME,
            "record ids": "none" if ids is None else f"for {ids.slack_us} us",
        }
    pcollection = plan.graph.pcollections[stage.root.inputs[0]]
    parts = {
        field.name.removesuffix("_us"): described(getattr(pcollection.strategy, field.name))
        for field in attrs.fields(type(pcollection.strategy))
    }
    parts[_INPUT] = _MAY_BE_RETRACTED if pcollection.retracted_by else _NEVER_RETRACTED
    if isinstance(operation, Group):
        parts["combine_fn"] = described(operation.combine_fn)
        parts["accumulator"] = _accumulator(operation.combine_fn)
        if inner := _inner(operation.combine_fn):
            parts["combined by"] = inner
        if columns := _own_columns(operation.combine_fn):
            parts["columns"] = columns
        if Accumulation.of(plan.graph, stage.root).emits_changes:
            parts[_EMITS] = _CHANGES
    elif isinstance(operation, SideInputs):
        parts["side inputs"] = described(operation.sides)
        parts["shards"] = str(operation.shards)
        parts["waits for"] = "the end of windows" if operation.waits_for_end else "the first pane"
    elif isinstance(operation, StatefulParDo):
        parts.update(_stateful_parts(stage.root, operation))
    return parts


def _tables(stage: Stage) -> dict[str, str]:
    return {
        node.label: node.operation.table.name
        for node in stage.nodes
        if isinstance(node.operation, WriteTable)
    }


def _accumulator(combine_fn: CombineFn) -> str:
    """What an empty accumulator is made of: a change of code under the same name shows there, if anywhere."""
    try:
        return _made_of(combine_fn.create_accumulator())
    except Exception:  # noqa: BLE001 - what fails here is reported where it is used, with the user's line
        return "unknown"


def _inner(combine_fn: CombineFn) -> str:
    """The functions that one is made of, as `TupleCombineFn` is: their accumulators may look alike; empty if none."""
    kept = getattr(combine_fn, "__dict__", {}).values()
    parts = [
        part for each in kept for part in (each if isinstance(each, tuple | list) else (each,))
    ]
    return ", ".join(
        f"{described(part)}({inner})" if (inner := _inner(part)) else described(part)
        for part in parts
        if isinstance(part, CombineFn)
    )


def _own_columns(combine_fn: CombineFn) -> str:
    """The users' functions that fold columns: stored columns are read by these; empty if there is none."""
    found = columns_by_place(combine_fn) or ()
    shipped = combiner_columns.__name__
    return ", ".join(described(each) for each in found if type(each).__module__ != shipped)


def _made_of(value: Any) -> str:
    kind = type(value)
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
        inner = ", ".join(f"{name}={_made_of(getattr(value, name))}" for name in names)
    elif isinstance(value, tuple | list):
        inner = ", ".join(map(_made_of, value))
    elif isinstance(value, dict):
        inner = ", ".join(f"{key!r}: {_made_of(each)}" for key, each in value.items())
    else:
        return kind.__qualname__
    return f"{kind.__qualname__}({_ADDRESS.sub('', inner)})"


def window_fns_of(graph: PipelineGraph, node: TransformNode) -> Iterator[WindowFn]:
    """The functions that have assigned the windows of what comes to a transform.

    Args:
        graph: of the pipeline.
        node: the transform.
    """
    for pcollection in node.inputs:
        window_fn = graph.pcollections[pcollection].strategy.window_fn
        if not isinstance(window_fn, FrozenWindows):
            yield window_fn
            continue
        for maker in graph.transforms:
            if pcollection in maker.outputs.values():
                yield from window_fns_of(graph, maker)


def _stateful_parts(node: TransformNode, operation: StatefulParDo) -> dict[str, str]:
    fn = operation.fn
    signature = stateful_signature(fn, str(node))
    assert signature is not None
    requests = [
        request
        for method in (signature.process, *signature.callbacks.values())
        for request in method.requests.values()
    ]
    parts = {
        f"{_STATE}{each.spec.name!r}": type(each.spec).__name__.removesuffix("StateSpec")
        + (
            f" of {described(each.spec.combine_fn)} with {_accumulator(each.spec.combine_fn)}"
            if isinstance(each.spec, CombiningValueStateSpec)
            else ""
        )
        for each in requests
        if isinstance(each, StateParam)
    }
    parts |= {
        f"combined by, of state {each.spec.name!r}": inner
        for each in requests
        if isinstance(each, StateParam)
        and isinstance(each.spec, CombiningValueStateSpec)
        and (inner := _inner(each.spec.combine_fn))
    }
    parts |= {
        f"{_VERSION}{spec.name!r}": f"{spec.version} from {spec.oldest}"
        for spec in signature.states.values()
        if spec.version != 1
    }
    for spec in signature.timers.values():
        domain = spec.time_domain.value
        parts[f"{_STATE}timer {spec.name!r}"] = f"{type(spec).__name__} of {domain} time"
    parts["order"] = "of event time" if operation.is_time_sorted else "of arrival"
    if fn.has_retractable_outputs:
        parts["outputs"] = "kept"
    parts["retractions"] = "seen" if fn.handles_retractions else "retracted by the engine"
    return parts


def described(value: Any) -> str:
    """A text that is the same in every run of the same code: without addresses, and of functions only the name."""
    if attrs.has(type(value)):
        fields = ", ".join(
            f"{field.name}={described(getattr(value, field.name))}"
            for field in attrs.fields(type(value))
        )
        return f"{type(value).__qualname__}({fields})"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(described, value))})"
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(described, value)))}}}"
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    plain: Any = object.__repr__
    if type(value).__repr__ is plain:
        return type(value).__qualname__
    return _ADDRESS.sub("", repr(value))

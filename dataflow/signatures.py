"""The signatures of what users give: functions, methods, classes and built-ins."""

import inspect
import types
from collections.abc import Callable
from functools import cache
from typing import Any

_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType)


def signature_of(call: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a callable; None if it has none that can be seen, as some built-ins.

    Args:
        call: a function, a method, a class or an object that can be called.
    """
    # That of a built-in is parsed from its text each time, and a pipeline asks several times for that of `sum`.
    is_shared = isinstance(call, _BUILT_IN) and not _is_bound(call)
    return _parsed(call) if is_shared else _signature(call)


def _is_bound(call: Any) -> bool:
    """Whether it is of one object, as ``{}.get``: to remember it would keep the object."""
    return not isinstance(getattr(call, "__self__", None), types.ModuleType | None)


def _signature(call: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(call)
    except (TypeError, ValueError):
        return None


_parsed = cache(_signature)

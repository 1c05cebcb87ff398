"""Checks of the arguments of triggers, so that a mistake is an error on the line that makes it, not in a run."""

from numbers import Integral
from typing import Any

import attrs

from triggers.trigger import Trigger
from windowing.errors import WindowError


def check_trigger(where: str, value: object) -> None:
    """Refuse a value that is not a trigger.

    Args:
        where: what needs the trigger, for the error.
        value: the value.

    Raises:
        WindowError: it is none.
    """
    if not isinstance(value, Trigger):
        raise WindowError(
            f"{where} needs a trigger, not {value!r}",
            detail=f"its type is {type(value).__name__}",
            hint="e.g. df.AfterCount(10); classes must be called",
        )


def is_trigger(owner: Any, field: "attrs.Attribute[Any]", value: object) -> None:
    """Validate a field of attrs as `check_trigger` does.

    Args:
        owner: the object with the field.
        field: the field.
        value: its value.

    Raises:
        WindowError: it is none.
    """
    check_trigger(f"{type(owner).__name__} ({field.name})", value)


def check_signal_name(where: str, name: object) -> None:
    """Refuse a value that cannot be the name of a signal.

    Args:
        where: what needs the name, for the error.
        name: the value.

    Raises:
        WindowError: it is not text, or empty, or has characters that cannot be printed.
    """
    if not isinstance(name, str) or not name.isprintable() or not name.strip():
        raise WindowError(
            f"{where} needs the name of a signal, not {name!r}",
            detail=f"its type is {type(name).__name__}",
            hint='give a text of printable characters, e.g. "flush"',
        )


def is_positive_size(owner: Any, field: "attrs.Attribute[Any]", value: object) -> None:
    """Refuse a field of attrs that is not a whole number above zero.

    Args:
        owner: the object with the field.
        field: the field.
        value: its value.

    Raises:
        WindowError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise WindowError(
            f"{type(owner).__name__} needs a positive {field.name}, not {value!r}",
            detail=f"its type is {type(value).__name__}",
            hint="give a whole number above zero",
        )

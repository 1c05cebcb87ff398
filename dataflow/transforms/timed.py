"""The event times of elements, as a part of them: for combiners that choose by time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dataflow.do_fn import DoFn


def timed(element: Any, timestamp: datetime = DoFn.TimestampParam) -> tuple[Any, datetime]:
    """``(element, its event time)``.

    Args:
        element: any.
        timestamp: given by the engine.
    """
    return element, timestamp


def timed_value(
    element: tuple[Any, Any], timestamp: datetime = DoFn.TimestampParam
) -> tuple[Any, tuple[Any, datetime]]:
    """``(key, (value, event time))`` of a pair of key and value.

    Args:
        element: the pair.
        timestamp: given by the engine.
    """
    key, value = element
    return key, (value, timestamp)


def untimed(values: list[tuple[Any, datetime]]) -> list[Any]:
    """The values alone."""
    return [value for value, _ in values]


def untimed_values(element: tuple[Any, list[tuple[Any, datetime]]]) -> tuple[Any, list[Any]]:
    """The key, and the values alone."""
    key, values = element
    return key, untimed(values)

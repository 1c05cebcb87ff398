"""Reify: event times and windows of elements, as values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dataflow.do_fn import DoFn, TimestampedValue
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map
from dataflow.type_vars import K, T, V
from windowing.window import Window as WindowOfElement


class Reify:
    """Transforms from what belongs to an element to values: `Timestamp`, `Window`, and both of the value of a pair."""

    class Timestamp(PTransform[PCollection[Any], PCollection[TimestampedValue]]):
        """A `TimestampedValue` as the element itself: the element, and its event time.

        As an output of user code a `TimestampedValue` sets an event time; this one arrives as a value.
        """

        def expand(self, pcoll: PCollection[Any]) -> PCollection[TimestampedValue]:
            """Map, with one more wrapper, which the runner takes off."""
            return pcoll | "timestamp" >> Map(_timestamped)

    class Window(PTransform[PCollection[T], PCollection[tuple[T, datetime, WindowOfElement]]]):
        """``(element, event time, window)``; the event time is a datetime in UTC."""

        def expand(self, pcoll: PCollection[T]) -> PCollection[tuple[T, datetime, WindowOfElement]]:
            """Map to tuples."""
            return pcoll | "window" >> Map(_windowed)

    class TimestampInValue(
        PTransform[PCollection[tuple[K, Any]], PCollection[tuple[K, TimestampedValue]]]
    ):
        """``(key, TimestampedValue(value, event time))`` for each ``(key, value)``."""

        def expand(
            self, pcoll: PCollection[tuple[K, Any]]
        ) -> PCollection[tuple[K, TimestampedValue]]:
            """Map to pairs."""
            return pcoll | "timestamp" >> Map(_timestamped_value)

    class WindowInValue(
        PTransform[
            PCollection[tuple[K, V]],
            PCollection[tuple[K, tuple[V, datetime, WindowOfElement]]],
        ]
    ):
        """``(key, (value, event time, window))`` for each ``(key, value)``."""

        def expand(
            self, pcoll: PCollection[tuple[K, V]]
        ) -> PCollection[tuple[K, tuple[V, datetime, WindowOfElement]]]:
            """Map to pairs."""
            return pcoll | "window" >> Map(_windowed_value)


def _timestamped(element: Any, /, at: datetime = DoFn.TimestampParam) -> TimestampedValue:
    return TimestampedValue(TimestampedValue(element, at), at)


def _windowed(
    element: Any,
    /,
    at: datetime = DoFn.TimestampParam,
    window: WindowOfElement = DoFn.WindowParam,
) -> tuple[Any, datetime, WindowOfElement]:
    return element, at, window


def _timestamped_value(
    pair: tuple[Any, Any], /, at: datetime = DoFn.TimestampParam
) -> tuple[Any, TimestampedValue]:
    key, value = pair
    return key, TimestampedValue(value, at)


def _windowed_value(
    pair: tuple[Any, Any],
    /,
    at: datetime = DoFn.TimestampParam,
    window: WindowOfElement = DoFn.WindowParam,
) -> tuple[Any, tuple[Any, datetime, WindowOfElement]]:
    key, value = pair
    return key, (value, at, window)

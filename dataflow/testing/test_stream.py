"""TestStream: elements, watermark, processing time and signals from a script.

A script is a value: every call returns a longer one.  On the direct runner each event is one step of its own and both
clocks are the script's.  Batch takes the elements alone, and streaming the elements and the watermark, because these
have a processing time of their own, and receive signals through their store (`PipelineResult.send_signal`).

Dataflow Model, sections 1.3 and 2.3 (the two clocks).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import attrs

from dataflow.do_fn import TimestampedValue
from dataflow.errors import PipelineError
from dataflow.io.create import Read
from dataflow.io.memory import digest_of, listed_elements
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.record_ids import RecordIds
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from triggers.checks import check_signal_name
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
    DurationLike,
    TimestampLike,
    clamp_timestamp_us,
    format_timestamp,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline


@attrs.frozen
class _Event:
    """One call of the script, and what it makes the source return."""

    call: str
    watermark_us: int
    processing_time_us: int
    values: tuple[Any, ...] = ()
    timestamps_us: tuple[int, ...] = ()
    signals: tuple[str, ...] = ()


class TestStream(PTransform["Pipeline", PCollection[Any]]):
    """A source that follows a script.

    It starts with the watermark at the beginning of time and the clock at 1970-01-01T00:00:00 UTC; when the script is
    over, the watermark goes to the end of time.  Instants and durations are what they are everywhere: datetimes with a
    time zone, timedeltas, texts, or seconds.

    Example::

        p | TestStream().add_elements(["a", "b"]).advance_watermark_to(60).advance_processing_time(10)

    Args:
        record_ids: how elements are known that are added more than once, as for `Read`.
    """

    # Its name looks like a test to pytest.
    __test__ = False

    def __init__(self, *, record_ids: RecordIds | None = None) -> None:
        self._events: tuple[_Event, ...] = ()
        self._record_ids = record_ids

    def add_elements(self, elements: Iterable[Any]) -> Self:
        """Elements that arrive together: one bundle.

        A `TimestampedValue` brings its event time; other values are as old as the watermark is now.

        Raises:
            PipelineError: an element would be at the end of time, which no window contains; or one value is given in
                place of several, as for `Create`.
        """
        elements = listed_elements(elements, "add_elements")
        timestamps_us = tuple(
            each.timestamp_us if isinstance(each, TimestampedValue) else self._watermark_us
            for each in elements
        )
        if MAX_TIMESTAMP_US in timestamps_us:
            raise PipelineError(
                "an element cannot be at the end of time",
                detail=f"element: {elements[timestamps_us.index(MAX_TIMESTAMP_US)]!r}",
                hint="after advance_watermark_to_infinity, add late elements as TimestampedValue",
            )
        values = tuple(
            each.value if isinstance(each, TimestampedValue) else each for each in elements
        )
        shown = ", ".join(
            f"TimestampedValue({each.value!r}, {_shown(each.timestamp_us)})"
            if isinstance(each, TimestampedValue)
            else repr(each)
            for each in elements
        )
        return self._with(f"add_elements([{shown}])", values, timestamps_us)

    def advance_watermark_to(self, watermark: TimestampLike) -> Self:
        """Move the watermark: elements before ``watermark`` that come from here on are late.

        Raises:
            PipelineError: the watermark would go back.
        """
        watermark_us = to_timestamp_us(watermark)
        _check("watermark", self._watermark_us, watermark_us)
        call = f"advance_watermark_to({_shown(watermark_us)})"
        return self._with(call, watermark_us=watermark_us)

    def advance_watermark_to_infinity(self) -> Self:
        """Move the watermark to the end of time: all elements that come from here on are late."""
        return self._with("advance_watermark_to_infinity()", watermark_us=MAX_TIMESTAMP_US)

    def advance_processing_time_to(self, now: TimestampLike) -> Self:
        """Let the clock go on to ``now``; timers on the way fire at their instants.

        Raises:
            PipelineError: the clock would go back.
        """
        now_us = to_timestamp_us(now)
        _check("clock", self._now_us, now_us)
        return self._with(f"advance_processing_time_to({_shown(now_us)})", now_us=now_us)

    def advance_processing_time(self, duration: DurationLike) -> Self:
        """Let the clock go on by ``duration``.

        Raises:
            PipelineError: the clock would go back.
        """
        duration_us = to_duration_us(duration)
        now_us = clamp_timestamp_us(self._now_us + duration_us)
        _check("clock", self._now_us, now_us)
        return self._with(f"advance_processing_time({_shown(duration_us)})", now_us=now_us)

    def send_signal(self, name: str) -> Self:
        """Send every open window a signal, for which `df.AfterSignal` waits.

        Raises:
            WindowError: this cannot be the name of a signal.
        """
        check_signal_name("TestStream.send_signal", name)
        return self._with(f"send_signal({name!r})", signals=(name,))

    def elements(self) -> list[TimestampedValue]:
        """All that is added, each with its event time, in order."""
        return [
            TimestampedValue(value, to_datetime(timestamp_us))
            for event in self._events
            for value, timestamp_us in zip(event.values, event.timestamps_us, strict=True)
        ]

    def default_label(self) -> str:
        """``TestStream``."""
        return "TestStream"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Read the script."""
        return pcoll | Read(_ScriptSource(self._events), record_ids=self._record_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TestStream):
            return False
        return (self._events, self._record_ids) == (other._events, other._record_ids)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        given = f"record_ids={self._record_ids!r}" if self._record_ids else ""
        return ".".join([f"TestStream({given})", *(event.call for event in self._events)])

    def _with(
        self,
        call: str,
        values: tuple[Any, ...] = (),
        timestamps_us: tuple[int, ...] = (),
        *,
        watermark_us: int | None = None,
        now_us: int | None = None,
        signals: tuple[str, ...] = (),
    ) -> Self:
        """This script and one more event."""
        event = _Event(
            call,
            self._watermark_us if watermark_us is None else watermark_us,
            self._now_us if now_us is None else now_us,
            values,
            timestamps_us,
            signals,
        )
        longer = copy.copy(self)
        longer._events = (*self._events, event)  # noqa: SLF001 - our own copy
        return longer

    @property
    def _watermark_us(self) -> int:
        return self._events[-1].watermark_us if self._events else MIN_TIMESTAMP_US

    @property
    def _now_us(self) -> int:
        return self._events[-1].processing_time_us if self._events else 0


class _ScriptSource(Source):
    """One split; one event per read, whatever the number of records asked for.

    Attributes:
        has_trusted_watermark: its times are those of a script.
    """

    has_arrival_order = True
    has_trusted_watermark = True

    def __init__(self, events: Sequence[_Event]) -> None:
        self._events = tuple(events)

    @property
    def input_name(self) -> str:
        """How many events the script has, and a digest of them."""
        parts = [
            part
            for event in self._events
            for part in (*event.values, attrs.evolve(event, values=()))
        ]
        return f"{len(self._events)} events ({digest_of(parts)})"

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _ScriptReader(self._events, position or 0)


class _ScriptReader(SourceReader):
    def __init__(self, events: Sequence[_Event], position: int) -> None:
        self._events, self._next = events, position

    def read(self, max_records: int) -> SourceBatch:
        if self._next == len(self._events):
            return SourceBatch(
                values=(),
                timestamps_us=(),
                position=self._next,
                watermark_us=MAX_TIMESTAMP_US,
                status=SplitStatus.FINISHED,
            )
        event = self._events[self._next]
        self._next += 1
        return SourceBatch(
            values=event.values,
            timestamps_us=event.timestamps_us,
            position=self._next,
            watermark_us=event.watermark_us,
            processing_time_us=event.processing_time_us,
            signals=event.signals,
        )


def _check(what: str, from_us: int, to_us: int) -> None:
    if to_us < from_us:
        raise PipelineError(
            f"the {what} of a TestStream cannot go back",
            detail=f"from {format_timestamp(from_us)} to {format_timestamp(to_us)}",
            hint="the clock starts in 1970; the watermark starts at the beginning of time",
        )


def _shown(time_us: int) -> str:
    """An instant or a duration as an argument that gives it again."""
    if time_us % US_PER_SECOND == 0:
        return str(time_us // US_PER_SECOND)
    seconds = time_us / US_PER_SECOND
    is_exact = round(seconds * US_PER_SECOND) == time_us
    return str(seconds) if is_exact else repr(timedelta(microseconds=time_us))

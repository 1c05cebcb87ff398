"""Computation: the base class of user code, with its records and timers.  MillWheel, section 5.1 and figure 7."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import attrs

from dataflow.computations.hook import Hook, StateCoder
from dataflow.errors import PipelineError
from windowing.time_domain import TimeDomain
from windowing.timestamps import DurationLike, TimestampLike

#: A function from a record's value to the key that a subscriber has for it.
KeyExtractor = Callable[[Any], Any]

#: The domain of timers that fire when the low watermark has reached them.
LOW_WATERMARK = TimeDomain.EVENT
#: The domain of timers that fire when the clock has reached them.
WALL_TIME = TimeDomain.PROCESSING


@attrs.frozen
class Record:
    """A record with which a computation is called.

    Attributes:
        value: what was produced on the stream.
        key: what the computation's key extractor for ``stream`` made of ``value``.
        timestamp: the record's event time, an aware datetime in UTC.
        stream: the name of the stream.
    """

    value: Any
    key: Any
    timestamp: datetime
    stream: str


@attrs.frozen
class Timer:
    """A timer that has fired.

    Attributes:
        tag: by which it was set.
        time: what it was set for, an aware datetime in UTC.
        domain: the clock that it was set by.
        key: for which it was set.
        timestamp: the event time at which it fires, an aware datetime in UTC; what it produces has it unless another
            one is given.  In the domain `LOW_WATERMARK` that is ``time``, but never before the record or timer that set
            it; in `WALL_TIME` it is the low watermark.
    """

    tag: str
    time: datetime
    domain: TimeDomain
    key: Any
    timestamp: datetime


class Computation:
    """User code with access to the timers, the persistent state and the productions of one key at a time.

    Override `process_record`, and `process_timer` if timers are set.  Records and timers of a key come one after the
    other; there is nothing to lock.  The effects of a hook on state, timers and streams happen once, whatever fails and
    is tried again; its effects on the outside world may happen twice.

    Objects live as those of a `DoFn` do: pickled once per run, so attributes hold configuration and connections, and
    everything that belongs to a key is in `state`.  Values are shared: do not change one that was received or produced.

    Example::

        class CountByMinute(Computation):
            inputs = {"queries": lambda query: query.text}
            outputs = ["counts"]
            initial_state = Counter

            def process_record(self, record):
                minute = record.timestamp.replace(second=0, microsecond=0)
                self.state[str(minute)] += 1
                self.set_timer(str(minute), minute + timedelta(minutes=1))

            def process_timer(self, timer):
                count = self.state.pop(timer.tag)
                self.produce((timer.key, timer.tag, count), "counts")

    MillWheel, section 5.1, and figure 3 for the attributes.

    Attributes:
        inputs: the streams that it subscribes to, each with the function that extracts the key from a record's value;
            keys are as for `GroupByKey`.  `Topology.computation` may override it.
        outputs: the streams that it produces to.  `Topology.computation` may override it.
        initial_state: makes the state that a key has at first, such as ``dict`` or ``Counter``; a state that equals it
            is not kept.  None: the state is None at first.
        state_coder: the coder of the state; None: it is kept as a pickle of plain data.
    """

    inputs: Mapping[str, KeyExtractor] = MappingProxyType({})
    outputs: Sequence[str] = ()
    initial_state: Callable[[], Any] | None = None
    state_coder: StateCoder | None = None

    _hook: Hook | None = None

    def setup(self) -> None:
        """Once on a worker before anything else: open connections, load models."""

    def teardown(self) -> None:
        """Once on a worker when it stops in good order."""

    def process_record(self, record: Record) -> None:
        """Called for each record of each input stream, late ones too.

        In a stream records come as they arrive; where all inputs end by themselves, and in batch, in the order of event
        times, with the timers in between.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_record(self, record)")

    def process_timer(self, timer: Timer) -> None:
        """Called when a timer fires: those of a key in the order of their times within a domain, each once."""
        raise NotImplementedError(f"{type(self).__name__} must define process_timer(self, timer)")

    @property
    def state(self) -> Any:
        """The persistent state of the key; None, or what `initial_state` makes, until it is set.  None frees it.

        The state may be changed in place: it is kept when the hook returns.

        Raises:
            PipelineError: no hook is running.
        """
        return self._running("state").read_state()

    @state.setter
    def state(self, state: Any) -> None:
        self._running("state").write_state(state)

    @property
    def low_watermark(self) -> datetime:
        """The computation's input watermark: a record before it is late.

        It differs from run to run.  In batch all input is there, and is replayed: it is then at the record itself.

        Raises:
            PipelineError: no hook is running.
        """
        return self._running("low_watermark").watermark

    def set_timer(self, tag: str, time: TimestampLike, domain: TimeDomain = LOW_WATERMARK) -> None:
        """Have `process_timer` called for this key at an instant, or at once if it is in the past.

        A key has one timer of each tag and domain: setting it again moves it.  When one of `LOW_WATERMARK` fires, all
        records before its time have come, but for late ones; one at this very time may still come.

        Args:
            tag: distinguishes the timers of a key; any text, which need not be declared.
            time: an aware datetime, text, or seconds since 1970.
            domain: `LOW_WATERMARK`, or `WALL_TIME`.

        Raises:
            PipelineError: no hook is running, or tag or domain are something else.
            TimeError: ``time`` is not an instant.
        """
        self._running("set_timer").timer(tag, domain).set(time)

    def set_timer_after(self, tag: str, delay: DurationLike) -> None:
        """Set the timer of `WALL_TIME` with this tag to fire when a duration has passed.

        The clock is the runner's: in batch it does not move until all input has been read.

        Args:
            tag: tells the timers of a key apart; setting one again moves it.
            delay: from now, in seconds where it is a number.

        Raises:
            PipelineError: no hook is running, the tag is something else, or the delay is negative.
            TimeError: ``delay`` is not a duration.
        """
        self._running("set_timer_after").timer(tag, WALL_TIME).set_after(delay)

    def delete_timer(self, tag: str, domain: TimeDomain = LOW_WATERMARK) -> None:
        """Delete a timer, so that it does not fire; does nothing if it is not set.

        Arguments and errors are those of `set_timer`.

        Args:
            tag: of the timer.
            domain: `LOW_WATERMARK` or `WALL_TIME`, as it was set.
        """
        self._running("delete_timer").timer(tag, domain).clear()

    def produce(self, value: Any, stream: str, timestamp: TimestampLike | None = None) -> None:
        """Send a record to one of the computation's output streams.

        Args:
            value: the record; each subscriber extracts a key from it.
            stream: the name of the output stream.
            timestamp: its event time, an aware datetime, text, or seconds since 1970; not before that of the record or
                timer that is being processed, which is the default.

        Raises:
            PipelineError: no hook is running.
            TransformError: the stream is none of the outputs, or the timestamp is too early.
            TimeError: ``timestamp`` is not an instant.
        """
        self._running("produce").produce(value, stream, timestamp)

    def _running(self, accessor: str) -> Hook:
        if self._hook is None:
            raise PipelineError(
                f"{type(self).__name__}.{accessor} was used outside of a hook",
                detail="it is about the key of the record or timer that is being processed, and there is none",
                hint="use it in process_record or process_timer, and in what they call",
            )
        return self._hook

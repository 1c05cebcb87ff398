"""ComputationDoFn: a computation as the stateful DoFn that every runner knows (ADR 0014).

Its elements are ``(key, (stream, value))``; the state of the key is one value, its timers are two families, one for
each time domain, and its output streams are the tagged outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from dataflow.computations.computation import (
    LOW_WATERMARK,
    WALL_TIME,
    Computation,
    Record,
    Timer,
)
from dataflow.computations.hook import Definition, Hook
from dataflow.do_fn import DoFn
from dataflow.errors import TransformError
from dataflow.state_handles import ReadModifyWriteState
from dataflow.user_state import (
    ReadModifyWriteStateSpec,
    TimerFamilySpec,
    TimerMap,
    on_timer,
)
from windowing.errors import error_text
from windowing.time_domain import TimeDomain

_STATE = ReadModifyWriteStateSpec("state")
_LOW_WATERMARK = TimerFamilySpec("low watermark", LOW_WATERMARK)
_WALL_TIME = TimerFamilySpec("wall time", WALL_TIME)


class KeyExtraction:
    """``value`` to ``(key, (stream, value))``, by the consumer's extractor for the stream.

    Args:
        consumer: name and location of the computation, for messages.
        stream: that the records are from.
        extractor: from a record's value to its key.
    """

    def __init__(self, consumer: str, stream: str, extractor: Callable[[Any], Any]) -> None:
        self._consumer, self._stream, self._extractor = consumer, stream, extractor

    def __call__(self, value: Any) -> tuple[Any, tuple[str, Any]]:
        """The pair; a `TransformError` that names consumer and stream where there is no key."""
        try:
            key = self._extractor(value)
        except Exception as error:
            raise TransformError(
                f"{self._consumer} cannot extract a key from a record of the stream {self._stream!r}",
                detail=f"the extractor raised {type(error).__name__}: {error_text(error)}; record: {value!r:.500}",
                hint="correct the key extractor, or produce such records to a stream of their own",
            ) from error
        return key, (self._stream, value)


class ComputationDoFn(DoFn):
    """Calls the hooks of one computation.

    Args:
        computation: whose hooks are called; not shared between workers.
        definition: of the computation, with its name, location and outputs.
    """

    is_made_for_arrival_order = True

    def __init__(self, computation: Computation, definition: Definition) -> None:
        self._computation, self._definition = computation, definition

    def setup(self) -> None:
        """Start the life of the computation on this worker."""
        self._computation.setup()

    def teardown(self) -> None:
        """End the life of the computation on this worker."""
        self._computation.teardown()

    def process(
        self,
        element: tuple[Any, tuple[str, Any]],
        /,
        timestamp: datetime = DoFn.TimestampParam,
        watermark: datetime = DoFn.WatermarkParam,
        state: ReadModifyWriteState = DoFn.StateParam(_STATE),
        low: TimerMap = DoFn.TimerParam(_LOW_WATERMARK),
        wall: TimerMap = DoFn.TimerParam(_WALL_TIME),
    ) -> list[Any]:
        """Process one record.

        Args:
            element: key, and stream with value.
            timestamp: the event time of the record.
            watermark: the input watermark.
            state: of the key.
            low: the timers in event time.
            wall: the timers in processing time.
        """
        key, (stream, value) = element
        hook = self._hook(timestamp, watermark, state, low, wall)
        return self._call(hook, "process_record", Record(value, key, timestamp, stream))

    @on_timer(_LOW_WATERMARK)
    def fire_low_watermark(
        self,
        tag: str = DoFn.DynamicTimerTagParam,
        time: datetime = DoFn.FireTimestampParam,
        key: Any = DoFn.KeyParam,
        timestamp: datetime = DoFn.TimestampParam,
        watermark: datetime = DoFn.WatermarkParam,
        state: ReadModifyWriteState = DoFn.StateParam(_STATE),
        low: TimerMap = DoFn.TimerParam(_LOW_WATERMARK),
        wall: TimerMap = DoFn.TimerParam(_WALL_TIME),
    ) -> list[Any]:
        """Process one timer of event time."""
        hook = self._hook(timestamp, watermark, state, low, wall)
        timer = Timer(tag, time, LOW_WATERMARK, key, timestamp)
        return self._call(hook, "process_timer", timer)

    @on_timer(_WALL_TIME)
    def fire_wall_time(
        self,
        tag: str = DoFn.DynamicTimerTagParam,
        time: datetime = DoFn.FireTimestampParam,
        key: Any = DoFn.KeyParam,
        timestamp: datetime = DoFn.TimestampParam,
        watermark: datetime = DoFn.WatermarkParam,
        state: ReadModifyWriteState = DoFn.StateParam(_STATE),
        low: TimerMap = DoFn.TimerParam(_LOW_WATERMARK),
        wall: TimerMap = DoFn.TimerParam(_WALL_TIME),
    ) -> list[Any]:
        """Process one timer of processing time."""
        hook = self._hook(timestamp, watermark, state, low, wall)
        return self._call(hook, "process_timer", Timer(tag, time, WALL_TIME, key, timestamp))

    def _hook(
        self,
        timestamp: datetime,
        watermark: datetime,
        state: ReadModifyWriteState,
        low: TimerMap,
        wall: TimerMap,
    ) -> Hook:
        timers: dict[TimeDomain, TimerMap] = {LOW_WATERMARK: low, WALL_TIME: wall}
        computation = self._computation
        # Of the class, where a function is not bound to the object.
        initial, coder = type(computation).initial_state, computation.state_coder
        return Hook(self._definition, initial, coder, timestamp, watermark, state, timers)

    def _call(self, hook: Hook, name: str, argument: Record | Timer) -> list[Any]:
        computation = self._computation
        computation._hook = hook  # noqa: SLF001 - the other half of Computation
        try:
            returned: object = getattr(computation, name)(argument)
            hook.keep_state()
        except TransformError:
            raise
        except Exception as error:
            raise TransformError(
                f"{self._definition} raised {type(error).__name__}: {error_text(error)}",
                detail=f"in {type(computation).__name__}.{name}, called for {argument!r:.500}",
                hint="correct the computation, or produce what it cannot deal with to a stream of its own",
            ) from error
        finally:
            computation._hook = None  # noqa: SLF001 - the one place that lends it its hook
        if returned is not None:
            raise TransformError(
                f"{self._definition} returned {type(returned).__name__} from {name}",
                detail="what a hook returns goes nowhere, and a hook with yield in it does not even run",
                hint="send records with self.produce(value, stream), and return nothing",
            )
        return hook.outputs

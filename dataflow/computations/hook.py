"""Hook: one call of user code in a computation, and the effects of its accessors on state, timers and streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import attrs

from dataflow.do_fn import TaggedOutput, TimestampedValue
from dataflow.errors import PipelineError, TransformError
from dataflow.state_handles import ReadModifyWriteState
from dataflow.user_state import TimerHandle, TimerMap
from windowing.location import user_location
from windowing.time_domain import TimeDomain
from windowing.timestamps import TimestampLike, format_timestamp, to_timestamp_us

_WRAPPERS = (TaggedOutput, TimestampedValue)


class StateCoder(Protocol):
    """How persistent state becomes bytes and back, e.g. with a schema that outlives the program."""

    def encode(self, state: Any, /) -> bytes:
        """The bytes of a state; never called with None."""

    def decode(self, encoded: bytes, /) -> Any:
        """The inverse of `encode`."""


@attrs.frozen
class Definition:
    """A computation as its topology defines it.

    Attributes:
        location: the user's file and line.
        outputs: the first one is the main output of the DoFn.
    """

    name: str
    location: str
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"computation {self.name!r} ({self.location})"


@attrs.define
class Hook:
    """One call of user code.

    Attributes:
        initial: makes the first state of a key.
        timestamp: the event time of what it is called for.
        outputs: what it has produced, in the form in which a DoFn returns it.
    """

    definition: Definition
    initial: Callable[[], Any] | None
    coder: StateCoder | None
    timestamp: datetime
    watermark: datetime
    kept: ReadModifyWriteState
    timers: Mapping[TimeDomain, TimerMap]
    outputs: list[Any] = attrs.field(factory=list)
    _state: Any = None
    _is_state_known: bool = False

    def read_state(self) -> Any:
        """The state, decoded when it is first asked for."""
        if not self._is_state_known:
            kept = self.kept.read()
            if kept is None:
                kept = self._first()
            elif self.coder is not None:
                kept = self.coder.decode(kept)
            self.write_state(kept)
        return self._state

    def write_state(self, state: Any) -> None:
        """Replace the state; None brings back the first one."""
        self._state, self._is_state_known = self._first() if state is None else state, True

    def keep_state(self) -> None:
        """Keep the state at the end of the call: it may have been changed in place.

        Raises:
            TransformError: the user's coder does not make bytes of it.
        """
        if not self._is_state_known:
            return
        state = self._state
        if state is None or (self.initial is not None and state == self.initial()):
            self.kept.clear()
            return
        if self.coder is not None:
            state = self.coder.encode(state)
            if not isinstance(state, bytes):
                raise TransformError(
                    f"{self.definition} has a state coder that does not make bytes",
                    detail=f"{type(self.coder).__name__}.encode returned {type(state).__name__}",
                    hint="return bytes from encode, or leave state_coder out and keep plain data",
                )
        self.kept.write(state)

    def _first(self) -> Any:
        return None if self.initial is None else self.initial()

    def timer(self, tag: str, domain: TimeDomain) -> TimerHandle:
        """The timer of the key with a tag.

        Args:
            tag: tells the timers of a key apart.
            domain: `LOW_WATERMARK` or `WALL_TIME`.

        Raises:
            PipelineError: there is no such domain.
        """
        if domain not in self.timers:
            raise PipelineError(
                f"{self.definition} sets a timer of {domain!r}",
                hint="the domains of timers are LOW_WATERMARK and WALL_TIME",
            )
        return self.timers[domain].get(tag)

    def produce(self, value: Any, stream: str, timestamp: TimestampLike | None) -> None:
        """Check a production and keep it.

        Args:
            value: without a wrapper; a stream and a timestamp are arguments of their own.
            stream: one of the outputs of the computation.
            timestamp: not before that of what the hook is called for; None: the same.

        Raises:
            TransformError: the computation has no such output, the value has a wrapper, or the timestamp is too early.
        """
        outputs = self.definition.outputs
        if stream not in outputs:
            raise TransformError(
                f"{self.definition} produced to the stream {stream!r}, which is none of its outputs",
                detail=f"at {user_location()}; outputs: {list(outputs)}",
                hint="name it among the outputs where the computation is defined",
            )
        if isinstance(value, _WRAPPERS):
            raise TransformError(
                f"{self.definition} produced a {type(value).__name__} to the stream {stream!r}",
                detail=f"at {user_location()}",
                hint="use the arguments: self.produce(value, stream, timestamp)",
            )
        if timestamp is not None:
            value = TimestampedValue(value, timestamp)
            if value.timestamp_us < to_timestamp_us(self.timestamp):
                raise self._too_early(value.timestamp_us, stream)
        # Without a wrapper where that means the same: outputs in one run of plain values are quicker.
        self.outputs.append(value if stream == outputs[0] else TaggedOutput(stream, value))

    def _too_early(self, timestamp_us: int, stream: str) -> TransformError:
        source_us = to_timestamp_us(self.timestamp)
        return TransformError(
            f"{self.definition} produced to the stream {stream!r} with a timestamp before that of its source",
            detail=f"{format_timestamp(timestamp_us)} < {format_timestamp(source_us)}; at {user_location()}",
            hint="the low watermark may have passed it already; a timestamp is not smaller than those of the records "
            "that the production was made of (MillWheel, section 4.5)",
        )

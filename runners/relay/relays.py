"""Relays: all lanes of a job's sinks, and what is done when one of them does not answer."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from dataflow.errors import DataflowError, SinkError, SinkFencedError
from dataflow.sink import Lane, Sink, SinkWriter
from dataflow.table import TableSpec
from runners.core.ground.clock import Clock
from runners.errors import LostCommitsError, StoreRestartedError
from runners.relay.lane_relay import LaneRelay
from runners.relay.outbox import LanePlace, OutboxStore
from windowing.errors import error_text

_LOG = logging.getLogger(__name__)

#: How long a lane is left alone after a failure: doubled with each one, up to the second value.
_PAUSE_MIN_MS, _PAUSE_MAX_MS = 50, 5_000


@attrs.define
class _Relayed:
    """A lane, and how it fares.

    Attributes:
        is_known_to_fail: whether the store may know of a failure, of a former relay too: until something was sent, or
            there was nothing to send.
    """

    relay: LaneRelay
    pause_ms: int = 0
    not_before_ms: int = 0
    failing_since_ms: int | None = None
    is_known_to_fail: bool = True
    last_error: Exception | None = None


class Relays:
    """Relays the lanes of all sinks of a job, in turn.  Of one thread.

    Args:
        outbox: the store.
        job: its name.
        sinks: with their outboxes, by label.
        clock: for pauses after failures, and for how long changes have waited.
        on_failure: called with a lane and a reason each time that a sink fails and will be tried again.
    """

    def __init__(
        self,
        outbox: OutboxStore,
        job: str,
        sinks: Mapping[str, tuple[TableSpec, Sink[Any]]],
        clock: Clock,
        on_failure: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._outbox, self._clock, self._on_failure = outbox, clock, on_failure
        self._lanes = [
            _Relayed(
                LaneRelay(
                    outbox,
                    sink,
                    LanePlace(job=job, sink=label, outbox=table, number=number),
                    _open,
                    clock,
                )
            )
            for label, (table, sink) in sinks.items()
            for number in range(sink.lanes)
        ]

    def step(self, *, is_last: bool = False) -> int:
        """Send a batch of each lane that is not left alone for a while, if it is full or due.

        Args:
            is_last: whether no more changes come, so that what waits is sent at once.

        Returns:
            How many changes were sent.

        Raises:
            SinkError: the sink refuses the rows, or does not have what it had: trying again would not help.
        """
        return sum(self._step(each, is_last=is_last) for each in self._lanes)

    def flush(
        self, patience_s: float, wait: Callable[[float], None], *, is_last: bool = True
    ) -> None:
        """Send everything that waits, but for what waits for more.

        Args:
            patience_s: how long one lane may fail again and again before its error is raised.
            wait: sleeps for so many seconds.
            is_last: whether no more changes come, so that nothing waits for more.

        Raises:
            SinkError: see `step`; or a sink has failed for so long.
        """
        while True:
            if self.step(is_last=is_last):
                continue
            if self.is_empty() if is_last else not self._is_failing():
                return
            now_ms = self._clock.monotonic_ms()
            for each in self._lanes:
                since_ms = each.failing_since_ms
                if since_ms is not None and now_ms - since_ms > patience_s * 1_000:
                    raise _gave_up(each) from each.last_error
            wait(_PAUSE_MIN_MS / 1_000)

    def is_empty(self) -> bool:
        """Whether nothing waits in any lane, as the store has it."""
        return not any(self._outbox.count_waiting(each.relay.place) for each in self._lanes)

    def _is_failing(self) -> bool:
        return any(each.failing_since_ms is not None for each in self._lanes)

    def close(self) -> None:
        """Leave all lanes."""
        for each in self._lanes:
            each.relay.close()

    def _step(self, lane: _Relayed, *, is_last: bool) -> int:
        if self._clock.monotonic_ms() < lane.not_before_ms:
            return 0
        try:
            sent = lane.relay.step(is_last=is_last)
        except SinkFencedError as error:
            self._leave_alone(lane, error)
            return 0
        except SinkError as error:
            self._note(lane, error)
            raise error.located(str(lane.relay.place)) from error
        except (StoreRestartedError, LostCommitsError):
            raise
        except Exception as error:  # noqa: BLE001 - a sink may raise anything, and is tried again
            self._leave_alone(lane, error)
            return 0
        if lane.failing_since_ms is not None:
            _LOG.info("%s is relayed again", lane.relay.place)
        if lane.is_known_to_fail:
            self._outbox.note_failure(lane.relay.place, None)
            lane.is_known_to_fail = False
        lane.pause_ms = lane.not_before_ms = 0
        lane.failing_since_ms = lane.last_error = None
        return sent

    def _note(self, lane: _Relayed, error: Exception) -> str:
        """Keep why a lane fails, where that can be seen; what is in the way may be the store itself."""
        reason = _reason_of(error)
        lane.is_known_to_fail = True
        with suppress(Exception):
            self._outbox.note_failure(lane.relay.place, reason)
        return reason

    def _leave_alone(self, lane: _Relayed, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        if lane.failing_since_ms is None:
            lane.failing_since_ms = now_ms
        lane.pause_ms = min(max(_PAUSE_MIN_MS, 2 * lane.pause_ms), _PAUSE_MAX_MS)
        lane.not_before_ms, lane.last_error = now_ms + lane.pause_ms, error
        reason = self._note(lane, error)
        self._on_failure(str(lane.relay.place), reason)
        _LOG.warning("%s is tried again in %d ms: %s", lane.relay.place, lane.pause_ms, reason)


def _reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error_text(error)}"


def _open(sink: Sink[Any], lane: Lane) -> SinkWriter:
    return sink.open(lane)


def _gave_up(lane: _Relayed) -> DataflowError:
    assert lane.last_error is not None
    return SinkError(
        f"{lane.relay.place} cannot be relayed",
        detail=_reason_of(lane.last_error),
        hint="what waits stays in the outbox; see to it that the sink can be reached, and run the job again",
    )

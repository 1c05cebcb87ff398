"""Heartbeats: what a worker is in the middle of, reported about once a second, also while it does not come back.

The process that watches the worker sends them (`Heart`).  It looks at memory that both share: so they go on where user
code keeps the Python of the worker to itself (a regular expression that takes for ever), or the worker is stopped.
What costs a look at Python objects, the worker has a thread for (`Pulse`).

A heartbeat is no sign of life for the master: a worker that hangs is to lose its ranges.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from operator import length_hint
from types import TracebackType
from typing import Self

import zmq

from dataflow.metric_updates import Running, running
from runners.core.ground.clock import Clock
from runners.millwheel.wire.messages import Heartbeat, encode
from runners.millwheel.wire.zmq_transport import JobKeys, ZmqSender
from runners.streaming.supervised import ON_TRIAL, BoardItem, SharedPage

#: Between two heartbeats.
HEARTBEAT_INTERVAL_MS = 1_000
#: Between two looks of the worker at itself.
_PULSE_INTERVAL_S = 0.25


def worker_name(slot: int, process: int, attempt: int) -> str:
    """The name of a worker among all of its job.

    Args:
        slot: where it is.
        process: its number on its host.
        attempt: that of the task of Spark.
    """
    return f"slot {slot}, process {process}, attempt {attempt}"


class Pulse:
    """A context manager in the process of a worker: has what its main thread does written to the page.

    Args:
        page: shared with the process that watches.
        labels: of all transforms, in the order of `Heart`.
        clock: the time of day.
    """

    def __init__(self, page: SharedPage, labels: Sequence[str], clock: Clock) -> None:
        self._page, self._clock = page, clock
        self._numbers = {label: number for number, label in enumerate(labels, 1)}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dataflow-pulse", daemon=True)
        self._running: Running | None = None

    def __enter__(self) -> Self:
        now = self._running = running()
        now.board, now.numbers = self._page.board, self._numbers
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._running is not None
        self._running.board = None
        self._stopped.set()

    def look(self) -> None:
        """Write down which element user code is at now, and that this interpreter runs another thread."""
        board = self._page.board
        board[BoardItem.INTERPRETER] = self._clock.now_us()
        board[BoardItem.RECORD], board[BoardItem.RECORDS] = _at_of(self._running or running())

    def _run(self) -> None:
        while True:
            self.look()
            if self._stopped.wait(_PULSE_INTERVAL_S):
                return


def _at_of(now: Running) -> tuple[int, int]:
    """Which of its elements user code is at, and how many there are, from 1; zeros: not known."""
    found = now.elements
    if found is None:
        return 0, 0
    elements, count = found
    left = length_hint(elements, -1)
    # An iterator that is exhausted has none left, and user code is at no element then.
    return (count - left, count) if 0 <= left < count else (0, count)


class Heart:
    """Sends heartbeats, from the process that watches a worker.

    Args:
        keys: of the job.
        master: its address.
        slot: of the worker.
        attempt: that of the task of Spark.
        labels: of all transforms, in the order of `Pulse`.
        clock: both the time of day and the monotonic one.
    """

    def __init__(
        self,
        keys: JobKeys,
        master: str,
        slot: int,
        attempt: int,
        labels: Sequence[str],
        clock: Clock,
    ) -> None:
        self._keys, self._master, self._slot, self._attempt = keys, master, slot, attempt
        self._labels, self._clock = labels, clock
        # Made when it is first used: the worker is to be forked before that.
        self._sender: ZmqSender | None = None
        self._due_ms = clock.monotonic_ms()
        #: What code was seen to run, and since when.
        self._seen: tuple[int, int] = 0, 0
        self._since_us = 0

    def beat(self, page: SharedPage, process: int) -> None:
        """Send a heartbeat, if it is time; one that cannot be sent is lost.

        Args:
            page: shared with the worker.
            process: the number of its process.
        """
        if self._clock.monotonic_ms() < self._due_ms:
            return
        self._due_ms = self._clock.monotonic_ms() + HEARTBEAT_INTERVAL_MS
        if self._sender is None:
            self._sender = ZmqSender(self._keys, self._master)
        with suppress(zmq.ZMQError):
            self._sender.send(encode(self.heartbeat(page, process)))

    def heartbeat(self, page: SharedPage, process: int) -> Heartbeat:
        """The heartbeat of now.

        Args:
            page: shared with the worker.
            process: the number of its process.
        """
        now_us, now_ms = self._clock.now_us(), self._clock.monotonic_ms()
        since_ms, at = page.at_work() or (0, ())
        number = page.board[BoardItem.TRANSFORM] if since_ms else 0
        if (since_ms, number) != self._seen:
            self._seen, self._since_us = (since_ms, number), now_us
        began_us = self._since_us if since_ms == ON_TRIAL else now_us - (now_ms - since_ms) * 1_000
        record, records = page.board[BoardItem.RECORD], page.board[BoardItem.RECORDS]
        return Heartbeat(
            slot=self._slot,
            worker=worker_name(self._slot, process, self._attempt),
            sent_us=now_us,
            at=tuple(at),
            since_us=began_us if since_ms else None,
            transform=self._labels[number - 1] if number else "",
            transform_since_us=self._since_us if number else None,
            record=record - 1 if number and record else None,
            records=records if number and records else None,
            is_trial=since_ms == ON_TRIAL,
            committing_us=page.board[BoardItem.COMMIT] or None,
            interpreter_us=page.board[BoardItem.INTERPRETER] or None,
        )

    def stop(self) -> None:
        """Send no more."""
        if self._sender is not None:
            self._sender.close()

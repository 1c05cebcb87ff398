"""Supervised: a worker in a process of its own, and beside it the Spark task, which knows how that ends.

The task forks before the worker begins, and only waits: so it can report with which signal or exit code the worker has
ended, at which step, and end a worker that does not come back from user code.  What the worker reports when it ends
by an error, and at which step it is, is in memory that both share.

Spark ends the task's process; the worker goes with it (`runners.spark.trials.fork`).
"""

import mmap
import os
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum

from dataflow.times import in_words
from runners.core.user_code.poison import Trial
from runners.errors import (
    StoredFormatError,
    StoreError,
    StoreRestartedError,
    StoreUnreachableError,
)
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.model.troubles import reason_of
from runners.millwheel.wire.plain_fields import layout_of
from runners.spark.trials import ForkedTrial, ending, fork, kill, wait_for
from runners.stored.framing import frame, unframed
from runners.system_clock import SystemClock

_PAGE_BYTES, _AT_BYTES = 64 << 10, 32 << 10
_HEAD = struct.Struct(
    "<qii"
)  # since when user code is at work (0: it is not; -1: a trial is), and the lengths of both texts
ON_TRIAL = -1
#: The board is between the head and the input.
_AT_FROM = _HEAD.size + 8 * 5
#: The kind of frame that has the input of the step, as messages have it.
_AT = "at"
_LAYOUT = layout_of(tuple[StepInput, ...])
_LOOK_INTERVAL_MS: int | None = 100
_BEAT_INTERVAL_MS = 250
_FINE, _FAILED = 0, 1
#: SQLSTATE classes of errors that pass by themselves.
_PASSING_CLASSES = frozenset(("08", "40", "53", "55", "57"))
_PASSING_ERRORS = (StoreUnreachableError, StoreRestartedError)


class BoardItem(IntEnum):
    """The items of the board of a `SharedPage`."""

    #: The number of the transform whose code runs; 0: of none.
    TRANSFORM = 0
    #: Which element its code is at, and of how many, both from 1; 0: not known.
    RECORD = 1
    RECORDS = 2
    #: When Python last ran another thread, in microseconds since 1970.
    INTERPRETER = 3
    #: Since when the worker waits for a commit, in microseconds since 1970; 0: it does not.
    COMMIT = 4


class SharedPage:
    """Memory shared by a worker and the task beside it: where the worker is, and the reason of its end.

    Attributes:
        board: numbers that are written without a call of the system, by `BoardItem`.
    """

    def __init__(self) -> None:
        self._map, self._clock = mmap.mmap(-1, _PAGE_BYTES), SystemClock()
        self.board = memoryview(self._map)[_HEAD.size : _AT_FROM].cast("q")
        self._since_ms = self._at_bytes = self._reason_bytes = 0

    def begin(self, at: Sequence[StepInput]) -> None:
        """User code works on this input from here on."""
        packed = frame(_AT, _LAYOUT.write(at))
        if len(packed) > _AT_BYTES:
            packed = b""
        self._map[_AT_FROM : _AT_FROM + len(packed)] = packed
        self._at_bytes = len(packed)
        self.beat()

    def beat(self) -> None:
        """Restart the time of user code: it counts as begun now."""
        self._since_ms = max(1, self._clock.monotonic_ms())
        self._write_head()

    def hand_over(self) -> None:
        """A trial is at work from here on: it has a time limit of its own, and its end does not end the worker."""
        self._since_ms = ON_TRIAL
        self._write_head()

    def end(self) -> None:
        """User code has returned."""
        self._since_ms = 0
        self._write_head()

    def record(self, reason: str) -> None:
        """Record the reason of the worker's end."""
        packed = reason.encode("utf-8", "backslashreplace")[: _PAGE_BYTES - _AT_BYTES - _AT_FROM]
        self._map[_PAGE_BYTES - len(packed) :] = packed
        self._reason_bytes = len(packed)
        self._write_head()

    def at_work_ms(self) -> int:
        """For how long user code has been at work on this step in the worker itself."""
        now_ms = self._clock.monotonic_ms()
        since_ms, _, _ = _HEAD.unpack_from(self._map)
        return now_ms - since_ms if since_ms > 0 else 0

    def forget(self) -> None:
        """Drop the input: where the worker was does not matter."""
        self._since_ms = self._at_bytes = 0
        self._write_head()

    def read(self) -> tuple[Sequence[StepInput], str]:
        """Where a worker that has ended was, if that is a cause of its end, and the reason that it recorded."""
        since_ms, at_bytes, reason_bytes = _HEAD.unpack_from(self._map)
        at: Sequence[StepInput] = ()
        if (since_ms or reason_bytes) and at_bytes:
            at = self._at(at_bytes)
        reason = self._map[_PAGE_BYTES - reason_bytes :] if reason_bytes else b""
        return at, reason.decode("utf-8", "replace")

    def at_work(self) -> tuple[int, Sequence[StepInput]] | None:
        """Since when user code is at work, by the monotonic clock, and on what; -1: a trial is; None: it is not.

        To be called while the worker lives, which may write meanwhile: then the input can be that of another step, or
        none.
        """
        since_ms, at_bytes, _ = _HEAD.unpack_from(self._map)
        if not since_ms:
            return None
        try:
            return since_ms, self._at(at_bytes)
        except (ValueError, TypeError, StoredFormatError):
            return since_ms, ()

    def _at(self, at_bytes: int) -> Sequence[StepInput]:
        (inputs,) = unframed(_AT, self._map[_AT_FROM : _AT_FROM + at_bytes])
        found: Sequence[StepInput] = _LAYOUT.value_of(inputs)
        return found

    def _write_head(self) -> None:
        _HEAD.pack_into(self._map, 0, self._since_ms, self._at_bytes, self._reason_bytes)


class PageWatch:
    """`runners.millwheel.worker.caution.Watch` by a shared page.

    Args:
        page: shared with the task beside the worker.
        step_timeout_ms: how long user code may be at work on one step; None: as long as it likes.

    Attributes:
        page: as above.
        alive: called now and then during trials.
    """

    def __init__(self, page: SharedPage, step_timeout_ms: int | None) -> None:
        self.page = page
        self.alive: Callable[[], None] = lambda: None
        self.trial: Trial | None = ForkedTrial(step_timeout_ms, self._begin_trial, self._end_trial)

    def begin(self, at: Sequence[StepInput]) -> None:
        """User code works on this input."""
        self.page.begin(at)

    def end(self) -> None:
        """User code has returned."""
        self.page.end()

    def commits(self, since_us: int) -> None:
        """The worker waits for a commit since then; 0: it does not any more."""
        self.page.board[BoardItem.COMMIT] = since_us

    def _begin_trial(self) -> None:
        self.page.hand_over()
        self.alive()

    def _end_trial(self) -> None:
        self.page.beat()
        self.alive()


class WorkerEndedError(Exception):
    """A worker has not come to its end.

    Args:
        reason: as the worker recorded it, or how its process ended.
        at: the input that it was working on.
        is_silent: whether it could not report why.
    """

    def __init__(self, reason: str, at: Sequence[StepInput], *, is_silent: bool) -> None:
        super().__init__(reason)
        self.reason, self.at, self.is_silent = reason, at, is_silent


def run_supervised(
    work: Callable[[PageWatch], None],
    step_timeout_ms: int | None,
    beat: Callable[[SharedPage, int], None] | None = None,
) -> None:
    """Do the work of a worker in a process of its own, to its end.

    Args:
        work: called with the watch over its process.
        step_timeout_ms: how long user code may be at work on one step; None: as long as it likes.
        beat: called often with the page and the number of the process, while that lives; None: nothing is.

    Raises:
        WorkerEndedError: it has failed, or its process has ended.
    """
    page = SharedPage()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = fork()
    if pid == 0:
        _be_the_worker(work, page, step_timeout_ms)
    status, interval_ms = None, _LOOK_INTERVAL_MS
    if step_timeout_ms is None:
        interval_ms = None if beat is None else _BEAT_INTERVAL_MS
    while status is None:
        if beat is not None:
            beat(page, pid)
        status = wait_for(pid, interval_ms)
        if status is None and step_timeout_ms is not None and page.at_work_ms() > step_timeout_ms:
            kill(pid)
            at, _ = page.read()
            why = f"user code took longer than {in_words(step_timeout_ms * 1_000)} for one step"
            raise WorkerEndedError(why, at, is_silent=True)
    at, reason = page.read()
    if reason == _DONE:
        return
    raise WorkerEndedError(reason or ending(status), at, is_silent=not reason)


#: Recorded by a worker that has come to its end: an exit code of 0 can be the user's.
_DONE = "\0done"


def _is_of_the_step(error: BaseException) -> bool:
    """Whether the next worker would fail in the same way: the store refuses what this step commits."""
    if not isinstance(error, StoreError) or isinstance(error, _PASSING_ERRORS):
        return False
    # Not conflicts with others, or a server that lacks a resource or shuts down.
    sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
    return sqlstate[:2] not in _PASSING_CLASSES


def _be_the_worker(
    work: Callable[[PageWatch], None], page: SharedPage, step_timeout_ms: int | None
) -> None:
    status = _FAILED
    try:
        work(PageWatch(page, step_timeout_ms))
        page.record(_DONE)
        status = _FINE
    except SystemExit as end:
        # As if it had not been caught: user code wants to end the process.
        status = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - reported by the task beside it
        if not _is_of_the_step(error):
            page.forget()
        page.record(f"{reason_of(error)}\n{''.join(traceback.format_exception(error))}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

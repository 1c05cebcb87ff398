"""A worker in a process of its own: however it ends, the task beside it knows how, and where."""

import ctypes
import faulthandler
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from dataflow.errors import TransformError
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.step_input import StepInput
from runners.spark.trials import ForkedTrial
from runners.streaming import supervised
from runners.streaming.supervised import PageWatch, WorkerEndedError, run_supervised
from tests.waiting import LONG_MS, until

_T = TypeVar("_T", bound=Exception)
SENDER = RangeId(
    "a name that is longer than others, as those of transforms within transforms are", 9
)
AT = (
    StepInput((RangeId("read", 1),), None, 7, 7),
    StepInput((RangeId("sum", 2), RangeId("sum", 3)), None, 12, None),
    *[StepInput((RangeId("sum", n),), SENDER, n, 2**40) for n in range(64)],
)
_NUMBER = struct.Struct("<q")


def crash() -> None:
    faulthandler.disable()  # of pytest, which would print at length what is meant to happen
    ctypes.string_at(0)


def hang() -> None:
    while True:
        time.sleep(0.01)


def caught(kind: type[_T], act: Callable[[], object]) -> _T:
    with pytest.raises(kind) as raised:
        act()
    return raised.value


#: What ends a process, how long it may be at work, and what is reported of it.
ENDINGS: list[tuple[Callable[[], object], int, str]] = [
    (lambda: os._exit(3), LONG_MS, "exit code 3"),
    (lambda: os._exit(0), LONG_MS, "exit code 0"),
    (lambda: sys.exit(4), LONG_MS, "exit code 4"),
    (crash, LONG_MS, "signal 11 (SIGSEGV)"),
    (lambda: os.kill(os.getpid(), signal.SIGKILL), LONG_MS, "signal 9 (SIGKILL)"),
    (hang, 100, "took longer than 0.1 seconds"),
]


class SharedClock:
    """Stands still until the worker moves it; knows how often the task beside the worker has looked at it."""

    def __init__(self) -> None:
        self._now_ms, self._looks = mmap.mmap(-1, _NUMBER.size), mmap.mmap(-1, _NUMBER.size)
        self._task = os.getpid()

    def monotonic_ms(self) -> int:
        if os.getpid() == self._task:
            _NUMBER.pack_into(self._looks, 0, self._count_looks() + 1)
        (now_ms,) = _NUMBER.unpack_from(self._now_ms)
        return int(now_ms) + 1

    def advance(self, by_ms: int) -> None:
        """By the worker, who goes on when the task has seen it."""
        _NUMBER.pack_into(self._now_ms, 0, self.monotonic_ms() - 1 + by_ms)
        before = self._count_looks()
        # The first one may have begun before.
        until(lambda: self._count_looks() >= before + 2)

    def _count_looks(self) -> int:
        return int(_NUMBER.unpack_from(self._looks)[0])


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_LOOK_INTERVAL_MS", 10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SharedClock:
    """The folder of the tasks and workers of this test."""
    shared = SharedClock()
    monkeypatch.setattr(supervised, "SystemClock", lambda: shared)
    return shared


@pytest.mark.parametrize(("end", "timeout_ms", "why"), ENDINGS)
def test_it_is_known_how_and_where_a_worker_ended(
    end: Callable[[], object], timeout_ms: int, why: str
) -> None:
    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        end()

    ended = caught(WorkerEndedError, lambda: run_supervised(work, timeout_ms))

    assert why in ended.reason
    assert ended.at == AT
    assert ended.is_silent


def test_a_worker_that_comes_to_its_end_is_no_error() -> None:
    run_supervised(lambda _: None, None)


def test_only_user_code_is_timed(clock: SharedClock) -> None:
    """Whoever waits for something may take as long as it takes."""

    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        watch.end()
        clock.advance(60_000)

    run_supervised(work, 200)


@pytest.mark.slow
def test_each_step_has_its_own_time(clock: SharedClock) -> None:
    def work(watch: PageWatch) -> None:
        for _ in range(5):
            watch.begin(AT)
            clock.advance(300)
            watch.end()

    run_supervised(work, 400)


def test_a_step_that_takes_longer_is_ended(clock: SharedClock) -> None:
    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        clock.advance(401)

    assert caught(WorkerEndedError, lambda: run_supervised(work, 400)).at == AT


def test_a_trial_has_a_limit_of_its_own(clock: SharedClock) -> None:
    """Or it and its worker would be ended at the same moment, and nobody would know of which record it was."""

    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        assert watch.trial is not None
        for _ in range(2):
            watch.trial(lambda: clock.advance(LONG_MS + 1))
        watch.end()

    run_supervised(work, LONG_MS)


def test_a_step_has_its_time_after_a_trial(clock: SharedClock) -> None:
    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        assert watch.trial is not None
        watch.trial(lambda: None)
        clock.advance(LONG_MS + 1)

    assert caught(WorkerEndedError, lambda: run_supervised(work, LONG_MS)).at == AT


def test_a_worker_that_is_killed_outside_of_user_code_accuses_no_range() -> None:
    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        watch.end()
        os.kill(os.getpid(), signal.SIGKILL)

    assert caught(WorkerEndedError, lambda: run_supervised(work, None)).at == ()


@pytest.mark.parametrize(
    ("error", "at"),
    [
        (StoreError("Postgres refused: no such column"), AT),
        (StoreUnreachableError("no connection to Postgres"), ()),
        (ValueError("something else"), ()),
    ],
)
def test_the_last_words_of_a_worker_are_its_first_cause(
    error: Exception, at: tuple[StepInput, ...]
) -> None:
    """A store that refuses what a step writes refuses it of the next worker, too; one that is away does not."""

    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        watch.end()
        if at:
            raise error
        raise RuntimeError("what it led to") from error

    ended = caught(WorkerEndedError, lambda: run_supervised(work, None))

    assert ended.reason.startswith(f"{type(error).__name__}: {error}") or at
    assert str(error) in ended.reason
    assert "Traceback" in ended.reason
    assert ended.at == at
    assert not ended.is_silent


@pytest.mark.parametrize(("end", "timeout_ms", "why"), ENDINGS)
def test_a_trial_survives_what_ends_its_process(
    end: Callable[[], object], timeout_ms: int, why: str
) -> None:
    calls: list[str] = []
    trial = ForkedTrial(timeout_ms, lambda: calls.append("begins"), lambda: calls.append("ends"))
    error = caught(TransformError, lambda: trial(end))

    assert why in str(error)
    assert calls == ["begins", "ends"]


def test_a_trial_leaves_nothing_behind_and_lets_errors_come_again() -> None:
    """What returns or raises is run again, where that counts."""
    seen: list[int] = []

    def fail() -> None:
        seen.append(1)
        raise ValueError

    trial = ForkedTrial(None, lambda: None, lambda: None)
    trial(lambda: seen.append(1))
    trial(fail)

    assert seen == []

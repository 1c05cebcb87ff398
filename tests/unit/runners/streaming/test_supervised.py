"""A worker in a process of its own: however it ends, the task beside it knows how, and where."""

import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from dataflow.errors import TransformError
from runners.errors import StoreError, StoreUnreachableError
from runners.millwheel.model.ids import RangeId
from runners.streaming.supervised import PageWatch, WorkerEndedError, run_supervised
from runners.streaming.trials import ForkedTrial

_T = TypeVar("_T", bound=Exception)
AT = {RangeId("read", 1): 7}


def crash() -> None:
    faulthandler.disable()  # of pytest, which would say at length what is meant to happen
    ctypes.string_at(0)


def hang() -> None:
    while True:
        time.sleep(0.01)


def caught(kind: type[_T], act: Callable[[], object]) -> _T:
    with pytest.raises(kind) as raised:
        act()
    return raised.value


ENDINGS: list[tuple[Callable[[], object], str]] = [
    (lambda: os._exit(3), "exit code 3"),
    (lambda: os._exit(0), "exit code 0"),
    (lambda: sys.exit(4), "exit code 4"),
    (crash, "signal 11 (SIGSEGV)"),
    (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9 (SIGKILL)"),
    (hang, "took longer than 0.3 s"),
]


@pytest.mark.parametrize(("end", "why"), ENDINGS)
def test_it_is_known_how_and_where_a_worker_ended(end: Callable[[], object], why: str) -> None:
    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        end()

    ended = caught(WorkerEndedError, lambda: run_supervised(work, 300))

    assert why in ended.reason
    assert ended.at == AT
    assert ended.is_silent


def test_a_worker_that_comes_to_its_end_is_no_error() -> None:
    run_supervised(lambda _: None, None)


def test_only_user_code_is_timed() -> None:
    """Whoever waits for something may take as long as it takes."""

    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        watch.end()
        time.sleep(0.6)

    run_supervised(work, 200)


def test_each_step_has_its_own_time() -> None:
    def work(watch: PageWatch) -> None:
        for _ in range(5):
            watch.begin(AT)
            time.sleep(0.1)
            watch.end()

    run_supervised(work, 400)


def test_a_worker_that_is_killed_outside_of_user_code_accuses_no_range() -> None:
    def work(watch: PageWatch) -> None:
        watch.begin(AT)
        watch.end()
        os.kill(os.getpid(), signal.SIGKILL)

    assert caught(WorkerEndedError, lambda: run_supervised(work, None)).at == {}


@pytest.mark.parametrize(
    ("error", "at"),
    [
        (StoreError("Postgres refused: no such column"), AT),
        (StoreUnreachableError("no connection to Postgres"), {}),
        (ValueError("something else"), {}),
    ],
)
def test_the_last_words_of_a_worker_are_its_first_cause(
    error: Exception, at: dict[RangeId, int]
) -> None:
    """A store that refuses what a step says refuses it of the next worker, too; one that is away does not."""

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


@pytest.mark.parametrize(("end", "why"), ENDINGS)
def test_a_trial_survives_what_ends_its_process(end: Callable[[], object], why: str) -> None:
    beats = []
    error = caught(TransformError, lambda: ForkedTrial(300, lambda: beats.append(1))(end))

    assert why in str(error)
    assert len(beats) == 2


def test_a_trial_leaves_nothing_behind_and_lets_errors_come_again() -> None:
    """What returns or raises is run again, where that counts."""
    seen: list[int] = []

    def fail() -> None:
        seen.append(1)
        raise ValueError

    trial = ForkedTrial(None, lambda: None)
    trial(lambda: seen.append(1))
    trial(fail)

    assert seen == []

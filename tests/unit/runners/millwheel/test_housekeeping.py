"""Housekeeping: what may go goes by its age, once a minute, and what is kept for ever stays."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from dataflow.errors import PipelineError
from dataflow.metric_updates import Metric, MetricKind, MetricOf
from runners.millwheel.control.housekeeping import (
    FOLD_INTERVAL_MS,
    INTERVAL_MS,
    Housekeeper,
    Retention,
)
from runners.millwheel.model.production import Counted, LateRecord, StoredDeadLetter
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.metrics import encode_metrics, metrics_of
from runners.testing.manual_clock import ManualClock
from runners.testing.store_conformance.world import JOB, LOW, Owner, job_spec
from windowing.errors import TimeError

LATE = LateRecord(
    transform="count", key="1", window_start_us=0, window_end_us=1, watermark_us=2, payload=b""
)
DEAD = StoredDeadLetter(stage="read", error="", traceback="", tries=1, timestamp_us=0, payload=b"")
DAY_MS = 86_400_000


def job_with_both(clock: ManualClock) -> MemoryStore:
    store = MemoryStore(clock)
    store.open_job(job_spec())
    Owner(store, LOW).commit(late=[LATE], dead=[DEAD])
    return store


def left(store: MemoryStore) -> tuple[int, int]:
    return len(store.read_late(JOB)), len(store.read_dead_letters(JOB))


def test_late_records_go_when_they_are_old_enough_and_their_number_stays() -> None:
    clock = ManualClock()
    store = job_with_both(clock)
    retention = Retention.of(keep_late=timedelta(days=2), keep_dead=None)
    housekeeper = Housekeeper(JOB, retention, clock, lambda: 0)
    housekeeper.step(store)
    clock.advance(2 * DAY_MS - 1)
    housekeeper.step(store)
    assert left(store) == (1, 1)

    clock.advance(INTERVAL_MS)
    housekeeper.step(store)
    assert left(store) == (0, 1)
    assert store.read_late_counts(JOB) == {"count": 1}


def test_what_is_counted_is_folded_every_few_seconds() -> None:
    """A row for each commit would be too many to read."""
    clock = ManualClock()
    store = MemoryStore(clock)
    store.open_job(job_spec())
    owner = Owner(store, LOW)
    seen = MetricOf("read", Metric(MetricKind.COUNTER, "test", "seen"))
    housekeeper = Housekeeper(JOB, Retention(), clock, lambda: 0)
    rows = []
    for number in (1, 2, 3):
        owner.commit(metrics=Counted(encode_metrics({seen: number})))
        housekeeper.step(store)
        rows.append(len(store.read_metrics(JOB)))
        clock.advance(FOLD_INTERVAL_MS - 1)
        housekeeper.step(store)
        rows.append(len(store.read_metrics(JOB)))
        clock.advance(1)

    assert rows == [1, 1, 1, 1, 1, 1]
    assert metrics_of(store.read_metrics(JOB)) == {seen: 6}


def test_dead_letters_have_an_age_of_their_own() -> None:
    clock = ManualClock()
    store = job_with_both(clock)
    housekeeper = Housekeeper(JOB, Retention.of(keep_late=None, keep_dead=1), clock, lambda: 0)
    clock.advance(1_000)
    housekeeper.step(store)
    assert left(store) == (1, 0)


def test_by_default_everything_is_kept() -> None:
    clock = ManualClock()
    store = job_with_both(clock)
    clock.advance(10_000 * DAY_MS)
    Housekeeper(JOB, Retention(), clock, lambda: 0).step(store)
    assert left(store) == (1, 1)


def test_a_round_comes_once_a_minute_also_when_one_failed() -> None:
    rounds = []

    class Counting(MemoryStore):
        def prune(self, job: str, **options: Any) -> Mapping[str, int]:
            rounds.append(options["signals_up_to"])
            raise RuntimeError

    clock, store = ManualClock(), Counting()
    housekeeper = Housekeeper(JOB, Retention(), clock, lambda: 7)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            housekeeper.step(store)
        housekeeper.step(store)
        clock.advance(INTERVAL_MS - 1)
        housekeeper.step(store)
        clock.advance(1)
    assert rounds == [7, 7, 7]


def test_what_is_no_length_of_time_is_refused() -> None:
    with pytest.raises(PipelineError, match="keep_late must not be negative"):
        Retention.of(keep_late=-1, keep_dead=None)
    with pytest.raises(TimeError):
        Retention.of(keep_late=None, keep_dead="soon")

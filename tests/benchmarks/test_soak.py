"""The load of the soak is what its right answers are about, and growth is seen."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

import dataflow as df
from benchmarks.soak import faults
from benchmarks.soak.faults import FAULTS, in_rounds
from benchmarks.soak.load import PHASE_S, PHASES, ChangingRate, right_counts, right_totals
from benchmarks.soak.resources import SLACK, growth, in_sessions, of_folder, of_store
from runners.registry import open_store
from runners.testing.store_conformance.world import job_spec
from tests.waiting import until
from windowing.timestamps import US_PER_SECOND

WINDOW_US = 10 * US_PER_SECOND
SOURCES = st.builds(
    ChangingRate,
    start_us=st.integers(1, 1 << 50),
    rate=st.integers(1, 40),
    keys=st.integers(1, 30),
    seconds=st.integers(1, 2 * PHASE_S * len(PHASES) + 7),
)


@given(source=SOURCES)
def test_a_record_is_due_from_when_it_was_created(source: ChangingRate) -> None:
    numbers = np.arange(source.records)
    created_us = source.created_us(numbers).tolist()

    assert created_us == sorted(created_us)
    for number, at_us in zip(numbers.tolist(), created_us, strict=True):
        assert source.due(at_us - 1) <= number < source.due(at_us)


@given(source=SOURCES)
def test_right_answers_are_those_of_the_records_one_by_one(source: ChangingRate) -> None:
    numbers = np.arange(source.records)
    totals: dict[tuple[int, int], tuple[int, int]] = {}
    seen, expected = Counter[int](), set[tuple[int, int]]()
    for user, value, at_us in zip(
        source.users(numbers).tolist(),
        source.values(numbers).tolist(),
        source.created_us(numbers).tolist(),
        strict=True,
    ):
        key = user, at_us - at_us % WINDOW_US
        count, total = totals.get(key, (0, 0))
        totals[key] = count + 1, total + value
        seen[user] += 1
        if seen[user] % 3 == 0:
            expected.add((user, seen[user]))

    assert right_totals(source, WINDOW_US) == totals
    assert right_counts(source, 3) == expected


@given(source=SOURCES, data=st.data())
def test_a_reader_that_starts_over_hands_over_the_same(source: ChangingRate, data: Any) -> None:
    first = data.draw(st.integers(0, source.records))

    # All of it is long due.
    batch = source.open(0, first, fence=0).read(1 << 30)

    numbers = np.arange(first, source.records)
    assert [user for user, _ in batch.values] == source.users(numbers).tolist()
    assert list(batch.timestamps_us) == source.created_us(numbers).tolist()
    assert batch.status is df.SplitStatus.FINISHED
    assert batch.position == source.records


@pytest.mark.parametrize("name", SLACK)
@pytest.mark.parametrize(("more", "is_bounded"), [(0.0, True), (0.1, False)])
def test_what_grows_is_seen_and_what_goes_up_and_down_is_not(
    name: str, more: float, *, is_bounded: bool
) -> None:
    levels = (500.0, 100.0, 120.0 + SLACK[name] + more)
    samples = [
        (float(at_s), {name: level - at_s % 2})
        for number, level in enumerate(levels)
        for at_s in range(100 * number, 100 * number + 100)
    ]

    assert {each.name: each.is_bounded for each in growth(samples)}[name] == is_bounded


@pytest.mark.parametrize("has_disk", [True, False])
def test_each_round_has_each_fault_once(*, has_disk: bool) -> None:
    found = in_rounds(Random(1), has_disk=has_disk)
    names = set(FAULTS) - (set() if has_disk else {"disk full"})
    for _ in range(3):
        assert {next(found) for _ in names} == names


def test_a_single_table_that_grows_is_named() -> None:
    """In the sum it can be hidden by another that shrinks."""
    rows = [
        {"rows": 40_000.0, "rows in a": 40_000.0 - each, "rows in b": float(each)}
        for each in range(0, 40_000, 100)
    ]
    samples = [(float(at_s), dict.fromkeys(SLACK, 1.0) | each) for at_s, each in enumerate(rows)]

    assert [each.name for each in growth(samples) if not each.is_bounded] == ["rows in b"]


@pytest.mark.parametrize(("rows", "named"), [(999.0, []), (1_000.0, ["rows in a"])])
def test_a_table_of_few_rows_is_in_the_sum_alone(rows: float, named: list[str]) -> None:
    samples = [(float(at_s), {"rows": 10.0, "rows in a": rows}) for at_s in range(9)]

    assert [each.name for each in growth(samples)] == [*SLACK, *named]


@pytest.mark.parametrize(
    ("fault", "opened", "seconds"),
    [("snapshot held", "open_snapshot", 30.0), ("disk full", "_full", 8.0)],
)
def test_samples_are_taken_while_a_fault_lasts(
    fault: str, opened: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, opened, lambda _: nullcontext())
    monkeypatch.setattr(psycopg, "connect", lambda *_, **__: nullcontext())
    waited = list[float]()
    target: Any = SimpleNamespace(dsn="", disk="", wait=waited.append)

    FAULTS[fault](target, Random(1))

    assert waited == [seconds]


@pytest.mark.slow
@pytest.mark.postgres
def test_rows_are_counted_and_not_estimated(store_dsn: str) -> None:
    """A server that was killed has forgotten its estimates; rows of a job's own table are not its parent's too."""
    with closing(open_store(store_dsn)) as store:
        store.open_job(job_spec())
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        before = of_store(store_dsn)
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (computation_id, key_hash, cell_key, tag, domain, fire_us) "
                "SELECT 1, each, '', '', 'event', 0 FROM generate_series(1, 90) each"
            ).format(sql.Identifier("dataflow", "timers_1"))
        )
        connection.execute("SELECT pg_stat_reset()")
        after = of_store(store_dsn)
        connection.execute("DELETE FROM dataflow.timers")

    more = {name: after[name] - count for name, count in before.items() if name.startswith("rows")}
    assert {name: count for name, count in more.items() if count} == {
        "rows": 90,
        "rows in timers_1": 90,
    }


def test_what_nobody_has_looked_at_is_not_called_bounded() -> None:
    assert not any(each.is_bounded for each in growth([(float(at_s), {}) for at_s in range(9)]))


@pytest.mark.slow
def test_a_folder_that_is_deleted_while_it_is_looked_at_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that starts deletes what a killed one has left."""
    for name in ("kept", "left"):
        (tmp_path / name / "blocks").mkdir(parents=True)
        (tmp_path / name / "blocks" / "1").write_bytes(b"x" * 4096)
    scandir = os.scandir

    def looked_at(path: Any) -> Any:
        # Who deletes a tree lists it by a descriptor.
        if not isinstance(path, int) and Path(path) == tmp_path / "left" / "blocks":
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", looked_at)

    assert of_folder(tmp_path) == {"temporary folders": 2, "temporary MiB": 4096 / 2**20}


@pytest.mark.slow
def test_what_a_process_has_left_behind_is_found() -> None:
    leaves = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'], stdin=sys.stdin)"
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", leaves], stdin=reading, start_new_session=True
    ) as process:
        os.close(reading)
    try:
        assert [each.pid != process.pid for each in in_sessions({process.pid})] == [True]
    finally:
        os.close(writing)
    until(lambda: not list(in_sessions({process.pid})))

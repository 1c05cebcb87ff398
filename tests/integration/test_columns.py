"""Typed rows on real Spark and Postgres: both runners leave the rows that the direct runner leaves."""

import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import dataflow as df
from dataflow.column_combine_fn import Accumulators
from dataflow.io import text_files
from runners.direct import DirectRunner
from runners.streaming import StreamingRunner
from tests.batch_jobs import Batch, assert_same, rows_of
from windowing.window_columns import Int64s

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

#: Seconds that a record may be behind one before it.
DISORDER = 90
TABLE = {
    "user": str, "shard": int, "start": datetime, "end": datetime,
    "least": int, "events": int, "mean": float, "latest": int,
}  # fmt: skip


class Click(NamedTuple):
    user: str
    shard: int
    at: int
    value: int
    note: str | None


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty thousand clicks; some lines take a closer look than a column parser has."""
    chance = random.Random(11)
    path = tmp_path_factory.mktemp("clicks") / "clicks.jsonl"
    lines = []
    for number in range(20_000):
        click: dict[str, Any] = {
            "user": f"user{chance.randrange(40)}",
            "shard": chance.randrange(3),
            "at": 1_000_000 + number // 4 - chance.randrange(DISORDER),
            "value": chance.randrange(-9, 100),
        }
        if chance.randrange(1000) == 0:
            click["value"] = 2**63 - 1 - chance.randrange(3)
        if chance.randrange(50) == 0:
            click["note"] = "né"
        lines.append(" " * (number == 777) + json.dumps(click))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def tidy_clicks(clicks: Path) -> Path:
    """The clicks again, each line one that a column parser knows."""
    path = clicks.with_name("tidy.jsonl")
    path.write_text("\n".join(map(str.strip, clicks.read_text().splitlines())))
    return path


def counted(clicks: Path, window_fn: df.WindowFn) -> Callable[[df.Pipeline], object]:
    """With sums that now and then no column can keep, behind the means."""
    return lambda p: (
        p
        | df.ReadFromJsonLines(clicks, rows=Click, event_time="at", max_disorder=DISORDER)
        | df.WindowInto(window_fn)
        | "count"
        >> df.GroupBy("user", "shard")
        .aggregate_field("value", min, "least")
        .aggregate_field("value", df.CountCombineFn(), "events")
        .aggregate_field("value", df.MeanCombineFn(), "mean")
        .aggregate_field("at", max, "latest")
        | df.WindowStart("start")
        | df.WindowEnd("end")
        | "some" >> df.Filter(lambda row: row.shard != 1)
        | df.WriteToPostgres("clicks", columns=TABLE, key=["user", "shard", "start"])
    )


def plain(clicks: Path, window_fn: df.WindowFn) -> Callable[[df.Pipeline], object]:
    return lambda p: (
        p
        | df.ReadFromJsonLines(clicks, rows=Click, event_time="at", max_disorder=DISORDER)
        | df.WindowInto(window_fn)
        | df.GroupBy("user").aggregate_field("at", sum, "total")
        | df.WindowStart("start")
        | df.WriteToPostgres(
            "sums", columns={"user": str, "start": datetime, "total": int}, key=["user", "start"]
        )
    )


class Minutes(df.WindowFn):
    """Windows of a user's own that are assigned as columns, or not at all."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        raise AssertionError("an element was assigned its window by itself")

    def assign_columns(self, timestamps_us: Int64s) -> df.WindowColumns:
        starts_us = timestamps_us - timestamps_us % 60_000_000
        return df.WindowColumns(starts_us, starts_us + 60_000_000)


class Range(df.CombineFn):
    """A function of a user's own that folds columns, or nothing at all."""

    def create_accumulator(self) -> tuple[int, ...]:
        return ()

    def add_input(self, accumulator: Any, value: Any) -> Any:
        raise AssertionError("a value was folded by itself")

    def merge_accumulators(self, accumulators: Any) -> Any:
        raise AssertionError("accumulators were merged one by one")

    def extract_output(self, accumulator: Any) -> Any:
        raise AssertionError("a result was made by itself")

    def columns(self) -> df.ColumnCombineFn:
        return RangeColumns()


class RangeColumns(df.ColumnCombineFn):
    def lift(self, values: pa.Array, groups: df.ColumnGroups) -> Accumulators | None:
        numbers = self.numbers(values)
        return None if numbers is None else self.merge((numbers, numbers), groups)

    def merge(self, accumulators: Accumulators, groups: df.ColumnGroups) -> Accumulators:
        lows, highs = accumulators
        return groups.reduced(np.minimum, lows), groups.reduced(np.maximum, highs)

    def results(self, accumulators: Accumulators) -> pa.Array:
        return pa.array(accumulators[1] - accumulators[0])


def ranged(p: df.Pipeline, clicks: Path, window_fn: df.WindowFn, aggregates: df.GroupBy) -> None:
    (
        p
        | df.ReadFromJsonLines(clicks, rows=Click, event_time="at", max_disorder=DISORDER)
        | df.WindowInto(window_fn)
        | aggregates
        | df.WindowStart("start")
        | "range" >> df.Map(_with_range)
        | df.WriteToPostgres(
            "ranges", columns={"user": str, "start": datetime, "range": int}, key=["user", "start"]
        )
    )


def _with_range(row: Any) -> dict[str, Any]:
    found = row.range if hasattr(row, "range") else row.greatest - row.least
    return {"user": row.user, "start": row.start, "range": found}


OWN = df.GroupBy("user").aggregate_field("at", Range(), "range")
SHIPPED = (
    df.GroupBy("user").aggregate_field("at", min, "least").aggregate_field("at", max, "greatest")
)


def test_batch_folds_columns_by_functions_of_a_users_own(
    batch: Batch, tidy_clicks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by nothing else: a row that was assigned its window, folded or merged by itself would fail."""
    monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 1 << 16)
    expected = df.Pipeline(DirectRunner())
    ranged(expected, tidy_clicks, df.FixedWindows(60), SHIPPED)

    result = batch.run(lambda p: ranged(p, tidy_clicks, Minutes(), OWN))

    assert rows_of(result, "ranges") == rows_of(expected.run(), "ranges") != []


def test_a_stream_folds_columns_by_functions_of_a_users_own(
    store_dsn: str, spark_master: str, tidy_clicks: Path
) -> None:
    expected = df.Pipeline(DirectRunner())
    ranged(expected, tidy_clicks, df.FixedWindows(60), SHIPPED)
    runner = StreamingRunner(job="job", store=store_dsn, master=spark_master, show_progress=False)
    pipeline = df.Pipeline(runner)
    ranged(pipeline, tidy_clicks, Minutes(), OWN)

    result = pipeline.run()
    result.wait_until_finish()

    assert rows_of(result, "ranges") == rows_of(expected.run(), "ranges") != []


@pytest.mark.parametrize(
    ("build", "window_fn"),
    [
        pytest.param(counted, df.FixedWindows(60), marks=pytest.mark.nightly),
        (counted, df.Sessions(20)),
        (plain, df.SlidingWindows(60, period=30)),
        pytest.param(plain, df.GlobalWindows(), marks=pytest.mark.nightly),
    ],
    ids=["fixed", "sessions", "sliding", "global"],
)
def test_batch_has_the_rows_of_the_direct_runner(
    batch: Batch,
    clicks: Path,
    build: Callable[[Path, df.WindowFn], Callable[[df.Pipeline], object]],
    window_fn: df.WindowFn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 1 << 16)
    assert_same(batch, build(clicks, window_fn), "clicks" if build is counted else "sums")


def test_a_stream_has_the_rows_of_the_direct_runner(
    store_dsn: str, spark_master: str, clicks: Path
) -> None:
    results = []
    for runner in (
        DirectRunner(),
        StreamingRunner(job="job", store=store_dsn, master=spark_master, show_progress=False),
    ):
        pipeline = df.Pipeline(runner)
        counted(clicks, df.FixedWindows(60))(pipeline)
        result = pipeline.run()
        result.wait_until_finish()
        results.append(rows_of(result, "clicks"))

    assert results[0]
    assert results[0] == results[1]

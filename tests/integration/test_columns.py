"""Typed rows on real Spark and Postgres: both runners leave the rows that the direct runner leaves."""

import json
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dataflow as df
from dataflow.io import files
from runners.direct import DirectRunner
from runners.streaming import StreamingRunner
from tests.batch_jobs import Batch, assert_same, rows_of

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


@pytest.mark.parametrize(
    ("build", "window_fn"),
    [
        (counted, df.FixedWindows(60)),
        (counted, df.Sessions(20)),
        (plain, df.SlidingWindows(60, period=30)),
        (plain, df.GlobalWindows()),
    ],
    ids=["fixed", "sessions", "sliding", "global"],
)
def test_batch_says_what_direct_says(
    batch: Batch,
    clicks: Path,
    build: Callable[[Path, df.WindowFn], Callable[[df.Pipeline], object]],
    window_fn: df.WindowFn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "SPLIT_BYTES_MIN", 1 << 16)
    assert_same(batch, build(clicks, window_fn), "clicks" if build is counted else "sums")


def test_a_stream_says_what_direct_says(store_dsn: str, spark_master: str, clicks: Path) -> None:
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

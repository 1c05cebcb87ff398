"""A backfill with more than its tasks keep in memory: the same rows, and the same for the stream to go on with."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from runners.batch import BackfillRunner
from runners.direct import DirectRunner
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import JobRow
from runners.registry import open_store
from runners.streaming import StreamingRunner
from tests.backfill_jobs import left_behind

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
RECORDS = 60_000
KEYS = 4_000
SPILLS = {"memory": 1 << 40, "files": 0}
COLUMNS = {"key": int, "start": datetime, "total": int}
KEY = ["key", "start"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A record for each second, of so many keys one after the other."""
    path = tmp_path / "values.jsonl"
    each = ({"key": n % KEYS, "second": n, "value": n % 7} for n in range(RECORDS))
    path.write_text("".join(json.dumps(row) + "\n" for row in each))
    return path


def row(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"key": pair[0], "start": window.start, "total": pair[1]}


def totals(p: df.Pipeline, lines: Path, suffix: str) -> None:
    """Lists of hours, which fire early too, and what they come to in half days."""
    lists = (
        p
        | "read"
        >> df.ReadFromJsonLines(
            lines,
            event_time=lambda row: NOON + timedelta(seconds=row["second"]),
            max_disorder=60,
        )
        | "pair" >> df.Map(lambda row: (row["key"], row["value"]))
        | "hours"
        >> df.WindowInto(
            df.FixedWindows(3600),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "lists" >> df.GroupByKey()
    )
    (
        lists
        | "list" >> df.Map(lambda pair: (pair[0], sum(pair[1])))
        | "list row" >> df.Map(row)
        | "write lists" >> df.WriteToPostgres(f"lists_{suffix}", columns=COLUMNS, key=KEY)
    )
    (
        lists
        | "rekey" >> df.Map(lambda pair: (pair[0] % 1_000, sum(pair[1])))
        | "half days" >> df.WindowInto(df.FixedWindows(43_200))
        | "sums" >> df.CombinePerKey(sum)
        | "sum row" >> df.Map(row)
        | "write sums" >> df.WriteToPostgres(f"sums_{suffix}", columns=COLUMNS, key=KEY)
    )


def tables(result: df.PipelineResult, suffix: str) -> list[list[tuple[Any, ...]]]:
    names = (f"lists_{suffix}", f"sums_{suffix}")
    return [sorted(tuple(row.values()) for row in result.read_table(name)) for name in names]


@pytest.mark.nightly
def test_what_is_left_does_not_depend_on_memory(
    store_dsn: str, spark_master: str, lines: Path
) -> None:
    options: dict[str, Any] = {"store": store_dsn, "master": spark_master, "show_progress": False}
    loaded, left, jobs = [], [], dict[str, JobRow]()
    until = NOON + timedelta(hours=13)
    for name, spill_bytes in SPILLS.items():
        runner = BackfillRunner(job=name, until=until, spill_bytes=spill_bytes, **options)
        half = df.Pipeline(runner)
        totals(half, lines, name)
        loaded.append(tables(half.run(), name))
        with closing(open_store(store_dsn)) as store:
            job = store.read_job(name)
            assert job is not None
            jobs[name] = job
            left.append(left_behind(store, name))

    assert loaded[0] == loaded[1]
    assert left[0] == left[1]
    assert all(loaded[0])
    lists = [RangeId("lists", index) for index in range(4)]
    assert all(left[0][each][2] for each in lists)
    assert [jobs["memory"].ranges[each].bundle for each in lists] == [1] * 4
    assert all(jobs["files"].ranges[each].bundle > 1 for each in lists)

    live = df.Pipeline(StreamingRunner(job="files", **options))
    totals(live, lines, "files")
    result = live.run()
    result.wait_until_finish()
    expected = df.Pipeline(DirectRunner())
    totals(expected, lines, "files")
    assert tables(result, "files") == tables(expected.run(), "files")

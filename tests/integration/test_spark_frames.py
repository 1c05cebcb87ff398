"""Frames of Spark as input, and results as frames, on a real Spark."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

import dataflow as df
from dataflow.errors import InputError, PipelineError
from runners.spark.session import spark_context
from tests.batch_jobs import Batch

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Reading(NamedTuple):
    room: str
    degrees: int
    at: datetime


READINGS = [
    Reading("attic" if number % 3 else "cellar", number, NOON + timedelta(seconds=number))
    for number in range(90)
]


@pytest.fixture
def session(spark_master: str) -> SparkSession:
    """A session on the Spark that the jobs of this process have, too."""
    return SparkSession(spark_context("job", master=spark_master))


@pytest.fixture
def frame(session: SparkSession) -> DataFrame:
    return session.createDataFrame(READINGS).repartition(3)


def totals(p: df.Pipeline, frame: DataFrame, **options: Any) -> df.PCollection[Any]:
    return (
        p
        | df.ReadFromSpark(frame, rows=Reading, event_time="at", **options)
        | df.WindowInto(df.FixedWindows(30))
        | df.Map(lambda reading: (reading.room, reading.degrees))
        | df.CombinePerKey(sum)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "start": window.start, "user": pair[0], "total": pair[1],
            }
        )
    )  # fmt: skip


def expected() -> Counter[tuple[datetime, str, int]]:
    sums = Counter[tuple[datetime, str]]()
    for each in READINGS:
        start = NOON + timedelta(seconds=each.degrees // 30 * 30)
        sums[start, each.room] += each.degrees
    return Counter((*key, total) for key, total in sums.items())


COLUMNS: dict[str, Any] = {"start": datetime, "user": str, "total": int}


def test_a_frame_is_read_in_batch_and_a_result_is_one(
    batch: Batch, frame: DataFrame, session: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "frame"

    def build(p: df.Pipeline) -> None:
        totals(p, frame, folder=folder) | df.WriteToPostgres("totals", columns=COLUMNS)

    rows = batch.run(build).read_table("totals")
    assert Counter(tuple(row.values()) for row in rows) == expected()
    # The files are what is read from now on, though the frame would say something else.
    again = session.createDataFrame(READINGS[:1])
    with df.Pipeline() as p:
        found = totals(p, again, folder=folder)
    result = df.collect_to_spark(found, session=session)
    assert Counter(map(tuple, _instants(result))) == expected()
    assert dict(result.dtypes) == {"start": "timestamp", "user": "string", "total": "bigint"}


def _instants(frame: DataFrame) -> list[tuple[Any, ...]]:
    table = frame.toArrow()
    return [tuple(row.values()) for row in table.to_pylist()]


def test_a_frame_is_read_in_memory_as_mappings_and_typed_rows(
    frame: DataFrame, session: SparkSession
) -> None:
    p = df.Pipeline()
    mappings = p | "mappings" >> df.ReadFromSpark(frame)
    assert Counter(each["degrees"] for each in df.collect(mappings)) == Counter(range(90))
    rows = p | "rows" >> df.ReadFromSpark(frame, rows=Reading, event_time="at")
    assert sorted(df.collect(rows), key=lambda each: each.degrees) == READINGS
    back = df.collect_to_spark(rows, session=session)
    assert sorted(_instants(back), key=lambda each: each[1]) == READINGS
    nothing = rows | df.Filter(lambda _: False)
    assert df.collect_to_spark(nothing, session=session).count() == 0
    numbers = rows | df.Map(lambda each: each.degrees)
    assert Counter(_instants(df.collect_to_spark(numbers, session=session))) == Counter(
        (number,) for number in range(90)
    )
    assert not session.catalog.listTables()


def test_what_cannot_be_read_is_an_error(session: SparkSession, tmp_path: Path) -> None:
    local = session.sql("select timestamp_ntz '2026-01-01 12:00:00' as at, 1L as number")
    with pytest.raises(InputError, match="without a time zone"):
        df.Pipeline() | df.ReadFromSpark(local, event_time="at")
    (row,) = df.collect(
        df.Pipeline() | df.ReadFromSpark(local, event_time="at", time_zone="Europe/Berlin")
    )
    assert row["at"] == NOON - timedelta(hours=1)
    folder = tmp_path / "frame"
    broken = session.sql("select raise_error('no') as number")
    with pytest.raises(InputError, match="has not written the frame"):
        df.Pipeline() | df.ReadFromSpark(broken, folder)
    folder.mkdir(exist_ok=True)
    (folder / "part-0.parquet").write_bytes(b"of a run that was killed")
    with pytest.raises(InputError, match="does not have the whole"):
        df.Pipeline() | df.ReadFromSpark(local, folder)
    other = tmp_path / "other"
    df.Pipeline() | df.ReadFromSpark(local, other, time_zone="UTC")
    with pytest.raises(InputError, match="has another frame"):
        df.Pipeline() | df.ReadFromSpark(broken, other)
    stream = session.readStream.format("rate").load()
    with pytest.raises(PipelineError, match="no end"):
        df.ReadFromSpark(stream)
    with pytest.raises(PipelineError, match="which columns"):
        df.collect_to_spark(df.Pipeline() | df.Create([]), session=session)

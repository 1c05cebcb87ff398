"""What is shipped for users' tests, on the runners that have Spark and Postgres."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import (
    TestStream,
    assert_that,
    contains_in_any_order,
    in_final_fold,
    in_window,
    retracted,
    satisfies,
)
from dataflow.testing.laws import check_batch_equals_streaming
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

#: Two sessions that fire before a third element joins them.
STREAM = (
    TestStream()
    .advance_processing_time(10)
    .add_elements([df.TimestampedValue(("red", 5), 0), df.TimestampedValue(("blue", 1), 5)])
    .advance_watermark_to(0)
    .add_elements([df.TimestampedValue(("red", 7), 70)])
    .advance_processing_time(10)
    .add_elements([df.TimestampedValue(("red", 9), 40)])
    .advance_watermark_to(30)
)


def sums(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
    return (
        pcoll
        | df.WindowInto(
            df.Sessions(60),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
    )


@pytest.fixture(params=[BatchRunner, StreamingRunner])
def engine(request: pytest.FixtureRequest, store_dsn: str, spark_master: str) -> Any:
    """Makes runners of one kind on a store of this test's own."""

    def make(job: str = "job") -> Any:
        return request.param(
            job=job, store=store_dsn, master=spark_master, fresh=True, show_progress=False
        )

    return make


def test_what_is_asserted_is_checked_where_the_rows_are(engine: Any) -> None:
    """And runs of two jobs on one store do not see each other's."""
    answer = contains_in_any_order([("red", 21), ("blue", 1)])
    for job in ("one", "other"):
        with df.Pipeline(engine(job)) as p:
            totals = sums(p | STREAM)
            assert_that(totals, in_final_fold(answer))
            assert_that(totals, in_window((0, 130), in_final_fold(satisfies(_is_red))))
    with (
        pytest.raises(AssertionError, match=r"(?s)'wrong'.*missing:.*'red', 22.*unexpected.*21"),
        df.Pipeline(engine("one")) as p,
    ):
        assert_that(
            sums(p | STREAM),
            in_final_fold(contains_in_any_order([("red", 22), ("blue", 1)])),
            label="wrong",
        )


def _is_red(elements: list[Any]) -> None:
    assert [("red", 21)] == elements


def test_a_stream_emits_and_retracts_as_it_goes(store_dsn: str, spark_master: str) -> None:
    """In streaming; in batch everything is there before anything is emitted."""
    with df.Pipeline(
        StreamingRunner(job="job", store=store_dsn, master=spark_master, show_progress=False)
    ) as p:
        totals = sums(p | STREAM)
        assert_that(totals, retracted(satisfies(_is_emitted_before)))
        changes = totals | df.ToChangelog() | df.Map(lambda change: change.processing_time.year)
        assert_that(changes, satisfies(lambda years: min(years) >= 2024))


def _is_emitted_before(elements: list[Any]) -> None:
    assert set(elements) <= {("red", 5), ("red", 7), ("red", 12), ("red", 21), ("blue", 1)}


def test_the_same_on_every_runner(engine: Any) -> None:
    check_batch_equals_streaming(sums, STREAM, runners=["direct", engine])
    check_batch_equals_streaming(sums, STREAM.elements(), runners=["direct", engine])


def test_answers_that_differ(engine: Any) -> None:
    def build(pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
        return pcoll | df.ToChangelog() | df.Map(lambda change: ("k", change.processing_time_us))

    with pytest.raises(AssertionError, match="two results"):
        check_batch_equals_streaming(build, STREAM, runners=["direct", engine])


BY_NAME = """
import dataflow as df
from dataflow.testing.laws import check_batch_equals_streaming

for value in (1, 2):
    check_batch_equals_streaming(
        lambda pairs: pairs | df.WindowInto(df.FixedWindows(60)) | df.CombinePerKey(sum),
        [df.TimestampedValue(("red", value), 0)],
        runners=["direct", "batch", "streaming"],
    )
print("the same")
"""


def test_runners_by_name(store_dsn: str) -> None:
    """On the store of the environment; under one name of a job, from the start each time."""
    ran = subprocess.run(
        [sys.executable, "-c", BY_NAME],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "DATAFLOW_STORE": store_dsn},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "the same\n" == ran.stdout, ran.stderr

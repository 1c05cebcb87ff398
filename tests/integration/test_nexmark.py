"""Nexmark on real Spark and Postgres: every query leaves the rows of its model, in batch and as a stream.

All queries of a run are branches of one pipeline, over one read of the events.
"""

import pytest

import dataflow as df
from examples.nexmark.answers import CORRECTED, FINAL
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.generator import GeneratorConfig
from examples.nexmark.queries import QUERIES
from tests.batch_jobs import Batch
from tests.nexmark_answers import CHANGING, LATE, Recorded
from tests.streaming_jobs import Streaming

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

#: Out of order, and nothing late.
SHUFFLED = GeneratorConfig(seed=1, size=2_500, events_per_s=50, in_flight_auctions=30, disorder=40)


@pytest.fixture
def streaming(store_dsn: str, spark_master: str) -> Streaming:
    return Streaming(store_dsn, spark_master)


@pytest.mark.nightly
def test_functions_in_batch(batch: Batch) -> None:
    recorded = Recorded(SHUFFLED)

    result = batch.run(lambda p: recorded.functions(p, QUERIES, FINAL))

    assert {} == recorded.wrong(result)


def test_columns_in_batch(batch: Batch) -> None:
    recorded = Recorded(SHUFFLED)

    result = batch.run(lambda p: recorded.columns(p, COLUMN_QUERIES))

    assert {} == recorded.wrong(result)


def test_functions_as_a_stream(streaming: Streaming) -> None:
    recorded = Recorded(SHUFFLED)

    result = streaming.run(lambda p: recorded.functions(p, QUERIES, FINAL))

    assert {} == recorded.wrong(result)
    assert [] == result.late_records()


@pytest.mark.nightly
def test_columns_as_a_stream(streaming: Streaming) -> None:
    recorded = Recorded(SHUFFLED)

    result = streaming.run(lambda p: recorded.columns(p, COLUMN_QUERIES))

    assert {} == recorded.wrong(result)


@pytest.mark.nightly
def test_late_events_correct_a_stream(streaming: Streaming) -> None:
    """What each query has emitted and not retracted is the model's answer over all events."""
    recorded = Recorded(LATE)

    result = streaming.run(lambda p: recorded.functions(p, CHANGING, CORRECTED))

    assert {} == recorded.wrong(result)
    assert [] == result.late_records()
    assert 0 < sum(recorded.retracted(result).values())


def test_a_batch_retracts_nothing_that_is_late(batch: Batch) -> None:
    """All of the input is there, so there is nothing to correct; the answers are the same."""
    recorded = Recorded(LATE)

    def build(p: df.Pipeline) -> None:
        recorded.functions(p, CHANGING, CORRECTED)

    assert {} == recorded.wrong(batch.run(build))

"""Latency is counted from when a record was due, and a run that loses or repeats records is found."""

import time
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from benchmarks import latency
from benchmarks.peers.ours_load import RateSource
from benchmarks.workloads import SEED, users

LONG_AGO_US = 1_000_000_000


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 100))
def test_percentile_is_the_least_value_that_enough_do_not_exceed(
    values: list[int], percent: int
) -> None:
    found = latency.percentile(sorted(values), percent)

    enough = len(values) * percent / 100
    assert sum(value <= found for value in values) >= enough
    assert sum(value < found for value in values) < enough


def test_spread_of_nothing_is_nothing() -> None:
    assert latency.spread([]) == {}


def test_what_was_created_while_it_warmed_up_does_not_count() -> None:
    lines = [
        (1, 1, 5_000_000, 5_900_000),
        (1, 2, 7_000_000, 7_003_000),
        (1, 3, 8_000_000, 8_001_000),
    ]

    assert latency.latencies_ms(lines, 2) == [3.0, 1.0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50), st.data())
def test_counts_must_be_those_of_the_records(visitors: list[int], data: st.DataObject) -> None:
    counts: Counter[int] = Counter()
    lines = []
    for user in visitors:
        counts[user] += 1
        lines.append((user, counts[user], 0, 0))
    gone = data.draw(st.integers(0, len(lines) - 1))

    assert latency.check_counts(lines, visitors, has_all=True) == "ok"
    lost = [*lines[:gone], *lines[gone + 1 :]]
    assert latency.check_counts(lost, visitors, has_all=True).startswith("WRONG")
    twice = [*lines, lines[gone]]
    assert latency.check_counts(twice, visitors, has_all=True).startswith("WRONG")
    last = [(user, count, 0, 0) for user, count in counts.items()]
    assert latency.check_counts(last, visitors, has_all=False) == "ok"
    behind = [(user, count - 1, 0, 0) for user, count in counts.items()]
    assert latency.check_counts(behind, visitors, has_all=False).startswith("WRONG")


@pytest.mark.parametrize("most", [1, 7, 1_000])
def test_a_late_reader_is_given_the_times_at_which_records_were_due(most: int) -> None:
    source = RateSource(start_us=LONG_AGO_US, per_second=300, records=100)
    reader, batches = source.open(0, None, fence=0), list[df.SourceBatch]()
    while not batches or batches[-1].status is not df.SplitStatus.FINISHED:
        batches.append(reader.read(most))

    read = [pair for batch in batches for pair in batch.values]
    due_us = [LONG_AGO_US + index * 1_000_000 // 300 for index in range(100)]
    assert read == list(zip(users(100, Random(SEED)), due_us, strict=True))
    for batch, following in pairwise(batches):
        assert batch.watermark_us < min(following.timestamps_us)


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_reader_that_starts_over_hands_over_the_same(position: int, most: int) -> None:
    source = RateSource(start_us=LONG_AGO_US, per_second=300, records=61)

    whole = source.open(0, None, fence=0).read(61).values
    again = source.open(0, position, fence=0).read(most)

    assert list(again.values) == list(whole)[position : position + most]
    assert again.position == min(position + most, 61)


def test_nothing_is_handed_over_before_it_is_due() -> None:
    start_us = time.time_ns() // 1_000 + 3_600 * 1_000_000
    source = RateSource(start_us=start_us, per_second=1_000, records=10)

    batch = source.open(0, None, fence=0).read(100)

    assert not batch.values
    assert batch.status is df.SplitStatus.ACTIVE
    assert batch.watermark_us < start_us


def test_lag_is_reported_by_stage() -> None:
    found = latency.lag_by_stage([("read", 1_000), ("one", 5_000), ("read", 3_000)])

    assert found["read"]["p50"] == 1.0
    assert found["read"]["p100"] == 3.0
    assert found["one"]["p50"] == 5.0

"""Percentile watermarks: how far most of a stream has come, whatever order and batches it came in."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.core.stages.percentile_watermark import ProgressSketch, percentile_watermark_us
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

SECOND = 1_000_000


def sketch(timestamps_us: Sequence[int], batch: int = 100) -> ProgressSketch:
    """What has seen these, in batches."""
    watching = ProgressSketch()
    for start in range(0, len(timestamps_us), batch):
        watching.add(timestamps_us[start : start + batch])
    return watching


def quantile_us(percentile: float, *sketches: ProgressSketch) -> int:
    """The percentile watermark of a consumer of sources alone, where the watermark says nothing."""
    return percentile_watermark_us(
        percentile,
        watermark_us=MIN_TIMESTAMP_US,
        splits=[each.progress() for each in sketches],
        senders_us=[],
    )


def stragglers(count: int, every: int, late_us: int, seed: int = 7) -> list[int]:
    """A record each millisecond, some of them up to a tenth of a second late, and one in ``every`` by ``late_us``."""
    dice = random.Random(seed)
    return [
        index * 1_000 - (late_us if index % every == 0 else dice.randrange(100_000))
        for index in range(1, count + 1)
    ]


def behind(percentile: float, stream: Sequence[int], batch: int) -> float:
    """The share of the second half of a stream that comes after its percentile watermark has passed it."""
    watching, passed_us, missed = ProgressSketch(), MIN_TIMESTAMP_US, 0
    half = len(stream) // 2
    for start in range(0, len(stream), batch):
        records = stream[start : start + batch]
        if start >= half:
            missed += sum(each < passed_us for each in records)
        watching.add(records)
        passed_us = max(passed_us, quantile_us(percentile, watching))
    return missed / (len(stream) - half)


@pytest.mark.slow
@given(batch=st.sampled_from([1, 7, 500]), percentile=st.sampled_from([50, 90, 99]))
def test_it_misses_about_as_many_as_it_may(batch: int, percentile: float) -> None:
    """Its promise, kept on a stream whose habits do not change: of what is to come, so much is ahead of it."""
    missed = behind(percentile, stragglers(20_000, 200, 60 * SECOND), batch)

    assert missed <= 1.25 * (1 - percentile / 100)


def test_it_does_not_wait_for_the_few() -> None:
    """One record in two hundred is a minute late: a 99 % watermark is seconds from the front, a 99.9 % one waits."""
    stream = stragglers(20_000, 200, 60 * SECOND)
    front_us = len(stream) * 1_000

    assert front_us - SECOND < quantile_us(99, sketch(stream)) <= front_us
    assert quantile_us(99.9, sketch(stream)) <= front_us - 60 * SECOND


def test_a_clock_that_is_ahead_takes_nobody_along() -> None:
    """One device that lives next year does not move the others' time."""
    stream = stragglers(5_000, 50, SECOND)
    stream[100::100] = [10**14] * len(stream[100::100])

    assert 4 * SECOND < quantile_us(90, sketch(stream)) <= 5 * SECOND


def test_a_split_that_hangs_back_counts_by_its_records() -> None:
    """With one record in a thousand it is left out by 99 %, with one in ten it is not."""
    quick = sketch(stragglers(10_000, 10_000, 0))
    small = sketch([each - 3_600 * SECOND for each in stragglers(10, 100, 0)])
    large = sketch([each - 3_600 * SECOND for each in stragglers(1_000, 100, 0)])

    assert quantile_us(99, quick, small) > 9 * SECOND
    assert quantile_us(99, quick, large) < -3_000 * SECOND


def test_too_little_is_known_at_first() -> None:
    """One record in a hundred cannot be told from ten, nor anything of a split that has said nothing."""
    assert MIN_TIMESTAMP_US == quantile_us(99, sketch([1] * 10))
    assert MIN_TIMESTAMP_US == quantile_us(50, sketch([1] * 10), ProgressSketch())
    assert quantile_us(50, sketch([1] * 10)) == 1
    assert MAX_TIMESTAMP_US == quantile_us(99)


def test_habits_change() -> None:
    """Records that were late long ago do not hold it back for ever."""
    late = [each - 60 * SECOND * (index % 2) for index, each in enumerate(range(0, 10**7, 1_000))]
    watching = sketch([*late, *range(10**7, 2 * 10**8, 1_000)])

    assert quantile_us(90, watching) > 2 * 10**8 - SECOND


@given(
    timestamps_us=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=200),
    batch=st.integers(1, 64),
    low=st.floats(1, 99),
    high=st.floats(1, 99),
    watermark_us=st.integers(-(10**6), 10**6),
    senders_us=st.lists(st.integers(-(10**6), 10**6), max_size=2),
)
def test_it_is_between_the_watermark_and_the_front(
    timestamps_us: list[int],
    batch: int,
    low: float,
    high: float,
    watermark_us: int,
    senders_us: list[int],
) -> None:
    """Never behind the watermark, never ahead of all senders, and the more it waits for the less far."""
    watching = sketch(timestamps_us, batch)
    found_us = [
        percentile_watermark_us(
            percentile,
            watermark_us=watermark_us,
            splits=[watching.progress()],
            senders_us=senders_us,
        )
        for percentile in sorted((low, high))
    ]

    assert watermark_us <= found_us[1] <= found_us[0]
    assert found_us[0] <= max(watermark_us, min([3 * 10**6, *senders_us]))

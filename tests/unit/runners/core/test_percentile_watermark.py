"""Percentile watermarks: how far most of a stream has come, whatever order and batches it came in."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given
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
    """The percentile watermark of a consumer of sources alone, where the watermark does not count."""
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
    """One record in a hundred looks like ten, and of a split that has reported nothing, nothing is known."""
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


@given(
    timestamps_us=st.lists(st.integers(0, 7), min_size=1, max_size=40),
    percentile=st.sampled_from([25.0, 50.0, 75.0, 87.5]),
)
# One record in eight is at the earliest time, to the record.
@example(timestamps_us=[0] * 8 + [4] * 16, percentile=87.5)
def test_exactly_as_many_are_behind_it_as_may_be(
    timestamps_us: list[int], percentile: float
) -> None:
    """Not one fewer: it is the last event time of a record that keeps the promise, once there are enough of them."""
    # None of these distances is so large that it is rounded.
    stream = [*timestamps_us, *[8] * 40]
    offsets = dict(sketch(stream, len(stream)).progress().offsets)  # type: ignore[union-attr]
    times_us = sorted(8 + each for each, count in offsets.items() for _ in range(int(count)))
    may_be = len(times_us) * (1 - percentile / 100)
    fitting = [each for each in times_us if sum(at < each for at in times_us) <= may_be]

    assert quantile_us(percentile, sketch(stream, len(stream))) == max(fitting)


@pytest.mark.parametrize(("percentile", "least"), [(50.0, 2), (75.0, 4), (87.5, 8)])
def test_it_is_known_as_soon_as_one_record_may_be_left_out(percentile: float, least: int) -> None:
    assert MIN_TIMESTAMP_US == quantile_us(percentile, sketch([5] * (least - 1)))
    assert quantile_us(percentile, sketch([5] * least)) == 5


def test_it_is_a_time_that_there_is() -> None:
    """Also where the newest records are at the end of time, and others were far ahead of theirs."""
    ahead = sketch([0] * 40 + [MAX_TIMESTAMP_US] * 10, 50)
    ahead.add([MAX_TIMESTAMP_US] * 40)
    behind = sketch([0] * 40 + [MIN_TIMESTAMP_US] * 10, 50)
    behind.add([MIN_TIMESTAMP_US] * 40)

    for each in (0.1, 5, 50, 95, 99):
        for watching in (ahead, behind):
            assert MIN_TIMESTAMP_US <= quantile_us(each, watching) <= MAX_TIMESTAMP_US


@pytest.mark.slow
def test_the_past_fades_and_is_not_forgotten_at_once() -> None:
    """While a stream goes on it weighs about as much, and what never comes again leaves nothing behind."""
    watching, once = ProgressSketch(), 7 * 3_600 * SECOND
    watching.add([once] + [0] * 99)
    weights = []
    for _ in range(1_000):
        watching.add([0] * 500)
        progress = watching.progress()
        assert progress is not None
        weights.append(sum(count for _, count in progress.offsets))

    assert progress is not None
    assert min(weights[100:]) > 5_000
    assert max(weights) < 30_000
    assert [offset for offset, _ in progress.offsets] == [0]


def test_of_a_large_batch_the_newest_records_show_where_a_split_is() -> None:
    """However few of them are looked at."""
    watching = sketch(range(100_007), 100_007)
    progress = watching.progress()

    assert progress is not None
    assert 100_007 - 40 < progress.center_us < 100_007

"""TokenBucket: a split is read as fast as it was asked for, over any time, and not faster."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.worker.token_bucket import TokenBucket
from runners.testing.manual_clock import ManualClock

#: Milliseconds between two rounds of a worker, and how many records it would read.
ROUNDS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 2_000)), min_size=1, max_size=40)


@given(rounds=ROUNDS, records_per_second=st.floats(0.5, 5_000))
def test_between_any_two_moments_it_is_no_faster_than_asked_for(
    rounds: Sequence[tuple[int, int]], records_per_second: float
) -> None:
    """But for a tenth of a second's worth, or one record, that it had not read before."""
    clock = ManualClock()
    bucket = TokenBucket(clock, records_per_second)
    read: list[tuple[int, int]] = []
    for waited_ms, wanted in rounds:
        clock.advance(waited_ms)
        count = bucket.available(wanted)
        assert 0 <= count <= wanted
        bucket.spend(count)
        read.append((clock.monotonic_ms(), count))
    at_once = max(1.0, records_per_second / 10)
    for first, (since_ms, _) in enumerate(read):
        for last in range(first, len(read)):
            records = sum(count for _, count in read[first : last + 1])
            earned = (read[last][0] - since_ms) * records_per_second / 1_000
            assert records <= earned + at_once + 1e-6


@given(
    waits_ms=st.lists(st.integers(0, 90), max_size=40),
    # Slower ones have one record at a time in the bucket, and lose what is earned while it lies there.
    records_per_second=st.floats(100, 5_000),
)
def test_a_worker_that_asks_often_reads_as_fast_as_asked_for(
    waits_ms: Sequence[int], records_per_second: float
) -> None:
    """Nothing of what is earned is lost, and no fraction of a record."""
    clock = ManualClock()
    bucket, read = TokenBucket(clock, records_per_second), 0
    for waited_ms in waits_ms:
        clock.advance(waited_ms)
        count = bucket.available(1 << 30)
        bucket.spend(count)
        read += count
        earned = sum(waits_ms) * records_per_second / 1_000
    if waits_ms:
        assert earned - 1 - 1e-6 <= read <= earned + 1e-6


@pytest.mark.parametrize("wanted", [0, 1, 1 << 40])
def test_without_a_speed_everything_may_be_read_at_once(wanted: int) -> None:
    bucket = TokenBucket(ManualClock(), None)
    assert bucket.available(wanted) == wanted

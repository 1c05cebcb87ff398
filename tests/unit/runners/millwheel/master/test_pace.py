"""Pace: few workers get news at once, many now and then, and all of them that the master is alive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.master.pace import SENDS_PER_MS, SIGN_OF_LIFE_MS, Pace
from runners.testing.manual_clock import ManualClock

WAIT_MS = 20


@pytest.mark.parametrize("workers", [1, 2, SENDS_PER_MS - 1])
def test_few_workers_get_news_at_once(workers: int) -> None:
    pace = Pace(workers, ManualClock())
    assert not pace.is_time()
    pace.has_news = True

    assert pace.patience_ms(WAIT_MS) == 0
    assert pace.is_time()
    assert not pace.has_news
    assert not pace.is_time()
    assert pace.patience_ms(WAIT_MS) == WAIT_MS


@given(
    workers=st.integers(1, 3_000),
    news_ms=st.sets(st.integers(0, 1_000), max_size=40),
)
def test_no_more_is_sent_than_a_driver_can_and_no_news_waits_for_long(
    workers: int, news_ms: set[int]
) -> None:
    """Of a master that waits for messages as long as it may, and is woken by those that have news."""
    clock = ManualClock()
    pace, sent_ms, since_ms = Pace(workers, clock), [0], list[int]()
    interval_ms = min(workers // SENDS_PER_MS, SIGN_OF_LIFE_MS)
    while (now_ms := clock.monotonic_ms()) <= 1_000 + SIGN_OF_LIFE_MS:
        if now_ms in news_ms:
            pace.has_news = True
            since_ms.append(now_ms)
        if pace.is_time():
            sent_ms.append(now_ms)
            assert all(now_ms - each <= interval_ms for each in since_ms)
            since_ms.clear()
        news_in_ms = min((each - now_ms for each in news_ms if each > now_ms), default=WAIT_MS)
        clock.advance(max(1, min(news_in_ms, pace.patience_ms(WAIT_MS))))

    assert not since_ms
    for earlier, later in pairwise(sent_ms):
        assert interval_ms <= later - earlier <= SIGN_OF_LIFE_MS + WAIT_MS


def test_a_silent_master_gives_a_sign_of_life() -> None:
    clock = ManualClock()
    pace = Pace(2, clock)
    clock.advance(SIGN_OF_LIFE_MS - 1)
    assert not pace.is_time()
    clock.advance(1)

    assert pace.is_time()

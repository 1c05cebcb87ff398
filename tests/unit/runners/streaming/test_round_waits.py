"""How long a worker of a stream waits between rounds: a message ends each wait, a new record of a source does not."""

import pytest

from runners.streaming.worker_task import (
    ABSENT_WAIT_MS,
    IDLE_WAIT_MS,
    PAUSE_WAIT_MS,
    PAUSES_MAX,
    round_wait_ms,
)


@pytest.mark.parametrize("pauses", [1, PAUSES_MAX, PAUSES_MAX + 1])
def test_a_worker_without_ranges_waits_for_messages_alone(pauses: int) -> None:
    """News of watermarks is something to do, so that it would look for records most of the time."""
    assert round_wait_ms(pauses, has_ranges=False) == ABSENT_WAIT_MS


def test_a_worker_looks_for_records_the_more_often_the_later_it_has_had_some() -> None:
    waits = [round_wait_ms(pauses, has_ranges=True) for pauses in range(PAUSES_MAX + 3)]

    assert waits[0] == 0, "there may be more of what it has just done"
    assert set(waits[1 : PAUSES_MAX + 1]) == {PAUSE_WAIT_MS}
    assert set(waits[PAUSES_MAX + 1 :]) == {IDLE_WAIT_MS}
    assert round_wait_ms(0, has_ranges=False) == 0

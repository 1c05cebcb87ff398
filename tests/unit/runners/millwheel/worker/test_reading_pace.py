"""ReadingPace: where not all splits may be read in a round, each has its turn before any has its next one."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.reading_pace import ReadingPace
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.manual_clock import ManualClock


def splits(name: str, count: int) -> list[OwnedRange]:
    return [
        OwnedRange(
            range_id=RangeId(name, index),
            token=1,
            bundle=0,
            outbox=Outbox([], {}),
            delivered={},
            watermark_us=0,
        )
        for index in range(count)
    ]


@given(
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    rounds=st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 6)), max_size=40),
)
def test_each_split_has_its_turn_before_any_has_its_next_one(
    counts: tuple[int, int], rounds: Sequence[tuple[int, int]]
) -> None:
    """However few are read in a round before their receivers are overrun, and whatever other sources do."""
    pace = ReadingPace(WorkerOptions(), ManualClock())
    sources = [splits(name, count) for name, count in zip("ab", counts, strict=True)]
    for owned in (*sources[0], *sources[1]):
        pace.begin(owned.range_id)
    turns: list[list[RangeId]] = [[], []]
    for source, most in rounds:
        in_turn = pace.in_turn(sources[source])
        assert sorted(each.range_id for each in in_turn) == [
            each.range_id for each in sources[source]
        ]
        for owned in in_turn[:most]:
            pace.spend(owned.range_id, 1)
            turns[source].append(owned.range_id)
    for taken, count in zip(turns, counts, strict=True):
        for first in range(len(taken) - count + 1):
            assert len(set(taken[first : first + count])) == count

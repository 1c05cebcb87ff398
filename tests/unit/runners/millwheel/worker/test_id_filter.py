"""The filter in front of the ids of records: as good as it was asked to be, and no larger than it must."""

import hashlib
from collections.abc import Iterator, Sequence

import pytest

from runners.millwheel.worker.dedup.id_filter import IdFilter


def digests(first: int, count: int) -> list[bytes]:
    return [
        hashlib.blake2b(f"{number}".encode(), digest_size=16).digest()
        for number in range(first, first + count)
    ]


NEW = digests(10_000_000, 20_000)


def false_positive_rate(id_filter: IdFilter) -> float:
    return len(id_filter.maybes(NEW)) / len(NEW)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("expected", [10, 1_000, 50_000])
def test_it_keeps_its_rate_however_many_it_holds(expected: int, rate: float) -> None:
    """Fifty thousand ids, which is five thousand times as many as expected, or just as many."""
    id_filter = IdFilter(expected, rate)
    id_filter.add([(each, 0) for each in digests(0, 50_000)])

    # Three standard deviations above the rate that was asked for.
    assert false_positive_rate(id_filter) <= rate + 3 * (rate / len(NEW)) ** 0.5
    assert len(id_filter) == 50_000
    assert id_filter.generations <= 1 + (50_000 // expected).bit_length()


def test_an_empty_filter_asks_nobody() -> None:
    assert IdFilter(1, 0.99).maybes(NEW) == []
    assert IdFilter(1, 0.99).size_bytes == 0


def stream(seconds: int, a_second: int) -> Iterator[list[tuple[bytes, int]]]:
    """The ids of each second, with their times."""
    for second in range(seconds):
        yield [(each, second) for each in digests(second * a_second, a_second)]


def test_it_stays_as_large_as_what_is_remembered() -> None:
    """A stream that is a hundred times as long as the slack."""
    id_filter, sizes = IdFilter(100, 0.01), []
    for second, ids in enumerate(stream(1_000, 50)):
        id_filter.collect(second - 10)
        id_filter.add(ids)
        sizes.append(id_filter.size_bytes)
        recent = [each for each, _ in ids]
        assert set(id_filter.maybes(recent)) == set(recent)

    assert max(sizes[100:]) <= 2 * max(sizes[:100])
    assert len(id_filter) <= 2_000
    assert false_positive_rate(id_filter) <= 0.015


def pinned(seconds: int) -> Sequence[list[tuple[bytes, int]]]:
    """One record of each second is of a year to come."""
    return [
        [(each, 1_000_000 if index == 0 else second) for index, (each, _) in enumerate(ids)]
        for second, ids in enumerate(stream(seconds, 50))
    ]


def test_what_is_far_ahead_makes_it_worth_building_anew() -> None:
    """Built from what is remembered, it stays as large as that, and is not built at each turn."""
    id_filter, table, builds, sizes = IdFilter(100, 0.01), dict[bytes, int](), 0, []
    for second, ids in enumerate(pinned(1_000)):
        horizon = second - 10
        id_filter.collect(horizon)
        if id_filter.is_worth_building(horizon):
            builds += 1
            table = {each: at for each, at in table.items() if at >= horizon}
            id_filter = IdFilter(100, 0.01)
            id_filter.add(list(table.items()))
            id_filter.note_built()
        id_filter.add(ids)
        table.update(ids)
        sizes.append(len(id_filter))

    assert 5 <= builds <= 100
    # A thousand are of a year to come, five hundred are recent.
    assert max(sizes) <= 2 * (1_000 + 500 + 100) + 2 * 1_600


def test_a_filter_of_which_all_is_remembered_is_not_built_anew() -> None:
    id_filter = IdFilter(10, 0.01)
    for ids in stream(100, 50):
        id_filter.add(ids)
        assert not id_filter.is_worth_building(0)

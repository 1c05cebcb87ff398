"""What is packed together follows the size of what was packed before, and an earlier attempt where there is one."""

from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from runners.batch.pack_sizes import Packings, PackSizes

FITS = st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)), max_size=20)


def sizes_of(
    fits: Sequence[tuple[int, int]], before: Packings | None = None
) -> tuple[list[tuple[int, int | None]], PackSizes]:
    """The sizes of the packings of an attempt, and the one after them."""
    sizes, found = PackSizes(10, before), list[tuple[int, int | None]]()
    for each in fits:
        found.append((sizes.records_max, sizes.partials_max))
        sizes.packed(*each)
    return found, sizes


@given(fits=FITS)
def test_what_is_packed_is_half_to_twice_what_fits(fits: list[tuple[int, int]]) -> None:
    _, sizes = sizes_of(fits)
    if fits:
        records_fit, partials_fit = fits[-1]
        assert records_fit / 2 <= sizes.records_max <= 2 * records_fit
        assert sizes.partials_max is not None
        assert partials_fit / 2 <= sizes.partials_max <= 2 * partials_fit


@given(fits=FITS, others=FITS, more=FITS)
def test_a_later_attempt_packs_as_the_earlier_one(
    fits: list[tuple[int, int]], others: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    """Whatever fits for it; and beyond what the earlier one has packed it goes its own way."""
    before, earlier = sizes_of(fits)
    others = [*others[: len(fits)], *fits[len(others) :]]
    now, later = sizes_of(others, Packings.of(list(earlier.packings.numbers)))
    assert now == before
    assert later.packings == earlier.packings

    for each in more:
        later.packed(*each)
    assert later.packings.count == len(fits) + len(more)
    assert later.packings.changes[: len(earlier.packings.changes)] == earlier.packings.changes
    records_fit = more[-1][0] if more else later.records_max
    assert records_fit / 2 <= later.records_max <= 2 * records_fit


def test_what_changes_little_is_stored_once() -> None:
    """A mark is read with every row of the job: it does not grow with what is packed."""
    fits = [(1_000 + each, 900 - each) for each in accumulate([7] * 40)]
    _, sizes = sizes_of(fits)
    assert sizes.packings == Packings(40, ((1, 1_007, 893),))

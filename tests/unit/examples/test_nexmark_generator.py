"""Nexmark's events: each from its number alone, in any order, read in any splits."""

from collections import Counter
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.testing.source_contract import SourceContract
from examples.nexmark.events import AUCTION, BID, PERSON, Auction, Bid, Event, EventRow, Person
from examples.nexmark.generator import (
    EPOCH,
    FIRST_ID,
    GeneratorConfig,
    arrivals,
    event,
    event_columns,
    events,
    is_late,
    kinds_of,
)
from examples.nexmark.source import NexmarkSource

CONFIG = GeneratorConfig(seed=5, size=700, events_per_s=100, disorder=9, late_of=20, late_by=100)
ROW_TYPES: dict[int, Any] = {PERSON: Person, AUCTION: Auction, BID: Bid}
CONFIGS = st.builds(
    GeneratorConfig,
    seed=st.integers(0, 1 << 62),
    size=st.integers(1, 300),
    disorder=st.integers(1, 40),
    late_of=st.integers(0, 5),
    late_by=st.integers(1, 90),
)


@pytest.mark.slow
@given(CONFIGS, st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_an_event_depends_on_its_number_alone(config: GeneratorConfig, numbers: list[int]) -> None:
    assert [event(config, number) for number in numbers] == events(config, np.array(numbers))


@given(st.integers(0, 1 << 62), st.integers(0, 10**9))
def test_columns_have_the_fields_of_the_objects(seed: int, first: int) -> None:
    """And null where a kind has no such field."""
    config, numbers = GeneratorConfig(seed=seed), np.arange(first, first + EPOCH)
    found = event_columns(config, numbers, EventRow._fields)
    rows = [
        EventRow(*row)
        for row in zip(*[found[n].to_pylist() for n in EventRow._fields], strict=True)
    ]

    assert events(config, numbers) == [_object(row) for row in rows]
    for row in rows:
        fields = ROW_TYPES[row.kind]._fields
        assert all(getattr(row, n) is None for n in EventRow._fields[1:] if n not in fields)


def _object(row: EventRow) -> Any:
    row_type = ROW_TYPES[row.kind]
    return row_type(*[getattr(row, name) for name in row_type._fields])


@given(CONFIGS)
def test_the_order_of_arrival_is_a_permutation_and_the_watermark_holds(
    config: GeneratorConfig,
) -> None:
    """Whoever is not late is not before the watermark of anybody who arrives earlier; it does not go back."""
    assert config.size is not None
    places = np.arange(config.size)
    numbers, watermarks_ms = arrivals(config, places)
    late = is_late(config, numbers)

    assert sorted(numbers.tolist()) == places.tolist()
    assert (np.diff(watermarks_ms) >= 0).all()
    times_ms = config.time_ms(numbers)
    assert (times_ms[~late] >= watermarks_ms[~late]).all()
    some = places[config.size // 3 :: 7]
    if len(some):
        assert (arrivals(config, some)[0] == numbers[some]).all()


def test_late_events_are_behind_the_watermark() -> None:
    numbers, watermarks_ms = arrivals(CONFIG, np.arange(700))
    late = is_late(CONFIG, numbers)

    assert 20 < late.sum() < 60
    assert (CONFIG.time_ms(numbers) < watermarks_ms)[late].mean() > 0.8


@pytest.mark.slow
def test_proportions_are_those_of_the_field() -> None:
    config, size = GeneratorConfig(seed=1), 50_000
    kinds = Counter(kinds_of(np.arange(size)).tolist())
    found = events(config, np.arange(size))
    bids = [each for each in found if isinstance(each, Bid)]
    auctions = [each for each in found if isinstance(each, Auction)]
    hot_bids = sum((bid.auction - FIRST_ID) % 100 == 0 for bid in bids) / len(bids)
    hot_bidders = sum((bid.bidder - FIRST_ID) % 100 == 1 for bid in bids) / len(bids)
    hot_sellers = sum((each.seller - FIRST_ID) % 100 == 0 for each in auctions) / len(auctions)

    assert {PERSON: 1_000, AUCTION: 3_000, BID: 46_000} == kinds
    assert 0.5 == pytest.approx(hot_bids, abs=0.02)
    assert 0.75 == pytest.approx(hot_bidders, abs=0.02)
    assert 0.75 == pytest.approx(hot_sellers, abs=0.03)
    assert len({each.category for each in auctions}) == 5
    assert all(each.expires_ms > each.date_time_ms for each in auctions)


@pytest.mark.parametrize("name", ["size", "events_per_s", "disorder", "late_by", "hot_auctions"])
def test_a_number_that_is_too_small_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} of a GeneratorConfig cannot be 0"):
        GeneratorConfig(**{name: 0})


#: Few, as they are read in many ways.
FEW = attrs.evolve(CONFIG, size=110, late_by=50)


@pytest.mark.slow
class TestNexmarkSource(SourceContract):
    late_us = 1_000_000
    examples = 10

    def make_source(self) -> NexmarkSource:
        return NexmarkSource(FEW)

    def expected(self) -> list[Event]:
        return events(FEW, np.arange(110))


@pytest.mark.slow
class TestNexmarkSourceInColumns(SourceContract):
    late_us = 1_000_000
    examples = 10

    def make_source(self) -> NexmarkSource:
        return NexmarkSource(FEW, EventRow)


def test_without_a_size_it_never_ends() -> None:
    source = NexmarkSource(GeneratorConfig(seed=2))
    reader = source.open((1, 2), 10**7, fence=0)
    batch = reader.read(3)

    assert not source.is_bounded
    assert events(source.config, np.array([2 * 10**7 + 1, 2 * 10**7 + 3, 2 * 10**7 + 5])) == list(
        batch.values
    )
    assert batch.position == 10**7 + 3

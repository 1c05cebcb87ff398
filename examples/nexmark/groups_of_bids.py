"""Queries of Nexmark that count and compare bids: q5, q7, q11, q12 and q15 to q19."""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import dataflow as df
from examples.nexmark.answers import FINAL, Answers
from examples.nexmark.events import Bid
from examples.nexmark.single_bids import Events, Row, Rows, bids_of

#: What the queries have in place of the field's minutes: windows of so many seconds.
WINDOW_S, PERIOD_S, GAP_S = 10, 2, 10


class HighestCombineFn(df.CombineFn):
    """From ``(rank, value)`` to all values with the greatest rank, and that rank; no digest decides among equals."""

    def create_accumulator(self) -> tuple[Any, list[Any]] | None:
        """None."""
        return None

    def add_input(
        self, accumulator: tuple[Any, list[Any]] | None, value: tuple[Any, Any]
    ) -> tuple[Any, list[Any]]:
        """Begin anew with a greater one, and keep an equal one."""
        rank, item = value
        if accumulator is None or rank > accumulator[0]:
            return rank, [item]
        return (rank, [*accumulator[1], item]) if rank == accumulator[0] else accumulator

    def merge_accumulators(
        self, accumulators: Iterable[tuple[Any, list[Any]] | None]
    ) -> tuple[Any, list[Any]] | None:
        """Keep the values of the greatest rank."""
        found = [each for each in accumulators if each is not None]
        if not found:
            return None
        highest = max(map(itemgetter(0), found))
        return highest, [item for rank, items in found if rank == highest for item in items]

    def extract_output(
        self, accumulator: tuple[Any, list[Any]] | None
    ) -> tuple[Any, tuple[Any, ...]]:
        """The rank, and the values in order."""
        assert accumulator is not None, "a window without elements has no highest one"
        return accumulator[0], tuple(sorted(accumulator[1]))


@df.ptransform_fn
def q5(events: Events, answers: Answers = FINAL) -> Rows:
    """The auctions with most bids of the last ten seconds, every two seconds; several where they have as many."""
    return (
        bids_of(events)
        | df.Map(lambda bid: (bid.auction, None))
        | answers.windows(df.SlidingWindows(WINDOW_S, period=PERIOD_S))
        | "count" >> df.CombinePerKey(df.CountCombineFn())
        | "of the window" >> df.Map(lambda counted: (0, (counted[1], counted[0])))
        | "most" >> df.CombinePerKey(HighestCombineFn())
        | df.FlatMap(_hot_auctions)
    )


def _hot_auctions(
    most: tuple[int, tuple[int, tuple[int, ...]]], window: df.Window = df.DoFn.WindowParam
) -> Iterator[Row]:
    count, auctions = most[1]
    return ((auction, count, window.start_us // 1_000) for auction in auctions)


@df.ptransform_fn
def q7(events: Events, answers: Answers = FINAL) -> Rows:
    """The highest bids of each ten seconds."""
    return (
        bids_of(events)
        | "by price" >> df.Map(lambda bid: (0, (bid.price, bid)))
        | answers.windows(df.FixedWindows(WINDOW_S))
        | df.CombinePerKey(HighestCombineFn())
        | df.FlatMap(lambda highest: map(priced, highest[1][1]))
    )


def priced(bid: Bid) -> Row:
    """The fields of q7, in the order that its SQL has."""
    return bid.auction, bid.price, bid.bidder, bid.date_time_ms, bid.extra


@df.ptransform_fn
def q11(events: Events, answers: Answers = FINAL) -> Rows:
    """How many bids somebody makes in a session."""
    return (
        bids_of(events)
        | df.Map(lambda bid: (bid.bidder, None))
        | answers.windows(df.Sessions(GAP_S))
        | df.CombinePerKey(df.CountCombineFn())
        | "session" >> df.Map(_with_bounds)
    )


def _with_bounds(counted: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> Row:
    return *counted, window.start_us // 1_000, window.end_us // 1_000


@df.ptransform_fn
def q12(events: Events, answers: Answers = FINAL) -> Rows:
    """How many bids somebody makes in ten seconds of the clock: the panes of a bidder add up to all of his bids.

    Which bids are in which pane depends on when they are read, so no answer but the sum is the same in every run.
    """
    return (
        bids_of(events)
        | df.Map(lambda bid: (bid.bidder, None))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterProcessingTime(WINDOW_S)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.CombinePerKey(df.CountCombineFn())
    )


class StatisticsCombineFn(df.CombineFn):
    """From ``(rank, bidder, auction)`` to how many there are: rows, then bidders, then auctions.

    Of each four numbers: altogether, and of the ranks 1, 2 and 3.
    """

    def create_accumulator(self) -> tuple[list[int], list[set[int]], list[set[int]]]:
        """Nothing of each rank."""
        return [0, 0, 0], [set(), set(), set()], [set(), set(), set()]

    def add_input(
        self,
        accumulator: tuple[list[int], list[set[int]], list[set[int]]],
        value: tuple[int, int, int],
    ) -> tuple[list[int], list[set[int]], list[set[int]]]:
        """One more."""
        rank, bidder, auction = value
        counts, bidders, auctions = accumulator
        counts[rank - 1] += 1
        bidders[rank - 1].add(bidder)
        auctions[rank - 1].add(auction)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[tuple[list[int], list[set[int]], list[set[int]]]]
    ) -> tuple[list[int], list[set[int]], list[set[int]]]:
        """Add up, and unite."""
        found = self.create_accumulator()
        for counts, bidders, auctions in accumulators:
            for rank in range(3):
                found[0][rank] += counts[rank]
                found[1][rank] |= bidders[rank]
                found[2][rank] |= auctions[rank]
        return found

    def extract_output(
        self, accumulator: tuple[list[int], list[set[int]], list[set[int]]]
    ) -> tuple[int, ...]:
        """The twelve numbers."""
        counts, *sets = accumulator
        found = [sum(counts), *counts]
        for of_rank in sets:
            found += [len(set().union(*of_rank)), *map(len, of_rank)]
        return tuple(found)


def price_rank(price: int) -> int:
    """Below a hundred, below ten thousand, or above."""
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


@df.ptransform_fn
def q15(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids, bidders and auctions of each day, altogether and by rank of price."""
    return (
        bids_of(events)
        | df.Map(lambda bid: (0, (price_rank(bid.price), bid.bidder, bid.auction)))
        | answers.windows(df.FixedWindows("1 day"))
        | df.CombinePerKey(StatisticsCombineFn())
        | "day" >> df.Map(lambda found, window=df.DoFn.WindowParam: (day_of(window), *found[1]))
    )


def day_of(window: df.Window) -> str:
    """The day that begins with a window, as text."""
    return f"{window.start:%Y-%m-%d}"


@df.ptransform_fn
def q16(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids, bidders and auctions of each channel and day, with the last minute in which there was a bid."""
    return (
        bids_of(events)
        | df.Map(_by_channel)
        | answers.windows(df.FixedWindows("1 day"))
        | df.CombinePerKey(df.TupleCombineFn(max, StatisticsCombineFn()))
        | "day" >> df.Map(_of_channel)
    )


def _by_channel(bid: Bid) -> tuple[str, tuple[int, tuple[int, int, int]]]:
    minute = bid.date_time_ms // 60_000 % 1_440
    return bid.channel, (minute, (price_rank(bid.price), bid.bidder, bid.auction))


def _of_channel(
    found: tuple[str, tuple[int, tuple[int, ...]]], window: df.Window = df.DoFn.WindowParam
) -> Row:
    channel, (minute, statistics) = found
    return channel, day_of(window), minute_text(minute), *statistics


def minute_text(minute: int) -> str:
    """A minute of the day as text."""
    return f"{minute // 60:02}:{minute % 60:02}"


@df.ptransform_fn
def q17(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids and prices of each auction and day; the mean is cut."""
    return (
        bids_of(events)
        | df.Map(_by_auction)
        | answers.windows(df.FixedWindows("1 day"))
        | df.CombinePerKey(df.TupleCombineFn(sum, sum, sum, min, max, sum))
        | "day" >> df.Map(_of_auction)
    )


def _by_auction(bid: Bid) -> tuple[int, tuple[int, ...]]:
    rank, price = price_rank(bid.price), bid.price
    return bid.auction, (rank == 1, rank == 2, rank == 3, price, price, price)


def _of_auction(found: tuple[int, tuple[int, ...]], window: df.Window = df.DoFn.WindowParam) -> Row:
    auction, (*ranks, lowest, highest, total) = found
    count = sum(ranks)
    return auction, day_of(window), count, *ranks, lowest, highest, total // count, total


@df.ptransform_fn
def q18(events: Events, answers: Answers = FINAL) -> Rows:
    """The last bid of everybody on each auction."""
    return (
        bids_of(events)
        | df.Map(lambda bid: ((bid.bidder, bid.auction), (bid.date_time_ms, bid)))
        | answers.all_time()
        | df.CombinePerKey(max)
        | "bid" >> df.Map(lambda found: tuple(found[1][1]))
    )


def bid_rank(bid: Bid) -> tuple[int, int, Bid]:
    """The rank of a bid among those on its auction: the price, then who was first; last the bid itself, as a tuple."""
    return bid.price, -bid.date_time_ms, bid


@df.ptransform_fn
def q19(events: Events, answers: Answers = FINAL) -> Rows:
    """The ten highest bids on each auction, with their ranks."""
    return (
        bids_of(events)
        | df.Map(lambda bid: (bid.auction, bid))
        | answers.all_time()
        | df.CombinePerKey(df.TopCombineFn(10, key=bid_rank))
        | df.FlatMap(lambda best: [(*bid, rank) for rank, bid in enumerate(best[1], 1)])
    )

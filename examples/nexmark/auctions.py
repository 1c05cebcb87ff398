"""Queries of Nexmark about auctions, their sellers and their winners: q3, q4, q6, q8, q9 and q20.

**Winning bids** (q4, q6, q9) are those of the time in which an auction was open.  That time is the window: an auction
keeps its session open from when it is opened until it expires, and a bid, which is an instant, joins it or does not.
So an answer comes when the watermark has passed the end of the auction, and where late events are taken a better bid
that comes late retracts the winner, and everything that was made of it.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import dataflow as df
from examples.nexmark.answers import FINAL, Answers
from examples.nexmark.events import Auction, Bid, Event, Person
from examples.nexmark.groups_of_bids import WINDOW_S, bid_rank
from examples.nexmark.single_bids import Events, Row, Rows, bids_of

MILLISECOND = timedelta(milliseconds=1)
#: The category, and the states, that q3 and q20 ask for.
CATEGORY, STATES = 10, frozenset({"OR", "ID", "CA"})
#: How many auctions of a seller q6 looks at.
LAST = 10


def people_of(events: Events) -> df.PCollection[Any]:
    """The people among some events."""
    return events | "people" >> df.Filter(lambda event: isinstance(event, Person))


def auctions_of(events: Events) -> df.PCollection[Any]:
    """The auctions among some events."""
    return events | "auctions" >> df.Filter(lambda event: isinstance(event, Auction))


@df.ptransform_fn
def q3(events: Events, answers: Answers = FINAL) -> Rows:
    """Sellers in some states, with the auctions of a category that are theirs."""
    sold = (
        auctions_of(events)
        | "category" >> df.Filter(lambda auction: auction.category == CATEGORY)
        | "by seller" >> df.Map(lambda auction: (auction.seller, auction.id))
        | "all auctions" >> answers.all_time()
    )
    sellers = (
        people_of(events)
        | "states" >> df.Filter(lambda person: person.state in STATES)
        | "by id" >> df.Map(lambda person: (person.id, (person.name, person.city, person.state)))
        | "all people" >> answers.all_time()
    )
    return (sellers, sold) | df.Join() | df.MapTuple(lambda _, pair: (*pair[0], pair[1]))


class WinnerCombineFn(df.CombineFn):
    """From an auction and bids on it to the auction and the best bid; either may be missing."""

    def create_accumulator(self) -> tuple[Auction | None, Bid | None]:
        """Neither."""
        return None, None

    def add_input(
        self, accumulator: tuple[Auction | None, Bid | None], value: Auction | Bid
    ) -> tuple[Auction | None, Bid | None]:
        """The auction, or a bid, which may be better."""
        auction, best = accumulator
        if isinstance(value, Auction):
            return value, best
        return auction, value if best is None or bid_rank(value) > bid_rank(best) else best

    def merge_accumulators(
        self, accumulators: Iterable[tuple[Auction | None, Bid | None]]
    ) -> tuple[Auction | None, Bid | None]:
        """The auction that one of them has, and the best bid of all."""
        found = self.create_accumulator()
        for accumulator in accumulators:
            for value in accumulator:
                if value is not None:
                    found = self.add_input(found, value)
        return found

    def extract_output(
        self, accumulator: tuple[Auction | None, Bid | None]
    ) -> tuple[Auction | None, Bid | None]:
        """Both."""
        return accumulator


@df.ptransform_fn
def winning_bids(events: Events, answers: Answers = FINAL) -> df.PCollection[tuple[Auction, Bid]]:
    """Each auction that is over and has bids, with the best of them."""
    return (
        events
        | "by auction" >> df.FlatMap(_by_auction)
        | answers.windows(df.Sessions(open_for))
        | df.CombinePerKey(WinnerCombineFn())
        | "winners" >> df.FlatMap(_sold)
    )


def _by_auction(event: Event) -> Iterator[tuple[int, Auction | Bid]]:
    if isinstance(event, Auction):
        yield event.id, event
    elif isinstance(event, Bid):
        yield event.auction, event


def open_for(pair: tuple[int, Auction | Bid]) -> timedelta:
    """How long an auction takes bids, the millisecond in which it expires included; a bid is there for one."""
    event = pair[1]
    if isinstance(event, Bid):
        return MILLISECOND
    return (event.expires_ms - event.date_time_ms + 1) * MILLISECOND


def _sold(found: tuple[int, tuple[Auction | None, Bid | None]]) -> Iterator[tuple[Auction, Bid]]:
    auction, bid = found[1]
    if auction is not None and bid is not None:
        yield auction, bid


def _cut_mean(total_and_count: tuple[int, int]) -> int:
    total, count = total_and_count
    return total // count


@df.ptransform_fn
def q4(events: Events, answers: Answers = FINAL) -> Rows:
    """The mean winning price of each category."""
    return (
        events
        | winning_bids(answers)
        | "price" >> df.Map(lambda sold: (sold[0].category, (sold[1].price, 1)))
        | "all auctions" >> answers.all_time()
        | df.CombinePerKey(df.TupleCombineFn(sum, sum))
        | "mean" >> df.Map(lambda found: (found[0], _cut_mean(found[1])))
    )


@df.ptransform_fn
def q6(events: Events, answers: Answers = FINAL) -> Rows:
    """The mean winning price of each seller's last ten auctions."""
    return (
        events
        | winning_bids(answers)
        | "by seller" >> df.Map(_by_seller)
        | "all auctions" >> answers.all_time()
        | df.CombinePerKey(df.TopCombineFn(LAST))
        | "mean" >> df.Map(_mean_of_last)
    )


def _by_seller(sold: tuple[Auction, Bid]) -> tuple[int, tuple[int, int, int]]:
    auction, bid = sold
    return auction.seller, (auction.expires_ms, auction.id, bid.price)


def _mean_of_last(found: tuple[int, list[tuple[int, int, int]]]) -> Row:
    seller, last = found
    return seller, _cut_mean((sum(price for _, _, price in last), len(last)))


@df.ptransform_fn
def q8(events: Events, answers: Answers = FINAL) -> Rows:
    """People who have opened an auction in the ten seconds in which they signed up."""
    people = (
        people_of(events)
        | "by id" >> df.Map(lambda person: (person.id, person.name))
        | "new" >> answers.windows(df.FixedWindows(WINDOW_S))
    )
    sellers = (
        auctions_of(events)
        | "by seller" >> df.Map(lambda auction: (auction.seller, None))
        | "selling" >> answers.windows(df.FixedWindows(WINDOW_S))
    )
    return (people, sellers) | df.CoGroupByKey() | df.FlatMap(_new_sellers)


def _new_sellers(
    group: tuple[int, tuple[list[str], list[None]]], window: df.Window = df.DoFn.WindowParam
) -> Iterator[Row]:
    person, (names, auctions) = group
    if auctions:
        yield from ((person, name, window.start_us // 1_000) for name in names)


@df.ptransform_fn
def q9(events: Events, answers: Answers = FINAL) -> Rows:
    """Winning bids."""
    return events | winning_bids(answers) | df.Map(_together)


def _together(sold: tuple[Auction, Bid]) -> Row:
    auction, bid = sold
    return (*auction, bid.auction, bid.bidder, bid.price, bid.date_time_ms, bid.extra)


@df.ptransform_fn
def q20(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids on auctions of a category, with the auctions."""
    bids = (
        bids_of(events)
        | "by auction" >> df.Map(lambda bid: (bid.auction, bid))
        | "all bids" >> answers.all_time()
    )
    some = (
        auctions_of(events)
        | "category" >> df.Filter(lambda auction: auction.category == CATEGORY)
        | "by id" >> df.Map(lambda auction: (auction.id, auction[1:]))
        | "all auctions" >> answers.all_time()
    )
    return (bids, some) | df.Join() | df.MapTuple(lambda _, pair: (*pair[0], *pair[1]))

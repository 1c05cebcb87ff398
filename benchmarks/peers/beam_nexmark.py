"""The queries of Nexmark in Apache Beam, in batch, with Python functions; rows are lines of text.

An auction's winner is found where its bids are grouped, as in SQL; its own SDK for Java has a window for it.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue

from examples.nexmark.events import KINDS, Auction, Bid, Event, Person

WINDOW_S, PERIOD_S, GAP_S, DAY_S = 10, 2, 10, 86_400
CATEGORY, STATES, LAST, BEST = 10, frozenset({"OR", "ID", "CA"}), 10, 10
SIDE_ROWS, HOUR_MS = 10_000, 3_600_000
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
CHANNEL_ID = re.compile(r"(?:&|^)channel_id=([^&]*)")

Row = tuple[Any, ...]
#: From events to rows.
Query = Callable[[Any], Any]


def parse(line: str) -> Event:
    """The event of a line."""
    fields = json.loads(line)
    row_type: Any = KINDS[fields.pop("kind")]
    event: Event = row_type(**fields)
    return event


def stamped(event: Event) -> Any:
    """An event at its time."""
    return TimestampedValue(event, event.date_time_ms / 1_000)


def only(kind: type) -> Any:
    """Filter to the events of a kind."""
    return f"only {kind.__name__}" >> beam.Filter(lambda event: isinstance(event, kind))


def priced(bid: Bid) -> Row:
    """The fields that most queries emit."""
    return bid.auction, bid.bidder, bid.price, bid.date_time_ms, bid.extra


def start_ms(window: Any) -> int:
    """The beginning of a window in milliseconds."""
    return int(window.start.micros) // 1_000


def day_of(window: Any) -> str:
    """The day with which a window begins."""
    return f"{datetime.fromtimestamp(window.start.micros / 1_000_000, UTC):%Y-%m-%d}"


def rank_of(price: int) -> int:
    """Counted from 0."""
    return 0 if price < 10_000 else 1 if price < 1_000_000 else 2


def bid_rank(bid: Bid) -> Row:
    """The rank of a bid among those on its auction: its price, then who was first, then the bid itself."""
    return bid.price, -bid.date_time_ms, bid


class Statistics(beam.CombineFn):  # type: ignore[misc]
    """Bids, bidders and auctions by rank, of triples of a rank, a bidder and an auction."""

    def create_accumulator(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing of each rank."""
        return [0, 0, 0], [set(), set(), set()], [set(), set(), set()]

    def add_input(self, mutable_accumulator: Any, element: Any, *args: Any, **kwargs: Any) -> Any:
        """One more."""
        rank, bidder, auction = element
        mutable_accumulator[0][rank] += 1
        mutable_accumulator[1][rank].add(bidder)
        mutable_accumulator[2][rank].add(auction)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Add up, and unite."""
        found = self.create_accumulator()
        for counts, bidders, auctions in accumulators:
            for rank in range(3):
                found[0][rank] += counts[rank]
                found[1][rank] |= bidders[rank]
                found[2][rank] |= auctions[rank]
        return found

    def extract_output(self, accumulator: Any, *args: Any, **kwargs: Any) -> Row:
        """The twelve numbers."""
        counts, *sets = accumulator
        found = [sum(counts), *counts]
        for of_rank in sets:
            found += [len(set().union(*of_rank)), *map(len, of_rank)]
        return tuple(found)


class Highest(beam.CombineFn):  # type: ignore[misc]
    """All values with the greatest number, of pairs of a number and a value."""

    def create_accumulator(self, *args: Any, **kwargs: Any) -> Any:
        """Below all."""
        return -1, []

    def add_input(self, mutable_accumulator: Any, element: Any, *args: Any, **kwargs: Any) -> Any:
        """Begin anew with a greater one."""
        number, value = element
        highest, values = mutable_accumulator
        if number > highest:
            return number, [value]
        if number == highest:
            values.append(value)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Keep those of the greatest."""
        found = list(accumulators)
        highest = max(number for number, _ in found)
        return highest, [value for number, values in found if number == highest for value in values]

    def extract_output(self, accumulator: Any, *args: Any, **kwargs: Any) -> Any:
        """The number, and the values."""
        return accumulator


def cut_mean(values: Sequence[int]) -> int:
    """The mean of integers, cut."""
    return sum(values) // len(values)


def q2(events: Any) -> Any:
    """Bids on some auctions."""
    some = events | only(Bid) | beam.Filter(lambda bid: bid.auction % 123 == 0)
    return some | beam.Map(lambda bid: (bid.auction, bid.price))


def joined(**of_tag: Any) -> Any:
    """Group keyed collections, each with a tag, by key."""
    return of_tag | beam.CoGroupByKey()


def q3(events: Any) -> Any:
    """Sellers in some states, with the auctions of a category that are theirs."""
    sold = (
        events
        | only(Auction)
        | "category" >> beam.Filter(lambda auction: auction.category == CATEGORY)
        | "by seller" >> beam.Map(lambda auction: (auction.seller, auction.id))
    )
    sellers = (
        events
        | only(Person)
        | "states" >> beam.Filter(lambda person: person.state in STATES)
        | "by id" >> beam.Map(lambda person: (person.id, (person.name, person.city, person.state)))
    )
    return joined(sellers=sellers, sold=sold) | beam.FlatMapTuple(
        lambda _, found: [
            (*person, auction) for person in found["sellers"] for auction in found["sold"]
        ]
    )


def _winner(_: int, found: Mapping[str, Sequence[Any]]) -> Iterator[tuple[Auction, Bid]]:
    for auction in found["auctions"]:
        bids = [
            bid
            for bid in found["bids"]
            if auction.date_time_ms <= bid.date_time_ms <= auction.expires_ms
        ]
        if bids:
            yield auction, max(bids, key=bid_rank)


def winners(events: Any) -> Any:
    """Each auction that has bids, with the best of them."""
    auctions = events | only(Auction) | "by id" >> beam.Map(lambda auction: (auction.id, auction))
    bids = events | only(Bid) | "by auction" >> beam.Map(lambda bid: (bid.auction, bid))
    return joined(auctions=auctions, bids=bids) | beam.FlatMapTuple(_winner)


def q4(events: Any) -> Any:
    """The mean winning price of each category."""
    prices = winners(events) | "price" >> beam.MapTuple(
        lambda auction, bid: (auction.category, bid.price)
    )
    return (
        prices
        | beam.GroupByKey()
        | beam.MapTuple(lambda category, of_category: (category, cut_mean(list(of_category))))
    )


def q5(events: Any) -> Any:
    """The auctions with most bids of the last ten seconds, every two seconds."""

    def rows(most: Any, window: Any = beam.DoFn.WindowParam) -> list[Row]:
        return [(auction, most[1][0], start_ms(window)) for auction in most[1][1]]

    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: (bid.auction, None))
        | beam.WindowInto(SlidingWindows(WINDOW_S, PERIOD_S))
        | beam.combiners.Count.PerKey()
        | "of the window" >> beam.Map(lambda counted: (0, (counted[1], counted[0])))
        | beam.CombinePerKey(Highest())
        | beam.FlatMap(rows)
    )


def q6(events: Any) -> Any:
    """The mean winning price of each seller's last ten auctions."""
    by_seller = winners(events) | "by seller" >> beam.MapTuple(
        lambda auction, bid: (auction.seller, (auction.expires_ms, auction.id, bid.price))
    )
    return (
        by_seller
        | beam.combiners.Top.PerKey(LAST)
        | beam.MapTuple(lambda seller, last: (seller, cut_mean([price for _, _, price in last])))
    )


def q7(events: Any) -> Any:
    """The highest bids of each ten seconds."""
    return (
        events
        | only(Bid)
        | "by price" >> beam.Map(lambda bid: (0, (bid.price, bid)))
        | beam.WindowInto(FixedWindows(WINDOW_S))
        | beam.CombinePerKey(Highest())
        | beam.FlatMap(
            lambda most: [
                (bid.auction, bid.price, bid.bidder, bid.date_time_ms, bid.extra)
                for bid in most[1][1]
            ]
        )
    )


def q8(events: Any) -> Any:
    """People who have opened an auction in the ten seconds in which they signed up."""

    def rows(found: Any, window: Any = beam.DoFn.WindowParam) -> list[Row]:
        person, group = found
        return [(person, name, start_ms(window)) for name in group["names"] if group["auctions"]]

    names = (
        events
        | only(Person)
        | "by id" >> beam.Map(lambda person: (person.id, person.name))
        | "new" >> beam.WindowInto(FixedWindows(WINDOW_S))
    )
    auctions = (
        events
        | only(Auction)
        | "by seller" >> beam.Map(lambda auction: (auction.seller, auction.id))
        | "selling" >> beam.WindowInto(FixedWindows(WINDOW_S))
    )
    return joined(names=names, auctions=auctions) | beam.FlatMap(rows)


class Fields(fileio.TextSink):  # type: ignore[misc]
    """Lines of the fields of bids, which come with the folder of their file."""

    def write(self, record: tuple[str, str]) -> None:
        """Write the line alone."""
        super().write(record[1])


def q10(events: Any, path: Path) -> Any:
    """All bids in files, in the folder of their minute."""

    def filed(bid: Bid) -> tuple[str, str]:
        at = datetime.fromtimestamp(bid.date_time_ms / 1_000, UTC)
        return at.strftime("dt=%Y-%m-%d/hm=%H-%M"), ",".join(map(str, priced(bid)))

    def name(*of_file: Any) -> str:
        *_, shard, _, _, folder = of_file
        # A file is not moved to a folder that does not exist, and of that there is no error.
        (path / folder).mkdir(parents=True, exist_ok=True)
        return f"{folder}/bids-{shard}"

    return (
        events
        | only(Bid)
        | beam.Map(filed)
        | fileio.WriteToFiles(
            str(path), destination=lambda bid: bid[0], sink=lambda _: Fields(), file_naming=name
        )
    )


def q11(events: Any) -> Any:
    """How many bids somebody makes in a session."""

    def row(counted: Any, window: Any = beam.DoFn.WindowParam) -> Row:
        return (*counted, start_ms(window), int(window.end.micros) // 1_000)

    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: (bid.bidder, None))
        | beam.WindowInto(Sessions(GAP_S))
        | beam.combiners.Count.PerKey()
        | "session" >> beam.Map(row)
    )


def q12(events: Any) -> Any:
    """How many bids somebody makes in ten seconds of the clock: the runner has no clock for triggers in batch."""
    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: TimestampedValue((bid.bidder, None), time.time()))
        | beam.WindowInto(FixedWindows(WINDOW_S))
        | beam.combiners.Count.PerKey()
    )


def q13(events: Any) -> Any:
    """Bids with what a table says of their auctions."""

    def row(bid: Bid, table: Mapping[int, str]) -> Row:
        return bid.auction, bid.bidder, bid.price, bid.date_time_ms, table[bid.auction % SIDE_ROWS]

    table = (
        events.pipeline
        | "numbers" >> beam.Create(range(SIDE_ROWS))
        | "table" >> beam.Map(lambda number: (number, str(number)))
    )
    return events | only(Bid) | "look up" >> beam.Map(row, beam.pvalue.AsDict(table))


def _timed(bid: Bid) -> Row:
    hour = bid.date_time_ms // HOUR_MS % 24
    time_type = (
        "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
    )
    return (
        bid.auction, bid.bidder, 908 * bid.price, time_type, bid.date_time_ms, bid.extra,
        bid.extra.count("c"),
    )  # fmt: skip


def q14(events: Any) -> Any:
    """Large bids in euros, with the time of day, and how often a letter is in a text."""
    large = events | only(Bid) | beam.Filter(lambda bid: 10**9 < 908 * bid.price < 5 * 10**10)
    return large | "row" >> beam.Map(_timed)


def _ranked(bid: Bid) -> tuple[int, int, int]:
    return rank_of(bid.price), bid.bidder, bid.auction


def q15(events: Any) -> Any:
    """Bids, bidders and auctions of each day, altogether and by rank of price."""

    def row(found: Any, window: Any = beam.DoFn.WindowParam) -> Row:
        return (day_of(window), *found[1])

    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: (0, _ranked(bid)))
        | beam.WindowInto(FixedWindows(DAY_S))
        | beam.CombinePerKey(Statistics())
        | "day" >> beam.Map(row)
    )


def q16(events: Any) -> Any:
    """Bids, bidders and auctions of each channel and day, with the last minute in which there was a bid."""

    def row(found: Any, window: Any = beam.DoFn.WindowParam) -> Row:
        channel, (minute, statistics) = found
        return channel, day_of(window), f"{minute // 60:02}:{minute % 60:02}", *statistics

    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: (bid.channel, (bid.date_time_ms // 60_000 % 1_440, _ranked(bid))))
        | beam.WindowInto(FixedWindows(DAY_S))
        | beam.CombinePerKey(beam.combiners.TupleCombineFn(max, Statistics()))
        | "day" >> beam.Map(row)
    )


def q17(events: Any) -> Any:
    """Bids and prices of each auction and day."""

    def by_auction(bid: Bid) -> tuple[int, tuple[int, ...]]:
        ranks = [int(rank == rank_of(bid.price)) for rank in range(3)]
        return bid.auction, (*ranks, bid.price, bid.price, bid.price)

    def row(found: Any, window: Any = beam.DoFn.WindowParam) -> Row:
        auction, (*ranks, least, most, total) = found
        count = sum(ranks)
        return auction, day_of(window), count, *ranks, least, most, total // count, total

    return (
        events
        | only(Bid)
        | beam.Map(by_auction)
        | beam.WindowInto(FixedWindows(DAY_S))
        | beam.CombinePerKey(beam.combiners.TupleCombineFn(sum, sum, sum, min, max, sum))
        | "day" >> beam.Map(row)
    )


def q18(events: Any) -> Any:
    """The last bid of everybody on each auction."""
    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: ((bid.bidder, bid.auction), (bid.date_time_ms, bid)))
        | beam.CombinePerKey(max)
        | "bid" >> beam.Map(lambda found: tuple(found[1][1]))
    )


def q19(events: Any) -> Any:
    """The ten highest bids on each auction, with their ranks."""
    return (
        events
        | only(Bid)
        | beam.Map(lambda bid: (bid.auction, bid))
        | beam.combiners.Top.PerKey(BEST, key=bid_rank)
        | beam.FlatMap(lambda best: [(*bid, rank) for rank, bid in enumerate(best[1], 1)])
    )


def q20(events: Any) -> Any:
    """Bids with their auctions, of one category."""
    bids = events | only(Bid) | "by auction" >> beam.Map(lambda bid: (bid.auction, bid))
    auctions = (
        events
        | only(Auction)
        | "category" >> beam.Filter(lambda auction: auction.category == CATEGORY)
        | "by id" >> beam.Map(lambda auction: (auction.id, auction[1:]))
    )
    return joined(bids=bids, auctions=auctions) | beam.FlatMapTuple(
        lambda _, found: [
            (*bid, *auction) for auction in found["auctions"] for bid in found["bids"]
        ]
    )


def _with_id(bid: Bid) -> Iterator[Row]:
    in_url = CHANNEL_ID.search(bid.url)
    number = CHANNEL_IDS.get(bid.channel.lower(), in_url and in_url[1])
    if number is not None:
        yield bid.auction, bid.bidder, bid.price, bid.channel, number


def _of_bids(function: Callable[[Bid], Row]) -> Query:
    return lambda events: events | only(Bid) | beam.Map(function)


#: All but q10, whose answer is files.  In q1 and q14 thousandths of euros, as integers.
QUERIES: Mapping[str, Query] = {
    "q0": _of_bids(priced),
    "q1": _of_bids(
        lambda bid: (bid.auction, bid.bidder, 908 * bid.price, bid.date_time_ms, bid.extra)
    ),
    "q2": q2,
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q6": q6,
    "q7": q7,
    "q8": q8,
    "q9": lambda events: (
        winners(events)
        | "row"
        >> beam.MapTuple(
            lambda auction, bid: (
                *auction, bid.auction, bid.bidder, bid.price, bid.date_time_ms, bid.extra,
            )
        )
    ),
    "q11": q11,
    "q12": q12,
    "q13": q13,
    "q14": q14,
    "q15": q15,
    "q16": q16,
    "q17": q17,
    "q18": q18,
    "q19": q19,
    "q20": q20,
    "q21": lambda events: events | only(Bid) | beam.FlatMap(_with_id),
    "q22": _of_bids(
        lambda bid: (bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6])
    ),
}  # fmt: skip


def write(lines: Any, case: str, path: Path) -> None:
    """Leave the answer of a query as text files in a folder."""
    events = lines | "event" >> beam.Map(parse) | "stamp" >> beam.Map(stamped)
    if case == "q10":
        q10(events, path)
    else:
        rows = QUERIES[case](events) | "text" >> beam.Map(lambda row: ",".join(map(str, row)))
        rows | beam.io.WriteToText(str(path / "part"))

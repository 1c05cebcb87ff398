"""The queries of Nexmark that columns can say: no Python object for each event where a step says so.

Expressions and built-in combiners stay in columns, and so do the few functions here that are given a whole batch.
Where an answer has several equal rows (q5, q7), a batch is first cut to its own highest rows, which is what a
column can say, and the few that are left are compared one by one.
Answers are final: windows that fire once are those that stay in columns.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dataflow as df
from examples.nexmark.events import AUCTION, BID, PERSON
from examples.nexmark.groups_of_bids import (
    GAP_S,
    PERIOD_S,
    WINDOW_S,
    HighestCombineFn,
    minute_text,
)
from examples.nexmark.single_bids import CHANNEL_IDS, HOUR_MS, Row, Rows

_PRICE = df.col("price")
#: Whether a price is of a rank, as `groups_of_bids.price_rank` says.
RANKS: Mapping[str, df.RowExpression] = {
    "rank1": _PRICE < 10_000,
    "rank2": (_PRICE >= 10_000) & (_PRICE < 1_000_000),
    "rank3": _PRICE >= 1_000_000,
}


class PlainBid(NamedTuple):
    """An event, with the fields of bids that most queries read."""

    kind: int
    date_time_ms: int
    extra: str
    auction: int | None = None
    bidder: int | None = None
    price: int | None = None


class CountedBid(NamedTuple):
    """An event, with the fields of bids that queries which count bids read."""

    kind: int
    date_time_ms: int
    auction: int | None = None
    bidder: int | None = None
    price: int | None = None
    channel: str | None = None


class LinkedBid(NamedTuple):
    """A bid with its channel and address."""

    kind: int
    date_time_ms: int
    auction: int | None = None
    bidder: int | None = None
    price: int | None = None
    channel: str | None = None
    url: str | None = None


class Seller(NamedTuple):
    """A person, or the seller of an auction."""

    kind: int
    date_time_ms: int
    id: int | None = None
    name: str | None = None
    seller: int | None = None


class Offer(NamedTuple):
    """An auction, or a bid."""

    kind: int
    date_time_ms: int
    id: int | None = None
    expires_ms: int | None = None
    category: int | None = None
    auction: int | None = None
    price: int | None = None


def bids_of(events: df.PCollection[Any]) -> df.PCollection[Any]:
    """The bids among some events."""
    return events | "bids" >> df.Filter(df.col("kind") == BID)


def ms_of(instant: datetime) -> int:
    """Milliseconds since 1970; whole ones, as all bounds of windows here."""
    return round(instant.timestamp() * 1_000)


@df.ptransform_fn
def q0(events: df.PCollection[Any]) -> Rows:
    """Pass through."""
    return bids_of(events) | df.Select("auction", "bidder", "price", "date_time_ms", "extra")


@df.ptransform_fn
def q1(events: df.PCollection[Any]) -> Rows:
    """Bids in euros."""
    return bids_of(events) | df.Select(
        "auction", "bidder", price=_PRICE * 908 / 1_000, date_time_ms="date_time_ms", extra="extra"
    )


@df.ptransform_fn
def q2(events: df.PCollection[Any]) -> Rows:
    """Bids on some auctions."""
    some = bids_of(events) | df.Filter(df.col("auction") % 123 == 0)
    return some | df.Select("auction", "price")


@attrs.frozen
class KeepHighest(df.DoFn):
    """Leaves out rows that are below another of their group in the same batch, so the highest of all stay.

    Attributes:
        field: with an integer that is compared.
        group: the field that says which group a row is of.
    """

    field: str
    group: str

    def process_batch(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows with the greatest number of their group."""
        groups = batch[self.group].dictionary_encode()
        codes, numbers = groups.indices.to_numpy(), batch[self.field].to_numpy()
        highest = np.full(len(groups.dictionary), np.iinfo(np.int64).min)
        np.maximum.at(highest, codes, numbers)
        kept = pa.array(np.flatnonzero(numbers == highest[codes]))
        return batch.take(kept), kept


@df.ptransform_fn
def q5(events: df.PCollection[Any]) -> Rows:
    """The auctions with most bids of the last ten seconds, every two seconds."""
    return (
        bids_of(events)
        | df.WindowInto(df.SlidingWindows(WINDOW_S, period=PERIOD_S))
        | df.GroupBy("auction").aggregate_field("auction", df.CountCombineFn(), "num")
        | df.WindowStart("start")
        | df.ParDo(KeepHighest("num", "start"))
        | "of the window" >> df.Map(lambda row: (0, (row.num, (row.auction, row.num, row.start))))
        | df.CombinePerKey(HighestCombineFn())
        | df.FlatMap(lambda most: [(auction, num, ms_of(at)) for auction, num, at in most[1][1]])
    )


@df.ptransform_fn
def q7(events: df.PCollection[Any]) -> Rows:
    """The highest bids of each ten seconds."""
    return (
        bids_of(events)
        | df.Select("auction", "price", "bidder", "date_time_ms", "extra")
        | df.WindowInto(df.FixedWindows(WINDOW_S))
        | df.WindowStart("start")
        | df.ParDo(KeepHighest("price", "start"))
        | "by price" >> df.Map(lambda row: (0, (row.price, tuple(row[:-1]))))
        | df.CombinePerKey(HighestCombineFn())
        | df.FlatMap(lambda highest: highest[1][1])
    )


@df.ptransform_fn
def q8(events: df.PCollection[Any]) -> Rows:
    """People who have opened an auction in the ten seconds in which they signed up; sellers are counted first."""
    window = df.WindowInto(df.FixedWindows(WINDOW_S))
    people = (
        events
        | "people" >> df.Filter(df.col("kind") == PERSON)
        | "new" >> window
        | df.GroupBy("id", "name").aggregate_field("id", df.CountCombineFn(), "times")
        | "by id" >> df.Map(lambda row: (row.id, row.name))
    )
    sellers = (
        events
        | "auctions" >> df.Filter(df.col("kind") == AUCTION)
        | "selling" >> window
        | df.GroupBy("seller").aggregate_field("seller", df.CountCombineFn(), "times")
        | "by seller" >> df.Map(lambda row: (row.seller, row.times))
    )
    return (people, sellers) | df.CoGroupByKey() | df.FlatMap(_new_sellers)


def _new_sellers(
    group: tuple[int, tuple[list[str], list[int]]], window: df.Window = df.DoFn.WindowParam
) -> list[Row]:
    person, (names, auctions) = group
    return [(person, name, window.start_us // 1_000) for name in names if auctions]


class Spans(df.DoFn):
    """Auctions and bids on them as rows of one kind, with how long each is there: an auction while it takes bids."""

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of a whole batch; a bid is of no category, and an auction has no price yet: -1."""
        open_ms = pc.subtract(batch["expires_ms"], batch["date_time_ms"])
        seconds = pc.divide(pc.add(pc.coalesce(open_ms, 0), 1).cast(pa.float64()), 1_000)
        columns = {
            "auction": pc.coalesce(batch["auction"], batch["id"]),
            "category": pc.coalesce(batch["category"], -1),
            "price": pc.coalesce(batch["price"], -1),
            "seconds": seconds,
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


@df.ptransform_fn
def q4(events: df.PCollection[Any]) -> Rows:
    """The mean winning price of each category: the window of an auction is the time in which it is open.

    A bid has no category, and an auction no price, so the greatest of both say whether there are both.
    """
    by_auction = (
        df.GroupBy("auction")
        .aggregate_field("category", max, "category")
        .aggregate_field("price", max, "final")
    )
    by_category = (
        df.GroupBy("category")
        .aggregate_field("final", sum, "total")
        .aggregate_field("final", df.CountCombineFn(), "sold")
    )
    return (
        events
        | "offers" >> df.Filter(df.col("kind").is_in([AUCTION, BID]))
        | df.ParDo(Spans())
        | "while open" >> df.WindowInto(df.Sessions(df.col("seconds")))
        | by_auction
        | "sold" >> df.Filter((df.col("category") >= 0) & (df.col("final") >= 0))
        | "all auctions" >> df.WindowInto(df.GlobalWindows())
        | by_category
        | df.Map(lambda row: (row.category, row.total // row.sold))
    )


@df.ptransform_fn
def q11(events: df.PCollection[Any]) -> Rows:
    """How many bids somebody makes in a session."""
    return (
        bids_of(events)
        | df.WindowInto(df.Sessions(GAP_S))
        | df.GroupBy("bidder").aggregate_field("bidder", df.CountCombineFn(), "bids")
        | df.WindowStart("start")
        | df.WindowEnd("end")
        | df.Map(lambda row: (row.bidder, row.bids, ms_of(row.start), ms_of(row.end)))
    )


@df.ptransform_fn
def q12(events: df.PCollection[Any]) -> Rows:
    """How many bids somebody makes in ten seconds of the clock, for events that happen when they are read."""
    return (
        bids_of(events)
        | df.WindowInto(df.FixedWindows(WINDOW_S))
        | df.GroupBy("bidder").aggregate_field("bidder", df.CountCombineFn(), "bids")
        | df.Select("bidder", "bids")
    )


class TimeAndLetters(df.DoFn):
    """The last two fields of q14."""

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Both for a whole batch."""
        hours = pa.array(batch["date_time_ms"].to_numpy() // HOUR_MS % 24)
        is_day = pc.and_(pc.greater_equal(hours, 8), pc.less_equal(hours, 18))
        is_night = pc.or_(pc.less_equal(hours, 6), pc.greater_equal(hours, 20))
        kinds = pc.if_else(is_day, "dayTime", pc.if_else(is_night, "nightTime", "otherTime"))
        letters = pc.count_substring(batch["extra"], "c").cast(pa.int64())
        names = ["auction", "bidder", "price", "time_type", "date_time_ms", "extra", "c_counts"]
        columns = [batch[name] for name in ("auction", "bidder", "price", "date_time_ms", "extra")]
        columns.insert(3, kinds)
        return pa.RecordBatch.from_arrays([*columns, letters], names)


@df.ptransform_fn
def q14(events: df.PCollection[Any]) -> Rows:
    """Large bids in euros, with the time of day, and how often a letter is in a text."""
    in_euros = events | q1()
    large = in_euros | df.Filter((_PRICE > 1_000_000) & (_PRICE < 50_000_000))
    return large | df.ParDo(TimeAndLetters())


class BiddersAndAuctions(df.DoFn):
    """Of each bid two rows, for what is counted once: its bidder (``of`` is 0), and its auction (1)."""

    def process_batch(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Both, one after the other."""
        size = batch.num_rows
        at = np.repeat(np.arange(size), 2)
        of = np.tile([0, 1], size)
        ids = np.stack([batch["bidder"].to_numpy(), batch["auction"].to_numpy()], axis=1).ravel()
        others = [name for name in batch.schema.names if name not in {"bidder", "auction"}]
        twice = batch.select(others).take(pa.array(at))
        columns = [pa.array(of), pa.array(ids), *twice.columns]
        return pa.RecordBatch.from_arrays(columns, ["of", "id", *others]), pa.array(at)


class Statistics(df.PTransform[df.PCollection[Any], Rows]):
    """Bids, bidders and auctions of a day, altogether and by rank of price: one row for each value of some fields.

    Each bidder and auction is counted with the bids on it by rank first, and then the counted are counted.
    """

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def expand(self, pcoll: df.PCollection[Any]) -> Rows:
        """Count, count what was counted, and put the two rows of bidders and auctions together."""
        keys = ("of", *self._keys)
        minute = df.col("date_time_ms") // 60_000 % 1_440
        counted = (
            pcoll
            | "ranks" >> df.Select("auction", "bidder", *self._keys, minute=minute, **RANKS)
            | df.ParDo(BiddersAndAuctions())
            | df.WindowInto(df.FixedWindows("1 day"))
            | "each" >> _summed(df.GroupBy(*keys, "id"), {name: name for name in RANKS})
        )
        there = {f"has_{name}": df.col(name) > 0 for name in RANKS}
        fields = {name: f"has_{name}" for name in RANKS} | {f"{name}_bids": name for name in RANKS}
        return (
            counted
            | "there" >> df.Select(*keys, "minute", *RANKS, **there)
            | "all" >> _summed(df.GroupBy(*keys), fields, count=True)
            | df.WindowStart("day")
            | "by day" >> df.Map(self._by_day)
            | df.GroupByKey()
            | df.Map(_statistics)
        )

    def _by_day(self, row: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
        key = tuple(getattr(row, name) for name in self._keys)
        numbers = (row.ids, *(getattr(row, name) for name in RANKS))
        bids = tuple(getattr(row, f"{name}_bids") for name in RANKS)
        return (*key, f"{row.day:%Y-%m-%d}"), (row.of, row.minute, sum(bids), *bids, *numbers)


def _summed(group: df.GroupBy, fields: Mapping[str, str], *, count: bool = False) -> df.GroupBy:
    group = group.aggregate_field("minute", max, "minute")
    for name, field in fields.items():
        group = group.aggregate_field(field, sum, name)
    return group.aggregate_field("minute", df.CountCombineFn(), "ids") if count else group


def _statistics(found: tuple[tuple[str, ...], Sequence[tuple[int, ...]]]) -> Row:
    key, both = found
    bidders, auctions = sorted(both)
    return *key, minute_text(bidders[1]), *bidders[2:], *auctions[6:]


@df.ptransform_fn
def q15(events: df.PCollection[Any]) -> Rows:
    """Bids, bidders and auctions of each day, altogether and by rank of price."""
    return bids_of(events) | Statistics() | "row" >> df.Map(lambda row: (row[0], *row[2:]))


@df.ptransform_fn
def q16(events: df.PCollection[Any]) -> Rows:
    """Bids, bidders and auctions of each channel and day, with the last minute in which there was a bid."""
    return bids_of(events) | Statistics("channel")


@df.ptransform_fn
def q17(events: df.PCollection[Any]) -> Rows:
    """Bids and prices of each auction and day; the mean is cut."""
    group = df.GroupBy("auction")
    for name in RANKS:
        group = group.aggregate_field(name, sum, name)
    for name, combine in (("lowest", min), ("highest", max), ("total", sum)):
        group = group.aggregate_field("price", combine, name)
    return (
        bids_of(events)
        | df.Select("auction", "price", **RANKS)
        | df.WindowInto(df.FixedWindows("1 day"))
        | group
        | df.WindowStart("day")
        | "row" >> df.Map(_of_auction)
    )


def _of_auction(row: Any) -> Row:
    ranks = (row.rank1, row.rank2, row.rank3)
    count = sum(ranks)
    means = (row.lowest, row.highest, row.total // count, row.total)
    return row.auction, f"{row.day:%Y-%m-%d}", count, *ranks, *means


class ChannelIds(df.DoFn):
    """The id of a bid's channel, as its name or the address says; bids without one are left out."""

    def process_batch(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Of a whole batch."""
        in_url = pc.extract_regex(batch["url"], r"(?:&|^)channel_id=(?P<id>[^&]*)")
        at = pc.index_in(pc.utf8_lower(batch["channel"]), pa.array(list(CHANNEL_IDS)))
        by_name = pa.array(list(CHANNEL_IDS.values())).take(at)
        ids = pc.coalesce(by_name, pc.struct_field(in_url, "id"))
        kept = pc.indices_nonzero(pc.is_valid(ids))
        names = ["auction", "bidder", "price", "channel"]
        columns = [*(batch[name] for name in names), ids]
        found = pa.RecordBatch.from_arrays(columns, [*names, "channel_id"])
        return found.take(kept), kept


@df.ptransform_fn
def q21(events: df.PCollection[Any]) -> Rows:
    """Bids with the id of their channel."""
    return bids_of(events) | df.ParDo(ChannelIds())


class Folders(df.DoFn):
    """The folders of a bid's address."""

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of a whole batch."""
        parts = pc.split_pattern(batch["url"], "/")
        folders = [pc.list_element(parts, place) for place in (3, 4, 5)]
        names = ["auction", "bidder", "price", "channel"]
        columns = [*(batch[name] for name in names), *folders]
        return pa.RecordBatch.from_arrays(columns, [*names, "dir1", "dir2", "dir3"])


@df.ptransform_fn
def q22(events: df.PCollection[Any]) -> Rows:
    """Bids with the folders of their addresses."""
    return bids_of(events) | df.ParDo(Folders())


@attrs.frozen
class ColumnQuery:
    """A query in columns.

    Attributes:
        build: makes the transform, from rows of the type to rows.
        row_type: of events, with those of the fields of `examples.nexmark.events.EventRow` that it needs.
        by_arrival: whether events happen when they are read.
    """

    build: Callable[[], df.PTransform[Any, Rows]]
    row_type: Any
    by_arrival: bool = False


COLUMN_QUERIES: Mapping[str, ColumnQuery] = {
    "q0": ColumnQuery(q0, PlainBid),
    "q1": ColumnQuery(q1, PlainBid),
    "q2": ColumnQuery(q2, PlainBid),
    "q4": ColumnQuery(q4, Offer),
    "q5": ColumnQuery(q5, CountedBid),
    "q7": ColumnQuery(q7, PlainBid),
    "q8": ColumnQuery(q8, Seller),
    "q11": ColumnQuery(q11, CountedBid),
    "q12": ColumnQuery(q12, CountedBid, by_arrival=True),
    "q14": ColumnQuery(q14, PlainBid),
    "q15": ColumnQuery(q15, CountedBid),
    "q16": ColumnQuery(q16, CountedBid),
    "q17": ColumnQuery(q17, CountedBid),
    "q21": ColumnQuery(q21, LinkedBid),
    "q22": ColumnQuery(q22, LinkedBid),
}

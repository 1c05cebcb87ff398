"""Queries of Nexmark that look at one bid at a time: q0, q1, q2, q10, q13, q14, q21 and q22."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import dataflow as df
from examples.nexmark.answers import FINAL, Answers
from examples.nexmark.events import Bid, Event

Row = tuple[Any, ...]
Rows = df.PCollection[Row]
Events = df.PCollection[Event]

#: How many rows the table of q13 has.
SIDE_ROWS = 10_000
HOUR_MS = 3_600_000
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
CHANNEL_ID = re.compile(r"(?:&|^)channel_id=([^&]*)")


def bids_of(events: Events) -> df.PCollection[Any]:
    """The bids among some events."""
    return events | "bids" >> df.Filter(lambda event: isinstance(event, Bid))


def euros(cents: int) -> float:
    """A price in euros, at the rate that the queries have."""
    return cents * 908 / 1_000


def with_price(bid: Bid, price: Any) -> Row:
    """The fields that most queries emit."""
    return bid.auction, bid.bidder, price, bid.date_time_ms, bid.extra


@df.ptransform_fn
def q0(events: Events, answers: Answers = FINAL) -> Rows:
    """Pass through: what reading and writing cost."""
    return bids_of(events) | df.Map(lambda bid: with_price(bid, bid.price))


@df.ptransform_fn
def q1(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids in euros."""
    return bids_of(events) | df.Map(lambda bid: with_price(bid, euros(bid.price)))


@df.ptransform_fn
def q2(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids on some auctions."""
    some = bids_of(events) | df.Filter(lambda bid: bid.auction % 123 == 0)
    return some | df.Map(lambda bid: (bid.auction, bid.price))


class FiledBid(NamedTuple):
    """A bid, and the folder that it goes to."""

    folder: str
    auction: int
    bidder: int
    price: int
    date_time_ms: int
    extra: str


@df.ptransform_fn
def q10(events: Events, answers: Answers = FINAL) -> df.PCollection[FiledBid]:
    """Bids, each with the folder of its minute; `write_files` writes them."""
    return bids_of(events) | df.Map(filed)


def filed(bid: Bid) -> FiledBid:
    """A bid with the folder of its minute."""
    at = datetime.fromtimestamp(bid.date_time_ms / 1_000, UTC)
    return FiledBid(at.strftime("dt=%Y-%m-%d/hm=%H-%M"), *with_price(bid, bid.price))


def write_files(path: str | Path) -> df.WriteToCsv:
    """The sink of q10: CSV in a folder for each minute, and each bid in one file, whatever fails."""
    columns = FiledBid._fields[1:]
    return df.WriteToCsv(path, columns=columns, naming=lambda bid: f"{bid.folder}/bids")


@df.ptransform_fn
def q13(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids with what a table says of their auctions; the table is a side input."""
    numbered = events.pipeline | "rows" >> df.Create(range(SIDE_ROWS))
    table = numbered | "table" >> df.Map(lambda number: (number, str(number)))
    return bids_of(events) | "look up" >> df.Map(_with_value, df.AsDict(table))


def _with_value(bid: Bid, table: Mapping[int, str]) -> Row:
    return bid.auction, bid.bidder, bid.price, bid.date_time_ms, table[bid.auction % SIDE_ROWS]


@df.ptransform_fn
def q14(events: Events, answers: Answers = FINAL) -> Rows:
    """Large bids in euros, with the time of day, and how often a letter is in a text."""
    large = bids_of(events) | df.Filter(lambda bid: 1_000_000 < euros(bid.price) < 50_000_000)
    return large | df.Map(_timed)


def _timed(bid: Bid) -> Row:
    price = euros(bid.price)
    kind = time_type(bid.date_time_ms // HOUR_MS % 24)
    return (
        bid.auction, bid.bidder, price, kind, bid.date_time_ms, bid.extra, bid.extra.count("c"),
    )  # fmt: skip


def time_type(hour: int) -> str:
    """What q14 calls an hour of the day."""
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


@df.ptransform_fn
def q21(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids with the id of their channel, as its name or the address says."""
    return bids_of(events) | df.FlatMap(_with_channel)


def _with_channel(bid: Bid) -> Iterator[Row]:
    channel_id = CHANNEL_IDS.get(bid.channel.lower())
    if channel_id is None:
        found = CHANNEL_ID.search(bid.url)
        channel_id = None if found is None else found[1]
    if channel_id is not None:
        yield bid.auction, bid.bidder, bid.price, bid.channel, channel_id


@df.ptransform_fn
def q22(events: Events, answers: Answers = FINAL) -> Rows:
    """Bids with the folders of their addresses."""
    return bids_of(events) | df.Map(
        lambda bid: (bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6])
    )

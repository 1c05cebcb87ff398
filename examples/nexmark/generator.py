"""The events of Nexmark, each from its number and the seed alone, so that any of them can be made first.

Of each 50 events one is a person, 3 are auctions, and 46 are bids.  Half of the bids are on a *hot* auction, which
changes with every hundred; three quarters of the auctions are of a hot seller, three quarters of the bids by a hot
bidder.  These figures are those of github.com/nexmark/nexmark, and of Beam; random numbers are others, and `Bid.bidder`
is the id of a person who exists or will soon.

**Order.** Event number n is the n-th in event time.  Where it *arrives* is something else: events are shuffled in
groups (`GeneratorConfig.disorder`), for which the watermark waits, and some come late, when it has passed them.
Both are permutations: whatever the order, the events are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, auto
from functools import cache
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.events import AUCTION, BID, KINDS, PERSON, Event
from examples.nexmark.randomness import Chance, Int64s

#: Of each epoch of events so many are people, then auctions, and the rest bids.
PEOPLE, AUCTIONS, EPOCH = 1, 3, 50
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
#: The first of each so many auctions, or people, is the hot one.
HOT_BATCH = 100
#: References are to so many ids that come later, too.
LEAD = 10
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = (
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
)  # fmt: skip
LAST_NAMES = (
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
)  # fmt: skip
#: How long `extra` is, so that a person has some 200 bytes, an auction 500 and a bid 100.
EXTRA = {PERSON: (96, 144), AUCTION: (320, 480), BID: (54, 81)}
#: 2015-07-15T00:00:00Z, where the generator of Beam begins.
FIRST_TIME_MS = 1_436_918_400_000


class Draw(IntEnum):
    """What is drawn for a record; a text takes its number and the next."""

    IS_HOT = auto()
    REFERENCE = auto()
    BIDDER_IS_HOT = auto()
    BIDDER = auto()
    CATEGORY = auto()
    PRICE = auto()
    RESERVE = auto()
    LENGTH = auto()
    CHANNEL_IS_HOT = auto()
    CHANNEL = auto()
    NAME = auto()
    LAST_NAME = auto()
    CITY = auto()
    STATE = auto()
    CARD = auto()
    CARD_2 = auto()
    CARD_3 = auto()
    CARD_4 = auto()
    EMAIL = auto()
    EMAIL_LENGTH = auto()
    HOST = auto()
    HOST_LENGTH = auto()
    ITEM = auto()
    ITEM_LENGTH = auto()
    DESCRIPTION = auto()
    DESCRIPTION_LENGTH = auto()
    EXTRA = auto()
    EXTRA_LENGTH = auto()
    ORDER = auto()
    LATE = auto()


@attrs.frozen(kw_only=True)
class GeneratorConfig:
    """What is generated.

    Attributes:
        seed: another one gives other events.
        size: how many events; None: there is no end.
        events_per_s: in event time.
        first_time_ms: event time of the first event, in milliseconds since 1970.
        disorder: events arrive shuffled in groups of so many; 1: in order.  None is late by that.
        late_of: one event of so many is late; 0: none.
        late_by: a late event arrives at the end of its so many events; a multiple of ``disorder`` is taken.
        hot_auctions, hot_sellers, hot_bidders: all but one of so many refer to the hot one.
        in_flight_auctions: so many of the last auctions are bid on, if they are not hot; how many are open at a time.
        active_people: so many of the last people sell and bid, if they are not hot.

    Raises:
        ValueError: a number is too small.
    """

    seed: int = 0
    size: int | None = None
    events_per_s: int = 10_000
    first_time_ms: int = FIRST_TIME_MS
    disorder: int = 1
    late_of: int = 0
    late_by: int = 1_000
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4
    in_flight_auctions: int = 100
    active_people: int = 1_000

    def __attrs_post_init__(self) -> None:
        least = {"seed": 0, "late_of": 0, "first_time_ms": 0}
        for name, number in attrs.asdict(self).items():
            if number is not None and number < least.get(name, 1):
                raise ValueError(f"{name} of a GeneratorConfig cannot be {number}")

    @property
    def block(self) -> int:
        """Arrival permutes events within blocks of so many."""
        return self.disorder * -(-self.late_by // self.disorder) if self.late_of else self.disorder

    def time_ms(self, numbers: Int64s) -> Int64s:
        """The event times of events, in milliseconds since 1970."""
        return self.first_time_ms + numbers * 1_000 // self.events_per_s


def arrivals(config: GeneratorConfig, places: Int64s) -> tuple[Int64s, Int64s]:
    """The numbers of the events that arrive in some places of the stream, and the watermark before each place.

    Args:
        config: of the stream.
        places: in ascending order, at least one; each is below the size.

    Returns:
        Numbers, and event times in milliseconds since 1970: events that are not late, and arrive in the place or
        after it, are not earlier.
    """
    if config.block == 1:
        return places, config.time_ms(places)
    first = int(places[0]) // config.block * config.block
    end = (int(places[-1]) // config.block + 1) * config.block
    numbers = np.arange(first, end if config.size is None else min(end, config.size))
    order, is_late = _arrival_order(config, numbers)
    numbers = numbers[order]
    # The least number to come that is not late; behind the last of them in these blocks that is the next block's.
    waits_for = np.where(is_late[order], end, numbers)
    waits_for = np.minimum.accumulate(waits_for[::-1])[::-1]
    at = places - first
    return numbers[at], config.time_ms(waits_for[at])


def is_late(config: GeneratorConfig, numbers: Int64s) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether events arrive at the end of their block, when the watermark may have passed them."""
    if not config.late_of:
        return np.zeros(len(numbers), np.bool_)
    found: np.ndarray[Any, np.dtype[np.bool_]] = (
        Chance(config.seed, numbers).below(Draw.LATE, config.late_of) == 0
    )
    return found


def _arrival_order(config: GeneratorConfig, numbers: Int64s) -> tuple[Int64s, Any]:
    late = is_late(config, numbers)
    shuffled = Chance(config.seed, numbers).bits(Draw.ORDER)
    order = np.lexsort((shuffled, numbers // config.disorder, late, numbers // config.block))
    return order, late


def kinds_of(numbers: Int64s) -> Int64s:
    """Of which kind events are: `PERSON`, `AUCTION` or `BID`."""
    place = numbers % EPOCH
    return np.where(place < PEOPLE, PERSON, np.where(place < PEOPLE + AUCTIONS, AUCTION, BID))


def event(config: GeneratorConfig, number: int) -> Event:
    """One event.

    Args:
        config: of the stream.
        number: of the event, in event time.
    """
    return events(config, np.array([number]))[0]


def events(config: GeneratorConfig, numbers: Int64s) -> list[Event]:
    """Events, as instances of `Person`, `Auction` and `Bid`.

    Args:
        config: of the stream.
        numbers: of the events, in any order.
    """
    found: list[Any] = [None] * len(numbers)
    kinds = kinds_of(numbers)
    for kind, row_type in enumerate(KINDS):
        at = np.flatnonzero(kinds == kind)
        columns = fields(config, kind, numbers[at], row_type._fields)
        rows = map(row_type, *[columns[name].to_pylist() for name in row_type._fields])
        for place, row in zip(at.tolist(), rows, strict=True):
            found[place] = row
    return found


def event_columns(
    config: GeneratorConfig, numbers: Int64s, names: Sequence[str]
) -> dict[str, pa.Array]:
    """Events as columns: fields of `EventRow`, null where a kind has no such field.

    Args:
        config: of the stream.
        numbers: of the events, in any order.
        names: of the fields; no other is made.
    """
    kinds = kinds_of(numbers)
    at = [np.flatnonzero(kinds == kind) for kind in range(len(KINDS))]
    parts = [fields(config, kind, numbers[places], names) for kind, places in enumerate(at)]
    # Where the event that is in each place stands among those of the kinds, one kind after the other.
    back = np.argsort(np.concatenate(at))
    found: dict[str, pa.Array] = {"kind": pa.array(kinds)}
    for name in names:
        if name in found:
            continue
        type_ = next(part[name].type for part in parts if name in part)
        arrays = [
            part[name] if name in part else pa.nulls(len(places), type_)
            for part, places in zip(parts, at, strict=True)
        ]
        found[name] = pa.concat_arrays(arrays).take(pa.array(back))
    return found


def fields(
    config: GeneratorConfig, kind: int, numbers: Int64s, names: Sequence[str]
) -> dict[str, pa.Array]:
    """Make some fields of events of one kind, as columns.

    Args:
        config: of the stream.
        kind: of all the events.
        numbers: of the events.
        names: of fields, also of those of other kinds.
    """
    made = _Made(config, numbers)
    makers = _MAKERS[kind]
    return {name: made.column(makers[name]) for name in names if name in makers}


@cache
def _digits() -> tuple[str, ...]:
    return tuple(f"{number:04}" for number in range(10_000))


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """The channels, hot ones first, and their addresses; nine of ten name the channel's id."""
    count = len(HOT_CHANNELS) + CHANNELS
    chance = Chance(0, np.arange(count))
    folders = [
        chance.texts(draw, 3, 4, "_").to_pylist() for draw in (Draw.ITEM, Draw.EMAIL, Draw.HOST)
    ]
    has_id = (chance.below(Draw.CHANNEL, 10) > 0).tolist()
    names, urls = list(HOT_CHANNELS), []
    names += [f"channel-{number}" for number in range(CHANNELS)]
    for place, (one, two, three) in enumerate(zip(*folders, strict=True)):
        number = place - len(HOT_CHANNELS)
        own = f"&channel_id={number * 7_919}" if number >= 0 and has_id[place] else ""
        urls.append(f"https://www.nexmark.com/{one}/{two}/{three}/item.htm?query=1{own}")
    return pa.array(names), pa.array(urls)


class _Made:
    """Columns of events of one kind."""

    def __init__(self, config: GeneratorConfig, numbers: Int64s) -> None:
        self.config, self.numbers = config, numbers
        self.chance = Chance(config.seed, numbers)
        self.times_ms = config.time_ms(numbers)
        #: The last person, and the last auction, that there is; counted from 0.
        self.person = numbers // EPOCH
        place = numbers % EPOCH
        self.auction = self.person * AUCTIONS + np.clip(place - PEOPLE, -1, AUCTIONS - 1)

    def column(self, maker: "_Maker") -> pa.Array:
        made = maker(self)
        return pa.array(made) if isinstance(made, np.ndarray) else made

    def price(self, draw: Draw) -> Int64s:
        """From a dollar to a million, in cents; each power of ten is as likely."""
        return np.rint(10.0 ** (self.chance.unit(draw) * 6.0) * 100.0).astype(np.int64)

    def someone(self, hot: Int64s, is_hot: Draw, ratio: int, reference: Draw) -> Int64s:
        """The id of the hot person, or of one of those that are active or will soon be there."""
        active = np.minimum(self.person + 1, self.config.active_people)
        other = self.person + 1 - active + self.chance.below(reference, active + LEAD)
        return FIRST_ID + np.where(self.chance.below(is_hot, ratio) > 0, hot, other)

    def seller(self) -> Int64s:
        hot = self.person // HOT_BATCH * HOT_BATCH
        return self.someone(hot, Draw.IS_HOT, self.config.hot_sellers, Draw.REFERENCE)

    def bidder(self) -> Int64s:
        hot = self.person // HOT_BATCH * HOT_BATCH + 1
        return self.someone(hot, Draw.BIDDER_IS_HOT, self.config.hot_bidders, Draw.BIDDER)

    def bid_on(self) -> Int64s:
        """The id of the hot auction, or of one that may be open or will soon be there."""
        least = np.maximum(self.auction - self.config.in_flight_auctions, 0)
        other = least + self.chance.below(Draw.REFERENCE, self.auction - least + 1 + LEAD)
        is_hot = self.chance.below(Draw.IS_HOT, self.config.hot_auctions) > 0
        return FIRST_ID + np.where(is_hot, self.auction // HOT_BATCH * HOT_BATCH, other)

    def expires_ms(self) -> Int64s:
        """So that about as many auctions are open as are bid on."""
        ahead = self.config.in_flight_auctions * EPOCH // AUCTIONS
        horizon_ms = self.config.time_ms(self.numbers + ahead) - self.times_ms
        length_ms = self.chance.below(Draw.LENGTH, np.maximum(2 * horizon_ms, 1))
        return self.times_ms + 1 + length_ms

    def channel(self) -> Int64s:
        """The place of the channel among `_channels`."""
        hot = self.chance.below(Draw.CHANNEL, len(HOT_CHANNELS))
        other = len(HOT_CHANNELS) + self.chance.below(Draw.CHANNEL, CHANNELS)
        return np.where(self.chance.below(Draw.CHANNEL_IS_HOT, 2) > 0, hot, other)

    def card(self) -> pa.Array:
        draws = (Draw.CARD, Draw.CARD_2, Draw.CARD_3, Draw.CARD_4)
        return pc.binary_join_element_wise(*[self.chance.chosen(d, _digits()) for d in draws], " ")

    def email(self) -> pa.Array:
        name, host = self.chance.texts(Draw.EMAIL, 3, 6), self.chance.texts(Draw.HOST, 3, 4)
        return pc.binary_join_element_wise(name, "@", host, ".com", "")

    def name(self) -> pa.Array:
        first = self.chance.chosen(Draw.NAME, FIRST_NAMES)
        return pc.binary_join_element_wise(
            first, self.chance.chosen(Draw.LAST_NAME, LAST_NAMES), " "
        )


_Maker = Callable[[_Made], "pa.Array | Int64s"]


def _extra(kind: int) -> _Maker:
    return lambda made: made.chance.texts(Draw.EXTRA, *EXTRA[kind])


_MAKERS: tuple[Mapping[str, _Maker], ...] = (
    {
        "id": lambda made: FIRST_ID + made.person,
        "name": _Made.name,
        "email_address": _Made.email,
        "credit_card": _Made.card,
        "city": lambda made: made.chance.chosen(Draw.CITY, CITIES),
        "state": lambda made: made.chance.chosen(Draw.STATE, STATES),
        "date_time_ms": lambda made: made.times_ms,
        "extra": _extra(PERSON),
    },
    {
        "id": lambda made: FIRST_ID + made.auction,
        "item_name": lambda made: made.chance.texts(Draw.ITEM, 3, 19, " "),
        "description": lambda made: made.chance.texts(Draw.DESCRIPTION, 3, 99, " "),
        "initial_bid": lambda made: made.price(Draw.PRICE),
        "reserve": lambda made: made.price(Draw.PRICE) + made.price(Draw.RESERVE),
        "date_time_ms": lambda made: made.times_ms,
        "expires_ms": _Made.expires_ms,
        "seller": _Made.seller,
        "category": lambda made: FIRST_CATEGORY + made.chance.below(Draw.CATEGORY, CATEGORIES),
        "extra": _extra(AUCTION),
    },
    {
        "auction": _Made.bid_on,
        "bidder": _Made.bidder,
        "price": lambda made: made.price(Draw.PRICE),
        "channel": lambda made: _channels()[0].take(pa.array(made.channel())),
        "url": lambda made: _channels()[1].take(pa.array(made.channel())),
        "date_time_ms": lambda made: made.times_ms,
        "extra": _extra(BID),
    },
)

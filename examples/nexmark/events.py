"""The events of an auction house: people who sign up, auctions that are opened, bids on them.

The schema is that of Nexmark (Tucker et al., 2002) as github.com/nexmark/nexmark has it; times are integers of
milliseconds since 1970 in UTC.
"""

from typing import NamedTuple


class Person(NamedTuple):
    """Somebody who sells or bids."""

    id: int
    name: str
    email_address: str
    credit_card: str
    city: str
    state: str
    date_time_ms: int
    extra: str


class Auction(NamedTuple):
    """Something that is sold: bids count from when it is opened until it expires, both included."""

    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time_ms: int
    expires_ms: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    """What somebody would pay, in cents."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time_ms: int
    extra: str


Event = Person | Auction | Bid

#: The kinds of events, as `EventRow.kind` has them, in the order in which an epoch has them.
KINDS: tuple[type[Event], ...] = (Person, Auction, Bid)
PERSON, AUCTION, BID = range(len(KINDS))


class EventRow(NamedTuple):
    """An event of any kind as one row: the fields of other kinds are None.

    A query that reads columns declares a row type with those of the fields that it needs.
    """

    kind: int
    date_time_ms: int
    extra: str
    id: int | None = None
    name: str | None = None
    email_address: str | None = None
    credit_card: str | None = None
    city: str | None = None
    state: str | None = None
    item_name: str | None = None
    description: str | None = None
    initial_bid: int | None = None
    reserve: int | None = None
    expires_ms: int | None = None
    seller: int | None = None
    category: int | None = None
    auction: int | None = None
    bidder: int | None = None
    price: int | None = None
    channel: str | None = None
    url: str | None = None

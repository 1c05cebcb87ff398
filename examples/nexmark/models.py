"""What each query of Nexmark asks, as plain loops over a list of events; these define what is right.

They know neither the SDK nor the order in which events arrive, and return rows as tuples, in any order.
Where the SQL of the field leaves an answer open (bids of the same price and time, means of integers), they say one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from examples.nexmark.events import Auction, Bid, Event, Person

Rows = list[tuple[Any, ...]]

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WINDOW_MS, PERIOD_MS, GAP_MS = 10_000, 2_000, 10_000
SIDE_ROWS = 10_000


def _bids(events: Iterable[Event]) -> list[Bid]:
    return [each for each in events if isinstance(each, Bid)]


def _auctions(events: Iterable[Event]) -> list[Auction]:
    return [each for each in events if isinstance(each, Auction)]


def _people(events: Iterable[Event]) -> list[Person]:
    return [each for each in events if isinstance(each, Person)]


def _euros(cents: int) -> float:
    return cents * 908 / 1_000


def q0(events: Sequence[Event]) -> Rows:
    """Pass through."""
    return [(b.auction, b.bidder, b.price, b.date_time_ms, b.extra) for b in _bids(events)]


def q1(events: Sequence[Event]) -> Rows:
    """Bids in euros."""
    return [(b.auction, b.bidder, _euros(b.price), b.date_time_ms, b.extra) for b in _bids(events)]


def q2(events: Sequence[Event]) -> Rows:
    """Bids on some auctions."""
    return [(b.auction, b.price) for b in _bids(events) if b.auction % 123 == 0]


def q3(events: Sequence[Event]) -> Rows:
    """Sellers in some states, with the auctions of a category that are theirs."""
    sellers = {p.id: p for p in _people(events) if p.state in {"OR", "ID", "CA"}}
    return [
        (sellers[a.seller].name, sellers[a.seller].city, sellers[a.seller].state, a.id)
        for a in _auctions(events)
        if a.category == 10 and a.seller in sellers
    ]


def _is_better(bid: Bid, other: Bid) -> bool:
    if bid.price != other.price:
        return bid.price > other.price
    if bid.date_time_ms != other.date_time_ms:
        return bid.date_time_ms < other.date_time_ms
    return bid > other


def winners(events: Sequence[Event]) -> list[tuple[Auction, Bid]]:
    """Auctions that anybody has bid on while they were open, with the best bid: the highest, and of these the first."""
    auctions = {a.id: a for a in _auctions(events)}
    best: dict[int, Bid] = {}
    for bid in _bids(events):
        auction = auctions.get(bid.auction)
        if auction is None or not auction.date_time_ms <= bid.date_time_ms <= auction.expires_ms:
            continue
        other = best.get(bid.auction)
        if other is None or _is_better(bid, other):
            best[bid.auction] = bid
    return [(auctions[number], bid) for number, bid in best.items()]


def q4(events: Sequence[Event]) -> Rows:
    """The mean winning price of each category; cents are cut."""
    prices = defaultdict[int, list[int]](list)
    for auction, bid in winners(events):
        prices[auction.category].append(bid.price)
    return [(category, sum(each) // len(each)) for category, each in prices.items()]


def q5(events: Sequence[Event]) -> Rows:
    """The auctions with most bids of the last ten seconds, every two seconds."""
    counts = defaultdict[int, Counter[int]](Counter)
    for bid in _bids(events):
        last_ms = bid.date_time_ms // PERIOD_MS * PERIOD_MS
        for start_ms in range(last_ms, bid.date_time_ms - WINDOW_MS, -PERIOD_MS):
            counts[start_ms][bid.auction] += 1
    return [
        (auction, count, start_ms)
        for start_ms, of_auction in counts.items()
        for auction, count in of_auction.items()
        if count == max(of_auction.values())
    ]


def q6(events: Sequence[Event]) -> Rows:
    """The mean winning price of each seller's last ten auctions; cents are cut."""
    sold = defaultdict[int, list[tuple[int, int, int]]](list)
    for auction, bid in winners(events):
        sold[auction.seller].append((auction.expires_ms, auction.id, bid.price))
    rows: Rows = []
    for seller, closed in sold.items():
        prices = [price for _, _, price in sorted(closed)[-10:]]
        rows.append((seller, sum(prices) // len(prices)))
    return rows


def q7(events: Sequence[Event]) -> Rows:
    """The highest bids of each ten seconds."""
    highest = defaultdict[int, int](int)
    for bid in _bids(events):
        window = bid.date_time_ms // WINDOW_MS
        highest[window] = max(highest[window], bid.price)
    return [
        (b.auction, b.price, b.bidder, b.date_time_ms, b.extra)
        for b in _bids(events)
        if b.price == highest[b.date_time_ms // WINDOW_MS]
    ]


def q8(events: Sequence[Event]) -> Rows:
    """People who have opened an auction in the ten seconds in which they signed up."""
    sellers = {(a.seller, a.date_time_ms // WINDOW_MS) for a in _auctions(events)}
    return [
        (p.id, p.name, p.date_time_ms // WINDOW_MS * WINDOW_MS)
        for p in _people(events)
        if (p.id, p.date_time_ms // WINDOW_MS) in sellers
    ]


def q9(events: Sequence[Event]) -> Rows:
    """Winning bids."""
    return [(*a, b.auction, b.bidder, b.price, b.date_time_ms, b.extra) for a, b in winners(events)]


def q10(events: Sequence[Event]) -> Rows:
    """Every bid, with the folder of its minute."""
    rows: Rows = []
    for b in _bids(events):
        minute = f"dt={_utc(b.date_time_ms):%Y-%m-%d}/hm={_utc(b.date_time_ms):%H-%M}"
        rows.append((minute, b.auction, b.bidder, b.price, b.date_time_ms, b.extra))
    return rows


def q11(events: Sequence[Event]) -> Rows:
    """How many bids somebody makes in a session."""
    times_ms = defaultdict[int, list[int]](list)
    for bid in _bids(events):
        times_ms[bid.bidder].append(bid.date_time_ms)
    rows: Rows = []
    for bidder, times in times_ms.items():
        session: list[int] = []
        for time_ms in sorted(times):
            if session and time_ms >= session[-1] + GAP_MS:
                rows.append((bidder, len(session), session[0], session[-1] + GAP_MS))
                session = []
            session.append(time_ms)
        rows.append((bidder, len(session), session[0], session[-1] + GAP_MS))
    return rows


def q12(events: Sequence[Event]) -> Rows:
    """How many bids somebody makes, altogether: in which ten seconds of the clock they come is no question of data."""
    return list(Counter(bid.bidder for bid in _bids(events)).items())


def q13(events: Sequence[Event]) -> Rows:
    """Bids with what a table says of their auctions."""
    return [
        (b.auction, b.bidder, b.price, b.date_time_ms, f"{b.auction % SIDE_ROWS}")
        for b in _bids(events)
    ]


def q14(events: Sequence[Event]) -> Rows:
    """Large bids in euros, with the time of day, and how often a letter is in a text."""
    rows: Rows = []
    for b in _bids(events):
        if 1_000_000 < _euros(b.price) < 50_000_000:
            hour = b.date_time_ms // HOUR_MS % 24
            time_type = "otherTime"
            if 8 <= hour <= 18:
                time_type = "dayTime"
            elif hour <= 6 or hour >= 20:
                time_type = "nightTime"
            row = (b.auction, b.bidder, _euros(b.price), time_type, b.date_time_ms, b.extra)
            rows.append((*row, b.extra.count("c")))
    return rows


def q15(events: Sequence[Event]) -> Rows:
    """Bids, bidders and auctions of each day, altogether and by rank of price."""
    days = defaultdict[str, list[Bid]](list)
    for b in _bids(events):
        days[_day(b)].append(b)
    return [(day, *_statistics(bids)) for day, bids in days.items()]


def q16(events: Sequence[Event]) -> Rows:
    """Bids, bidders and auctions of each channel and day, with the last minute in which there was a bid."""
    groups = defaultdict[tuple[str, str], list[Bid]](list)
    for b in _bids(events):
        groups[b.channel, _day(b)].append(b)
    return [
        (channel, day, max(f"{_utc(b.date_time_ms):%H:%M}" for b in bids), *_statistics(bids))
        for (channel, day), bids in groups.items()
    ]


def q17(events: Sequence[Event]) -> Rows:
    """Bids and prices of each auction and day; the mean is cut."""
    groups = defaultdict[tuple[int, str], list[int]](list)
    for b in _bids(events):
        groups[b.auction, _day(b)].append(b.price)
    rows: Rows = []
    for (auction, day), prices in groups.items():
        ranks = Counter(_rank(price) for price in prices)
        counts = (len(prices), ranks[1], ranks[2], ranks[3])
        total = sum(prices)
        extremes = (min(prices), max(prices), total // len(prices), total)
        rows.append((auction, day, *counts, *extremes))
    return rows


def q18(events: Sequence[Event]) -> Rows:
    """The last bid of everybody on each auction."""
    last: dict[tuple[int, int], Bid] = {}
    for b in _bids(events):
        other = last.get((b.bidder, b.auction))
        if other is None or (b.date_time_ms, b) > (other.date_time_ms, other):
            last[b.bidder, b.auction] = b
    return [tuple(b) for b in last.values()]


def q19(events: Sequence[Event]) -> Rows:
    """The ten highest bids on each auction, with their ranks; of the same price the first bid is better."""
    groups = defaultdict[int, list[Bid]](list)
    for b in _bids(events):
        groups[b.auction].append(b)
    rows: Rows = []
    for bids in groups.values():
        best = sorted(bids, key=lambda b: (b.price, -b.date_time_ms, b), reverse=True)[:10]
        rows += [(*b, rank) for rank, b in enumerate(best, 1)]
    return rows


def q20(events: Sequence[Event]) -> Rows:
    """Bids on auctions of a category, with the auctions."""
    auctions = {a.id: a for a in _auctions(events) if a.category == 10}
    rows: Rows = []
    for b in _bids(events):
        a = auctions.get(b.auction)
        if a is not None:
            rows.append((*b, *a[1:]))
    return rows


def q21(events: Sequence[Event]) -> Rows:
    """Bids with the id of their channel, as its name or the address says; those without one are left out."""
    ids = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    rows: Rows = []
    for b in _bids(events):
        in_url = re.search(r"(?:&|^)channel_id=([^&]*)", b.url)
        number = ids.get(b.channel.lower(), in_url and in_url[1])
        if number is not None:
            rows.append((b.auction, b.bidder, b.price, b.channel, number))
    return rows


def q22(events: Sequence[Event]) -> Rows:
    """Bids with the folders of their addresses."""
    return [
        (b.auction, b.bidder, b.price, b.channel, *b.url.split("/")[3:6]) for b in _bids(events)
    ]


def _utc(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def _day(bid: Bid) -> str:
    return f"{_utc(bid.date_time_ms):%Y-%m-%d}"


def _rank(price: int) -> int:
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


def _statistics(bids: Sequence[Bid]) -> list[int]:
    """Of all bids, and of those of each rank: how many; then of how many bidders; then on how many auctions."""
    of_rank = [[b for b in bids if rank in {0, _rank(b.price)}] for rank in range(4)]
    of_rank[0] = list(bids)
    counts = [len(each) for each in of_rank]
    bidders = [len({b.bidder for b in each}) for each in of_rank]
    return counts + bidders + [len({b.auction for b in each}) for each in of_rank]


MODELS: dict[str, Callable[[Sequence[Event]], Rows]] = {
    model.__name__: model
    for model in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11,
        q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip

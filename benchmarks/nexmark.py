"""The queries of Nexmark as cases: their input, the columns of their rows, and the rows that are right.

An event is a line of JSON with its kind and the fields of its kind, as `examples.nexmark.events.EventRow` has them.
The right rows are those of the models in `examples.nexmark.models`.  Peers have environments of their own, so nothing
but the standard library is imported before the input is made.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from benchmarks.workloads import SEED, Dataset

#: Event times are those of a stream of so many events a second.
EVENTS_PER_S = 10_000
#: Events that are made at a time.
_CHUNK = 50_000

_PRICED = ("auction", "bidder", "price", "date_time_ms", "extra")
_AUCTION = (
    "id", "item_name", "description", "initial_bid", "reserve", "date_time_ms", "expires_ms", "seller", "category",
    "extra",
)  # fmt: skip
_BID = ("auction", "bidder", "price", "channel", "url", "date_time_ms", "extra")
_OF_RANKS = ("", "_rank1", "_rank2", "_rank3")
_STATISTICS = tuple(f"{of}{rank}" for of in ("bids", "bidders", "auctions") for rank in _OF_RANKS)
_TEXTS = frozenset(
    {"extra", "bid_extra", "auction_extra", "item_name", "description", "name", "city", "state"}
    | {"channel", "url", "day", "minute", "channel_id", "dir1", "dir2", "dir3"}
    | {"value", "time_type", "folder"}
)
#: Queries whose prices are in euros: floats that answers have as thousandths, which are integers.
IN_EUROS = frozenset({"q1", "q14"})


class NexmarkCase(NamedTuple):
    """A query as a case, like `benchmarks.cases.Case`.

    ``columns``: of a row of the answer.  ``title``: what it does, for people.
    ``is_in_folders``: the answer is files, and the first column of a row is the folder that its file is in.
    ``adds_up``: rows that differ in their last column alone are parts of one, and which parts depends on the clock.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    is_in_folders: bool = False
    adds_up: bool = False

    @property
    def text(self) -> tuple[str, ...]:
        """The columns that are not integers."""
        return tuple(name for name in self.columns if name in _TEXTS)

    def dataset(self, data: Path, size: int) -> Dataset:
        """The events of all queries, in two files that have every other event each."""
        folder = data / f"nexmark-{size}-{SEED}"
        if not folder.exists():
            data.mkdir(parents=True, exist_ok=True)
            made = Path(mkdtemp(dir=data))
            _write(made, size)
            shutil.move(made, folder)
        return Dataset(folder, None)

    def rows(self, size: int) -> list[tuple[Any, ...]]:
        """The rows of the model for the events of the files."""
        return self.rows_of(_events(_config(size)))

    def rows_of(self, events: Iterable[Any]) -> list[tuple[Any, ...]]:
        """The rows of the model for some events; prices as in `IN_EUROS`."""
        from examples.nexmark.models import MODELS  # noqa: PLC0415 - not in the environments of peers

        found = MODELS[self.name](list(events))
        if self.name not in IN_EUROS:
            return found
        return [
            (auction, bidder, round(1_000 * price), *rest)
            for auction, bidder, price, *rest in found
        ]


CASES = {
    case.name: case
    for case in (
        NexmarkCase("q0", "Nexmark: all bids", _PRICED),
        NexmarkCase("q1", "Nexmark: prices in euros", _PRICED),
        NexmarkCase("q2", "Nexmark: bids on some auctions", ("auction", "price")),
        NexmarkCase("q3", "Nexmark: sellers in three states", ("name", "city", "state", "id")),
        NexmarkCase("q4", "Nexmark: mean winning price of a category", ("category", "final")),
        NexmarkCase("q5", "Nexmark: auctions with most bids", ("auction", "num", "start_ms")),
        NexmarkCase("q6", "Nexmark: mean of a seller's last ten", ("seller", "final")),
        NexmarkCase(
            "q7", "Nexmark: highest bids", ("auction", "price", "bidder", "date_time_ms", "extra")
        ),
        NexmarkCase("q8", "Nexmark: new sellers", ("id", "name", "start_ms")),
        NexmarkCase(
            "q9",
            "Nexmark: winning bids",
            (*_AUCTION, "auction", "bidder", "price", "bid_time_ms", "bid_extra"),
        ),
        NexmarkCase("q10", "Nexmark: files of a minute", ("folder", *_PRICED), is_in_folders=True),
        NexmarkCase(
            "q11", "Nexmark: sessions of bidders", ("bidder", "bids", "start_ms", "end_ms")
        ),
        NexmarkCase("q12", "Nexmark: windows of the clock", ("bidder", "bids"), adds_up=True),
        NexmarkCase(
            "q13",
            "Nexmark: bids with a row of a table",
            ("auction", "bidder", "price", "date_time_ms", "value"),
        ),
        NexmarkCase(
            "q14",
            "Nexmark: large bids, time of day, letters",
            ("auction", "bidder", "price", "time_type", "date_time_ms", "extra", "c_counts"),
        ),
        NexmarkCase("q15", "Nexmark: counts of a day", ("day", *_STATISTICS)),
        NexmarkCase("q16", "Nexmark: by channel", ("channel", "day", "minute", *_STATISTICS)),
        NexmarkCase(
            "q17",
            "Nexmark: prices of an auction by day",
            ("auction", "day", *_STATISTICS[:4], "least", "most", "mean", "total"),
        ),
        NexmarkCase("q18", "Nexmark: last bids", _BID),
        NexmarkCase("q19", "Nexmark: ten best bids", (*_BID, "rank_number")),
        NexmarkCase(
            "q20",
            "Nexmark: bids with their auctions",
            (*_BID, *_AUCTION[1:5], "auction_time_ms", *_AUCTION[6:9], "auction_extra"),
        ),
        NexmarkCase(
            "q21",
            "Nexmark: ids of channels",
            ("auction", "bidder", "price", "channel", "channel_id"),
        ),
        NexmarkCase(
            "q22",
            "Nexmark: folders of addresses",
            ("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3"),
        ),
    )
}


#: The instant, in milliseconds of event time, at which a row is complete, as SQL over its columns.
_COMPLETE_MS: Mapping[str, str] = {
    "q0": "date_time_ms",
    "q1": "date_time_ms",
    "q5": "start_ms + 10000",
    "q7": "(date_time_ms / 10000 + 1) * 10000",
    "q8": "start_ms + 10000",
    "q9": "expires_ms + 1",
    "q11": "end_ms",
}


class NexmarkLatency(NamedTuple):
    """A query as a case of latency: how long its rows take from when they are complete until they are committed.

    A row is complete when event time, which is the clock here, passes the last instant that can change it: the end of
    its window, of its session or of its auction, or the bid itself where the query looks at each by itself.

    ``name``: of the case.  ``query``: the case whose rows it has.  ``complete_ms``: as in `_COMPLETE_MS`.
    """

    name: str
    query: NexmarkCase
    complete_ms: str

    def rows(self, *, size: int, events_per_s: int, first_time_ms: int) -> list[tuple[Any, ...]]:
        """The rows of the model for a stream that begins at an instant, in milliseconds since 1970."""
        return self.query.rows_of(_events(_config(size, events_per_s, first_time_ms)))


#: By name: those queries whose rows say when they are complete.
LATENCY = {
    f"{query}-latency": NexmarkLatency(f"{query}-latency", CASES[query], complete_ms)
    for query, complete_ms in _COMPLETE_MS.items()
}


def _config(size: int, events_per_s: int = EVENTS_PER_S, first_time_ms: int | None = None) -> Any:
    from examples.nexmark.generator import GeneratorConfig  # noqa: PLC0415 - not in the environments of peers

    since = {} if first_time_ms is None else {"first_time_ms": first_time_ms}
    return GeneratorConfig(seed=SEED, size=size, events_per_s=events_per_s, **since)


def _events(config: Any) -> Iterator[Any]:
    import numpy as np  # noqa: PLC0415 - not in the environments of peers

    from examples.nexmark.generator import events  # noqa: PLC0415 - as above

    for first in range(0, config.size, _CHUNK):
        yield from events(config, np.arange(first, min(config.size, first + _CHUNK)))


def _write(folder: Path, size: int) -> None:
    from examples.nexmark.events import KINDS  # noqa: PLC0415 - not in the environments of peers

    with (folder / "a.jsonl").open("w") as one, (folder / "b.jsonl").open("w") as other:
        for number, event in enumerate(_events(_config(size))):
            fields = {"kind": KINDS.index(type(event)), **event._asdict()}
            text = json.dumps(fields, separators=(",", ":")) + "\n"
            (other if number % 2 else one).write(text)

"""Updates of metrics, from the calls of user code to the engine that makes them durable.

User code runs on behalf of one transform at a time, which is known here (`Running.label`), for logs and for metrics.
What it counts is collected only while an engine asks for that (`collecting`), and taken by the engine together with
everything else that the code has done (`take_updates`): both become durable, or neither does.  What the engine runs for
purposes of its own, as when it restores state, is not collected.  Attempts that fail are left out (`attempt`).

A `ContextVar` has all of it: what user code starts with a copy of its context counts for the same transform.
"""

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import attrs

ItemT = TypeVar("ItemT")

_LOG = logging.getLogger(__name__)


class MetricKind(StrEnum):
    """A kind of metric; its name is the same in `dataflow.metrics.MetricResults` and in what is stored."""

    #: The sum of its updates, an int.
    COUNTER = "counters"
    #: Count, sum, least and greatest of its updates, each an int.
    DISTRIBUTION = "distributions"
    #: Its last value and when it was committed, in microseconds.
    GAUGE = "gauges"
    #: The set of its updates, each a text.
    STRING_SET = "string_sets"

    # That of an enum is a function in Python, and every update hashes its metric.
    __hash__ = str.__hash__


class Metric(NamedTuple):
    """A metric of a transform, by kind and name."""

    kind: MetricKind
    namespace: str
    name: str


class MetricOf(NamedTuple):
    """A metric of one transform, by its label."""

    step: str
    metric: Metric


#: What has come to a metric: see `MetricKind`.  The value of a gauge has no time until it is taken.
Updates = dict[tuple[str, Metric], Any]
#: Metrics and what has come to them so far.
MetricValues = Mapping[MetricOf, Any]

#: Of more texts in one set the first ones, in their order, are kept: a set is for the names of few things.
STRINGS_MAX = 1_000


class Board(Protocol):
    """Numbers that another thread or process reads."""

    def __setitem__(self, item: int, number: int, /) -> None:
        """Write one of them."""


@attrs.define
class Running:
    """What runs in this context.

    Attributes:
        label: of the transform whose user code runs; empty between two transforms.
        job: that runs in this process; empty where it has no name, or runs elsewhere.
        step: what the engine is at, as a text of it shows; None: not known.
        trace: of that, in hexadecimal digits; empty: it is not traced.
        updates: what it has counted; None: nobody collects it.
        board: where whoever watches this process looks for the number of the label, as its first item; None: nobody
            does.
        numbers: of labels on the board; 0: of none of them.
        elements: an iterator over the elements that user code is called for just now, and how many they were; None: not
            known.
    """

    label: str = ""
    job: str = ""
    step: object = None
    trace: str = ""
    updates: Updates | None = None
    board: Board | None = None
    numbers: Mapping[str, int] = MappingProxyType({})
    elements: tuple[Iterator[object], int] | None = None


#: None: nothing has run in this context.
RUNNING: ContextVar[Running | None] = ContextVar("dataflow_running", default=None)


def running() -> Running:
    """What runs in this context; the same object as long as the context is."""
    found = RUNNING.get()
    if found is None:
        found = Running()
        RUNNING.set(found)
    return found


class RunningAs:
    """A context manager that runs code on behalf of a transform; a class, as each bundle has several.

    Args:
        label: of the transform.
    """

    __slots__ = ("_label", "_now", "_outer")

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None:
        now = self._now = RUNNING.get() or running()
        self._outer, now.label = now.label, self._label
        if now.board is not None:
            now.board[0] = now.numbers.get(self._label, 0)

    def __exit__(self, *ignored: object) -> None:
        now = self._now
        now.label, now.elements = self._outer, None
        if now.board is not None:
            now.board[0] = now.numbers.get(self._outer, 0)


@contextmanager
def collecting() -> Iterator[None]:
    """Collect what user code counts, until the end of the block; `take_updates` returns it."""
    with _into({}):
        yield


def collecting_each(items: Generator[ItemT]) -> Generator[ItemT]:
    """Items, collecting what user code counts while they are made, and not between two of them.

    Args:
        items: are taken one by one, and closed; each generator has updates of its own.
    """
    updates: Updates = {}
    with closing(items):
        while True:
            with _into(updates):
                found = list(islice(items, 1))
            if not found:
                return
            yield found[0]


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave out what the block counts: it runs user code for a purpose of the engine's own."""
    with _into(None):
        yield


@contextmanager
def _into(updates: Updates | None) -> Iterator[None]:
    now = running()
    outer, now.updates = now.updates, updates
    _Blocks.open += 1
    try:
        yield
    finally:
        _Blocks.open -= 1
        now.updates = outer


class _Blocks:
    """Blocks in which some thread collects, or leaves out; about so many, as threads do not wait for each other."""

    open = 0
    has_warned = False


def warn_of_thread(what: str) -> None:
    """Warn, once in a process, of an update from a thread without a context, while another thread collects.

    Args:
        what: the metric.
    """
    if _Blocks.open and not _Blocks.has_warned:
        _Blocks.has_warned = True
        _LOG.warning(
            "%s was updated in a thread that user code has started: that does not count; run what the thread does "
            "with contextvars.copy_context().run(...)",
            what,
        )


@contextmanager
def attempt() -> Iterator[None]:
    """Leave out what the block counts if it raises."""
    now = running()
    outer = now.updates
    if outer is None:
        yield
        return
    tried: Updates = {}
    with _into(tried):
        yield
    for key, update in tried.items():
        outer[key] = _merged(key[1].kind, outer[key], update) if key in outer else update


def take_updates(now_us: int) -> MetricValues:
    """What was counted since it was last taken, and begin anew; nothing where nobody collects.

    Args:
        now_us: the time of gauges, in microseconds.
    """
    now = running()
    if not now.updates:
        return {}
    taken = {MetricOf(*key): update for key, update in now.updates.items()}
    now.updates.clear()
    for key, update in taken.items():
        if key.metric.kind is MetricKind.GAUGE:
            taken[key] = (update, now_us)
        elif key.metric.kind is MetricKind.STRING_SET:
            taken[key] = _limited(frozenset(update), key)
    return taken


def uncount() -> None:
    """Leave out what was counted since it was last taken."""
    updates = running().updates
    if updates:
        updates.clear()


def merged_metrics(parts: Iterable[MetricValues]) -> MetricValues:
    """All metrics together; associative, and but for gauges of the same instant commutative.

    Args:
        parts: metrics, in the order in which they became durable, as far as that is known.
    """
    found: dict[MetricOf, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key not in found:
                found[key] = value
            elif key.metric.kind is MetricKind.GAUGE:
                found[key] = value if value[1] >= found[key][1] else found[key]
            elif key.metric.kind is MetricKind.STRING_SET:
                found[key] = _limited(found[key] | value, key)
            else:
                found[key] = _merged(key.metric.kind, found[key], value)
    return found


def _limited(texts: frozenset[str], key: MetricOf) -> frozenset[str]:
    if len(texts) <= STRINGS_MAX:
        return texts
    _LOG.warning(
        "the string set %r of %r has more than %s texts: only the first ones, in their order, are kept",
        key.metric.name,
        key.step,
        STRINGS_MAX,
    )
    return frozenset(sorted(texts)[:STRINGS_MAX])


def _merged(kind: MetricKind, first: Any, second: Any) -> Any:
    if kind is MetricKind.COUNTER:
        return first + second
    if kind is MetricKind.DISTRIBUTION:
        count, total, least, greatest = first
        return (
            count + second[0],
            total + second[1],
            min(least, second[2]),
            max(greatest, second[3]),
        )
    return second if kind is MetricKind.GAUGE else first | second

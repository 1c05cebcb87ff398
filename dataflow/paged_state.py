"""State that is large, in pages: what is written and read of it is a page, and not the whole.

A bag, a set, a map or an ordered list is a Python list or dict as long as it is small.  When it has become large, the
engine puts one of the classes here in its place (`paged_as`), which behaves the same: the entries are in *pages*, each
read and written by itself, and beside the user's other state only a few numbers are left.

* `PagedBag`: full pages, which do not change any more, and what came after them.  To add reads no page.
* `PagedMap`: entries by the place of their key (`dataflow.map_keys`); pages are split one by one as it grows (linear
  hashing), so no list of pages is needed.  Keys without a place stay beside the numbers.
* `PagedList`: entries by time; a page of its own has the first time of every page, and changes when there is another
  page.

**Invariants**

* What is read, in which order, and what a call returns is the same as for the list or dict.
* A page has about as many bytes as it is given, unless it is a single entry, or entries of one map differ much in size.
* Every page that exists can be named from the numbers: all are deleted with the state, and none has to be looked for.

Values that are taken out and changed, and not put back, are not state: they may be written or not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, ClassVar, Protocol

from dataflow.map_keys import place_of
from dataflow.serialization import dumps

#: What has fewer entries is never measured: most state is small, and must cost nothing.
FEW = 16

_TIME_US = itemgetter(0)
_DIRECTORY = 0
#: What the number of an entry takes, and the pair that it is in.
_NUMBER_BYTES = 8


class Pages(Protocol):
    """The pages of the state of one key and window, in the step that is being done."""

    def read(self, state: Any, numbers: Iterable[int]) -> list[Any]:
        """The entries of some pages, which must not be changed; all that are missing are read at once.

        Args:
            state: the name of the state.
            numbers: of the pages.
        """

    def change(self, state: Any, number: int) -> Any:
        """The entries of a page, to be changed.

        Args:
            state: the name of the state.
            number: of the page.
        """

    def put(self, state: Any, number: int, entries: Any) -> None:
        """Make a page.

        Args:
            state: the name of the state.
            number: of the page, which does not exist.
            entries: a list or dict, which is the page's from here on.
        """

    def drop(self, state: Any, numbers: Iterable[int]) -> int:
        """Delete pages, without reading them; returns the bytes of those in memory, as they were last measured.

        Args:
            state: the name of the state.
            numbers: of the pages.
        """

    def measure(self, state: Any) -> list[tuple[int, int, int]]:
        """The pages that have changed since they were last measured: number, bytes then (0: it is new), bytes now.

        Args:
            state: the name of the state.
        """


#: Pages of a state: the name that they are under, the first number, and the number behind the last.
Run = tuple[Any, int, int]


class SizeWatch:
    """Tells when something that grows is larger than a bound, measuring it so rarely that it costs little."""

    __slots__ = ("_count", "_looks")

    def __init__(self) -> None:
        self._count = self._looks = 0

    def nbytes(self, entries: Any) -> int | None:
        """How large it is; None: it was measured not long ago, and cannot be much larger by now.

        Args:
            entries: a list or dict.
        """
        count = len(entries)
        self._looks -= 1
        if count < self._count and self._looks > 0:
            return None
        self._count, self._looks = 2 * count, count
        return len(dumps(entries))


class Paged(ABC):
    """State of one name in pages.

    Attributes:
        FIELDS: what is kept beside the pages: the arguments that make it again.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()
    _pages: Pages
    _state: Any

    def bind(self, pages: Pages, state: Any) -> None:
        """Say which pages are this state's, before it is used.

        Args:
            pages: of the key and window.
            state: its name.
        """
        self._pages, self._state = pages, state

    @classmethod
    @abstractmethod
    def of(cls, entries: Any, pages: Pages, state: Any, nbytes: int, page_bytes: int) -> Any:
        """Put state into pages; returns what stands for it from here on.

        Args:
            entries: the state, which may be changed.
            pages: of the key and window.
            state: its name.
            nbytes: about how large it is.
            page_bytes: how large a page should be.
        """

    @abstractmethod
    def resize(self, page_bytes: int) -> Any:
        """Split what has become large, and join what has become small; returns what stands for the state now.

        Args:
            page_bytes: how large a page should be.
        """

    @abstractmethod
    def drop(self) -> None:
        """Delete all pages."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self.FIELDS
        )

    __hash__ = None  # type: ignore[assignment]  # as of a list


def unpaged(value: Any) -> Any:
    """State as the list or dict that it is when it is small.

    Args:
        value: the state, in pages or not.
    """
    if not isinstance(value, Paged):
        return value
    return dict(value.items()) if isinstance(value, PagedMap) else list(value)  # type: ignore[call-overload]


class PagedBag(Paged):
    """A bag in pages.

    Args:
        size: how many pages there are.
        last: the values that came after those.

    Attributes:
        made: what whoever uses it has made of all values; None: nothing yet.  It is not stored.
        runs: pages of other bags that come before its own.
        since: the first own page behind those.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("size", "last")
    made: Any = None
    runs: Sequence[Run] = ()
    since: int = 0

    def __init__(self, size: int, last: list[Any]) -> None:
        self.size, self.last = size, last
        self._watch = SizeWatch()

    @classmethod
    def of(cls, entries: Any, pages: Pages, state: Any, nbytes: int, page_bytes: int) -> Any:
        """Put a list into pages."""
        bag = cls(0, entries)
        bag.bind(pages, state)
        bag._fill(nbytes, page_bytes)
        return bag

    def append(self, value: Any) -> None:
        """Add a value."""
        self.made = None
        self.last.append(value)

    def extend(self, values: Iterable[Any]) -> None:
        """Add values."""
        self.made = None
        self.last.extend(values)

    def __iter__(self) -> Iterator[Any]:
        pages = [self._pages.read(name, range(*span)) for name, *span in self.all_runs()]
        return chain(chain.from_iterable(chain.from_iterable(pages)), self.last)

    def followed_by(self, other: PagedBag) -> JoinedBag:
        """Put the values of another bag behind those of this one; its pages stay where they are, and are this one's.

        Args:
            other: a bag with pages in the same cell, under another name; not to be used afterwards.
        """
        if self.last:
            self._put(self.last)
        runs = [*self.all_runs(), *other.all_runs()]
        joined = JoinedBag(self.size, other.last, self.size, runs)
        joined.bind(self._pages, self._state)
        return joined

    @property
    def page_count(self) -> int:
        """How many pages there are, under all names."""
        return sum(end - first for _, first, end in self.all_runs())

    def all_runs(self) -> Iterator[Run]:
        """All pages, in their order."""
        yield from self.runs
        if self.since < self.size:
            yield self._state, self.since, self.size

    def taken(self, pages_max: int) -> tuple[list[Any], Any]:
        """Remove the first values; returns them, and what stands for the rest: a bag, or a list if nothing is left.

        Args:
            pages_max: how many pages to remove, at least 1; the values behind all pages go with the last one.
        """
        found: list[Any] = []
        runs = list(self.all_runs())
        while runs and pages_max:
            name, first, end = runs.pop(0)
            count = min(pages_max, end - first)
            pages_max -= count
            numbers = range(first, first + count)
            found += chain.from_iterable(self._pages.read(name, numbers))
            self._pages.drop(name, numbers)
            if first + count < end:
                runs.insert(0, (name, first + count, end))
        if not runs:
            return [*found, *self.last], []
        rest = JoinedBag(self.size, self.last, self.size, runs)
        rest.bind(self._pages, self._state)
        return found, rest

    def resize(self, page_bytes: int) -> Any:
        """Make a page of the last values, if there are enough of them."""
        nbytes = self._watch.nbytes(self.last)
        if nbytes is not None and nbytes > page_bytes:
            self._fill(nbytes, page_bytes)
        return self

    def _fill(self, nbytes: int, page_bytes: int) -> None:
        for part in _divided(self.last, nbytes, page_bytes):
            self._put(part)
        self.last, self._watch = [], SizeWatch()

    def _put(self, part: list[Any]) -> None:
        """Make a page behind the others."""
        self._pages.put(self._state, self.size, part)
        self.size += 1

    def drop(self) -> None:
        """Delete all pages."""
        for name, *span in self.all_runs():
            self._pages.drop(name, range(*span))


class CountedBag(PagedBag):
    """A bag of which each value can be found by its place, as it is known how many a page has.

    Args:
        size: how many pages there are.
        last: the values that came after those.
        counts: how many values each page has.

    Attributes:
        starts: the place of the first value of each page, and of ``last``; made when it is asked for.
    """

    FIELDS = ("size", "last", "counts")

    def __init__(self, size: int, last: list[Any], counts: list[int] | None = None) -> None:
        super().__init__(size, last)
        self.counts = [] if counts is None else counts
        self._starts: list[int] = []

    @property
    def starts(self) -> Sequence[int]:
        """The place of the first value of each page, and of the values that came after the pages."""
        if len(self._starts) <= self.size:
            self._starts = [0, *accumulate(self.counts)]
        return self._starts

    def _put(self, part: list[Any]) -> None:
        self.counts.append(len(part))
        super()._put(part)


class JoinedBag(PagedBag):
    """A bag of several, some of whose pages are under the names of others.

    Args:
        size: the number of the next own page.
        last: the values that came after all pages.
        since: the first own page behind ``runs``.
        runs: the pages before that, in order.
    """

    FIELDS = ("size", "last", "since", "runs")

    def __init__(self, size: int, last: list[Any], since: int, runs: Sequence[Run]) -> None:
        super().__init__(size, last)
        self.since, self.runs = since, runs


class PagedMap(Paged):
    """A map, or a set as one without values, in pages.

    A page has ``(number, value)`` by key; the numbers are the order in which keys were first put.

    Args:
        size: how many pages there are; all of them exist.
        count: of all entries.
        following: the number of the next key.
        nbytes: of all pages.
        placeless: the entries whose keys have no place, as in a page.
    """

    FIELDS = ("size", "count", "following", "nbytes", "placeless")

    def __init__(
        self, size: int, count: int, following: int, nbytes: int, placeless: dict[Any, Any]
    ) -> None:
        self.size, self.count, self.following, self.nbytes = size, count, following, nbytes
        self.placeless = placeless

    @classmethod
    def of(cls, entries: Any, pages: Pages, state: Any, nbytes: int, page_bytes: int) -> Any:
        """Put a dict into pages; it stays as it is if most of its keys have no place."""
        places = [place_of(key) for key in entries]
        if 2 * places.count(None) > len(places):
            return entries
        # The numbers take room too.
        nbytes += _NUMBER_BYTES * len(places)
        size = max(1, min(-(-nbytes // page_bytes), len(places)))
        found: list[dict[Any, Any]] = [{} for _ in range(size)]
        paged = cls(size, len(entries), len(entries), 0, {})
        for number, (place, (key, value)) in enumerate(zip(places, entries.items(), strict=True)):
            page = paged.placeless if place is None else found[_page_at(place, size)]
            page[key] = number, value
        paged.bind(pages, state)
        for number, page in enumerate(found):
            pages.put(state, number, page)
        return paged.resize(page_bytes)

    def all_runs(self) -> Iterator[Run]:
        """All pages."""
        yield self._state, 0, self.size

    def __len__(self) -> int:
        return self.count

    def __contains__(self, key: Any) -> bool:
        return key in self._page_of(key)

    def __getitem__(self, key: Any) -> Any:
        return self._page_of(key)[key][1]

    def __setitem__(self, key: Any, value: Any) -> None:
        page = self._changing(key)
        known = page.get(key)
        if known is None:
            page[key] = self.following, value
            self.following += 1
            self.count += 1
        else:
            page[key] = known[0], value

    def pop(self, key: Any) -> Any:
        """Remove a key that is there; returns its value."""
        self.count -= 1
        return self._changing(key).pop(key)[1]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def values(self) -> Iterator[Any]:
        """The values, in the order of the keys."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values, in the order in which the keys were first put."""
        pages = self._pages.read(self._state, range(self.size))
        found = chain.from_iterable(page.items() for page in (*pages, self.placeless))
        return ((key, value) for key, (_, value) in sorted(found, key=_first_put))

    def entries_of(self, numbers: Iterable[int]) -> Iterator[tuple[Any, Any]]:
        """The entries of some pages, as these have them.

        Args:
            numbers: of the pages.
        """
        pages = self._pages.read(self._state, numbers)
        return chain.from_iterable(page.items() for page in pages)

    def drop_some(self, numbers: Iterable[int]) -> None:
        """Delete some pages of a map that is not made yet.

        Args:
            numbers: of the pages that there are.
        """
        self._pages.drop(self._state, numbers)

    def _page_of(self, key: Any) -> Any:
        number = page_of(key, self.size)
        if number is None:
            return self.placeless
        (page,) = self._pages.read(self._state, (number,))
        return page

    def _changing(self, key: Any) -> Any:
        number = page_of(key, self.size)
        return self.placeless if number is None else self._pages.change(self._state, number)

    def resize(self, page_bytes: int) -> Any:
        """Split or join pages, until there are as many as its size needs; a dict if it is small."""
        self._measure()
        while self.nbytes > self.size * page_bytes and self.count > self.size:
            self._split()
        self._measure()
        while self.size > 1 and 4 * self.nbytes < self.size * page_bytes:
            self._join()
        if self.size == 1 and 4 * self.nbytes < page_bytes:
            entries = unpaged(self)
            self.drop()
            return entries
        return self

    def _measure(self) -> None:
        for _, before, now in self._pages.measure(self._state):
            self.nbytes += now - before

    def _split(self) -> None:
        """Divide the next page in turn, not the largest one, between itself and a new one behind all others."""
        new, turn = self.size, self.size - _power_of_2(self.size)
        page = self._pages.change(self._state, turn)
        self.size += 1
        moved = {key: each for key, each in page.items() if page_of(key, self.size) == new}
        for key in moved:
            del page[key]
        self._pages.put(self._state, new, moved)

    def _join(self) -> None:
        """Bring what the last page has into the one that it was divided from."""
        last = self.size - 1
        turn = last - _power_of_2(last)
        (moved,) = self._pages.read(self._state, (last,))
        self._pages.change(self._state, turn).update(moved)
        self.nbytes -= self._pages.drop(self._state, (last,))
        self.size = last
        self._measure()

    def drop(self) -> None:
        """Delete all pages."""
        self._pages.drop(self._state, range(self.size))


def page_of(key: Any, size: int) -> int | None:
    """The number of the page of a map that has a key; None: it is among those that have no place.

    Args:
        key: can be hashed.
        size: how many pages the map has.
    """
    place = place_of(key)
    return None if place is None else _page_at(place, size)


def _first_put(item: tuple[Any, tuple[int, Any]]) -> int:
    return item[1][0]


def _power_of_2(number: int) -> int:
    """The largest power of two that is not above a positive number."""
    return 1 << (number.bit_length() - 1)


def _page_at(place: int, size: int) -> int:
    """The page of a place among so many pages."""
    power = _power_of_2(size)
    number = place % (2 * power)
    return number if number < size else number - power


class PagedList(Paged):
    """An ordered list in pages: pairs of time, in microseconds, and value, by time.

    The directory has the number of the next new page; and of every page its first time and its number, in order.  Of
    the first page the time says nothing: whatever is earlier belongs there too.
    """

    @classmethod
    def of(cls, entries: Any, pages: Pages, state: Any, nbytes: int, page_bytes: int) -> Any:
        """Put a list of pairs into pages."""
        paged = cls()
        paged.bind(pages, state)
        parts = list(_divided(entries, nbytes, page_bytes))
        numbers = list(range(1, len(parts) + 1))
        pages.put(state, _DIRECTORY, [len(parts) + 1, [part[0][0] for part in parts], numbers])
        for number, part in zip(numbers, parts, strict=True):
            pages.put(state, number, part)
        pages.measure(state)
        return paged

    def __len__(self) -> int:
        """How many pages there are: a list without any is empty."""
        return len(self._directory()[2])

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return chain.from_iterable(self._pages.read(self._state, self._directory()[2]))

    def add(self, time_us: int, value: Any) -> None:
        """Add a value, behind those of the same time.

        Args:
            time_us: its time, in microseconds.
            value: any.
        """
        _, firsts, numbers = self._directory()
        number = numbers[max(0, bisect_right(firsts, time_us) - 1)]
        insert_by_time(self._pages.change(self._state, number), time_us, value)

    def between(self, start_us: int, end_us: int) -> list[tuple[int, Any]]:
        """The pairs from an instant on, and before another.

        Args:
            start_us: the first instant that belongs to them, in microseconds.
            end_us: the first instant behind them.
        """
        _, _, numbers = self._directory()
        pages = self._pages.read(self._state, numbers[self._span(start_us, end_us)])
        return [each for page in pages for each in page[span_of(page, start_us, end_us)]]

    def remove(self, start_us: int, end_us: int) -> bool:
        """Delete the pairs from an instant on, and before another; returns whether there were any.

        Args:
            start_us: the first instant that belongs to them, in microseconds.
            end_us: the first instant behind them.
        """
        _, firsts, numbers = self._directory()
        span, gone, is_changed = self._span(start_us, end_us), list[int](), False
        for index in range(span.start, span.stop):
            is_inside = index > 0 and firsts[index] >= start_us
            if is_inside and index + 1 < len(firsts) and firsts[index + 1] < end_us:
                gone.append(index)
                continue
            (page,) = self._pages.read(self._state, (numbers[index],))
            found = span_of(page, start_us, end_us)
            if found.stop - found.start == len(page):
                gone.append(index)
            elif found.start < found.stop:
                del self._pages.change(self._state, numbers[index])[found]
                is_changed = True
        if gone:
            self._pages.drop(self._state, [numbers[index] for index in gone])
            _, firsts, numbers = self._pages.change(self._state, _DIRECTORY)
            del firsts[gone[0] : gone[-1] + 1], numbers[gone[0] : gone[-1] + 1]
        return is_changed or bool(gone)

    def _span(self, start_us: int, end_us: int) -> slice:
        """Where in the directory the pages are that may have something of these times."""
        _, firsts, _ = self._directory()
        first = max(0, bisect_left(firsts, start_us) - 1)
        # The first page, though its time may be after the end.
        return slice(first, max(first, 1 if firsts else 0, bisect_left(firsts, end_us)))

    def _directory(self) -> Any:
        (directory,) = self._pages.read(self._state, (_DIRECTORY,))
        return directory

    def resize(self, page_bytes: int) -> Any:
        """Split pages that are large; a list if it is small."""
        measured = self._pages.measure(self._state)
        for number, _, nbytes in measured:
            if number != _DIRECTORY and nbytes > 2 * page_bytes:
                self._split(number, nbytes, page_bytes)
        numbers = self._directory()[2]
        if len(numbers) == 1 and any(
            number == numbers[0] and 4 * nbytes < page_bytes for number, _, nbytes in measured
        ):
            entries = unpaged(self)
            self.drop()
            return entries
        return self

    def _split(self, number: int, nbytes: int, page_bytes: int) -> None:
        page = self._pages.change(self._state, number)
        first, *parts = _divided(list(page), nbytes, page_bytes)
        if not parts:
            return
        del page[len(first) :]
        directory = self._pages.change(self._state, _DIRECTORY)
        following, firsts, numbers = directory
        index = numbers.index(number) + 1
        firsts[index:index] = [part[0][0] for part in parts]
        numbers[index:index] = range(following, following + len(parts))
        for new, part in enumerate(parts, following):
            self._pages.put(self._state, new, part)
        directory[0] = following + len(parts)
        self._pages.measure(self._state)

    def drop(self) -> None:
        """Delete all pages."""
        self._pages.drop(self._state, [*self._directory()[2], _DIRECTORY])


def insert_by_time(entries: list[tuple[int, Any]], time_us: int, value: Any) -> None:
    """Put a pair into a list of pairs by time, behind those of the same time.

    Args:
        entries: the list.
        time_us: the time, in microseconds.
        value: any.
    """
    entries.insert(bisect_right(entries, time_us, key=_TIME_US), (time_us, value))


def span_of(entries: Sequence[tuple[int, Any]], start_us: int, end_us: int) -> slice:
    """Where in a list of pairs by time those are from an instant on, and before another.

    Args:
        entries: the list.
        start_us: the first instant that belongs to them, in microseconds.
        end_us: the first instant behind them.
    """
    first = bisect_left(entries, start_us, key=_TIME_US)
    return slice(first, max(first, bisect_left(entries, end_us, key=_TIME_US)))


def _divided(entries: list[Any], nbytes: int, page_bytes: int) -> Iterator[list[Any]]:
    """Divide a list into parts of about so many bytes; one that has at most twice as many stays whole.

    Args:
        entries: the list.
        nbytes: its size.
        page_bytes: the size of a part.
    """
    if nbytes <= 2 * page_bytes:
        yield entries
        return
    count = max(1, len(entries) * page_bytes // nbytes)
    for start in range(0, len(entries), count):
        yield from _halved(entries[start : start + count], 2 * page_bytes)


def _halved(entries: list[Any], bytes_max: int) -> Iterator[list[Any]]:
    if len(entries) == 1 or len(dumps(entries)) <= bytes_max:
        yield entries
        return
    middle = len(entries) // 2
    yield from _halved(entries[:middle], bytes_max)
    yield from _halved(entries[middle:], bytes_max)

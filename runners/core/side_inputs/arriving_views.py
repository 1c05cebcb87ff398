"""Views that come to a shard in parts: what has come of a pane, until all of it is there.

While a step takes parts in, they are a list; if that is large at the end of the step, it is put into a bag in pages, so
that a view need not fit into memory.  Where it is seen as a sequence or iterated, the bag is the view.  Where its keys
will be looked up, it is divided among buckets by the places of the keys when all is there, and pages are made of one
bucket after the other (Grace hash join); in each step some pages of it, and the view is not seen before the last.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import attrs

from dataflow.map_keys import place_of
from dataflow.paged_state import FEW, PagedBag, PagedMap, SizeWatch
from dataflow.views import ViewEnd, ViewForm, ViewPart
from runners.core.side_inputs.large_views import BAGS, MAPPINGS, bag_for
from runners.core.stateful.cell_pages import CellPages

#: How many pages a bucket should have, and how many buckets there are at most, as all but full pages are in the cell.
#: Their number is a power of two, as is that of the pages that are made of them.
BUCKET_PAGES, BUCKETS_MAX = 16, 64
#: How many pages are made in one step, about.
MADE_PAGES = 64


@attrs.define
class ArrivingView:
    """What has come of a pane.

    Attributes:
        version: that the view will have.
        count: how many elements have come.
        contents: these, but for those that have gone on to buckets: a list or a bag.
        buckets: pairs by the places of their keys, each a bag; empty: it is not divided.
        expected: of how many elements the view consists; None: that is not known.
        has_end: whether an end has said that; else the parts have.
        placeless: the elements that have no place, when it is divided.
        made: the map that is being made of the buckets; None: none is.
        made_buckets: of how many of them it has been made.
        rest: the elements that came with the end, where later panes have those of former ones, and have these anew.
    """

    version: int
    count: int = 0
    contents: Any = attrs.field(factory=list)
    buckets: list[PagedBag] = attrs.field(factory=list)
    expected: int | None = None
    has_end: bool = False
    placeless: list[Any] = attrs.field(factory=list)
    made: PagedMap | None = None
    made_buckets: int = 0
    rest: list[Any] = attrs.field(factory=list)
    _watch: SizeWatch = attrs.field(factory=SizeWatch, eq=False, repr=False)

    def add(self, part: ViewPart) -> None:
        """Take a part in."""
        self.count += len(part.values)
        if part.count is not None:
            self.expected = part.count
        self.contents.extend(part.values)

    def end(self, end: ViewEnd, *, keeps_parts: bool) -> None:
        """Take the end in.

        Args:
            end: the end.
            keeps_parts: whether parts of former panes are in later ones too.
        """
        self.expected, self.has_end = end.count, True
        if keeps_parts:
            self.rest = end.values
        else:
            self.add(ViewPart(end.values))
            self.expected += len(end.values)

    def forget_end(self) -> None:
        """Have parts alone, which are in later panes too."""
        self.expected, self.has_end, self.rest = None, False, []

    def containers(self, state: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """What may be in pages, by the name that it has there.

        Args:
            state: the name of the view.
        """
        # There is no bag any more when the map is made, whose pages have the same name.
        yield state, self.contents if self.made is None else self.made
        for number, bucket in enumerate(self.buckets):
            yield (*state, "bucket", number), bucket

    def resize(
        self, form: ViewForm | None, pages: CellPages, state: tuple[Any, ...], page_bytes: int
    ) -> None:
        """Put what has come into pages, where it is large.

        Args:
            form: how the view is seen.
            pages: of the cell.
            state: the name of the view.
            page_bytes: how large a page should be.
        """
        if isinstance(self.contents, PagedBag):
            self.contents.resize(page_bytes)
        elif len(self.contents) >= FEW:
            nbytes = self._watch.nbytes(self.contents)
            if nbytes is not None and nbytes > page_bytes:
                kind = bag_for(form)
                self.contents = kind.of(self.contents, pages, state, nbytes, page_bytes)

    def whole(
        self, form: ViewForm | None, pages: Callable[[], CellPages], state: Any, page_bytes: int
    ) -> Any:
        """The view, when all is there: a list, or what stands for it in pages; None: it is still being made.

        Args:
            form: how the view is seen.
            pages: returns those of the cell.
            state: the name of the view.
            page_bytes: how large a page should be.
        """
        if form not in MAPPINGS or not (self.buckets or isinstance(self.contents, PagedBag)):
            if isinstance(self.contents, PagedBag) and form in BAGS:
                self.contents.made = self.count
            return self.contents
        if len(self.buckets) == 0 or isinstance(self.contents, PagedBag) or self.contents:
            self._divide(pages(), state, page_bytes)
            return None
        if self.made is None:
            placeless = _by_key(self.placeless, form)
            if placeless is None:
                return self._dropped()
            self.made = PagedMap(self._pages_needed(), 0, 0, 0, {})
            self.made.placeless = {key: (0, tuple(values)) for key, values in placeless.items()}
            self.made.count = len(placeless)
        return self._make_some(self.made, form, pages(), state)

    def _divide(self, pages: CellPages, state: Any, page_bytes: int) -> None:
        """Divide some pages of what has come among the buckets."""
        if not self.buckets:
            size = self.contents.size if isinstance(self.contents, PagedBag) else 0
            count = min(_power_of_two(size // BUCKET_PAGES), BUCKETS_MAX)
            self.buckets = [PagedBag(0, []) for _ in range(count)]
            pages.bind(dict(self.containers(state)))
        divided, self.contents = self.contents, []
        if isinstance(divided, PagedBag):
            divided, self.contents = divided.taken(MADE_PAGES)
        for each in divided:
            place = _place(each)
            if place is None:
                self.placeless.append(each)
            else:
                self.buckets[place % len(self.buckets)].append(each)
        for bucket in self.buckets:
            bucket.resize(page_bytes)
        pages.let_go()

    def _make_some(
        self, made: PagedMap, form: ViewForm | None, pages: CellPages, state: Any
    ) -> Any:
        """Make some pages of the map; returns it if all are made, all elements if it cannot be, None otherwise."""
        made.bind(pages, state)
        for _ in range(max(1, MADE_PAGES * len(self.buckets) // made.size)):
            if not self._make_next(made, form, pages, state):
                return self._dropped()
            if self.made_buckets == len(self.buckets):
                # Of a view, the number of pairs.
                made.following = self.count
                return made
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.contents)

    def drop(self) -> None:
        """Delete all pages; those that are being made have to be bound."""
        for each in (self.contents, *self.buckets):
            if isinstance(each, PagedBag):
                each.drop()
        if self.made is not None:
            self.made.drop_some(self._made_pages(self.made))

    def _make_next(
        self, made: PagedMap, form: ViewForm | None, pages: CellPages, state: Any
    ) -> bool:
        """Make pages of the next bucket, which is empty then; returns False if it cannot be."""
        number = self.made_buckets
        by_key = _by_key(list(self.buckets[number]), form)
        if by_key is None:
            return False
        found: dict[int, dict[Any, Any]] = {
            each: {} for each in range(number, made.size, len(self.buckets))
        }
        for key, values in by_key.items():
            place = place_of(key)
            assert place is not None
            found[place % made.size][key] = made.count, tuple(values)
            made.count += 1
        for each, page in found.items():
            pages.put(state, each, page)
        made.nbytes += sum(now - before for _, before, now in pages.measure(state))
        self.buckets[number].drop()
        self.buckets[number] = PagedBag(0, [])
        self.made_buckets += 1
        pages.let_go()
        return True

    def _made_pages(self, made: PagedMap) -> list[int]:
        return [each for each in range(made.size) if each % len(self.buckets) < self.made_buckets]

    def _pages_needed(self) -> int:
        """A power of two, so that the pairs of a page are in one bucket."""
        full = sum(bucket.size + 1 for bucket in self.buckets)
        # The numbers of keys take room too.
        return _power_of_two(full + full // 4)

    def _dropped(self) -> list[Any]:
        """All elements as a list, of which no mapping can be made: an error when it is used."""
        found = [*chain.from_iterable(self.buckets), *self.placeless]
        if self.made is not None:
            of_made = self.made.entries_of(self._made_pages(self.made))
            found += [(key, value) for key, (_, values) in of_made for value in values]
        self.drop()
        return found


def _power_of_two(least: int) -> int:
    """The first that is not smaller, and at least 1."""
    return 1 << max(0, least - 1).bit_length()


def _place(each: Any) -> int | None:
    """The place of the key of a pair; None: it has none, or it is no pair."""
    if not isinstance(each, tuple | list) or len(each) != 2:
        return None
    try:
        hash(each[0])
    except TypeError:
        return None
    return place_of(each[0])


def _by_key(pairs: list[Any], form: ViewForm | None) -> dict[Any, list[Any]] | None:
    """The values by key; None: there are none, or several where one is seen."""
    found: dict[Any, list[Any]] = {}
    try:
        for key, value in pairs:
            found.setdefault(key, []).append(value)
    except (TypeError, ValueError):
        return None
    if form is ViewForm.DICT and len(found) < len(pairs):
        return None
    return found

"""Views that come to a shard in parts: what has come of a pane, until all of it is there.

While a step takes parts in, they are a list.  What is left at the end of the step and is large is put into pages, so
that what comes in many steps, as in a batch, need not fit into memory: in a bag, or, where keys will be looked up, in
buckets by the places of their keys, of which pages are made one by one when all is there (Grace hash join).
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import attrs

from dataflow.map_keys import place_of
from dataflow.paged_state import FEW, PagedBag, PagedMap, SizeWatch
from dataflow.views import ViewForm, ViewPart
from runners.core.side_inputs.large_views import BAGS, MAPPINGS, bag_for
from runners.core.stateful.cell_pages import CellPages

#: A power of two, as is the number of pages that are made of them.
BUCKETS = 64


@attrs.define
class ArrivingView:
    """What has come of a pane.

    Attributes:
        version: that the view will have.
        count: how many elements have come.
        contents: these, but for those in buckets: a list or a bag.
        buckets: pairs by the places of their keys, each a bag; empty: there are none.
    """

    version: int
    count: int = 0
    contents: Any = attrs.field(factory=list)
    buckets: list[PagedBag] = attrs.field(factory=list)
    _watch: SizeWatch = attrs.field(factory=SizeWatch, eq=False, repr=False)

    def add(self, part: ViewPart) -> bool:
        """Take a part in; returns whether all is there."""
        self.count += len(part.values)
        self._take(part.values)
        return self.count >= part.count

    def _take(self, values: list[Any]) -> None:
        if not self.buckets:
            self.contents.extend(values)
            return
        for each in values:
            place = _place(each)
            if place is None:
                self.contents.append(each)
            else:
                self.buckets[place % BUCKETS].append(each)

    def containers(self, state: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """What may be in pages, by the name that it has there.

        Args:
            state: the name of the view.
        """
        yield state, self.contents
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
        for bucket in self.buckets:
            bucket.resize(page_bytes)
        if isinstance(self.contents, PagedBag):
            self.contents.resize(page_bytes)
        elif len(self.contents) >= FEW and not self.buckets:
            nbytes = self._watch.nbytes(self.contents)
            if nbytes is None or nbytes <= page_bytes:
                return
            if form not in MAPPINGS:
                kind = bag_for(form)
                self.contents = kind.of(self.contents, pages, state, nbytes, page_bytes)
                return
            came, self.contents = self.contents, []
            self.buckets = [PagedBag(0, []) for _ in range(BUCKETS)]
            pages.bind(dict(self.containers(state)))
            self._take(came)
            for bucket in self.buckets:
                bucket.resize(page_bytes)

    def whole(
        self, form: ViewForm | None, pages: Callable[[], CellPages], state: Any, page_bytes: int
    ) -> Any:
        """The view, when all is there: a list, or what stands for it in pages.

        Args:
            form: how the view is seen.
            pages: returns those of the cell.
            state: the name of the view.
            page_bytes: how large a page should be.
        """
        if not self.buckets:
            if isinstance(self.contents, PagedBag) and form in BAGS:
                self.contents.made = self.count
            return self.contents
        return self._mapping(form, pages(), state, page_bytes) or self._dropped()

    def drop(self) -> None:
        """Delete all pages."""
        for each in (self.contents, *self.buckets):
            if isinstance(each, PagedBag):
                each.drop()

    def _mapping(
        self, form: ViewForm | None, pages: CellPages, state: Any, page_bytes: int
    ) -> PagedMap | None:
        """The map of all pairs, made bucket by bucket; None: it cannot be made."""
        placeless = _by_key(self.contents, form)
        if placeless is None:
            return None
        made = PagedMap(self._pages_needed(page_bytes), 0, 0, 0, {})
        made.bind(pages, state)
        made.placeless = {key: (0, tuple(values)) for key, values in placeless.items()}
        made.count = len(placeless)
        for number, bucket in enumerate(self.buckets):
            by_key = _by_key(list(bucket), form)
            if by_key is None:
                pages.drop(state, [each for each in range(made.size) if each % BUCKETS < number])
                return None
            found: dict[int, dict[Any, Any]] = {
                each: {} for each in range(number, made.size, BUCKETS)
            }
            for key, values in by_key.items():
                place = place_of(key)
                assert place is not None
                found[place % made.size][key] = made.count, tuple(values)
                made.count += 1
            for each, page in found.items():
                pages.put(state, each, page)
            made.nbytes += sum(now - before for _, before, now in pages.measure(state))
            pages.let_go()
        for bucket in self.buckets:
            bucket.drop()
        # Of a view, the number of pairs.
        made.following = self.count
        return made

    def _pages_needed(self, page_bytes: int) -> int:
        """A power of two, so that the pairs of a page are in one bucket."""
        full = sum(bucket.size for bucket in self.buckets)
        # The numbers of keys take room too.
        needed = max(BUCKETS, full + full // 4)
        return 1 << (needed - 1).bit_length()

    def _dropped(self) -> list[Any]:
        """All elements as a list, of which no mapping can be made: an error when it is used."""
        found = [*chain.from_iterable(self.buckets), *self.contents]
        self.drop()
        return found


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

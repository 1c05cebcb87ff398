"""Views that come to a shard in parts: what has come of a pane, until all of it is there.

While a step takes parts in, they are a list; if that is large at the end of the step, it is put into a bag in pages, so
that a view need not fit into memory.  Where it is seen as a sequence or iterated, the bag is the view.  Where its keys
will be looked up, it is divided among buckets by the places of the keys when all is there, and pages are made of one
bucket after the other (Grace hash join); in each step some pages of it, and the view is not seen before the last.  A
bucket that is larger than what a step makes is divided once more before that.

So is a view that has the elements of a former version too: these are divided with what has come since, and the former
version is seen until the new one is made. And one whose elements may be retracted: an element and its retraction are in
one bucket, where they cancel out.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import attrs

from dataflow.map_keys import place_of
from dataflow.paged_state import FEW, Paged, PagedBag, PagedMap, SizeWatch
from dataflow.views import SignedViewPart, View, ViewEnd, ViewForm, ViewPart
from runners.core.partials.signed_combine import as_given, counted, there
from runners.core.side_inputs.large_views import BAGS, MAPPINGS, bag_for
from runners.core.stateful.cell_pages import CellPages, PagesInPassing

#: How many pages a bucket should have, and how many buckets there are at most, as all but full pages are in the cell.
#: Their number is a power of two, as is that of the pages that are made of them.
BUCKET_PAGES, BUCKETS_MAX = 16, 64
#: How many pages are made in one step, about; a bucket that has more is divided once more.
MADE_PAGES = 64


class FormerView:
    """A version of a view, page by page: the next one is made of it, and of what has come since.

    Args:
        known: the view.
        pages: of it; read in passing, as the view may be larger than memory.
    """

    def __init__(self, known: View | Paged, pages: PagesInPassing) -> None:
        self._known, self._pages = known, pages

    @property
    def size(self) -> int:
        """How many pages it has; what is in none of them counts as one more."""
        return self._known.size if isinstance(self._known, PagedBag | PagedMap) else 0

    def read(self, first: int, end: int) -> list[Any]:
        """The elements of some pages.

        Args:
            first: the number of the first page.
            end: one past that of the last; that of the last page is `size`.
        """
        known, is_last = self._known, end > self.size
        if isinstance(known, View):
            return list(known.contents)
        pages = self._pages.between(first, min(end, self.size))
        if isinstance(known, PagedBag):
            return [*chain.from_iterable(pages), *(known.last if is_last else ())]
        assert isinstance(known, PagedMap)
        entries = chain(pages, (known.placeless,) if is_last else ())
        return [
            (key, value)
            for page in entries
            for key, (_, values) in page.items()
            for value in values
        ]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read(0, self.size + 1))


@attrs.define
class ArrivingView:
    """What has come of a pane.

    Attributes:
        version: that the view will have.
        count: how many elements have come; of a view that is being made, with those of the former version.
        contents: these, but for those that have gone on to buckets: a list or a bag.
        buckets: the elements by their places, or those of their keys, each a bag; empty: it is not divided.
        expected: of how many elements the view consists; None: that is not known.
        has_end: whether an end has said that; else the parts have.
        placeless: the elements that have no place, when it is divided.
        made: the map, or the bag, that is being made of the buckets; None: none is.
        made_buckets: of how many of them it has been made.
        rest: the elements that came with the end, where later panes have those of former ones, and have these anew; so
            it was sent by earlier versions of this package.
        is_signed: whether ``contents``, ``buckets`` and ``placeless`` have pairs of an element and a sign.
        former_read: of how many pages of the former version it has the elements.
        owed: the elements that are to be retracted when they come, as such pairs.
        kept: of a view that is being made, how many elements are there when others have been retracted.
        parts: the next bucket, divided as the buckets are, as far as it is; empty: it is not.
        made_parts: of how many of them the map or bag has been made.
    """

    version: int
    count: int = 0
    contents: Any = attrs.field(factory=list)
    buckets: list[PagedBag] = attrs.field(factory=list)
    expected: int | None = None
    has_end: bool = False
    placeless: list[Any] = attrs.field(factory=list)
    made: PagedMap | PagedBag | None = None
    made_buckets: int = 0
    rest: list[Any] = attrs.field(factory=list)
    is_signed: bool = False
    former_read: int = 0
    owed: list[Any] = attrs.field(factory=list)
    kept: int = 0
    parts: list[PagedBag] = attrs.field(factory=list)
    made_parts: int = 0
    _watch: SizeWatch = attrs.field(factory=SizeWatch, eq=False, repr=False)

    def add(self, part: ViewPart) -> None:
        """Take a part in."""
        self.count += len(part.values)
        if part.count is not None:
            self.expected = part.count
        if isinstance(part, SignedViewPart):
            self.have_signs()
            self.contents.extend(zip(part.values, part.signs, strict=True))
        else:
            self.contents.extend(_signed(part.values) if self.is_signed else part.values)

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

    def take_in(self, before: "ArrivingView") -> None:
        """Have what has come of a pane before this one, too.

        Args:
            before: not to be used afterwards; its pages stay where they are, and are this one's.
        """
        self.count += before.count
        if self.is_signed or before.is_signed:
            self.have_signs()
            before.have_signs()
        if not isinstance(before.contents, PagedBag):
            self.contents.extend(before.contents)
            return
        came = self.contents if isinstance(self.contents, PagedBag) else PagedBag(0, self.contents)
        self.contents = before.contents.followed_by(came)
        # Where these pages are, nothing else may be put before they are gone.
        self.version = max(self.version, before.version)

    def owes(self, entries: list[Any]) -> None:
        """Have elements that are retracted, and have not come: they do not count."""
        self.have_signs()
        self.contents.extend(entries)

    def have_signs(self) -> None:
        """Have elements with signs from here on."""
        if not self.is_signed:
            contents = self.contents
            self.contents, self.is_signed = _signed(contents), True
            if isinstance(contents, PagedBag):
                contents.drop()

    def containers(self, state: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """What may be in pages, by the name that it has there.

        Args:
            state: the name of the view.
        """
        # There is nothing to be divided any more when it is made, whose pages have the same name.
        yield state, self.contents if self.made is None else self.made
        for number, bucket in enumerate(self.buckets):
            yield (*state, "bucket", number), bucket
        for number, part in enumerate(self.parts):
            yield (*state, "bucket", self.made_buckets, number), part

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
                kind = PagedBag if self.is_signed else bag_for(form)
                self.contents = kind.of(self.contents, pages, state, nbytes, page_bytes)

    def whole(
        self,
        form: ViewForm | None,
        former: FormerView | None,
        pages: Callable[[], CellPages],
        state: Any,
        page_bytes: int,
    ) -> Any:
        """The view, when all is there: a list, or what stands for it in pages; None: it is still being made.

        Args:
            form: how the view is seen.
            former: the version whose elements it has too; None: there is none.
            pages: returns those of the cell.
            state: the name of the view.
            page_bytes: how large a page should be.
        """
        contents = self.contents
        if not self.buckets:
            if not isinstance(contents, PagedBag) and (former is None or not former.size):
                return self._kept([*self._of_former(former or ()), *contents])
            if former is None and self._is_a_view(form):
                if form in BAGS:
                    contents.made = self.count
                return contents
        if self._is_left(former):
            self._divide(form, former, pages(), state, page_bytes)
            return None
        if self.made is None:
            self.made = self._begun(form, pages(), state)
        if self.made is None:
            return self._dropped()
        return self._make_some(self.made, form, pages(), state, page_bytes)

    def _is_a_view(self, form: ViewForm | None) -> bool:
        """Whether what has come can be read as the view: a bag of its own pages, counted where it is a sequence."""
        is_bag = type(self.contents) is bag_for(form) and form not in MAPPINGS
        return is_bag and not self.is_signed

    def _of_former(self, elements: Iterable[Any]) -> list[Any]:
        """Elements of the former version, as if they had come."""
        found = list(elements)
        if self.is_signed:
            return _signed(found)
        self.count += len(found)
        return found

    def _is_left(self, former: FormerView | None) -> bool:
        """Whether something has not been divided among the buckets."""
        if isinstance(self.contents, PagedBag) or self.contents or not self.buckets:
            return True
        return former is not None and self.former_read <= former.size

    def _divide(
        self,
        form: ViewForm | None,
        former: FormerView | None,
        pages: CellPages,
        state: Any,
        page_bytes: int,
    ) -> None:
        """Divide some pages of what has come, or of the former version, among the buckets."""
        if not self.buckets:
            size = self.contents.page_count if isinstance(self.contents, PagedBag) else 0
            size += 0 if former is None else former.size
            count = min(_power_of_two(size // BUCKET_PAGES), BUCKETS_MAX)
            self.buckets = [PagedBag(0, []) for _ in range(count)]
            pages.bind(dict(self.containers(state)))
        for number, each in enumerate(self._next_to_divide(former)):
            place = self._place(each, form, number)
            if place is None:
                self.placeless.append(each)
            else:
                self.buckets[place % len(self.buckets)].append(each)
        for bucket in self.buckets:
            bucket.resize(page_bytes)
        pages.let_go()

    def _next_to_divide(self, former: FormerView | None) -> list[Any]:
        divided, self.contents = self.contents, []
        if isinstance(divided, PagedBag):
            divided, self.contents = divided.taken(MADE_PAGES)
        if divided or former is None:
            return list(divided)
        first = self.former_read
        self.former_read = min(first + MADE_PAGES, former.size + 1)
        return self._of_former(former.read(first, self.former_read))

    def _place(self, each: Any, form: ViewForm | None, number: int) -> int | None:
        """What all elements have in common that are to be in one bucket; None: it is not known.

        Args:
            each: an element, with its sign where it has one.
            form: how the view is seen.
            number: any.
        """
        element = each[0] if self.is_signed else each
        if form in MAPPINGS:
            return _place_of_key(element)
        return place_of(element) if self.is_signed else number

    def _begun(
        self, form: ViewForm | None, pages: CellPages, state: Any
    ) -> PagedMap | PagedBag | None:
        """What is to be made, with what has no place; None: it cannot be."""
        placeless = self._kept(self.placeless)
        self.placeless = _signed(placeless) if self.is_signed else placeless
        made: PagedMap | PagedBag
        if form in MAPPINGS:
            by_key = _by_key(placeless, form)
            if by_key is None:
                return None
            made = PagedMap(self._pages_needed(), 0, 0, 0, {})
            made.placeless = {key: (0, tuple(values)) for key, values in by_key.items()}
            made.count = len(by_key)
        else:
            made = bag_for(form)(0, placeless)
        self.placeless = []
        made.bind(pages, state)
        return made

    def _make_some(
        self,
        made: PagedMap | PagedBag,
        form: ViewForm | None,
        pages: CellPages,
        state: Any,
        page_bytes: int,
    ) -> Any:
        """Make some pages; returns the view if all are made, its elements if it cannot be, None otherwise."""
        made.bind(pages, state)
        left = MADE_PAGES
        while left > 0 and self.made_buckets < len(self.buckets):
            if self._divide_once_more(made, form, pages, state, page_bytes):
                return None
            found = self.parts or self.buckets
            number = self.made_parts if self.parts else self.made_buckets
            bucket = found[number]
            left -= max(1, bucket.page_count)
            elements = self._kept(list(bucket))
            found[number] = PagedBag(0, [])
            if isinstance(made, PagedBag):
                made.extend(elements)
                made.resize(page_bytes)
            elif not self._put(made, elements, form, pages, state):
                # What is dropped with the others has no signs any more.
                bucket.drop()
                return [*elements, *self._dropped()]
            bucket.drop()
            self._note_made()
            pages.let_go()
        if self.made_buckets < len(self.buckets):
            return None
        size = self.kept if self.is_signed else self.count
        if isinstance(made, PagedMap):
            # Of a view, the number of pairs.
            made.following = size
        elif form in BAGS:
            made.made = size
        return made

    def _note_made(self) -> None:
        """Go on to the next bucket, or the next part of one."""
        if self.parts:
            self.made_parts += 1
            if self.made_parts < len(self.parts):
                return
            self.parts, self.made_parts = [], 0
        self.made_buckets += 1

    def _divide_once_more(
        self,
        made: PagedMap | PagedBag,
        form: ViewForm | None,
        pages: CellPages,
        state: Any,
        page_bytes: int,
    ) -> bool:
        """Divide some pages of the next bucket, where it is too large for one step; returns whether it did."""
        count, bucket = len(self.buckets), self.buckets[self.made_buckets]
        if not self.parts:
            parts = min(_power_of_two(bucket.page_count // BUCKET_PAGES), BUCKETS_MAX)
            if isinstance(made, PagedMap):
                # The pairs of a page are in one part.
                parts = min(parts, made.size // count)
            if bucket.page_count <= MADE_PAGES or parts < 2:
                return False
            self.parts = [PagedBag(0, []) for _ in range(parts)]
            pages.bind(dict(self.containers(state)))
        if not bucket.page_count and not bucket.last:
            return False
        taken, rest = bucket.taken(MADE_PAGES)
        self.buckets[self.made_buckets] = rest or PagedBag(0, [])
        for number, each in enumerate(taken):
            place = self._place(each, form, number * count)
            assert place is not None, "what has no place is in no bucket"
            self.parts[place // count % len(self.parts)].append(each)
        for part in self.parts:
            part.resize(page_bytes)
        pages.let_go()
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.contents)

    def drop(self) -> None:
        """Delete all pages; those that are being made have to be bound."""
        for each in (self.contents, *self.buckets, *self.parts):
            if isinstance(each, PagedBag):
                each.drop()
        if isinstance(self.made, PagedMap):
            self.made.drop_some(self._made_pages(self.made))
        elif self.made is not None:
            self.made.drop()

    def _put(
        self,
        made: PagedMap,
        pairs: list[Any],
        form: ViewForm | None,
        pages: CellPages,
        state: Any,
    ) -> bool:
        """Make pages of the pairs of the next bucket, or part of it; returns False if they cannot be."""
        by_key = _by_key(pairs, form)
        if by_key is None:
            return False
        count = len(self.buckets)
        first, apart = self.made_buckets + count * self.made_parts, count * max(1, len(self.parts))
        found: dict[int, dict[Any, Any]] = {each: {} for each in range(first, made.size, apart)}
        for key, values in by_key.items():
            place = place_of(key)
            assert place is not None
            found[place % made.size][key] = made.count, tuple(values)
            made.count += 1
        for each, page in found.items():
            pages.put(state, each, page)
        made.nbytes += sum(now - before for _, before, now in pages.measure(state))
        return True

    def _kept(self, entries: list[Any]) -> list[Any]:
        """The elements that are there, of entries among which all are that are equal to one."""
        if not self.is_signed:
            return entries
        counts = counted({}, entries)
        kept = there(counts)
        for value, count in counts.items():
            if count < 0:
                self.owed += [(as_given(value), -1)] * -count
        self.kept += len(kept)
        return kept

    def _made_pages(self, made: PagedMap) -> list[int]:
        count, parts = len(self.buckets), max(1, len(self.parts))
        before = self.made_buckets, self.made_parts
        return [each for each in range(made.size) if (each % count, each // count % parts) < before]

    def _pages_needed(self) -> int:
        """A power of two, so that the pairs of a page are in one bucket."""
        full = sum(bucket.size + 1 for bucket in self.buckets)
        # The numbers of keys take room too.
        return _power_of_two(full + full // 4)

    def _dropped(self) -> list[Any]:
        """All elements as a list, of which no mapping can be made: an error when it is used."""
        found = self._kept([*chain(*self.buckets, *self.parts), *self.placeless])
        if isinstance(self.made, PagedMap):
            of_made = chain(
                self.made.entries_of(self._made_pages(self.made)), self.made.placeless.items()
            )
            found += [(key, value) for key, (_, values) in of_made for value in values]
        self.drop()
        return found


def _signed(elements: Iterable[Any]) -> list[Any]:
    """Elements that have come, as pairs with a sign."""
    return [(each, 1) for each in elements]


def _power_of_two(least: int) -> int:
    """The first that is not smaller, and at least 1."""
    return 1 << max(0, least - 1).bit_length()


def _place_of_key(each: Any) -> int | None:
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

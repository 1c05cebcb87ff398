"""Views in pages: how they are put there, and the elements that user code reads from there.

A view that is seen as a mapping is a `PagedMap` of the tuples of values by key, with the number of pairs as the number
of the next key; one that is seen as a sequence a `CountedBag`; any other is a `PagedBag`.  So is one of which no dict
can be made, which is an error when it is used, as where it is small.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from dataflow.paged_state import CountedBag, Paged, PagedBag, PagedMap, Pages, page_of
from dataflow.views import LargeContents, LargePairs, LargeSequence, ViewForm
from runners.core.stateful.cell_pages import PagesInPassing

#: The forms in which keys are looked up.
MAPPINGS = (ViewForm.DICT, ViewForm.MULTI_MAP)
#: The forms in which a bag is read page by page.
BAGS = (ViewForm.ITERABLE, ViewForm.SEQUENCE)


def bag_for(form: ViewForm | None) -> type[PagedBag]:
    """What the elements of a view are put into that is not looked up by keys.

    Args:
        form: how the view is seen.
    """
    return CountedBag if form is ViewForm.SEQUENCE else PagedBag


class LargeElements(LargeContents):
    """The elements of a bag.

    Args:
        bag: has them.
        pages: of it.
    """

    def __init__(self, bag: PagedBag, pages: PagesInPassing) -> None:
        self._bag, self._pages = bag, pages

    def __iter__(self) -> Iterator[Any]:
        return chain(chain.from_iterable(self._pages.each()), self._bag.last)

    def __len__(self) -> int:
        if self._bag.made is None:
            # Counted once, as a list that is made of it asks too.
            self._bag.made = sum(map(len, self._pages.each())) + len(self._bag.last)
        count: int = self._bag.made
        return count


class ElementsByPlace(LargeSequence):
    """The elements of a bag whose pages are counted.

    Args:
        bag: has them.
        pages: of it.
    """

    def __init__(self, bag: CountedBag, pages: PagesInPassing) -> None:
        self._bag, self._pages = bag, pages

    def __iter__(self) -> Iterator[Any]:
        return chain(chain.from_iterable(self._pages.each()), self._bag.last)

    def __len__(self) -> int:
        return self._bag.starts[-1] + len(self._bag.last)

    def between(self, start: int, stop: int) -> Iterator[Any]:
        """The elements from one place to before another."""
        starts = self._bag.starts
        while start < stop:
            number = bisect_right(starts, start) - 1
            page = self._bag.last if number == self._bag.size else self._pages.read(number)
            found = page[start - starts[number] : stop - starts[number]]
            yield from found
            start += len(found)


class PairsByKey(LargePairs):
    """The pairs of a map.

    Args:
        paged: has the tuples of values by key.
        pages: of it.
    """

    def __init__(self, paged: PagedMap, pages: PagesInPassing) -> None:
        self._paged, self._pages = paged, pages

    def values_of(self, key: Any) -> tuple[Any, ...] | None:
        """The values of a key."""
        number = page_of(key, self._paged.size)
        page = self._paged.placeless if number is None else self._pages.read(number)
        found = page.get(key)
        return None if found is None else found[1]

    def by_key(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """The keys, each with its values."""
        for page in chain(self._pages.each(), (self._paged.placeless,)):
            for key, (_, values) in page.items():
                yield key, values

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return self._paged.count

    def __iter__(self) -> Iterator[Any]:
        return ((key, value) for key, values in self.by_key() for value in values)

    def __len__(self) -> int:
        return self._paged.following


def is_read_in_passing(known: PagedBag, form: ViewForm | None) -> bool:
    """Whether a view in a bag is read page by page; otherwise it is in memory, all of it, as a list.

    Args:
        known: the view.
        form: how it is seen, which may be another form than when it was stored.
    """
    # A bag that is not counted is of an earlier version of the pipeline, or of this package.
    return form in BAGS and (form is not ViewForm.SEQUENCE or isinstance(known, CountedBag))


def contents_of(known: Paged, pages: PagesInPassing) -> LargeContents:
    """The elements of a view in pages.

    Args:
        known: the view.
        pages: of it.
    """
    if isinstance(known, CountedBag):
        return ElementsByPlace(known, pages)
    if isinstance(known, PagedBag):
        return LargeElements(known, pages)
    assert isinstance(known, PagedMap)
    return PairsByKey(known, pages)


def view_in_pages(
    contents: Sequence[Any] | LargeContents,
    form: ViewForm | None,
    pages: Pages,
    state: Any,
    nbytes: int,
    page_bytes: int,
) -> PagedBag | PagedMap:
    """Put the elements of a view into pages.

    Args:
        contents: the elements.
        form: how they are seen.
        pages: of the cell.
        state: the name of the view.
        nbytes: about how large they are.
        page_bytes: how large a page should be.
    """
    by_key = _by_key(contents, form) if form in MAPPINGS else None
    if by_key is not None:
        paged = PagedMap.of(by_key, pages, state, nbytes, page_bytes)
        if isinstance(paged, PagedMap):
            paged.following = len(contents)
            return paged
    bag: PagedBag = bag_for(form).of(list(contents), pages, state, nbytes, page_bytes)
    bag.made = len(contents)
    return bag


def _by_key(
    contents: Sequence[Any] | LargeContents, form: ViewForm | None
) -> dict[Any, tuple[Any, ...]] | None:
    """The values by key; None: they cannot be seen so."""
    if not all(isinstance(each, tuple | list) and len(each) == 2 for each in contents):
        return None
    try:
        if form is ViewForm.DICT:
            found = {key: (value,) for key, value in contents}
            return found if len(found) == len(contents) else None
        lists: dict[Any, list[Any]] = {}
        for key, value in contents:
            lists.setdefault(key, []).append(value)
        return {key: tuple(values) for key, values in lists.items()}
    except TypeError:
        # A key that cannot be hashed.
        return None

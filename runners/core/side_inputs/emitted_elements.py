"""Elements that a shard has emitted and may retract: of one window, each with the versions of the views it depends on.

What is kept of an element is the element, and the numbers of the versions of those views that it is retracted with;
the views themselves are in the shard once.  An `Entry` is both.  Where elements may be retracted one by one, entries
are found by a digest: they are in a dict of lists of them, or a `PagedMap`.  Elsewhere they are in a list, or a
`PagedBag`, as all of them are retracted together or none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dataflow.paged_state import Paged, PagedBag
from dataflow.views import View
from runners.core.ground.cells import EmittedPane
from windowing.window import Window

#: An element that was emitted; and the versions of its views, of the side inputs that have versions, in their order.
Entry = tuple[EmittedPane, tuple[int, ...]]


def add(entries: Any, digest: int | None, entry: Entry) -> None:
    """Keep an element.

    Args:
        entries: of its window.
        digest: of the element; None: entries are not found by digests.
        entry: the element.
    """
    if digest is None:
        entries.append(entry)
    else:
        # A list of its own, as that of a page is not to be changed.
        entries[digest] = [*entries[digest], entry] if digest in entries else [entry]


def take(entries: Any, digest: int, element: Any) -> Entry | None:
    """Remove an element that is retracted; None: there is none that equals it.

    Args:
        entries: of its window, found by digests.
        digest: of the element.
        element: the element.
    """
    if digest not in entries:
        return None
    found = list(entries[digest])
    for index, entry in enumerate(found):
        if entry[0].value == element:
            del found[index]
            if found:
                entries[digest] = found
            else:
                entries.pop(digest)
            return entry  # type: ignore[no-any-return]
    return None


def emitted_again(entries: Any, emit_again: Callable[[Entry], Entry]) -> Any:
    """Say all elements of a window again; returns what stands for the entries from here on.

    Args:
        entries: of the window.
        emit_again: retracts what was emitted, and emits the element anew; returns what is kept of it now.
    """
    if isinstance(entries, list | PagedBag):
        former = list(entries)
        again = [emit_again(entry) for entry in former]
        if all(now is before for now, before in zip(again, former, strict=True)):
            return entries
        if isinstance(entries, Paged):
            entries.drop()
        return again
    for digest, found in list(entries.items()):
        again = [emit_again(entry) for entry in found]
        if any(now is not before for now, before in zip(again, found, strict=True)):
            entries[digest] = again
    return entries


def entries_of(
    emitted: Mapping[int, Sequence[EmittedPane]],
    window: Window,
    versions_of: Callable[[Sequence[View]], tuple[int, ...]],
) -> dict[int, list[Entry]]:
    """Entries, by digests, of elements that were stored each with its views, as was done in the past.

    Args:
        emitted: the elements by digest, as `WithViews`.
        window: of the elements.
        versions_of: the versions of the views of an element.
    """

    def entry(each: EmittedPane) -> Entry:
        beside = each.value
        plain = EmittedPane(beside.element, each.timestamp_us, window, each.pane, each.remembered)
        return plain, versions_of(beside.views)

    return {digest: [entry(each) for each in found] for digest, found in emitted.items()}


class FormerVersions:
    """Numbers of the versions of views that were stored with elements, in the past.

    Args:
        views: of the shard, by side input and window.
        former: views by side input, window and version; those that are not the shard's any more are added.
    """

    def __init__(
        self, views: Mapping[tuple[int, Window], Any], former: dict[tuple[int, Window, int], Any]
    ) -> None:
        self._views, self._former = views, former
        self._numbers: dict[tuple[int, Window, int], int] = {}

    def of(self, places: Sequence[tuple[int, Window]], views: Sequence[View]) -> tuple[int, ...]:
        """The versions of some views: 0 of one that is the shard's.

        Args:
            places: of the side inputs whose versions are asked for.
            views: of an element, of all side inputs.
        """
        return tuple([self._version(place, views[place[0]]) for place in places])

    def _version(self, place: tuple[int, Window], view: View) -> int:
        there = self._views.get(place)
        if view is there or (there is None and not view.contents):
            return 0
        # Below those that views are given when they are replaced.
        number = self._numbers.setdefault((*place, id(view)), -1 - len(self._numbers))
        self._former[*place, number] = view
        return number


def drop_all(dropped: Iterable[Any]) -> None:
    """Delete the pages of what is not in a cell any more, where it has any."""
    for each in dropped:
        if isinstance(each, Paged):
            each.drop()

"""SideInputsMachine: gives each element the views of side inputs that belong to it; the same for every engine.

A view is the newest pane of the window of a side input that belongs to the window of an element: the one that contains
its last instant.  An element waits until all of its views are there.

**Invariants**

* An element is emitted once, with its own event time, window and pane; while it waits it holds the watermark.
* A view is there when the first pane of its window has come, or the watermark has reached the end of the window; where
  elements wait for the end, not before the last pane that is on time.
* At every moment the signed sum of what was emitted of the elements in a window that has not expired has each of them
  once, with the views that are there now, where a side input is retracted; with those that were there when it went on,
  where none is.
* Nothing is kept of a window that has expired: of elements those that were emitted, of side inputs the view.
* A pane that comes in parts is a view when all of them are there, and not before; elements wait as long, if there is no
  view, or they wait for the last one.
* A view that is not the newest one is kept as long as an element is, that will be retracted with it, or the next one
  is made of it.
* A window does not expire before the views are made that elements of it will be said again with.

The cell of a shard is one for all windows (a `KeyedState`), as a view may belong to many.  It is changed, and written
where state is durable, when a pane comes, when an element begins to wait, and where elements may be retracted; an
element that finds its views changes nothing.  In a stream elements that wait or were emitted, and views, are in pages
as soon as they are large (`dataflow.paged_state`), so that what is written is what has changed.  What is read of a view
is what user code looks up in it (`large_views`), until the next step begins.

**Versions.**  Each pane that replaces a view gives its window another version of the view.  Elements are kept with the
numbers of these, and not with views (`emitted_elements`).  Where a side input is retracted they need no number: they
have always the newest version, as whoever had the former one has been said again.

Reads no clock, touches no store, calls no user code but window functions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain
from typing import Any

from dataflow.element_digests import element_digest
from dataflow.errors import TransformError
from dataflow.graph import PipelineGraph, SideInputs, SideWindows, TransformNode
from dataflow.paged_state import FEW, Paged, PagedBag, PagedMap, SizeWatch, unpaged
from dataflow.serialization import dumps
from dataflow.views import SignedViewPart, View, ViewEnd, ViewPart, WithViews
from runners.core.ground.cells import (
    CellId,
    Effects,
    EmittedPane,
    LateArrival,
    LateElement,
    Page,
    PageId,
    TimerId,
)
from runners.core.ground.conversion import Conversion
from runners.core.ground.lineage import (
    CarriedPane,
    Origin,
    TracedPane,
    ViewedOrigin,
    origin_of,
    plain_pane,
)
from runners.core.partials.folding import is_remembered
from runners.core.partials.partial import Partial
from runners.core.partials.stateful_inputs import Input, without_retracted
from runners.core.side_inputs.arriving_views import ArrivingView, FormerView
from runners.core.side_inputs.emitted_elements import (
    Entry,
    FormerVersions,
    add,
    drop_all,
    emitted_again,
    entries_of,
    take,
)
from runners.core.side_inputs.large_views import (
    BAGS,
    contents_of,
    is_read_in_passing,
    view_in_pages,
)
from runners.core.stateful.cell_pages import (
    CellPages,
    LetGo,
    NeedPages,
    PagesInPassing,
    all_are_there,
)
from runners.core.stateful.keyed_state import KeyedState
from triggers.clocks import Clocks
from triggers.trigger import TriggerTimers
from windowing.pane import PaneInfo
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW, Window

Cells = MutableMapping[CellId, Any]
#: The number of a side input, and a window of it.
_Place = tuple[int, Window]
#: Both, and the number of a pane.
_Pane = tuple[int, Window, int]

#: What the cell of a shard has, by name: views by side input and window; the elements that wait, those that were
#: emitted and may be retracted (`emitted_elements`), and the holds on the watermark of both, by their windows.
VIEWS, WAITING, KEPT, HOLDS = "views", "waiting", "kept", "holds"
#: Of each view the number of its version, and, where it is in pages, a digest of its contents; former views by side
#: input, window and version; and by windows of elements, how many of these depend on which versions.
VERSIONS, FORMER, USES = "versions", "former", "uses"
#: Of the views that are coming in parts what has come, by side input, window and number of the pane; and the number of
#: the newest pane that has come so and is a view, by side input and window.
ARRIVING, NEWEST = "arriving", "newest"
#: Of the newest panes that later ones have all elements of, which are made of these and of what has come since, by side
#: input and window: how many elements had come by then, the version of the view, and whether it was retracted.
BASES = "bases"
#: The pages of what is not there any more, where they are too many for one step: by the name that they are under and
#: the first number, the one behind the last.
GOING = "going"
#: Where lineage is recorded, the panes that views are, with their origins, by side input and window.
ORIGINS = "origins"
#: What earlier versions of this package have in place of `KEPT`: elements with their views.
EMITTED = "emitted"

#: What a view that was never replaced has for its version, and one that is not there yet.
_FIRST: tuple[int, bytes | None] = (0, None)
#: Of a window of which no pane is that later ones are made of.
_NO_BASE: tuple[int, int | None, bool] = (0, None, False)
_NOTHING_CHANGED: Mapping[_Place, int] = {}
_DIGEST_BYTES = 16

#: How many pages of elements that have waited go on in one step.
RELEASED_PAGES = 64
#: How many pages are deleted in one step.
DROPPED_PAGES = 1_024

#: The windows of elements whose side windows are remembered.
_WINDOWS_MAX = 4_096


def keeps_what_it_emits(graph: PipelineGraph, node: TransformNode) -> bool:
    """Whether elements that were emitted beside side inputs are kept, until their windows expire.

    Args:
        graph: of the pipeline.
        node: a `SideInputs`.
    """
    assert isinstance(node.operation, SideInputs)
    (output,) = node.outputs.values()
    if graph.pcollections[output].retracted_by is None:
        return False
    may_change = any(side.is_retracted or not side.fires_once for side in node.operation.sides)
    return may_change or is_remembered(graph, node)


class SideInputsMachine:
    """The state machine of one `SideInputs`; keeps configuration alone.

    Args:
        graph: of the pipeline.
        node: the transform.
        is_replay: whether all input is there before the watermark moves.
    """

    def __init__(
        self, graph: PipelineGraph, node: TransformNode, *, is_replay: bool = False
    ) -> None:
        operation = node.operation
        assert isinstance(operation, SideInputs)
        elements = graph.pcollections[node.inputs[0]]
        (output,) = node.outputs.values()
        self.node, self.strategy, self.sides = node, elements.strategy, operation.sides
        self.is_retracted = elements.retracted_by is not None
        #: Whether elements wait for the last pane that is on time.
        self.waits_for_end = is_replay or operation.waits_for_end
        is_retractable = graph.pcollections[output].retracted_by is not None
        #: Whether code behind it keeps what it returned for each element, until that is retracted.
        self.is_remembered = is_retractable and is_remembered(graph, node)
        #: Whether what was emitted is kept, because it may be retracted with what it had been emitted with.
        self.remembers = keeps_what_it_emits(graph, node)
        #: The side inputs of which elements that were emitted may have other versions than the newest.
        self.versioned = [number for number, side in enumerate(self.sides) if not side.is_retracted]
        lateness_us = self.strategy.allowed_lateness_us
        self._lateness_us = [max(lateness_us, side.allowed_lateness_us) for side in self.sides]
        #: The view of each side input where there is nothing.
        self.empty = [View([]) for _ in self.sides]
        #: The window of each side input that belongs to a window of elements.
        self.side_windows = lru_cache(maxsize=_WINDOWS_MAX)(self._side_windows)
        #: How user code sees the views of each side input.
        self.forms = operation.forms or (None,) * len(self.sides)
        #: How many steps have begun: what user code is given is for one of them.
        self.steps = 0
        #: How large a page is; None: nothing is put into pages.
        self.page_bytes: int | None = None
        self.need_pages: NeedPages = all_are_there
        self.let_go: LetGo | None = None
        #: Whether what it emits has the origins of its views.
        self.is_traced = False

    def trace(self) -> None:
        """Have the origin of an element that is emitted say which views it is emitted with."""
        self.is_traced = True

    def keep_in_pages(
        self, page_bytes: int, need_pages: NeedPages, let_go: LetGo | None = None
    ) -> None:
        """Have what is large kept in pages, which are among the cells.

        Args:
            page_bytes: how large a page should be.
            need_pages: brings pages that are not among the cells there.
            let_go: takes pages that have changed before a step has ended; None: all stay until then.
        """
        self.page_bytes, self.need_pages, self.let_go = page_bytes, need_pages, let_go

    def keep_in_memory(self) -> None:
        """Have nothing kept in pages, as at first; to be called between two sets of cells."""
        self.page_bytes, self.need_pages, self.let_go = None, all_are_there, None

    @property
    def plain_input(self) -> Conversion | None:
        """Leads over shards whose elements will not be retracted any more; None: they never were."""
        return _PlainElements(self) if self.is_retracted else None

    def retract_standing(
        self, cells: Cells, retracted: Iterable[CellId], clocks: Clocks
    ) -> Effects:
        """Retract the elements that some shards have emitted and keep, which they keep on keeping.

        Args:
            cells: by shard; not changed.
            retracted: the cells of the shards.
            clocks: the clocks.
        """
        step = _Step(self, cells, clocks)
        for cell_id in retracted:
            if not isinstance(cell_id, PageId):
                step.retract_standing(cell_id)
        return step.effects

    @property
    def is_merging(self) -> bool:
        """Whether a cell contains all windows of a key: always True."""
        return True

    @property
    def can_hold(self) -> bool:
        """Whether cells can have holds on the watermark behind it: always True."""
        return True

    def add(self, cells: Cells, partials: Iterable[Partial], clocks: Clocks) -> Effects:
        """Take panes of side inputs, then elements, and emit those that have their views.

        Args:
            cells: by shard; changed in place.
            partials: both, by shard and window.
            clocks: the clocks.
        """
        step = _Step(self, cells, clocks)
        elements: list[tuple[CellId, Window, list[Input]]] = []
        for key, window, inputs, _ in partials:
            cell_id = key, None
            mains = [each for each in inputs if each[0][0] is None]
            if len(mains) < len(inputs):
                panes = [each for each in inputs if each[0][0] is not None]
                step.take_panes(cell_id, window, panes)
            if mains:
                elements.append((cell_id, window, mains))
        step.follow()
        for each in elements:
            step.take(*each)
        return step.finish()

    def fire_timers(self, cells: Cells, due: Iterable[TimerId], clocks: Clocks) -> Effects:
        """Emit elements that wait no longer, and forget windows that have expired.

        Args:
            cells: by shard; changed in place.
            due: the timers.
            clocks: the clocks.
        """
        step = _Step(self, cells, clocks)
        for cell_id, _, _ in due:
            step.fire(cell_id)
        return step.finish()

    def holds(
        self, cell_id: CellId, cell: KeyedState | Page | None
    ) -> Iterator[tuple[Window, int]]:
        """The windows of a cell that hold the watermark, and their holds in microseconds.

        Args:
            cell_id: of the cell.
            cell: its state, or a page of it, which has no hold; None: there is none.
        """
        return iter(cell.values.get(HOLDS, {}).items() if isinstance(cell, KeyedState) else ())

    def expiry_us(self, number: int, window: Window) -> int:
        """When the view of a window is forgotten: no element that belongs to it, and no pane, comes any more.

        Args:
            number: of the side input.
            window: of the side input.
        """
        return min(window.end_us + self._lateness_us[number], MAX_TIMESTAMP_US)

    def _side_windows(self, window: Window) -> tuple[Window, ...]:
        return tuple([self._side_window(each, window) for each in self.sides])

    def _side_window(self, side: SideWindows, window: Window) -> Window:
        found = side.window_fn.assign_windows(min(window.end_us, MAX_TIMESTAMP_US) - 1, None)
        if not found:
            raise TransformError(
                f"{self.node} has a side input without a window for the elements in {window}",
                detail=f"{side.window_fn!r} has none that contains the last instant of that",
                hint="give the side input windows without pauses",
            )
        return min(found)


class _PlainElements(Conversion):
    """Leads the shards of side inputs over whose elements will not be retracted any more.

    Args:
        machine: of the side inputs, as they are.
    """

    def __init__(self, machine: SideInputsMachine) -> None:
        self._machine = machine

    def fire_changed(
        self, cells: Cells, cell_ids: Iterable[CellId], effects: Effects, clocks: Clocks
    ) -> None:
        """Do nothing: an element that is retracted is retracted when that comes, or waits as it does."""
        del cells, cell_ids, effects, clocks

    def convert(self, cells: Cells, cell_ids: Iterable[CellId], clocks: Clocks) -> Effects:
        """Keep elements by windows alone, if they are kept; those that wait go with their retractions."""
        step = _Step(self._machine, cells, clocks)
        for cell_id in [*cell_ids]:
            if not isinstance(cell_id, PageId):
                step.convert(cell_id)
        return step.finish()


class _Step:
    """One step of the machine."""

    def __init__(self, machine: SideInputsMachine, cells: Cells, clocks: Clocks) -> None:
        self._machine, self._cells = machine, cells
        self._watermark_us, self._now_us = clocks.watermark_us, clocks.now_us
        machine.steps += 1
        self._effects = Effects()
        self._born: set[CellId] = set()
        #: The cells that have been looked at, whose pages are known.
        self._begun: set[CellId] = set()
        #: The cells that have new panes, or of which time has passed; with the views before the panes.
        self._changed: dict[CellId, dict[_Place, View | Paged | None]] = {}
        #: The cells of which elements have waited long enough, and go on in a step to come.
        self._unfinished: set[CellId] = set()
        #: The views of which all is there, and more pages are made in a step to come, by cell.
        self._being_made: dict[CellId, dict[_Place, None]] = {}
        #: The views of which a part has come, or the end, by cell.
        self._looked_at: dict[CellId, dict[_Place, None]] = {}
        #: The panes that are retracted, and not replaced.
        self._retracted: dict[tuple[CellId, _Place], int] = {}
        #: The views in pages that elements are emitted with, by cell and name; and their pages.
        self._given: dict[tuple[CellId, Any], tuple[View, PagesInPassing]] = {}
        #: Of views that are new, and that later ones will be made of, how many elements had come, the number of the
        #: pane, and what is to be retracted when it comes.
        self._based: dict[tuple[CellId, _Place], tuple[int, int, list[Any]]] = {}
        #: The versions that new views have; None: the next one.
        self._versions_given: dict[tuple[CellId, _Place], int | None] = {}

    def take_panes(self, cell_id: CellId, window: Window, panes: Iterable[Input]) -> None:
        """Note panes of side inputs; `follow` does what follows from them.

        Args:
            cell_id: of the shard.
            window: of the side inputs.
            panes: in the order in which they came.
        """
        for (number, contents), timestamp_us, pane, sign in panes:
            if self._machine.expiry_us(number, window) <= self._watermark_us:
                # Of an end that is late, the parts that had come are gone when the window is.
                late = contents.values if isinstance(contents, ViewPart | ViewEnd) else contents
                record = LateElement(late, timestamp_us, sign)
                self._effects.late.append(
                    LateArrival(cell_id[0], window, [late], 1, self._watermark_us, record)
                )
                continue
            place = number, window
            if sign < 0:
                self._retracted[cell_id, place] = pane.index
                self._look_at(cell_id, place)
                continue
            if self._is_of_another(cell_id, place, contents, pane):
                self._begin_anew(cell_id, place)
            if not isinstance(contents, ViewPart) or contents.count is not None:
                # Until the new pane is there the former one is seen, also if that is retracted.
                self._retracted.pop((cell_id, place), None)
                self._note_origin(cell_id, place, contents, pane)
            if isinstance(contents, ViewEnd):
                keeps_parts = self._keeps_parts(place)
                self._arriving(cell_id, (*place, pane.index)).end(contents, keeps_parts=keeps_parts)
                self._look_at(cell_id, place)
            elif isinstance(contents, ViewPart):
                self._arriving(cell_id, (*place, pane.index)).add(contents)
                self._look_at(cell_id, place)
            elif contents or self._machine.sides[number].is_cumulative:
                self._replace(cell_id, place, View(contents))
            else:
                self._replace(cell_id, place, None)

    def _note_origin(self, cell_id: CellId, place: _Place, contents: Any, pane: PaneInfo) -> None:
        """Keep which pane a view is, or will be when all is there.  A pane without contents may be no news."""
        if not self._machine.is_traced:
            return
        origins = self._part(cell_id, ORIGINS)
        if isinstance(contents, ViewEnd | ViewPart):
            origins[*place, pane.index] = pane
        elif contents or self._machine.sides[place[0]].is_cumulative or place not in origins:
            origins[place] = pane

    def _take_origin(self, cell_id: CellId, place: _Place, index: int | None) -> None:
        """Have the origin of the pane that is the view from now on; None: there is none, as it was retracted."""
        if not self._machine.is_traced:
            return
        origins = self._part(cell_id, ORIGINS)
        if index is None:
            origins.pop(place, None)
            return
        if (*place, index) in origins:
            origins[place] = origins.pop((*place, index))
        for former in [
            each for each in origins if each[:2] == place and each[2:] < (index,) and each[2:]
        ]:
            del origins[former]

    def _traced(self, cell_id: CellId, window: Window, pane: PaneInfo, sign: int) -> PaneInfo:
        """The pane of an element that is emitted, with where it and its views come from.

        What is retracted is not said to have the views of now.
        """
        if not self._machine.is_traced:
            return plain_pane(pane)
        origin = origin_of(pane)
        if sign < 0:
            return TracedPane.of(plain_pane(pane), origin)
        cell = self._cells.get(cell_id)
        known = {} if cell is None else cell.values.get(ORIGINS, {})
        before, views = origin, list[Origin | None]()
        if isinstance(origin, ViewedOrigin):
            before, views = origin.element, [*origin.views]
        for place in enumerate(self._machine.side_windows(window)):
            views.append(origin_of(known[place]) if place in known else None)
        return TracedPane.of(plain_pane(pane), ViewedOrigin(before, tuple(views)))

    def _replace(
        self, cell_id: CellId, place: _Place, view: View | Paged | None, version: int | None = None
    ) -> None:
        """Have another view.

        Args:
            cell_id: of the shard.
            place: of the view.
            view: the view; None: a pane that is no news, so a view is only made where there is none.
            version: of the view; None: the next one.
        """
        views = self._part(cell_id, VIEWS)
        known = views.get(place)
        before = self._changed.setdefault(cell_id, {}).setdefault(place, known)
        if view is None:
            views.setdefault(place, View([]))
            return
        if known is not before:
            drop_all([known])
        views[place] = view
        self._versions_given[cell_id, place] = version

    def _arriving(self, cell_id: CellId, pane: _Pane) -> ArrivingView:
        """What has come of a pane."""
        arriving: dict[_Pane, ArrivingView] = self._part(cell_id, ARRIVING)
        if pane not in arriving:
            arriving[pane] = ArrivingView(_next_version(self._cells[cell_id], pane[:2]))
        return arriving[pane]

    def _look_at(self, cell_id: CellId, place: _Place) -> None:
        """Look in this step whether there is a new view."""
        self._part(cell_id, ARRIVING)
        self._changed.setdefault(cell_id, {})
        self._looked_at.setdefault(cell_id, {})[place] = None

    def _is_of_another(self, cell_id: CellId, place: _Place, contents: Any, pane: PaneInfo) -> bool:
        """Whether a pane is of a grouping that has begun anew, as that of a job does that was updated."""
        cell = self._cells.get(cell_id)
        base = None if cell is None else cell.values.get(BASES, {}).get(place)
        if cell is None or base is None or pane.index > cell.values[NEWEST][place]:
            return False
        # What belongs to the newest pane has come; nor is there one of those numbers after one that is not replaced.
        return base[2] or type(contents) in (ViewPart, SignedViewPart)

    def _begin_anew(self, cell_id: CellId, place: _Place) -> None:
        """Forget what later panes would be made of."""
        arriving = self._part(cell_id, ARRIVING)
        for pane in [each for each in arriving if each[:2] == place]:
            arriving.pop(pane).drop()
        del self._part(cell_id, BASES)[place], self._part(cell_id, NEWEST)[place]

    def _take_complete(self, cell_id: CellId, place: _Place) -> None:
        """Have the newest pane as the view of which all parts are there."""
        arriving: dict[_Pane, ArrivingView] = self._part(cell_id, ARRIVING)
        cell = self._cells[cell_id]
        newest = cell.values.get(NEWEST, {}).get(place, -1)
        gone = self._retracted.get((cell_id, place), -1)
        panes = {pane[2]: each for pane, each in arriving.items() if pane[:2] == place}
        keeps = self._keeps_parts(place)
        base = cell.values.get(BASES, {}).get(place, _NO_BASE)
        index = _complete(panes, max(newest, gone), base[0], keeps_parts=keeps)
        if index is not None:
            has_end = panes[index].has_end
            if keeps and has_end:
                is_made = self._take_with_former(cell_id, place, panes, index)
            else:
                is_made = self._take_made(cell_id, place, panes, index, None)
            if not is_made:
                self._note_being_made(cell_id, place)
                return
            self._take_origin(cell_id, place, index)
            if has_end:
                self._part(cell_id, NEWEST)[place] = newest = index
        elif newest <= gone >= 0:
            # A pane that is retracted and not replaced leaves nothing.
            self._replace(cell_id, place, View([]))
            self._take_origin(cell_id, place, None)
            if base is not _NO_BASE:
                self._part(cell_id, BASES)[place] = (*base[:2], True)
        self._forget_former(arriving, place, panes, max(newest, gone), keeps_parts=keeps)
        came, *_ = self._based.get((cell_id, place), base)
        if _complete(panes, max(newest, gone), came, keeps_parts=keeps) is not None:
            # It came while pages of another one were made.
            self._note_being_made(cell_id, place)

    def _note_being_made(self, cell_id: CellId, place: _Place) -> None:
        """Go on in a step to come; what is said again then is no later than it would be now."""
        self._being_made.setdefault(cell_id, {})[place] = None
        if self._machine.sides[place[0]].is_retracted:
            cell = self._cells[cell_id]
            for window in cell.values.get(KEPT, {}):
                if self._sees(window, place) and window not in cell.values.get(HOLDS, {}):
                    self._hold(cell_id, window, self._watermark_us)

    def _sees(self, window: Window, place: _Place) -> bool:
        """Whether a view is that of elements of a window."""
        number, side_window = place
        return self._machine.side_windows(window)[number] == side_window

    def _is_kept_for_view(self, cell_id: CellId, window: Window) -> bool:
        """Whether elements of a window will be said again with a view that is being made."""
        places = self._being_made.get(cell_id, ())
        sides = self._machine.sides
        return any(sides[each[0]].is_retracted and self._sees(window, each) for each in places)

    def _is_over(self, cell_id: CellId, window: Window) -> bool:
        """Whether elements of a window that were emitted will be neither emitted again nor retracted any more."""
        if self._machine.strategy.expiry_us(window) > self._watermark_us:
            return False
        cell = self._cell(cell_id)
        # Of elements that go on in several steps, one may retract another that has gone on before.
        goes_on = cell is not None and window in cell.values.get(WAITING, {})
        return not goes_on and not self._is_kept_for_view(cell_id, window)

    def _take_with_former(
        self, cell_id: CellId, place: _Place, panes: dict[int, ArrivingView], index: int
    ) -> bool:
        """Have a pane as the view that has the elements of those before it; returns False while it is being made."""
        arriving, pane = self._part(cell_id, ARRIVING), panes[index]
        count, version, is_gone = self._cells[cell_id].values.get(BASES, {}).get(place, _NO_BASE)
        former = None if version is None else self._former(cell_id, place, version)
        if pane.rest:
            before = [each for number, each in sorted(panes.items()) if number <= index]
            elements = [*(former or ()), *chain.from_iterable(before), *pane.rest]
            self._replace(cell_id, place, View(elements))
            return True
        for number in sorted(panes, reverse=True):
            if number < index:
                pane.take_in(panes.pop(number))
                del arriving[*place, number]
        is_newest = version == _version(self._cells[cell_id], place) and not is_gone
        if pane.expected == count and is_newest and not pane.buckets:
            # No news, and the same view; what is to be retracted when it comes is so in a later pane.
            return True
        expected = pane.expected
        assert expected is not None
        if not self._take_made(cell_id, place, panes, index, former):
            return False
        self._based[cell_id, place] = expected, index, pane.owed
        return True

    def _former(self, cell_id: CellId, place: _Place, version: int) -> FormerView | None:
        known = self._known(cell_id, place, version)
        if known is None:
            return None
        size = known.size if isinstance(known, PagedBag | PagedMap) else 0
        return FormerView(known, self._in_passing(cell_id, _state(VIEWS, place, version), size))

    def _take_made(
        self,
        cell_id: CellId,
        place: _Place,
        panes: dict[int, ArrivingView],
        index: int,
        former: FormerView | None,
    ) -> bool:
        """Have what has come of a pane as the view; returns False while it is being made."""
        view, version = self._made(cell_id, place, panes[index], former)
        if view is None:
            return False
        del self._part(cell_id, ARRIVING)[*place, index], panes[index]
        self._replace(cell_id, place, view, version)
        return True

    def _keeps_parts(self, place: _Place) -> bool:
        """Whether parts of former panes of a window are in later ones too."""
        side = self._machine.sides[place[0]]
        return side.is_cumulative and not side.fires_once

    @staticmethod
    def _forget_former(
        arriving: dict[_Pane, ArrivingView],
        place: _Place,
        panes: Mapping[int, ArrivingView],
        newest: int,
        *,
        keeps_parts: bool,
    ) -> None:
        """Forget what has come of panes that will not be a view any more, but for parts that later ones have too."""
        for number, each in panes.items():
            if number > newest or (each.expected is not None and not each.has_end):
                continue
            if keeps_parts and (each.buckets or each.contents):
                each.forget_end()
            else:
                arriving.pop((*place, number)).drop()

    def _made(
        self,
        cell_id: CellId,
        place: _Place,
        arriving: ArrivingView,
        former: FormerView | None,
    ) -> tuple[View | Paged | None, int | None]:
        """The view that consists of what has come, and of a former version; None while it is being made."""
        pages = partial(self._pages_of, cell_id, self._cells[cell_id])
        state, form = _state(VIEWS, place, arriving.version), self._machine.forms[place[0]]
        whole = arriving.whole(form, former, pages, state, self._machine.page_bytes or 0)
        return View(whole) if isinstance(whole, list) else whole, arriving.version

    def follow(self) -> None:
        """Retract and say again what has been emitted with views that have changed; emit what has waited for them."""
        for cell_id in self._changed:
            self._follow(cell_id)

    def _follow(self, cell_id: CellId) -> None:
        for pane, arriving in self._cells[cell_id].values.get(ARRIVING, {}).items():
            # Others may be complete, and more of them made in each step.
            if arriving.expected is not None:
                self._look_at(cell_id, pane[:2])
        for place in self._looked_at.get(cell_id, ()):
            self._take_complete(cell_id, place)
        cell, before = self._cells[cell_id], self._changed[cell_id]
        changed = {
            place: _version(cell, place)
            for place, view in before.items()
            if self._is_replaced(cell, place, view)
        }
        for place, version in changed.items():
            self._note_replaced(cell_id, place, version, before[place])
        for place in before:
            if (cell_id, place) in self._based:
                count, index, owed = self._based.pop((cell_id, place))
                self._part(cell_id, BASES)[place] = count, _version(cell, place), False
                if owed:
                    self._arriving(cell_id, (*place, index + 1)).owes(owed)
        self._put_into_pages(cell_id, cell, changed)
        self._retract(cell_id, changed)
        self._release(cell_id)

    def _is_replaced(self, cell: KeyedState, place: _Place, before: View | Paged | None) -> bool:
        """Whether a view is another one now; of one that equals the one before, that one stays."""
        views, now = cell.values[VIEWS], cell.values[VIEWS][place]
        if now is before:
            return False
        if before is not None and isinstance(now, View):
            packed = dumps(now.contents)
            _, digest = cell.values.get(VERSIONS, {}).get(place, _FIRST)
            is_same = digest == _digest(packed)
            if is_same or (isinstance(before, View) and dumps(before.contents) == packed):
                views[place] = before
                return False
        return True

    def _note_replaced(
        self, cell_id: CellId, place: _Place, version: int, before: View | Paged | None
    ) -> None:
        """Give a view its version, and keep the former one until the end of the step."""
        cell = self._cells[cell_id]
        _unmeasured(cell, place)
        given = self._versions_given.get((cell_id, place)) or _next_version(cell, place)
        self._part(cell_id, VERSIONS)[place] = given, None
        if before is not None:
            self._part(cell_id, FORMER)[*place, version] = before

    def take(self, cell_id: CellId, window: Window, inputs: list[Input]) -> None:
        """Emit elements that have their views, and keep the others.

        Args:
            cell_id: of the shard.
            window: of the elements.
            inputs: the elements.
        """
        places = tuple(enumerate(self._machine.side_windows(window)))
        if any(self._machine.expiry_us(*each) <= self._watermark_us for each in places):
            self._note_late(cell_id, window, inputs)
            return
        elements = [(value, at, pane, sign) for ((_, value), at, pane, sign) in inputs]
        views = self._views(cell_id, places)
        cell = self._cells.get(cell_id)
        # What comes after elements that are still to go on goes on after them: it may retract one.
        is_behind = cell is not None and window in cell.values.get(WAITING, {})
        if views is not None and not is_behind:
            self._emit(cell_id, window, elements, views)
            return
        waiting = self._part(cell_id, WAITING)
        waiting.setdefault(window, []).extend(elements)
        self._hold(cell_id, window, min(at for _, at, _, _ in elements))
        self._set_timer_by(cell_id, min(_end_us(each) for _, each in places))

    def fire(self, cell_id: CellId) -> None:
        """Do in the cell of a shard what is due because of the time."""
        cell = self._cell(cell_id)
        if cell is None or cell_id in self._changed:
            return
        self._changed[cell_id] = {}
        self._touch(cell_id, cell)
        cell.engine_timers = TriggerTimers()
        self._follow(cell_id)

    @property
    def effects(self) -> Effects:
        """What it has emitted so far."""
        return self._effects

    def retract_standing(self, cell_id: CellId) -> None:
        """Retract all that a shard has emitted and keeps."""
        cell = self._cell(cell_id)
        for window, entries in () if cell is None else cell.values.get(KEPT, {}).items():
            places = tuple(enumerate(self._machine.side_windows(window)))
            views_of = lru_cache(partial(self._views_of, cell_id, places))
            for emitted, versions in _entries(entries):
                self._emit_kept(cell_id, emitted.to_retract(), views_of(versions), -1)

    def convert(self, cell_id: CellId) -> None:
        """Have a shard as it is where elements are never retracted."""
        cell = self._cell(cell_id)
        if cell is None:
            return
        self._touch(cell_id, cell)
        self._changed[cell_id] = {}
        cell.engine_timers = TriggerTimers()
        waiting, kept = cell.values.get(WAITING, {}), cell.values.get(KEPT, {})
        for window, elements in list(waiting.items()):
            left = without_retracted(elements)
            drop_all([elements])
            _unmeasured(cell, (WAITING, window))
            waiting[window] = left
            if not left:
                del waiting[window]
        is_kept = any(side.is_retracted for side in self._machine.sides)
        for window, entries in list(kept.items()):
            kept[window] = list(_entries(entries))
            drop_all([entries])
            _unmeasured(cell, (KEPT, window))
            if not is_kept:
                del kept[window]
        if not is_kept:
            cell.values.pop(USES, None)

    def finish(self) -> Effects:
        """Forget what has expired in cells that have changed, set their timers, and delete those that are empty."""
        for cell_id in self._changed:
            self._forget_expired(cell_id, self._cells[cell_id])
        for cell_id in list(self._effects.touched):
            cell = self._cells[cell_id]
            self._drop_unused(cell_id, cell)
            self._drop_some(cell_id, cell)
            if self._machine.page_bytes is not None:
                self._resize(cell_id, cell, self._machine.page_bytes)
            for name in [name for name, part in cell.values.items() if not part]:
                del cell.values[name]
            if cell_id in self._changed and cell.values:
                self._set_timer(cell_id, cell, self._next_us(cell))
                self._go_on(cell_id, cell)
            elif GOING in cell.values:
                self._go_on(cell_id, cell)
            if not cell.values:
                self._set_timer(cell_id, cell, None)
                self._go_on(cell_id, cell)
                del self._cells[cell_id]
                if cell_id in self._born:
                    del self._effects.touched[cell_id]
        return self._effects

    def _cell(self, cell_id: CellId) -> KeyedState | None:
        """The cell of a shard, whose pages can be used."""
        cell: KeyedState | None = self._cells.get(cell_id)
        if cell is not None and cell_id not in self._begun:
            self._begun.add(cell_id)
            if EMITTED in cell.values:
                self._take_over(cell)
            values, found = cell.values, dict[Any, Any]()
            for name in (WAITING, KEPT):
                found.update(
                    (_state(name, each), found_there)
                    for each, found_there in values.get(name, {}).items()
                )
            for pane, arriving in values.get(ARRIVING, {}).items():
                found.update(arriving.containers(_state(VIEWS, pane[:2], arriving.version)))
            for place, view in values.get(VIEWS, {}).items():
                found[_state(VIEWS, place, _version(cell, place))] = view
            for (number, window, version), view in values.get(FORMER, {}).items():
                found[_state(VIEWS, (number, window), version)] = view
            paged = {state: each for state, each in found.items() if isinstance(each, Paged)}
            if paged:
                self._pages_of(cell_id, cell).bind(paged)
        return cell

    def _take_over(self, cell: KeyedState) -> None:
        """Keep elements as they are kept now, where they were stored each with its views."""
        values, machine = cell.values, self._machine
        kept, uses = values.setdefault(KEPT, {}), values.setdefault(USES, {})
        versions = FormerVersions(values.get(VIEWS, {}), values.setdefault(FORMER, {}))
        for window, emitted in values.pop(EMITTED).items():
            places = list(enumerate(machine.side_windows(window)))
            numbered = [places[number] for number in machine.versioned]
            entries = entries_of(emitted, window, partial(versions.of, numbered))
            uses[window] = dict(Counter(each for found in entries.values() for _, each in found))
            kept[window] = (
                entries if machine.is_retracted else list(chain.from_iterable(entries.values()))
            )
        if not machine.versioned:
            del values[USES]

    def _pages_of(self, cell_id: CellId, cell: KeyedState) -> CellPages:
        if cell.pages is None:
            cell.pages = CellPages()
        cell.pages.begin(cell_id, self._cells, self._machine.need_pages, self._machine.let_go)
        return cell.pages

    def _resize(self, cell_id: CellId, cell: KeyedState, page_bytes: int) -> None:
        """Put elements that wait, and views, into pages where they are large."""
        for name in (WAITING, KEPT):
            part = cell.values.get(name, {})
            for window, elements in part.items():
                if isinstance(elements, Paged):
                    part[window] = elements.resize(page_bytes)
                elif len(elements) >= FEW:
                    sizes = cell.sizes = cell.sizes or {}
                    nbytes = sizes.setdefault((name, window), SizeWatch()).nbytes(elements)
                    if nbytes is not None and nbytes > page_bytes:
                        pages, state = self._pages_of(cell_id, cell), _state(name, window)
                        kind = PagedMap if isinstance(elements, dict) else PagedBag
                        part[window] = kind.of(elements, pages, state, nbytes, page_bytes)
        for pane, arriving in cell.values.get(ARRIVING, {}).items():
            if arriving.buckets:
                continue
            place, form = pane[:2], self._machine.forms[pane[0]]
            state = _state(VIEWS, place, arriving.version)
            arriving.resize(form, self._pages_of(cell_id, cell), state, page_bytes)
        self._put_into_pages(cell_id, cell, cell.values.get(VIEWS, ()))
        if cell.pages is not None:
            touched = cell.pages.take_touched()
            self._effects.touched.update(touched)
            if self._machine.is_remembered:
                self._unpack(touched)

    def _unpack(self, page_ids: Iterable[CellId]) -> None:
        """Have pages of elements packed again: code behind it will change what they remember in this step."""
        for page_id in page_ids:
            page = self._cells.get(page_id)
            if isinstance(page, Page) and isinstance(page_id, PageId) and page_id.state[0] == KEPT:
                self._cells[page_id] = page.changing()

    def _put_into_pages(self, cell_id: CellId, cell: KeyedState, places: Iterable[_Place]) -> None:
        """Put views into pages where they are large."""
        machine = self._machine
        if machine.page_bytes is None:
            return
        views = cell.values.get(VIEWS, {})
        for place in places:
            view = views[place]
            if not isinstance(view, View) or len(view.contents) < FEW:
                continue
            sizes = cell.sizes = cell.sizes or {}
            nbytes = sizes.setdefault(place, SizeWatch()).nbytes(view.contents)
            if nbytes is None or nbytes <= machine.page_bytes:
                continue
            pages, form = self._pages_of(cell_id, cell), machine.forms[place[0]]
            version, contents = _version(cell, place), view.contents
            state = _state(VIEWS, place, version)
            paged = view_in_pages(contents, form, pages, state, nbytes, machine.page_bytes)
            self._part(cell_id, VERSIONS)[place] = version, _digest(dumps(contents))
            views[place] = paged
            if isinstance(paged, PagedBag) and form not in BAGS:
                paged.made = view

    def _view(self, cell_id: CellId, place: _Place, version: int) -> View:
        """A version of a view, as elements are emitted with it."""
        known = self._known(cell_id, place, version)
        if not isinstance(known, Paged):
            return known or self._machine.empty[place[0]]
        form = self._machine.forms[place[0]]
        if isinstance(known, PagedBag) and not is_read_in_passing(known, form):
            if known.made is None:
                known.made = View(list(known))
            made: View = known.made
            return made
        state = _state(VIEWS, place, version)
        given = self._given.get((cell_id, state))
        if given is None:
            assert isinstance(known, PagedBag | PagedMap)
            pages = self._in_passing(cell_id, state, known.size)
            contents = contents_of(known, pages)
            view = View(list(contents) if form is None else contents)
            given = self._given[cell_id, state] = view, pages
        return given[0]

    def _known(self, cell_id: CellId, place: _Place, version: int) -> View | Paged | None:
        """What a cell has of a version of a view."""
        cell = self._cells.get(cell_id)
        if cell is None:
            return None
        found: View | Paged | None = (
            cell.values.get(VIEWS, {}).get(place)
            if version == _version(cell, place)
            else cell.values.get(FORMER, {}).get((*place, version))
        )
        return found

    def _in_passing(self, cell_id: CellId, state: Any, size: int) -> PagesInPassing:
        machine = self._machine
        step = machine.steps
        return PagesInPassing(
            size,
            partial(PageId, cell_id[0], cell_id[1], state),
            self._cells,
            machine.need_pages,
            lambda: machine.steps != step,
            f"a side input of {machine.node}",
        )

    def _views(
        self, cell_id: CellId, places: Sequence[_Place], *, are_seen: bool = False
    ) -> tuple[View, ...] | None:
        """The views of the windows of side inputs; None if one is not there yet.

        Args:
            cell_id: of the shard.
            places: of the views.
            are_seen: whether elements have been emitted with them, so that they are there.
        """
        cell = self._cell(cell_id)
        known = {} if cell is None else cell.values.get(VIEWS, {})
        found = []
        for place in places:
            number, window = place
            is_over = _end_us(window) <= self._watermark_us
            is_early = self._machine.waits_for_end and not self._machine.sides[number].fires_once
            if not is_over and (place not in known or is_early):
                return None
            if not are_seen and cell is not None and self._is_coming(cell, place):
                return None
            found.append(self._view(cell_id, place, 0 if cell is None else _version(cell, place)))
        return tuple(found)

    def _is_coming(self, cell: KeyedState, place: _Place) -> bool:
        """Whether there is something of a view for which elements wait also when its window is over."""
        arriving = cell.values.get(ARRIVING)
        if not arriving:
            return False
        panes = {pane[2]: each for pane, each in arriving.items() if pane[:2] == place}
        if not panes or place not in cell.values.get(VIEWS, ()):
            return bool(panes)
        if not self._machine.waits_for_end:
            return False
        newest = cell.values.get(NEWEST, {}).get(place, -1)
        base, *_ = cell.values.get(BASES, {}).get(place, _NO_BASE)
        return _complete(panes, newest, base, keeps_parts=self._keeps_parts(place)) is not None

    def _versions(self, cell_id: CellId, places: Sequence[_Place]) -> tuple[int, ...]:
        """The newest versions of views, of the side inputs of which elements may have others."""
        cell = self._cells[cell_id]
        return tuple([_version(cell, places[number]) for number in self._machine.versioned])

    def _views_of(
        self,
        cell_id: CellId,
        places: Sequence[_Place],
        versions: Sequence[int],
        changed: Mapping[_Place, int] = _NOTHING_CHANGED,
    ) -> tuple[View, ...]:
        """The views that an element was emitted with.

        Args:
            cell_id: of the shard.
            places: of the views.
            versions: that the element is kept with.
            changed: the versions of views that were others when the element was emitted.
        """
        cell = self._cells[cell_id]
        found = [changed.get(place, _version(cell, place)) for place in places]
        for number, version in zip(self._machine.versioned, versions, strict=True):
            found[number] = version
        return tuple([self._view(cell_id, *each) for each in zip(places, found, strict=True)])

    def _retract(self, cell_id: CellId, changed: Mapping[_Place, int]) -> None:
        """Retract what was emitted with views that have changed, and say it again with those that are there now.

        Args:
            cell_id: of the shard.
            changed: the former versions of the views that have changed.
        """
        machine, cell = self._machine, self._cells[cell_id]
        retracted = {
            place: version
            for place, version in changed.items()
            if machine.sides[place[0]].is_retracted
        }
        if not retracted or KEPT not in cell.values:
            return
        for window, entries in cell.values[KEPT].items():
            places = tuple(enumerate(machine.side_windows(window)))
            if retracted.keys().isdisjoint(places):
                continue
            views = self._views(cell_id, places, are_seen=True)
            assert views is not None, "a view has gone"
            versions = self._versions(cell_id, places)
            uses: dict[tuple[int, ...], int] = {}
            former = lru_cache(partial(self._views_of, cell_id, places, changed=retracted))
            emit_again = partial(self._emit_again, cell_id, former, views, versions, uses)
            cell.values[KEPT][window] = emitted_again(entries, emit_again)
            if versions:
                self._part(cell_id, USES)[window] = uses

    def _emit_again(
        self,
        cell_id: CellId,
        former: Callable[[tuple[int, ...]], tuple[View, ...]],
        views: tuple[View, ...],
        versions: tuple[int, ...],
        uses: dict[tuple[int, ...], int],
        entry: Entry,
    ) -> Entry:
        """Retract an element that is kept, and emit it with other views; returns what is kept of it from here on."""
        emitted, known = entry
        self._emit_kept(cell_id, emitted, former(known), -1)
        if known != versions or self._machine.is_remembered:
            emitted = EmittedPane(emitted.value, emitted.timestamp_us, emitted.window, emitted.pane)
            entry = emitted, versions
        _count(uses, versions, +1)
        self._emit_kept(cell_id, emitted, views)
        return entry

    def _emit_kept(
        self, cell_id: CellId, emitted: EmittedPane, views: tuple[View, ...], sign: int = +1
    ) -> None:
        """Emit an element that is kept, or retract it."""
        value = WithViews(emitted.value, views)
        effects, window = self._effects, emitted.window
        pane = self._traced(cell_id, window, emitted.pane, sign)
        effects.emit(value, emitted.timestamp_us, window, pane, sign)
        effects.emitted_panes.append(emitted)

    def _release(self, cell_id: CellId) -> None:
        """Emit the elements that have waited, as far as their views are there."""
        cell = self._cells[cell_id]
        waiting = cell.values.get(WAITING, {})
        for window in list(waiting):
            places = tuple(enumerate(self._machine.side_windows(window)))
            views = self._views(cell_id, places)
            if views is None:
                continue
            elements = waiting.pop(window)
            if isinstance(elements, PagedBag):
                if cell_id in self._unfinished:
                    waiting[window] = elements
                    continue
                elements, rest = elements.taken(RELEASED_PAGES)
                if rest:
                    waiting[window] = rest
                    self._unfinished.add(cell_id)
            self._emit(cell_id, window, elements, views)
            _unmeasured(cell, (WAITING, window))

    def _emit(
        self,
        cell_id: CellId,
        window: Window,
        elements: Sequence[Input],
        views: tuple[View, ...],
    ) -> None:
        effects = self._effects
        if not self._machine.remembers:
            values, times_us, panes, signs = zip(*elements, strict=True)
            effects.values += [WithViews(value, views) for value in values]
            effects.timestamps_us += times_us
            effects.windows += [window] * len(elements)
            effects.panes += self._traced_all(cell_id, window, panes, signs)
            effects.signs += signs
            return
        cell = self._cell(cell_id)
        is_kept = cell is not None and window in cell.values.get(KEPT, {})
        if not is_kept and self._is_over(cell_id, window):
            for value, at, pane, sign in elements:
                self._emit_kept(cell_id, EmittedPane(value, at, window, pane), views, sign)
            return
        self._emit_and_keep(cell_id, window, elements, views)
        self._hold(cell_id, window, min(at for _, at, _, _ in elements))
        self._set_timer_by(cell_id, _end_us(window))
        self._set_timer_by(cell_id, self._machine.strategy.expiry_us(window))

    def _traced_all(
        self, cell_id: CellId, window: Window, panes: Sequence[PaneInfo], signs: Sequence[int]
    ) -> Sequence[PaneInfo]:
        if not self._machine.is_traced and not any(type(each) is CarriedPane for each in panes):
            return panes
        traced = partial(self._traced, cell_id, window)
        return list(map(traced, panes, signs))

    def _emit_and_keep(
        self,
        cell_id: CellId,
        window: Window,
        elements: Sequence[Input],
        views: tuple[View, ...],
    ) -> None:
        machine, kept = self._machine, self._part(cell_id, KEPT)
        if window not in kept:
            kept[window] = {} if machine.is_retracted else []
        places = tuple(enumerate(machine.side_windows(window)))
        versions = self._versions(cell_id, places)
        uses = self._part(cell_id, USES).setdefault(window, {}) if versions else None
        for value, at, pane, sign in elements:
            entry: Entry = EmittedPane(value, at, window, pane), versions
            seen = views
            digest = element_digest((at, value)) if machine.is_retracted else None
            if sign > 0:
                add(kept[window], digest, entry)
            else:
                assert digest is not None, "an element is retracted that cannot be"
                found = take(kept[window], digest, value)
                if found is None:
                    # Nobody knows when it was emitted.
                    self._emit_kept(cell_id, entry[0], views, sign)
                    continue
                entry = found
                seen = self._views_of(cell_id, places, entry[1])
            if uses is not None:
                _count(uses, entry[1], sign)
            self._emit_kept(cell_id, entry[0], seen, sign)

    def _note_late(self, cell_id: CellId, window: Window, inputs: Sequence[Input]) -> None:
        for (_, value), at, _, sign in inputs:
            record = LateElement(value, at, sign)
            self._effects.late.append(
                LateArrival(
                    cell_id[0], window, [value], 1, self._watermark_us, record, is_keyed=False
                )
            )

    def _part(self, cell_id: CellId, name: str) -> dict[Any, Any]:
        """A part of a cell that is about to be changed."""
        cell = self._cell(cell_id)
        if cell is None:
            cell = self._cells[cell_id] = KeyedState()
            self._born.add(cell_id)
        self._touch(cell_id, cell)
        part: dict[Any, Any] = cell.values.setdefault(name, {})
        return part

    def _touch(self, cell_id: CellId, cell: KeyedState) -> None:
        self._effects.touched[cell_id] = None

    def _hold(self, cell_id: CellId, window: Window, at_us: int) -> None:
        """Hold the watermark for elements that wait, or may still be said again on time."""
        holds = self._part(cell_id, HOLDS)
        if at_us < holds.get(window, MAX_TIMESTAMP_US):
            holds[window] = at_us
            self._effects.holds[cell_id, window] = at_us

    def _set_timer_by(self, cell_id: CellId, at_us: int) -> None:
        """Be called when the watermark reaches an instant, if it is ahead."""
        cell = self._cells[cell_id]
        known_us = cell.engine_timers.event_us
        if at_us > self._watermark_us and (known_us is None or at_us < known_us):
            self._set_timer(cell_id, cell, at_us)

    def _set_timer(self, cell_id: CellId, cell: KeyedState, at_us: int | None) -> None:
        self._effects.timers[cell_id, GLOBAL_WINDOW, TimeDomain.EVENT] = at_us
        cell.engine_timers = cell.engine_timers._replace(event_us=at_us)

    def _go_on(self, cell_id: CellId, cell: KeyedState) -> None:
        """Be called at once for what is to be done in another step, by a timer of processing time."""
        known_us = cell.engine_timers.processing_us
        is_unfinished = cell_id in self._unfinished or cell_id in self._being_made
        is_unfinished |= GOING in cell.values
        at_us = self._now_us if is_unfinished else None
        if at_us != known_us:
            self._effects.timers[cell_id, GLOBAL_WINDOW, TimeDomain.PROCESSING] = at_us
            cell.engine_timers = cell.engine_timers._replace(processing_us=at_us)

    def _used_places(self, cell_id: CellId, cell: KeyedState) -> set[_Place]:
        """Where views are that are seen still, or made: of elements that wait, or go on, or will be said again."""
        values = cell.values
        again = [each for each in values.get(KEPT, ()) if self._is_kept_for_view(cell_id, each)]
        used = {
            place
            for window in (*values.get(WAITING, ()), *again)
            for place in enumerate(self._machine.side_windows(window))
        }
        return used | self._being_made.get(cell_id, {}).keys()

    def _forget_expired(self, cell_id: CellId, cell: KeyedState) -> None:
        now_us, machine, values = self._watermark_us, self._machine, cell.values
        views, kept = values.get(VIEWS, {}), values.get(KEPT, {})
        used = self._used_places(cell_id, cell)

        def is_expired(place: _Place) -> bool:
            return machine.expiry_us(*place) <= now_us and place not in used

        for place in [each for each in views if is_expired(each)]:
            self._part(cell_id, VIEWS)
            values.get(VERSIONS, {}).pop(place, None)
            values.get(NEWEST, {}).pop(place, None)
            values.get(BASES, {}).pop(place, None)
            self._drop(cell_id, views.pop(place))
            _unmeasured(cell, place)
        for place in [each for each in values.get(ORIGINS, ()) if each not in views]:
            if is_expired(place[:2]):
                del self._part(cell_id, ORIGINS)[place]
        arriving = values.get(ARRIVING, {})
        for pane in [each for each in arriving if is_expired(each[:2])]:
            self._part(cell_id, ARRIVING)
            arriving.pop(pane).drop()
        for window in [each for each in kept if self._is_over(cell_id, each)]:
            self._part(cell_id, KEPT)
            self._drop(cell_id, kept.pop(window))
            values.get(USES, {}).pop(window, None)
            _unmeasured(cell, (KEPT, window))
        holds, waiting = values.get(HOLDS, {}), values.get(WAITING, {})
        for window in list(holds):
            # In the global window a hold would keep the watermark for ever.
            may_be_on_time = window in kept and (
                now_us < window.end_us < MAX_TIMESTAMP_US or self._is_kept_for_view(cell_id, window)
            )
            if window not in waiting and not may_be_on_time:
                self._part(cell_id, HOLDS)
                del holds[window]
                self._effects.holds[cell_id, window] = None

    def _drop_unused(self, cell_id: CellId, cell: KeyedState) -> None:
        """Forget former views that no element depends on any more."""
        former = cell.values.get(FORMER)
        if not former:
            return
        machine = self._machine
        used = {
            (number, machine.side_windows(window)[number], version)
            for window, uses in cell.values.get(USES, {}).items()
            for versions in uses
            for number, version in zip(machine.versioned, versions, strict=True)
        }
        used |= {(*place, base[1]) for place, base in cell.values.get(BASES, {}).items()}
        for each in [each for each in former if each not in used]:
            self._drop(cell_id, former.pop(each))

    def _drop(self, cell_id: CellId, dropped: Any) -> None:
        """Delete the pages of what is not in a cell any more, in this step and in steps to come."""
        if isinstance(dropped, PagedBag | PagedMap):
            going = self._part(cell_id, GOING)
            for name, first, end in dropped.all_runs():
                going[name, first] = end

    def _drop_some(self, cell_id: CellId, cell: KeyedState) -> None:
        """Delete some of the pages that are to be; what was emitted in this step may be asked for a view still."""
        going, left = cell.values.get(GOING, {}), DROPPED_PAGES
        for (name, first), end in list(going.items()):
            given = self._given.get((cell_id, name))
            if not left or (given is not None and end - first > left):
                continue
            count = min(left, end - first)
            if given is not None:
                given[1].leave()
            self._pages_of(cell_id, cell).drop(name, range(first, first + count))
            left -= count
            del going[name, first]
            if first + count < end:
                going[name, first + count] = end

    def _next_us(self, cell: KeyedState) -> int | None:
        """When the cell has something to do next."""
        machine, values = self._machine, cell.values
        at_us = [machine.expiry_us(*place) for place in values.get(VIEWS, {})]
        at_us += [machine.expiry_us(*pane[:2]) for pane in values.get(ARRIVING, {})]
        for window in values.get(KEPT, {}):
            at_us += [_end_us(window), machine.strategy.expiry_us(window)]
        for window in values.get(WAITING, {}):
            at_us += [_end_us(each) for each in machine.side_windows(window)]
        return min((each for each in at_us if each > self._watermark_us), default=None)


def _entries(entries: Any) -> Iterator[Entry]:
    """The elements of a window that are kept, whether they are found by digests or not."""
    if isinstance(entries, list | PagedBag):
        yield from entries
    else:
        for found in unpaged(entries).values():
            yield from found


def _state(name: str, place: Any, version: int = 0) -> tuple[Any, ...]:
    """The name by which a part of what a cell has is in pages.

    Args:
        name: of all such parts.
        place: a window, or the number of a side input and a window of that.
        version: of a view.
    """
    number, window = (None, place) if isinstance(place, Window) else place
    state = (name, number, window.start_us, window.end_us)
    return (*state, version) if version else state


def _version(cell: KeyedState, place: _Place) -> int:
    """The number of the newest version of a view."""
    version: int = cell.values.get(VERSIONS, {}).get(place, _FIRST)[0]
    return version


def _complete(
    panes: Mapping[int, ArrivingView], newest: int, base: int, *, keeps_parts: bool
) -> int | None:
    """The number of the pane that is to be the view: one that is being made, or the last of which all is there.

    Args:
        panes: of one window, by their numbers.
        newest: the last one that has been the view, or was retracted.
        base: how many elements are in a view that the next one is made of.
        keeps_parts: whether parts of former panes are in later ones too.
    """

    def is_there(index: int) -> bool:
        pane = panes[index]
        if pane.expected is None or (pane.has_end and index <= newest):
            return False
        came = pane.count
        if pane.has_end and keeps_parts:
            came = base + sum(each.count for number, each in panes.items() if number <= index)
        return came >= pane.expected

    made = [index for index in panes if panes[index].buckets]
    if made and keeps_parts:
        # Others are made of it.
        return made[0]
    found = [index for index in panes if is_there(index)]
    return max([each for each in found if panes[each].buckets] or found, default=None)


def _next_version(cell: KeyedState, place: _Place) -> int:
    """A number for a version of a view that no other has, nor one that is coming in parts, or going."""
    arriving: dict[_Pane, ArrivingView] = cell.values.get(ARRIVING, {})
    others = [each.version for pane, each in arriving.items() if pane[:2] == place]
    others += [each[2] for each in cell.values.get(FORMER, ()) if each[:2] == place]
    others += _versions_of(cell.values.get(GOING, ()), place)
    return 1 + max([_version(cell, place), *others])


def _versions_of(going: Iterable[tuple[Any, int]], place: _Place) -> Iterator[int]:
    """The versions of a view that some pages are of."""
    without = _state(VIEWS, place)
    for name, _ in going:
        if name[: len(without)] == without:
            yield name[len(without)] if len(name) > len(without) else 0


def _digest(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_DIGEST_BYTES).digest()


def _count(uses: dict[tuple[int, ...], int], versions: tuple[int, ...], sign: int) -> None:
    """Note that an element depends on versions of views, or does no more."""
    uses[versions] = uses.get(versions, 0) + sign
    if not uses[versions]:
        del uses[versions]


def _unmeasured(cell: KeyedState, place: Any) -> None:
    """Forget how large something was that is not in a cell any more."""
    if cell.sizes is not None:
        cell.sizes.pop(place, None)


def _end_us(window: Window) -> int:
    return min(window.end_us, MAX_TIMESTAMP_US)

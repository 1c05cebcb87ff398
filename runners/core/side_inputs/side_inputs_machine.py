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

The cell of a shard is one for all windows (a `KeyedState`), as a view may belong to many.  It is changed, and written
where state is durable, when a pane comes, when an element begins to wait, and where elements may be retracted; an
element that finds its views changes nothing.  In a stream elements that wait, and views, are in pages as soon as they
are large (`dataflow.paged_state`), so that what is written is what has changed; but for views that what was emitted is
kept with.  What is read of a view is what user code looks up in it (`large_views`), until the next step begins.

Reads no clock, touches no store, calls no user code but window functions.
"""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import lru_cache, partial
from typing import Any

from dataflow.element_digests import element_digest
from dataflow.errors import TransformError
from dataflow.graph import PipelineGraph, SideInputs, SideWindows, TransformNode
from dataflow.paged_state import FEW, Paged, PagedBag, SizeWatch
from dataflow.serialization import dumps
from dataflow.views import View, ViewForm, WithViews
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
from runners.core.partials.folding import is_remembered
from runners.core.partials.partial import Partial
from runners.core.partials.stateful_inputs import Input
from runners.core.side_inputs.large_views import LargeElements, PairsByKey, view_in_pages
from runners.core.stateful.cell_pages import CellPages, NeedPages, PagesInPassing, all_are_there
from runners.core.stateful.keyed_state import KeyedState
from triggers.clocks import Clocks
from triggers.trigger import TriggerTimers
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW, Window

Cells = MutableMapping[CellId, Any]
#: The number of a side input, and a window of it.
_Place = tuple[int, Window]

#: What the cell of a shard has, by name: views by side input and window; the elements that wait, those that were
#: emitted and may be retracted, and the holds on the watermark of both, by their windows.
VIEWS, WAITING, EMITTED, HOLDS = "views", "waiting", "emitted", "holds"

#: The windows of elements whose side windows are remembered.
_WINDOWS_MAX = 4_096


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
        #: Whether what was emitted is kept, because it may be retracted with what it had been emitted with.
        self.remembers = graph.pcollections[output].retracted_by is not None and (
            any(side.is_retracted or not side.fires_once for side in self.sides)
            or is_remembered(graph, node)
        )
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

    def keep_in_pages(self, page_bytes: int, need_pages: NeedPages) -> None:
        """Have what is large kept in pages, which are among the cells.

        Args:
            page_bytes: how large a page should be.
            need_pages: brings pages that are not among the cells there.
        """
        self.page_bytes, self.need_pages = page_bytes, need_pages

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


class _Step:
    """One step of the machine."""

    def __init__(self, machine: SideInputsMachine, cells: Cells, clocks: Clocks) -> None:
        self._machine, self._cells = machine, cells
        self._watermark_us = clocks.watermark_us
        machine.steps += 1
        self._effects = Effects()
        self._born: set[CellId] = set()
        #: The cells that have been looked at, whose pages are known.
        self._begun: set[CellId] = set()
        #: The cells that have new panes, or of which time has passed; with the views before the panes.
        self._changed: dict[CellId, dict[_Place, View | Paged | None]] = {}
        #: The views in pages that elements are emitted with, and their pages.
        self._given: dict[tuple[CellId, _Place], tuple[View, PagesInPassing]] = {}

    def take_panes(self, cell_id: CellId, window: Window, panes: Iterable[Input]) -> None:
        """Note panes of side inputs; `follow` does what follows from them.

        Args:
            cell_id: of the shard.
            window: of the side inputs.
            panes: in the order in which they came.
        """
        for (number, contents), timestamp_us, _, sign in panes:
            if self._machine.expiry_us(number, window) <= self._watermark_us:
                record = LateElement(contents, timestamp_us, sign)
                self._effects.late.append(
                    LateArrival(cell_id[0], window, [contents], 1, self._watermark_us, record)
                )
                continue
            views = self._part(cell_id, VIEWS)
            place = number, window
            known = views.get(place)
            self._changed.setdefault(cell_id, {}).setdefault(place, known)
            is_news = sign < 0 or contents or self._machine.sides[number].is_cumulative
            if known is None or is_news:
                _drop(known)
                _unmeasured(self._cells[cell_id], place)
                # A pane that is retracted and not replaced leaves nothing.
                views[place] = View(contents if sign > 0 else [])

    def follow(self) -> None:
        """Retract and say again what has been emitted with views that have changed; emit what has waited for them."""
        for cell_id, before in self._changed.items():
            cell = self._cells[cell_id]
            views = cell.values[VIEWS]
            for place, view in before.items():
                now = views[place]
                # One in pages depends on nothing that was emitted.
                if now is not view and _are_equal(view, now):
                    views[place] = view
            changed = [place for place, view in before.items() if views[place] is not view]
            self._put_into_pages(cell_id, cell, changed)
            self._retract(cell_id, changed)
            self._release(cell_id)

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
        if views is not None:
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
        self._release(cell_id)

    def finish(self) -> Effects:
        """Forget what has expired in cells that have changed, set their timers, and delete those that are empty."""
        for cell_id in self._changed:
            self._forget_expired(cell_id, self._cells[cell_id])
        for cell_id in list(self._effects.touched):
            cell = self._cells[cell_id]
            if self._machine.page_bytes is not None:
                self._resize(cell_id, cell, self._machine.page_bytes)
            for name in [name for name, part in cell.values.items() if not part]:
                del cell.values[name]
            if cell_id in self._changed and cell.values:
                self._set_timer(cell_id, cell, self._next_us(cell))
            if not cell.values:
                self._set_timer(cell_id, cell, None)
                del self._cells[cell_id]
                if cell_id in self._born:
                    del self._effects.touched[cell_id]
        return self._effects

    def _cell(self, cell_id: CellId) -> KeyedState | None:
        """The cell of a shard, whose pages can be used."""
        cell: KeyedState | None = self._cells.get(cell_id)
        if cell is not None and cell_id not in self._begun:
            self._begun.add(cell_id)
            paged = {
                _state(name, place): each
                for name in (WAITING, VIEWS)
                for place, each in cell.values.get(name, {}).items()
                if isinstance(each, Paged)
            }
            if paged:
                self._pages_of(cell_id, cell).bind(paged)
        return cell

    def _pages_of(self, cell_id: CellId, cell: KeyedState) -> CellPages:
        if cell.pages is None:
            cell.pages = CellPages()
        cell.pages.begin(cell_id, self._cells, self._machine.need_pages)
        return cell.pages

    def _resize(self, cell_id: CellId, cell: KeyedState, page_bytes: int) -> None:
        """Put elements that wait, and views, into pages where they are large."""
        waiting = cell.values.get(WAITING, {})
        for window, elements in waiting.items():
            if isinstance(elements, Paged):
                elements.resize(page_bytes)
            elif len(elements) >= FEW:
                sizes = cell.sizes = cell.sizes or {}
                nbytes = sizes.setdefault(window, SizeWatch()).nbytes(elements)
                if nbytes is not None and nbytes > page_bytes:
                    pages, state = self._pages_of(cell_id, cell), _state(WAITING, window)
                    waiting[window] = PagedBag.of(elements, pages, state, nbytes, page_bytes)
        self._put_into_pages(cell_id, cell, cell.values.get(VIEWS, ()))
        if cell.pages is not None:
            self._effects.touched.update(cell.pages.take_touched())

    def _put_into_pages(self, cell_id: CellId, cell: KeyedState, places: Iterable[_Place]) -> None:
        """Put views into pages where they are large, unless what was emitted is kept with them."""
        machine = self._machine
        if machine.page_bytes is None or machine.remembers:
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
            state, contents = _state(VIEWS, place), view.contents
            paged = view_in_pages(contents, form, pages, state, nbytes, machine.page_bytes)
            views[place] = paged
            if isinstance(paged, PagedBag) and form is not ViewForm.ITERABLE:
                paged.made = view

    def _view(self, cell_id: CellId, place: _Place, known: Any) -> View:
        """A view in pages, as elements are emitted with it."""
        form = self._machine.forms[place[0]]
        if isinstance(known, PagedBag) and form is not ViewForm.ITERABLE:
            if known.made is None:
                known.made = View(list(known))
            made: View = known.made
            return made
        given = self._given.get((cell_id, place))
        if given is None:
            pages = self._in_passing(cell_id, place, known.size)
            is_bag = isinstance(known, PagedBag)
            contents = LargeElements(known, pages) if is_bag else PairsByKey(known, pages)
            view = View(list(contents) if form is None else contents)
            given = self._given[cell_id, place] = view, pages
        return given[0]

    def _in_passing(self, cell_id: CellId, place: _Place, size: int) -> PagesInPassing:
        machine, state = self._machine, _state(VIEWS, place)
        step = machine.steps
        return PagesInPassing(
            size,
            partial(PageId, cell_id[0], cell_id[1], state),
            self._cells,
            machine.need_pages,
            lambda: machine.steps != step,
            f"a side input of {machine.node}",
        )

    def _views(self, cell_id: CellId, places: Sequence[_Place]) -> tuple[View, ...] | None:
        """The views of the windows of side inputs; None if one is not there yet."""
        cell = self._cell(cell_id)
        known = {} if cell is None else cell.values.get(VIEWS, {})
        found = []
        for place in places:
            number, window = place
            is_over = _end_us(window) <= self._watermark_us
            view = known.get(place)
            is_early = self._machine.waits_for_end and not self._machine.sides[number].fires_once
            if not is_over and (view is None or is_early):
                return None
            if isinstance(view, Paged):
                view = self._view(cell_id, place, view)
            found.append(view or self._machine.empty[number])
        return tuple(found)

    def _retract(self, cell_id: CellId, changed: Iterable[tuple[int, Window]]) -> None:
        """Retract what was emitted with views that have changed, and say it again with those that are there now."""
        sides = self._machine.sides
        retracted = {place for place in changed if sides[place[0]].is_retracted}
        cell = self._cells[cell_id]
        if not retracted or EMITTED not in cell.values:
            return
        for window, by_digest in cell.values[EMITTED].items():
            places = tuple(enumerate(self._machine.side_windows(window)))
            if retracted.isdisjoint(places):
                continue
            views = self._views(cell_id, places)
            assert views is not None, "a view has gone"
            for emitted in by_digest.values():
                for index, former in enumerate(emitted):
                    self._effects.emit_retractable(former, -1)
                    emitted[index] = EmittedPane(
                        WithViews(former.value.element, views),
                        former.timestamp_us,
                        former.window,
                        former.pane,
                    )
                    self._effects.emit_retractable(emitted[index])

    def _release(self, cell_id: CellId) -> None:
        """Emit the elements that have waited, as far as their views are there."""
        cell = self._cells[cell_id]
        waiting = cell.values.get(WAITING, {})
        for window in list(waiting):
            places = tuple(enumerate(self._machine.side_windows(window)))
            views = self._views(cell_id, places)
            if views is not None:
                elements = waiting.pop(window)
                self._emit(cell_id, window, list(elements), views)
                _drop(elements)
                _unmeasured(cell, window)

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
            effects.panes += panes
            effects.signs += signs
            return
        is_kept = self._machine.strategy.expiry_us(window) > self._watermark_us
        emitted = self._part(cell_id, EMITTED).setdefault(window, {}) if is_kept else {}
        for value, at, pane, sign in elements:
            made = EmittedPane(WithViews(value, views), at, window, pane)
            digest = element_digest((at, value)) if self._machine.is_retracted else 0
            if sign < 0:
                made = _taken(emitted, digest, value) or made
            elif is_kept:
                emitted.setdefault(digest, []).append(made)
            effects.emit_retractable(made, sign)
        if is_kept:
            self._hold(cell_id, window, min(at for _, at, _, _ in elements))
            self._set_timer_by(cell_id, _end_us(window))
            self._set_timer_by(cell_id, self._machine.strategy.expiry_us(window))

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
        cell.engine_timers = TriggerTimers(at_us)

    def _forget_expired(self, cell_id: CellId, cell: KeyedState) -> None:
        now_us, machine, values = self._watermark_us, self._machine, cell.values
        views, emitted = values.get(VIEWS, {}), values.get(EMITTED, {})
        for place in [each for each in views if machine.expiry_us(*each) <= now_us]:
            self._part(cell_id, VIEWS)
            if (cell_id, place) in self._given:
                self._given[cell_id, place][1].leave()
            _drop(views.pop(place))
            _unmeasured(cell, place)
        for window in [each for each in emitted if machine.strategy.expiry_us(each) <= now_us]:
            self._part(cell_id, EMITTED)
            del emitted[window]
        holds, waiting = values.get(HOLDS, {}), values.get(WAITING, {})
        for window in list(holds):
            # In the global window a hold would keep the watermark for ever.
            may_be_on_time = window in emitted and now_us < window.end_us < MAX_TIMESTAMP_US
            if window not in waiting and not may_be_on_time:
                self._part(cell_id, HOLDS)
                del holds[window]
                self._effects.holds[cell_id, window] = None

    def _next_us(self, cell: KeyedState) -> int:
        """When the cell has something to do next."""
        machine, values = self._machine, cell.values
        at_us = [machine.expiry_us(*place) for place in values.get(VIEWS, {})]
        for window in values.get(EMITTED, {}):
            at_us += [_end_us(window), machine.strategy.expiry_us(window)]
        for window in values.get(WAITING, {}):
            at_us += [_end_us(each) for each in machine.side_windows(window)]
        return min(each for each in at_us if each > self._watermark_us)


def _state(name: str, place: Any) -> tuple[Any, ...]:
    """The name by which a part of what a cell has is in pages.

    Args:
        name: of all such parts.
        place: a window, or the number of a side input and a window of that.
    """
    number, window = (None, place) if isinstance(place, Window) else place
    return (name, number, window.start_us, window.end_us)


def _drop(known: Any) -> None:
    """Delete the pages of what is not in a cell any more, if it has any."""
    if isinstance(known, Paged):
        known.drop()


def _unmeasured(cell: KeyedState, place: Any) -> None:
    """Forget how large something was that is not in a cell any more."""
    if cell.sizes is not None:
        cell.sizes.pop(place, None)


def _are_equal(one: Any, other: Any) -> bool:
    are_whole = isinstance(one, View) and isinstance(other, View)
    return are_whole and dumps(one.contents) == dumps(other.contents)


def _end_us(window: Window) -> int:
    return min(window.end_us, MAX_TIMESTAMP_US)


def _taken(emitted: dict[int, list[EmittedPane]], digest: int, value: Any) -> EmittedPane | None:
    """What was emitted of a value, which is retracted now; it is not kept any more."""
    found = emitted.get(digest, [])
    for index, each in enumerate(found):
        if each.value.element == value:
            del found[index]
            if not found:
                del emitted[digest]
            return each
    return None

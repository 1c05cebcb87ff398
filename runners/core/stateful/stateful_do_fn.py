"""StatefulDoFnMachine: runs a stateful DoFn, the same for every engine; the counterpart of `GroupAlsoByWindow`.

Takes partials (`runners.core.partials.stateful_inputs`) and due timers, keeps cells, and returns what user code
emitted, which timers change and which records are too late.  The caller owns the cells and applies the effects
atomically.

**Invariants**

* The cells and the outputs depend only on the order of elements and instants, never on how they came in bundles.
* Timers of a key fire in time order within their domain, each once for each time it was set.
* A timer that is due fires before the next element is processed.
* An expired window keeps nothing: timers that are still set fire a last time, then the cell is deleted.  It does not
  expire before a timer that keeps it has fired, and then that timer has fired by the clock.
* Where outputs are retractable a cell has what was emitted for it, each output once (ADR 0086).

**In time order** an element waits in its cell until the watermark has passed it.  The elements that have waited are
then replayed: the *watermark of the cell* moves from element to element, and at each, due timers fire before and after
it, as if the watermark had moved slowly.  Batch always works so, because there the watermark moves once, when all input
is there (Dataflow Model, section 2.4).

MillWheel, sections 3.2 and 4.5.  Reads no clock, touches no store.
"""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from heapq import heappop, heappush
from typing import Any

import attrs

from dataflow.do_fn import TaggedOutput, TimestampedValue
from dataflow.errors import PipelineError, TransformError
from dataflow.graph import StatefulParDo, TransformNode
from dataflow.paged_state import FEW, JoinedBag, Paged, PagedBag, SizeWatch
from dataflow.serialization import dumps
from dataflow.state_handles import handle_of, paged_kinds
from dataflow.stateful import stateful_signature
from dataflow.typed_keys import emitted_key
from dataflow.user_state import EMITTED, HOLD, PAGES, TTL, TimerFamilySpec, TimerName
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
from runners.core.ground.element_text import shown
from runners.core.ground.lineage import RecordedCall, plain_pane
from runners.core.partials.partial import Partial
from runners.core.partials.stateful_inputs import Input
from runners.core.stateful.cell_pages import CellPages, NeedPages, all_are_there, name_of_pages
from runners.core.stateful.keyed_state import KeyedState, spec_name
from runners.core.stateful.plain_elements import PlainElements
from runners.core.stateful.stateful_invoker import Call, StatefulInvoker
from triggers.clocks import Clocks
from triggers.trigger import TriggerTimers
from triggers.windowing_strategy import WindowingStrategy
from windowing.errors import error_text
from windowing.pane import NO_FIRING
from windowing.time_domain import TimeDomain
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, clamp_timestamp_us
from windowing.window import GLOBAL_WINDOW, Window

#: The most timers of one key that may fire in one step without an element; beyond it, a timer sets itself for ever.
FIRINGS_MAX = 1_000_000

#: Why something was emitted that was emitted for an element.
ELEMENT_CAME = "an element came"

Cells = MutableMapping[CellId, Any]


class StatefulDoFnMachine:
    """The state machine of one stateful DoFn; it keeps configuration, and calls the hooks of the user's object.

    Args:
        node: the transform.
        strategy: the windows of its input.
        is_time_sorted: whether elements are put in time order even if the DoFn does not ask for it.
        is_retracted: whether the input may be retracted.
        is_remembered: whether code behind it keeps what it returned for each output, to retract it later.
        tries: how often user code is tried on an element or timer before that becomes a dead letter; each call then
            costs a copy of the cell's state.  None: the first failure is raised.
    """

    def __init__(
        self,
        node: TransformNode,
        strategy: WindowingStrategy,
        *,
        is_time_sorted: bool = False,
        is_retracted: bool = False,
        is_remembered: bool = False,
        tries: int | None = None,
    ) -> None:
        assert isinstance(node.operation, StatefulParDo)
        fn = node.operation.fn
        signature = stateful_signature(fn, str(node), node.operation.arguments)
        assert signature is not None
        self.node, self.strategy = node, strategy
        self.timers, self.states = signature.timers, signature.states
        self.is_time_sorted = is_time_sorted or node.operation.is_time_sorted
        self.is_retracted = is_retracted
        #: Leads over cells whose input will not be retracted any more; None: it never was.
        self.plain_input = PlainElements() if is_retracted else None
        #: Whether what is emitted is kept until the window expires.
        self.keeps_outputs = fn.has_retractable_outputs
        self.is_remembered = self.keeps_outputs and is_remembered
        self._can_hold = signature.can_hold
        self.invoker = StatefulInvoker(node, fn, signature, tries=tries)
        #: How large a page is; None: nothing is put into pages.
        self.page_bytes: int | None = None
        self.need_pages: NeedPages = all_are_there
        #: What stands for state in pages, by the key of the state.
        self.paged_kinds: dict[Any, type[Paged]] = {}
        #: Whether it says of what it emits why that was emitted.
        self.is_traced = False

    def trace(self) -> None:
        """Have it say what user code was called with, and what that emitted (`Effects.calls`)."""
        self.is_traced = True

    def keep_in_pages(self, page_bytes: int, need_pages: NeedPages) -> None:
        """Have state that is large kept in pages, which are among the cells.

        Args:
            page_bytes: how large a page should be.
            need_pages: brings pages that are not among the cells there.
        """
        self.page_bytes, self.need_pages = page_bytes, need_pages
        self.paged_kinds = paged_kinds(self.states.values())
        if self.keeps_outputs:
            self.paged_kinds[EMITTED] = PagedBag

    @property
    def is_merging(self) -> bool:
        """Whether a cell contains all windows of a key: not here, but in `MergingDoFnMachine`."""
        return False

    @property
    def can_hold(self) -> bool:
        """Whether cells can have holds on the watermark behind it."""
        return self._can_hold

    def holds(
        self, cell_id: CellId, cell: KeyedState | Page | None
    ) -> Iterator[tuple[Window, int]]:
        """The window of a cell, if it holds the watermark behind the DoFn, and its first hold in microseconds.

        Args:
            cell_id: of the cell.
            cell: its state, or a page of it, which has no hold; None: there is none.
        """
        hold_us = cell.hold_us if isinstance(cell, KeyedState) else None
        if hold_us is not None and cell_id[1] is not None:
            yield cell_id[1], hold_us

    def setup(self) -> None:
        """Call the setup of the user's code on this worker."""
        self.invoker.setup()

    def teardown(self) -> None:
        """Call the teardown of the user's code."""
        self.invoker.teardown()

    def add(self, cells: Cells, partials: Iterable[Partial], clocks: Clocks) -> Effects:
        """Process elements, or keep them until the watermark has passed them.

        Args:
            cells: of the DoFn; changed in place.
            partials: the elements by key and window.
            clocks: the clocks.

        Raises:
            TransformError: what user code raised.
        """
        step = self._step(cells, clocks)
        for key, window, inputs, _ in partials:
            step.take(key, window, inputs)
        return step.finish()

    def fire_timers(self, cells: Cells, due: Iterable[TimerId], clocks: Clocks) -> Effects:
        """Fire what is due in the cells of due timers, in time order over all these cells.

        Args:
            cells: of the DoFn; changed in place.
            due: the timers.
            clocks: the clocks.

        Raises:
            TransformError: what user code raised.
        """
        step = self._step(cells, clocks)
        step.fire(due)
        return step.finish()

    def retract_standing(
        self, cells: Cells, retracted: Iterable[CellId], clocks: Clocks
    ) -> Effects:
        """Retract what was emitted for some cells and is kept; they keep on keeping it.

        Args:
            cells: of the DoFn; not changed.
            retracted: the cells.
            clocks: the clocks.
        """
        del clocks
        effects = Effects()
        for cell_id in retracted:
            cell = cells.get(cell_id)
            if not isinstance(cell, KeyedState):
                continue
            if cell.pages is not None:
                cell.pages.begin(cell_id, cells, self.need_pages)
            for emitted in cell.values.get(EMITTED, ()):
                effects.emit_retractable(emitted.to_retract(), -1)
        return effects

    def _step(self, cells: Cells, clocks: Clocks) -> "_Step":
        return _Step(self, cells, clocks)


@attrs.frozen
class _Action:
    """The next action in a cell: the timer of this name, the end of the window, or the next element that is ready.

    Attributes:
        when: event time, then processing time, to order the actions in several cells of a step: processing-time timers
            fire at the watermark, after the actions that it made due.
        window: of the timer or the expiration, where a cell has several.
    """

    when: tuple[int, int]
    timer: TimerName | None = None
    is_expiration: bool = False
    window: Window | None = None


_Queued = tuple[tuple[int, int], int, CellId, _Action]


class _Step:
    """One step of the machine."""

    def __init__(self, machine: StatefulDoFnMachine, cells: Cells, clocks: Clocks) -> None:
        self._machine, self._cells, self._can_hold = machine, cells, machine.can_hold
        self._watermark_us, self._now_us = clocks.watermark_us, clocks.now_us
        # By which timers fire that keep their window: it stands still for them no longer than until all input is there.
        self._last_now_us, self._is_drained = clocks.now_us, clocks.is_drained
        if machine.is_time_sorted and min(self._watermark_us, self._now_us) >= MAX_TIMESTAMP_US:
            # The input has ended; processing time stood still while the elements that are replayed now came in.
            self._now_us = MIN_TIMESTAMP_US
        self._effects = Effects()
        self._touched: dict[CellId, KeyedState] = {}
        self._born: set[CellId] = set()
        # The holds of cells before the step, where there are any.
        self._holds_us: dict[CellId, int] = {}
        # Whether what user code emits for an element only has to be appended.
        self._only_emits = not (self._can_hold or machine.keeps_outputs or machine.is_traced)
        # The context of the element that is processed: one for all of a step, as nobody keeps it.
        self._call = Call(None, GLOBAL_WINDOW, MIN_TIMESTAMP_US, self._now_us)
        # The window asked about last, and of it: its expiry, and the timers of a cell that sets none itself.
        self._window: Window | None = None
        self._window_expiry_us, self._window_timers = 0, TriggerTimers()

    def take(self, key: Any, window: Window, inputs: Sequence[Input]) -> None:
        """Process elements of one cell in order, or keep them for later.

        Args:
            key: of the cell.
            window: of the cell.
            inputs: the elements.
        """
        watermark_us, cell_id = self._watermark_us, (key, window)
        if self._expiry_us(cell_id) <= watermark_us:
            for value, timestamp_us, _, sign in inputs:
                record = LateElement(value, timestamp_us, sign)
                late = LateArrival(key, window, [value], 1, watermark_us, record)
                self._effects.late.append(late)
            return
        cell = self._cells.get(cell_id)
        if cell is None:
            cell = self._cells[cell_id] = KeyedState()
            self._born.add(cell_id)
        self._begin(cell_id, cell)
        if cell.ready or cell.timers:
            self._let_happen(cell_id, cell)
        is_time_sorted = self._machine.is_time_sorted
        for each in inputs:
            if is_time_sorted and each[1] >= watermark_us:
                cell.backlog = cell.backlog or []
                cell.backlog.append(each)
            else:
                self._process(cell_id, cell, each)
                if cell.timers:
                    self._let_happen(cell_id, cell)

    def fire(self, due: Iterable[TimerId]) -> None:
        """Do all due actions in the cells of some timers."""
        queue: list[_Queued] = []
        number = 0
        for cell_id, _, domain in due:
            cell = self._cells.get(cell_id)
            if cell is None:
                continue
            if domain is TimeDomain.EVENT:
                cell.engine_timers = cell.engine_timers._replace(event_us=None)
            else:
                cell.engine_timers = cell.engine_timers._replace(processing_us=None)
            if cell_id not in self._touched:
                self._begin(cell_id, cell)
                number = self._queue(queue, number, cell_id)
        while queue:
            *_, cell_id, action = heappop(queue)
            self._act(cell_id, self._touched[cell_id], action)
            number = self._queue(queue, number, cell_id)

    def finish(self) -> Effects:
        """Set the engine's timers, delete expired or empty cells, and end the bundle."""
        paged_kinds = self._machine.paged_kinds
        self._effects.touched = dict.fromkeys(self._touched)
        for cell_id, cell in self._touched.items():
            is_expired = self._expiry_us(cell_id) <= self._watermark_us
            has_timers = cell.timers or cell.backlog
            if (is_expired and not self._is_kept(cell)) or not (cell.values or has_timers):
                if cell.pages is not None:
                    cell.drop_pages()
                    self._touch_pages(cell.pages)
                del self._cells[cell_id]
                self._set_timers(cell_id, cell, TriggerTimers())
                self._set_hold(cell_id, None)
                if cell_id in self._born:
                    del self._effects.touched[cell_id]
            else:
                if paged_kinds:
                    self._fit(cell_id, cell)
                if cell.pages is not None:
                    self._touch_pages(cell.pages)
                wanted = self._engine_timers(cell_id, cell) if has_timers else self._window_timers
                if wanted != cell.engine_timers:
                    self._set_timers(cell_id, cell, wanted)
                if self._can_hold:
                    self._set_hold(cell_id, cell.hold_us)
        return self._end_bundle()

    def _end_bundle(self) -> Effects:
        outputs, self._effects.dead = self._machine.invoker.finish_bundle()
        if outputs and self._machine.keeps_outputs:
            raise TransformError(
                f"{self._machine.node} has retractable outputs, and emitted something from finish_bundle",
                detail=f"it emitted {shown(outputs[0].value)}, which belongs to no key",
                hint="emit from process or from a timer, or leave has_retractable_outputs out of the DoFn",
            )
        for each in outputs:
            value = each.value if each.tag is None else TaggedOutput(each.tag, each.value)
            self._effects.emit(value, each.timestamp_us, each.window, NO_FIRING)
        return self._effects

    def _touch_pages(self, pages: CellPages) -> None:
        touched = pages.take_touched()
        self._effects.touched.update(touched)
        for page_id in touched if self._machine.is_remembered else ():
            page = self._cells.get(page_id)
            if isinstance(page, Page) and isinstance(page_id, PageId) and page_id.state == EMITTED:
                # It is packed again: code behind will change what outputs remember in this step.
                self._cells[page_id] = page.changing()

    def _fit(self, cell_id: CellId, cell: KeyedState) -> None:
        """Have all state of a cell in pages as large as they should be."""
        for state, kind in self._machine.paged_kinds.items():
            found = cell.values.get(state)
            # By its class itself, as `isinstance` takes longer than all of this.
            if found is not None and (
                type(found) is kind or type(found) is JoinedBag or len(found) >= FEW
            ):
                self._resize(cell_id, cell, state, kind)

    def _resize(self, cell_id: CellId, cell: KeyedState, state: Any, kind: type[Paged]) -> None:
        """Put state that has become large into pages, and divide those that have."""
        page_bytes, found = self._machine.page_bytes, cell.values[state]
        assert page_bytes is not None
        try:
            if isinstance(found, Paged):
                cell.values[state] = found.resize(page_bytes)
                return
            if cell.sizes is None:
                cell.sizes = {}
            nbytes = cell.sizes.setdefault(state, SizeWatch()).nbytes(found)
            if nbytes is not None and nbytes > page_bytes:
                pages = self._pages_of(cell_id, cell)
                name = name_of_pages(state, cell.values.get(PAGES))
                cell.values[state] = kind.of(found, pages, name, nbytes, page_bytes)
        except PipelineError as error:
            raise TransformError(
                f"{self._machine.node} cannot keep the state of key {shown(cell_id[0])}: {error.fact}",
                detail=error.detail,
                hint=error.hint,
            ) from error

    def _pages_of(self, cell_id: CellId, cell: KeyedState) -> CellPages:
        if cell.pages is None:
            cell.pages = CellPages()
            cell.pages.begin(cell_id, self._cells, self._machine.need_pages)
        return cell.pages

    def _begin(self, cell_id: CellId, cell: KeyedState) -> None:
        if self._can_hold and cell_id not in self._touched and cell.hold_us is not None:
            self._holds_us[cell_id] = cell.hold_us
        self._touched[cell_id] = cell
        if cell.pages is not None:
            cell.pages.begin(cell_id, self._cells, self._machine.need_pages)
        cell.firings, cell.watermark_us = 0, self._watermark_us
        if not cell.backlog:
            return
        until_us = self._watermark_us
        if self._expiry_us(cell_id) <= until_us:
            cell.ready, cell.backlog = cell.backlog, []
        else:
            cell.ready = [each for each in cell.backlog if each[1] < until_us]
            cell.backlog = [each for each in cell.backlog if each[1] >= until_us]
        if cell.ready:
            self._sort(cell.ready)
            cell.ready.reverse()
            cell.watermark_us = self._turn_us(cell_id, cell)

    def _sort(self, inputs: list[Input]) -> None:
        """Sort by event time; at one instant by value, so that the order of arrival does not matter.

        Elements that may be retracted stay in order of arrival, so that an emission comes before its retraction.
        """
        inputs.sort(key=lambda each: each[1])
        if self._machine.is_retracted:
            return
        times_us = [each[1] for each in inputs]
        if len(set(times_us)) == len(times_us):
            return
        try:
            inputs.sort(key=lambda each: (each[1], dumps(each[0])))
        except Exception as error:
            raise TransformError(
                f"{self._machine.node} cannot put elements of one instant in order",
                detail=f"{type(error).__name__}: {error_text(error)}",
                hint="values must be plain data that can be pickled",
            ) from error

    def _queue(self, queue: list[_Queued], number: int, cell_id: CellId) -> int:
        action = self._next(cell_id, self._touched[cell_id])
        if action is not None:
            # The running number excludes keys, which need not be comparable, from comparisons.
            heappush(queue, (action.when, number, cell_id, action))
        return number + 1

    def _let_happen(self, cell_id: CellId, cell: KeyedState) -> None:
        while (cell.ready or self._may_be_due(cell)) and (action := self._next(cell_id, cell)):
            self._act(cell_id, cell, action)
        cell.watermark_us = self._watermark_us

    def _may_be_due(self, cell: KeyedState) -> bool:
        """Whether a timer may be due: a quick check that ignores the domains, as mostly none is."""
        timers = cell.timers
        return bool(timers) and timers.may_be_due(max(self._watermark_us, self._now_us))

    def _next(self, cell_id: CellId, cell: KeyedState) -> _Action | None:
        """The next action in the cell: due timers, then the element at its watermark; then the watermark moves on."""
        while True:
            if (timer := self._due_timer(cell_id, cell)) is not None:
                return timer
            if cell.ready:
                turn_us = self._turn_us(cell_id, cell)
                if turn_us <= cell.watermark_us:
                    return _Action((turn_us, MIN_TIMESTAMP_US))
                cell.watermark_us = turn_us
            elif cell.watermark_us < self._watermark_us:
                cell.watermark_us = self._watermark_us
            else:
                return None

    def _turn_us(self, cell_id: CellId, cell: KeyedState) -> int:
        """When the next element that is ready is processed: before the window expires, whatever its event time."""
        return min(cell.ready[-1][1], self._expiry_us(cell_id) - 1)

    def _due_timer(self, cell_id: CellId, cell: KeyedState) -> _Action | None:
        """The next timer due at the watermark of the cell: event time first, as the domains have no common order."""
        expiry_us, watermark_us = self._expiry_us(cell_id), cell.watermark_us
        event = self._first(cell, TimeDomain.EVENT)
        # Timers that are set for the expiry or later fire at expiry, after all others.
        if event is not None and event[0] <= min(watermark_us, expiry_us - 1):
            return _Action((event[0], MIN_TIMESTAMP_US), event[1])
        processing = self._first(cell, TimeDomain.PROCESSING)
        if watermark_us >= expiry_us:
            if event is None and processing is not None and self._keeps(cell, processing[1]):
                if not self._has_come(processing[0]):
                    return None
                return _Action((expiry_us, processing[0]), processing[1])
            if (last := event or processing) is not None:
                return _Action((expiry_us, MIN_TIMESTAMP_US), last[1])
            if self._machine.invoker.has_expiration and cell.has_state and not cell.is_over:
                return _Action((expiry_us, MIN_TIMESTAMP_US), is_expiration=True)
            return None
        if processing is not None and processing[0] <= self._now_us:
            return _Action((watermark_us, processing[0]), processing[1])
        return None

    def _first(self, cell: KeyedState, domain: TimeDomain) -> tuple[int, TimerName] | None:
        """The first timer of a domain; of several at one instant the one that was set first."""
        while True:
            first = cell.timers.first(domain, self._domain)
            if first is None:
                return None
            is_given_up = self._is_drained and self._keeps(cell, first[1])
            if first[1] not in cell.called and not is_given_up:
                return first
            # The timer has fired for the last time: if it was set again since, that is ignored.
            cell.timers.pop(first[1])
            cell.values.pop((HOLD, first[1]), None)

    def _keeps(self, cell: KeyedState, timer: TimerName) -> bool:
        """Whether a timer that is set keeps its window until it has fired."""
        spec = self._machine.timers.get(spec_name(timer))
        return spec is not None and spec.keeps_window and (HOLD, timer) in cell.values

    def _is_kept(self, cell: KeyedState) -> bool:
        return any(self._keeps(cell, timer) for timer in cell.timers)

    def _has_come(self, fire_us: int) -> bool:
        """Whether the time of a timer that keeps its window has come; at the end of time that of all of them has."""
        return fire_us <= self._last_now_us or self._last_now_us >= MAX_TIMESTAMP_US

    def _domain(self, timer: TimerName) -> TimeDomain:
        if spec_name(timer) == TTL:
            state = self._machine.states.get(timer[1])
            return TimeDomain.EVENT if state is None else state.ttl_domain
        spec = self._machine.timers.get(spec_name(timer))
        if spec is None or isinstance(spec, TimerFamilySpec) is isinstance(timer, str):
            raise TransformError(
                f"{self._machine.node} has a timer {timer!r} set that its DoFn does not declare any more",
                detail=f"timers now: {sorted(self._machine.timers)}",
                hint="declare the timer again until it has fired for all keys, or run the pipeline as a new job",
            )
        return spec.time_domain

    def _act(self, cell_id: CellId, cell: KeyedState, action: _Action) -> None:
        if action.is_expiration:
            self._expire(cell_id, cell)
        elif action.timer is None:
            self._process(cell_id, cell, cell.ready.pop())
        elif spec_name(action.timer) == TTL:
            self._end_life(cell_id, cell, action.timer)
        else:
            self._fire(cell_id, cell, action.timer)

    def _end_life(self, cell_id: CellId, cell: KeyedState, timer: TimerName) -> None:
        """Clear state whose time is over; not if only its window is, where the last timers still read it."""
        ends_us, _ = cell.timers.pop(timer)
        is_event = self._domain(timer) is TimeDomain.EVENT
        last_us = min(cell.watermark_us, self._expiry_us(cell_id) - 1) if is_event else self._now_us
        state = self._machine.states.get(timer[1])
        if ends_us <= last_us and state is not None and state.ttl_us is not None:
            handle_of(state, cell.values, None).clear()

    def _expire(self, cell_id: CellId, cell: KeyedState) -> None:
        """Call the user's code for the end of the window, with the state that is about to go."""
        key, window, cell.is_over = cell_id[0], cell_id[1], True
        assert window is not None
        call = Call(
            emitted_key(key),
            window,
            self._expiry_us(cell_id),
            self._now_us,
            watermark_us=cell.watermark_us,
        )
        hold_us = self._hold_us(cell)
        outputs = self._machine.invoker.expire(cell, call)
        self._emit(cell, outputs, call, window.max_timestamp_us, hold_us, "its window has expired")

    def _emit(
        self,
        cell: KeyedState,
        outputs: Sequence[Any],
        call: Call,
        timestamp_us: int,
        hold_us: int | None,
        reason: str,
        element: Input | None = None,
    ) -> None:
        keeps_outputs = self._machine.keeps_outputs
        window, pane, begin = call.window, call.pane, len(self._effects.values)
        if hold_us is None and not keeps_outputs:
            self._effects.emit_all(outputs, timestamp_us, window, pane)
            outputs = ()
        for output in outputs:
            from_us = timestamp_us
            if hold_us is not None and hold_us < from_us:
                # The watermark behind has not passed what was held for such an output.
                value = output.value if type(output) is TaggedOutput else output
                if type(value) is TimestampedValue:
                    from_us = max(hold_us, min(value.timestamp_us, from_us))
            if keeps_outputs:
                emitted = EmittedPane(output, from_us, window, pane)
                cell.values.setdefault(EMITTED, []).append(emitted)
                self._effects.emit_retractable(emitted)
            else:
                self._effects.emit(output, from_us, window, pane)
        if self._machine.is_traced:
            self._note(begin, call, reason, element)

    def _note(self, begin: int, call: Call, reason: str, element: Input | None) -> None:
        """Have the effects say what a call was given, and what it has emitted."""
        value, timestamp_us, pane, sign = element or (None, 0, None, +1)
        recorded = RecordedCall(
            begin=begin,
            end=len(self._effects.values),
            key=call.key,
            window=call.window,
            reason=reason,
            element=value,
            timestamp_us=timestamp_us,
            pane=pane,
            sign=sign,
        )
        self._effects.calls.append(recorded)

    def _hold_us(self, cell: KeyedState) -> int | None:
        """The first hold of a cell, which is looked for only where there can be one."""
        return cell.hold_us if self._can_hold else None

    def _set_hold(self, cell_id: CellId, hold_us: int | None) -> None:
        window = cell_id[1]
        assert window is not None
        if hold_us != self._holds_us.get(cell_id):
            self._effects.holds[cell_id, window] = hold_us

    def _process(self, cell_id: CellId, cell: KeyedState, element: Input) -> None:
        key, window, (value, timestamp_us, pane, sign) = cell_id[0], cell_id[1], element
        assert window is not None
        cell.firings = 0
        call = self._call
        call.key, call.window, call.timestamp_us = emitted_key(key), window, timestamp_us
        call.pane, call.sign, call.watermark_us = plain_pane(pane), sign, cell.watermark_us
        if self._only_emits:
            outputs = self._machine.invoker.process(cell, value, call)
            self._effects.emit_all(outputs, timestamp_us, window, call.pane)
            return
        hold_us = self._hold_us(cell)
        outputs = self._machine.invoker.process(cell, value, call)
        self._emit(cell, outputs, call, timestamp_us, hold_us, ELEMENT_CAME, element)

    def _fire(self, cell_id: CellId, cell: KeyedState, timer: TimerName) -> None:
        key, window = cell_id[0], cell_id[1]
        assert window is not None
        expiry_us = self._expiry_us(cell_id)
        hold_us = self._hold_us(cell)
        keeps = self._keeps(cell, timer)
        set_us, base_us = cell.timers.pop(timer)
        output_us = cell.values.pop((HOLD, timer), None)
        fire_us = set_us
        is_processing = self._domain(timer) is TimeDomain.PROCESSING
        now_us = self._now_us
        if cell.watermark_us >= expiry_us and keeps:
            now_us = self._last_now_us
        elif cell.watermark_us >= expiry_us and (is_processing or fire_us >= expiry_us):
            cell.called |= {timer}
        if is_processing:
            fire_us = cell.watermark_us
        timestamp_us = max(min(fire_us, expiry_us), base_us) if output_us is None else output_us
        self._count_firing(cell, timer, key)
        call = Call(
            emitted_key(key),
            window,
            timestamp_us,
            now_us,
            watermark_us=cell.watermark_us,
            fire_us=set_us,
            tag="" if isinstance(timer, str) else timer[1],
        )
        outputs = self._machine.invoker.fire(cell, timer, call)
        # As with the panes of a grouping, what a window emits has an event time within the window.
        emitted_us = min(timestamp_us, window.max_timestamp_us)
        reason = f"its timer {timer!r} has fired"
        self._emit(cell, outputs, call, emitted_us, hold_us, reason)

    def _count_firing(self, cell: KeyedState, timer: TimerName, key: Any) -> None:
        cell.firings += 1
        if cell.firings > FIRINGS_MAX:
            raise TransformError(
                f"{self._machine.node} sets the timer {timer!r} again without end",
                detail=f"{FIRINGS_MAX:,} timers of key {shown(key)} have fired in a row with no element in between",
                hint="stop setting it when there is nothing to wait for; in the global window event time goes on "
                "until the year 9999 when the input ends",
            )

    def _engine_timers(self, cell_id: CellId, cell: KeyedState) -> TriggerTimers:
        event = processing = None
        expiry_us = self._expiry_us(cell_id)
        if not cell.timers and not cell.backlog:
            return self._window_timers
        if cell.timers:
            event = self._first(cell, TimeDomain.EVENT)
            processing = self._first(cell, TimeDomain.PROCESSING)
        # What keeps an expired window is a timer of processing time.
        events_us = [] if expiry_us <= self._watermark_us else [expiry_us]
        if event is not None:
            events_us.append(event[0])
        if cell.backlog:
            events_us.append(min(each[1] for each in cell.backlog) + 1)
        return TriggerTimers(
            clamp_timestamp_us(min(events_us)) if events_us else None,
            None if processing is None else clamp_timestamp_us(processing[0]),
        )

    def _set_timers(self, cell_id: CellId, cell: KeyedState, wanted: TriggerTimers) -> None:
        known = cell.engine_timers
        if wanted == known:
            return
        # Where windows merge, and go, there is one timer for all of a key.
        window = GLOBAL_WINDOW if cell_id[1] is None else cell_id[1]
        if wanted.event_us != known.event_us:
            self._effects.timers[cell_id, window, TimeDomain.EVENT] = wanted.event_us
        if wanted.processing_us != known.processing_us:
            self._effects.timers[cell_id, window, TimeDomain.PROCESSING] = wanted.processing_us
        cell.engine_timers = wanted

    def _expiry_us(self, cell_id: CellId) -> int:
        window = cell_id[1]
        if window is not self._window:
            assert window is not None
            self._window = window
            self._window_expiry_us = expiry_us = self._machine.strategy.expiry_us(window)
            is_open = expiry_us > self._watermark_us
            self._window_timers = TriggerTimers(clamp_timestamp_us(expiry_us) if is_open else None)
        return self._window_expiry_us

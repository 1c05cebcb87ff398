"""Cells, timers and effects: what a grouping keeps between two steps, and what a step does, as values.

A *cell* is the unit of state that is read and written together: one window of a key, or, where windows merge, all
windows of a key.

State of a cell that is large is beside it in *pages* (`dataflow.paged_state`), which are cells by themselves as far as
reading and writing goes: a mapping of cells has both.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import attrs

from dataflow.serialization import dumps, loads
from runners.core.ground.bundle import Bundle
from runners.core.ground.dead_letters import DeadLetter
from runners.core.ground.lineage import Expiry, FiringCause, RecordedCall
from triggers.trigger import Progress
from windowing.pane import PaneInfo
from windowing.time_domain import TimeDomain
from windowing.window import Window


class PageId(NamedTuple):
    """A page of the state of a cell.

    Attributes:
        key, window: of the cell.
        state: the name of the state.
        number: of the page, among those of the state.
    """

    key: Any
    window: Window | None
    state: Any
    number: int


#: The key; and the window, where each window has a cell of its own.  Where a mapping has pages too, one of these.
CellId = tuple[Any, Window | None] | PageId
#: One timer per cell, window and time domain.
TimerId = tuple[CellId, Window, TimeDomain]


class Nothing(Enum):
    """Stands for an accumulator that contains nothing; an Enum, because its identity survives pickling."""

    NOTHING = "nothing"


NOTHING = Nothing.NOTHING


class WindowTimers(NamedTuple):
    """When the timers of a window are due, in microseconds, in the order of `TimeDomain`; None: not set."""

    event_us: int | None = None
    processing_us: int | None = None
    percentile_us: int | None = None

    def without(self, domain: TimeDomain) -> "WindowTimers":
        """The timers that are left after that of one domain has fired."""
        event_us, processing_us, percentile_us = self
        if domain is TimeDomain.EVENT:
            event_us = None
        elif domain is TimeDomain.PROCESSING:
            processing_us = None
        else:
            percentile_us = None
        return WindowTimers(event_us, processing_us, percentile_us)


NO_TIMERS = WindowTimers()
#: The progress of a trigger that needs no state.
UNTOUCHED = Progress()


@attrs.define
class EmittedPane:
    """A value that a window has emitted and not retracted.

    Attributes:
        remembered: what non-deterministic user code after the grouping returned for it, by label, because the code
            could not return it again (Dataflow Model, footnote 12).
    """

    value: Any
    timestamp_us: int
    window: Window
    pane: PaneInfo
    remembered: dict[str, list[list[Any]]] | None = None

    def remember(self, label: str, outputs: list[Any]) -> None:
        """Keep what a transform returned for the value; if it was called several times, one after the other.

        Args:
            label: of the transform.
            outputs: what it returned.
        """
        if self.remembered is None:
            self.remembered = {}
        self.remembered.setdefault(label, []).append(outputs)

    def to_retract(self) -> "EmittedPane":
        """A copy to retract it with: what code has returned for it stays, for whoever is to retract it once more."""
        remembered = {label: [*found] for label, found in (self.remembered or {}).items()}
        return attrs.evolve(self, remembered=remembered or None)

    def recall(self, label: str) -> list[Any]:
        """Remove and return what was kept first for a transform; nothing if the transform has not seen the value."""
        kept = (self.remembered or {}).get(label)
        return kept.pop(0) if kept else []


@attrs.define
class WindowState:
    """The state that is kept for one key and window.

    Attributes:
        pending: the number of inputs since the last firing.
        emitted: what the next firing has to retract: after a merge there may be several, each with the window that it
            was emitted for.
        is_past: whether the on-time firing is over.
        trigger: the progress of the trigger.
        timers: the timers that are set.
        hold_us: the hold on the watermark behind the grouping until the window fires, in microseconds.
        armed_for: the progress of the trigger for which ``timers`` were computed; not stored, so they are computed
            again after a restart.
    """

    accumulator: Any = NOTHING
    pending: int = 0
    emitted: tuple[EmittedPane, ...] = ()
    firings: int = 0
    nonspeculative_firings: int = 0
    is_past: bool = False
    trigger: Progress = UNTOUCHED
    timers: WindowTimers = NO_TIMERS
    hold_us: int | None = None
    armed_for: Progress | None = attrs.field(default=None, eq=False, repr=False)


class Page:
    """A page: entries of the state of a cell, in memory, as bytes, or both.

    Args:
        entries: a list or dict; None: they are in ``packed`` alone.
        packed: the same as bytes; None: they are made when they are asked for.
    """

    __slots__ = ("_entries", "_packed", "measured")

    def __init__(self, entries: Any = None, packed: bytes | None = None) -> None:
        self._entries, self._packed = entries, packed
        #: How many bytes it had when its state last measured it; 0: it is new.
        self.measured = 0 if packed is None else len(packed)

    @property
    def entries(self) -> Any:
        """What is in it; not to be changed."""
        if self._entries is None:
            assert self._packed is not None
            self._entries = loads(self._packed)
        return self._entries

    def changing(self) -> "Page":
        """The page that stands for it from here on, of which the entries can be changed at once.

        It is another one where the store may have this one, which is known by its identity then.
        """
        if self._packed is None:
            return self
        page = Page(self.entries)
        page.measured = self.measured
        return page

    def pack(self) -> bytes:
        """What is in it as bytes.

        Raises:
            PipelineError: a value in it is not plain data.
        """
        if self._packed is None:
            self._packed = dumps(self._entries)
        return self._packed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Page) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]  # as of a list


#: A cell: the state of its window, or of all windows of the key where they merge.
Cell = WindowState | dict[Window, WindowState]


def window_holds(cell_id: CellId, cell: Cell | None) -> Iterator[tuple[Window, int]]:
    """The windows of a cell of a grouping that hold the watermark behind it, and their holds in microseconds.

    Args:
        cell_id: of the cell.
        cell: its state; None: there is none.
    """
    states = cell if isinstance(cell, dict) else {cell_id[1]: cell}
    for window, state in states.items():
        if window is not None and state is not None and state.hold_us is not None:
            yield window, state.hold_us


class LateElement(NamedTuple):
    """A value as it came to a grouping: with its own event time, and -1 if it retracts a value."""

    value: Any
    timestamp_us: int
    sign: int


@attrs.frozen
class LateArrival:
    """A partial whose window had expired when it came.

    Attributes:
        record: the record of the partial; None if the partial has several records, folded before they were late.
        is_keyed: whether the record is a pair of key and value; a record of a read is a value, and the key is its id.
    """

    key: Any
    window: Window
    accumulator: Any
    count: int
    watermark_us: int
    record: LateElement | None = None
    is_keyed: bool = True


@attrs.define
class Effects:
    """The effects of one step.

    Attributes:
        timers, holds: map to the new instant, or None to delete; a hold is one of the watermark behind the grouping.
        touched: has the cells that have changed, in that order: the order of a set differs between processes.
        causes: why windows fired, by the index of what they emitted among ``values``, where lineage is recorded.
        expired: the windows that have expired, likewise.
        calls: what a stateful DoFn was called with, and the windows that have expired between, likewise.
    """

    values: list[Any] = attrs.field(factory=list)
    timestamps_us: list[int] = attrs.field(factory=list)
    windows: list[Window] = attrs.field(factory=list)
    panes: list[PaneInfo] = attrs.field(factory=list)
    signs: list[int] = attrs.field(factory=list)
    emitted_panes: list[EmittedPane] = attrs.field(factory=list)
    timers: dict[TimerId, int | None] = attrs.field(factory=dict)
    holds: dict[tuple[CellId, Window], int | None] = attrs.field(factory=dict)
    touched: dict[CellId, None] = attrs.field(factory=dict)
    late: list[LateArrival] = attrs.field(factory=list)
    dead: list[DeadLetter] = attrs.field(factory=list)
    causes: dict[int, FiringCause] = attrs.field(factory=dict)
    expired: list[Expiry] = attrs.field(factory=list)
    calls: list[RecordedCall | Expiry] = attrs.field(factory=list)

    def bundle(self) -> Bundle:
        """The emitted panes as a bundle."""
        signs = self.signs if -1 in self.signs else None
        return Bundle(
            self.values,
            self.timestamps_us,
            self.windows,
            self.panes,
            signs,
            self.emitted_panes or None,
        )

    def emit(
        self, value: Any, timestamp_us: int, window: Window, pane: PaneInfo, sign: int = +1
    ) -> None:
        """Emit a value (+1), or retract it (-1).

        Args:
            value: the value.
            timestamp_us: its event time, in microseconds.
            window: its window.
            pane: the pane that it is.
            sign: +1 or -1.
        """
        self.values.append(value)
        self.timestamps_us.append(timestamp_us)
        self.windows.append(window)
        self.panes.append(pane)
        self.signs.append(sign)

    def emit_all(
        self, values: Sequence[Any], timestamp_us: int, window: Window, pane: PaneInfo
    ) -> None:
        """Emit values of one event time, window and pane.

        Args:
            values: the values.
            timestamp_us: their event time, in microseconds.
            window: their window.
            pane: the pane that each is.
        """
        count = len(values)
        if count == 1:
            # As `emit` does, without a call of it: most elements cause one output.
            self.values.append(values[0])
            self.timestamps_us.append(timestamp_us)
            self.windows.append(window)
            self.panes.append(pane)
            self.signs.append(+1)
            return
        self.values += values
        self.timestamps_us += (timestamp_us,) * count
        self.windows += (window,) * count
        self.panes += (pane,) * count
        self.signs += (+1,) * count

    def emit_retractable(self, emitted: EmittedPane, sign: int = +1) -> None:
        """Emit a value that may be retracted later (+1), or retract it (-1).

        Args:
            emitted: the value, with what is needed to retract it.
            sign: +1 or -1.
        """
        self.emit(emitted.value, emitted.timestamp_us, emitted.window, emitted.pane, sign)
        self.emitted_panes.append(emitted)

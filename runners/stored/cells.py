"""Cells as bytes: the state of a window, of all windows of a key that merge, or of a stateful DoFn, in either; pages.

A cell is a list that begins with its kind.  Users' own values in it (accumulators, elements, state, what has been
emitted and may be retracted) are collected in the order in which they occur, and are one pickle for all cells of a
frame.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from runners.core.ground.cells import (
    NO_TIMERS,
    NOTHING,
    UNTOUCHED,
    Cell,
    EmittedPane,
    Page,
    WindowState,
    WindowTimers,
)
from runners.core.stateful.keyed_state import KeyedState, MergingState, Waiting
from runners.stored.columns import Own, own_blob, own_of
from runners.stored.framing import frame, unframed
from triggers.trigger import Progress, TriggerTimers
from windowing.pane import PaneInfo, PaneTiming
from windowing.window import Window

CELL = "cell"
_WINDOW, _WINDOWS, _KEYED, _PAGE, _MERGING = range(5)
_TIMINGS = {timing.value: timing for timing in PaneTiming}
_INT64 = 1 << 63
#: Makes a named tuple; faster than its class, which calls it.
_new = tuple.__new__


def encode_cell(cell: Cell | KeyedState | MergingState | Page) -> bytes:
    """A cell by itself, as the table of cells stores it.

    Raises:
        PipelineError: a value in it is not plain data.
    """
    own: list[Any] = []
    fields = cell_fields(cell, own)
    return frame(CELL, fields, own_blob(own))


def decode_cell(blob: bytes, read_own: Callable[[bytes], Own] = own_of) -> Any:
    """The inverse of `encode_cell`.

    Args:
        blob: the cell.
        read_own: reads users' values.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    fields, blob_of_own = unframed(CELL, blob)
    return cell_of(fields, read_own(blob_of_own))


def cell_fields(cell: Any, own: list[Any]) -> Sequence[Any]:
    """A cell as plain fields.

    Args:
        cell: the cell.
        own: users' values are appended to it.
    """
    kind = type(cell)
    if kind is KeyedState:
        return _keyed_fields(cell, own)
    if kind is WindowState:
        return (_WINDOW, *_state_fields(cell, own))
    if kind is MergingState:
        return _merging_fields(cell, own)
    if kind is Page:
        # By itself, as it is measured by its bytes.
        return (_PAGE, cell.pack())
    states = [
        (window_fields(window, own), *_state_fields(state, own)) for window, state in cell.items()
    ]
    return (_WINDOWS, states)


def cell_of(fields: list[Any], own: Own) -> Any:
    """The inverse of `cell_fields`.

    Args:
        fields: of the cell.
        own: users' values, from which those of the cell are taken.
    """
    kind = fields[0]
    if kind == _WINDOW:
        return _state_of(fields, own)
    if kind == _KEYED:
        return _keyed_of(fields, own)
    if kind == _MERGING:
        return _merging_of(fields, own)
    if kind == _PAGE:
        return Page(packed=fields[1])
    cell: dict[Window, WindowState] = {}
    for each in fields[1]:
        # The window first: its values were appended before those of its state.
        window = window_of(each[0], own)
        cell[window] = _state_of(each, own)
    return cell


def window_fields(window: Window, own: list[Any]) -> Sequence[int] | None:
    """The bounds of a window; None if it is of a user's class, and appended to the users' own values.

    Args:
        window: the window.
        own: users' values are appended to it.
    """
    if type(window) is Window:
        return window
    own.append(window)
    return None


def window_of(fields: list[int] | None, own: Own) -> Window:
    """The inverse of `window_fields`.

    Args:
        fields: of the window.
        own: users' values, from which a window of a user's class is taken.
    """
    window: Window = own() if fields is None else Window(*fields)
    return window


def _state_fields(state: WindowState, own: list[Any]) -> tuple[Any, ...]:
    has_accumulator = state.accumulator is not NOTHING
    if has_accumulator:
        own.append(state.accumulator)
    emitted, trigger, timers = state.emitted, state.trigger, state.timers
    return (
        has_accumulator,
        state.pending,
        [_emitted_fields(each, own) for each in emitted] if emitted else None,
        state.firings,
        state.nonspeculative_firings,
        state.is_past,
        None if trigger is UNTOUCHED else _trigger_fields(trigger, own),
        None if timers is NO_TIMERS else timers,
        state.hold_us,
    )


def _state_of(fields: list[Any], own: Own) -> WindowState:
    (
        _,
        has_accumulator,
        pending,
        emitted,
        firings,
        nonspeculative,
        is_past,
        trigger,
        timers,
        hold_us,
    ) = fields
    accumulator = own() if has_accumulator else NOTHING
    return WindowState(
        accumulator,
        pending,
        tuple([_emitted_of(each, own) for each in emitted]) if emitted else (),
        firings,
        nonspeculative,
        is_past,
        UNTOUCHED if trigger is None else _trigger_of(trigger, own),
        NO_TIMERS if timers is None else _new(WindowTimers, timers),
        hold_us,
    )


def _trigger_fields(trigger: Progress, own: list[Any]) -> Sequence[Any]:
    state, is_finished = trigger
    kind = type(state)
    if state is None or kind is bool or (kind is int and -_INT64 <= state < _INT64):
        return (is_finished, state)
    # Some triggers have a class for their state, which may be a user's.
    own.append(state)
    return (is_finished,)


def _trigger_of(fields: list[Any], own: Own) -> Progress:
    return Progress(fields[1] if len(fields) > 1 else own(), fields[0])


def _emitted_fields(emitted: EmittedPane, own: list[Any]) -> tuple[Any, ...]:
    own.append(emitted.value)
    window, has_remembered = window_fields(emitted.window, own), emitted.remembered is not None
    if has_remembered:
        own.append(emitted.remembered)
    return (emitted.timestamp_us, window, pane_fields(emitted.pane), has_remembered)


def _emitted_of(fields: list[Any], own: Own) -> EmittedPane:
    timestamp_us, window, pane, has_remembered = fields
    value, found = own(), window_of(window, own)
    remembered = own() if has_remembered else None
    return EmittedPane(value, timestamp_us, found, pane_of(pane), remembered)


def pane_fields(pane: PaneInfo) -> tuple[Any, ...]:
    """A pane as plain fields."""
    return (pane.index, pane.timing.value, pane.is_first, pane.is_last, pane.nonspeculative_index)


def pane_of(fields: list[Any]) -> PaneInfo:
    """The inverse of `pane_fields`."""
    return _pane(*fields)


# Most panes are equal to one of a few.
@lru_cache(maxsize=1_024)
def _pane(index: int, timing: str, *rest: Any) -> PaneInfo:
    return PaneInfo(index, _TIMINGS[timing], *rest)


def _keyed_fields(cell: KeyedState, own: list[Any]) -> tuple[Any, ...]:
    own.append(cell.values)
    timers = list(cell.timers.items())
    if not cell.backlog:
        return (_KEYED, timers, cell.engine_timers)
    values, times_us, panes, signs = zip(*cell.backlog, strict=True)
    own.append(values)
    return (_KEYED, timers, cell.engine_timers, times_us, list(map(pane_fields, panes)), signs)


def _keyed_of(fields: list[Any], own: Own) -> KeyedState:
    _, timers, engine_timers, *backlog = fields
    values = own()
    found = {
        name if type(name) is str else tuple(name): (fire_us, output_us)
        for name, (fire_us, output_us) in timers
    }
    inputs = []
    if backlog:
        times_us, panes, signs = backlog
        found_panes = map(pane_of, panes)
        inputs = list(zip(own(), times_us, found_panes, signs, strict=True))
    cell = KeyedState(values, found, inputs, TriggerTimers(*engine_timers))
    cell.find_pages()
    return cell


def _merging_fields(cell: MergingState, own: list[Any]) -> tuple[Any, ...]:
    states = [
        (window_fields(window, own), *_keyed_fields(state, own))
        for window, state in cell.windows.items()
    ]
    if not cell.backlog:
        return (_MERGING, states, cell.engine_timers)
    values, times_us, panes, signs, windows = zip(*cell.backlog, strict=True)
    own.append(values)
    assigned = [window_fields(window, own) for window in windows]
    pane_lists = list(map(pane_fields, panes))
    return (_MERGING, states, cell.engine_timers, times_us, pane_lists, signs, assigned)


def _merging_of(fields: list[Any], own: Own) -> MergingState:
    _, states, engine_timers, *backlog = fields
    windows: dict[Window, KeyedState] = {}
    for bounds, *state in states:
        # The window first: its values were appended before those of its state.
        window = window_of(bounds, own)
        windows[window] = _keyed_of(state, own)
    waiting: list[Waiting] = []
    if backlog:
        times_us, panes, signs, assigned = backlog
        values = own()
        waiting = [
            (value, time_us, pane_of(pane), sign, window_of(bounds, own))
            for value, time_us, pane, sign, bounds in zip(
                values, times_us, panes, signs, assigned, strict=True
            )
        ]
    cell = MergingState(windows, waiting, TriggerTimers(*engine_timers))
    cell.find_pages()
    return cell

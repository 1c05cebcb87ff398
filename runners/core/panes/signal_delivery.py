"""Signals: how the windows of a grouping are notified of a request from outside to fire.

An open window is notified of a signal once, through its trigger (`Trigger.on_signal`), and then fires if it is due.
What has changed is an effect like any other; a window to which a signal makes no difference is not touched, so that
a signal to a million keys changes the state of only those that have something new.

Dataflow Model, section 2.3 (triggers that respond to external signals).
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from dataflow.graph import Group, PipelineGraph, TransformNode
from runners.core.ground.cells import Cell, CellId, Effects, WindowState
from runners.errors import SignalError
from triggers.clocks import Clocks
from triggers.trigger import Progress, Trigger
from windowing.window import Window

Cells = MutableMapping[CellId, Cell]
#: `WindowLifecycle.fire_if_due`.
FireIfDue = Callable[[Cells, CellId, Any, WindowState, Effects, Clocks], None]


def trigger_of(graph: PipelineGraph, node: TransformNode) -> Trigger | None:
    """The trigger of a grouping; None for a stateful DoFn, which has none.

    Args:
        graph: of the pipeline.
        node: the grouping or stateful DoFn.
    """
    if not isinstance(node.operation, Group):
        return None
    return graph.pcollections[node.inputs[0]].strategy.trigger


def signals_of(graph: PipelineGraph) -> frozenset[str]:
    """The names of all signals that some trigger of a pipeline listens to."""
    found = [trigger_of(graph, node) for node in graph.transforms]
    return frozenset().union(*(trigger.signals for trigger in found if trigger is not None))


def unknown_signal(name: str, known: Iterable[str]) -> SignalError:
    """The error for a signal that no trigger listens to.

    Args:
        name: of the signal.
        known: the names of the signals that some trigger listens to.
    """
    names = ", ".join(map(repr, sorted(known)))
    return SignalError(
        f"no trigger listens to the signal {name!r}",
        detail=f"triggers listen to: {names or 'no signal at all'}",
        hint="send one of these" if names else f"use df.AfterSignal({name!r}) in a trigger",
    )


def on_signal(
    trigger: Trigger,
    fire_if_due: FireIfDue,
    cells: Cells,
    listening: Iterable[CellId],
    name: str,
    clocks: Clocks,
) -> Effects:
    """Notify every window of some cells of a signal, and fire those that are due.

    Args:
        trigger: that of the windows.
        fire_if_due: fires a window whose trigger has moved, if it is due, and sets its timers.
        cells: of the grouping; changed in place.
        listening: the cells that receive the signal; those that no longer exist are skipped.
        name: of the signal.
        clocks: the clocks.
    """
    effects = Effects()
    for cell_id in listening:
        for window, state in _windows(cells, cell_id):
            if state.trigger.is_finished:
                continue
            before = state.trigger.state
            moved = trigger.on_signal(before, window, name, clocks.for_triggers)
            if moved is before:
                continue
            kept, emitted = _kept(state), state.emitted
            state.trigger = Progress(moved)
            fire_if_due(cells, cell_id, window, state, effects, clocks)
            if emitted is not state.emitted or kept != _kept(state):
                effects.touched[cell_id] = None
    return effects


def _windows(cells: Cells, cell_id: CellId) -> Iterator[tuple[Window, WindowState]]:
    cell = cells.get(cell_id)
    if isinstance(cell, dict):
        yield from list(cell.items())
    elif cell is not None:
        assert cell_id[1] is not None
        yield cell_id[1], cell


def _kept(state: WindowState) -> tuple[Any, ...]:
    """The stored fields that change when a window fires, waits or expires; the accumulator changes only if it fires."""
    return (
        state.trigger,
        state.pending,
        state.firings,
        state.is_past,
        state.timers,
        state.hold_us,
    )

"""A backfill of typed rows leaves what one of single rows leaves: what is emitted, and what is open."""

from collections.abc import Mapping
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.cells import WindowState
from runners.direct import DirectRunner
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.cells import decode_cell
from tests.backfill_jobs import LocalBackfill, left_behind
from tests.columnar import Batch, EventSource
from tests.effort import costly
from tests.property.test_columns import BATCHES, CHOSEN, KEYS, WINDOW_FNS, aggregation, is_exact

COLUMNS = {"result": str}


def row(result: Any, window: df.Window = df.DoFn.WindowParam) -> dict[str, str]:
    # As text: 1, 1.0 and True are equal, and not the same.
    return {"result": f"{result!r} {window}"}


def shown(
    watermark_us: int, percentile_us: int, cells: Mapping[Any, bytes], timers: Any, ids: Any
) -> tuple[Any, ...]:
    """What can be compared: a cell's pickle depends on which of its values are one object, and what came first."""
    found = {key: in_order(decode_cell(each)) for key, each in cells.items()}
    return watermark_us, percentile_us, found, timers, ids


def in_order(cell: Any) -> Any:
    """Of a key's windows it does not matter which was there first, nor of lists, which are what is greatest so far."""
    if not isinstance(cell, dict):
        return repr(listed(cell))
    return sorted(repr((window, listed(state))) for window, state in cell.items())


def listed(state: Any) -> Any:
    if not isinstance(state, WindowState) or not isinstance(state.accumulator, tuple):
        return state
    parts = (sorted(each, key=repr) if type(each) is list else each for each in state.accumulator)
    return attrs.evolve(state, accumulator=tuple(parts))


@costly()
@given(
    batches=BATCHES,
    window_fn=WINDOW_FNS,
    keys=KEYS,
    aggregates=CHOSEN,
    seed=st.integers(0, 2**32),
)
def test_a_backfill_leaves_the_same_from_columns(
    batches: list[Batch],
    window_fn: df.WindowFn,
    keys: list[str],
    aggregates: list[tuple[str, Any]],
    seed: int,
) -> None:
    if not is_exact(batches):
        aggregates = [each for each in aggregates if each[0] != "price"] or [("value", sum)]
    transform = aggregation(window_fn, keys, aggregates)
    rows: list[list[Any]] = []
    states: list[dict[RangeId, Any]] = []
    for as_columns in (True, False):
        p = df.Pipeline(DirectRunner())
        read = p | "read" >> df.Read(EventSource(batches, as_columns=as_columns))
        transform(read) | df.Map(row) | df.WriteToPostgres("rows", columns=COLUMNS)
        store = LocalBackfill(p.graph(), MemoryStore(), seed, until_us=None).run()
        (table,) = p.graph().tables()
        rows.append(sorted(store.read_table(table)))
        left = left_behind(store, "sim")
        states.append({range_id: shown(*found) for range_id, found in left.items()})

    assert rows[0] == rows[1]
    assert states[0] == states[1]

"""Which groupings emit each window once, and the bookkeeping of what is kept as columns for them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import WindowColumn
from dataflow.combiner_columns import SumColumns
from runners.core.columns.partials import PartialColumns, merged_columns
from runners.core.single_firing import column_windows
from runners.core.single_firing.column_windows import NEVER_US, ColumnWindows
from runners.core.single_firing.single_panes import SinglePanes
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.testing.scripted_source import ScriptedSource
from windowing.window import Window

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
DISCARDING = df.AccumulationMode.DISCARDING


def panes_of(**options: Any) -> list[SinglePanes | None]:
    """The panes of a grouping: where all of its input is replayed, and in a stream."""
    p = df.Pipeline(DirectRunner())
    rows = p | df.Read(ScriptedSource([]))
    given_options: dict[str, Any] = {
        "window_fn": df.FixedWindows(10),
        "accumulation_mode": DISCARDING,
    } | options
    (
        rows
        | "windows" >> df.WindowInto(**given_options)
        | "sums" >> df.GroupBy("user").aggregate_field("amount", sum, "total")
    )
    graph = p.graph()
    (stage,) = plan(graph).groupings()
    return [SinglePanes.of_replay(graph, stage.root), SinglePanes.of_stream(graph, stage.root)]


@pytest.mark.parametrize(
    ("options", "replayed", "streamed"),
    [
        ({}, True, True),
        ({"window_fn": df.Sessions(10)}, True, False),
        ({"allowed_lateness": 1}, True, False),
        ({"watermark_percentile": 99}, True, False),
        ({"trigger": df.AfterWatermark(early=df.AfterCount(1))}, False, False),
        ({"timestamp_combiner": df.TimestampCombiner.EARLIEST}, False, False),
        ({"accumulation_mode": RETRACTING}, False, False),
    ],
    ids=str,
)
def test_only_windows_that_can_emit_nothing_more_are_emitted_once(
    options: dict[str, Any], *, replayed: bool, streamed: bool
) -> None:
    """Each of these settings lets a window emit a second pane, or one with another time."""
    assert [panes is not None for panes in panes_of(**options)] == [replayed, streamed]


class EagerTrigger(df.DefaultTrigger):
    """Of one's own: fires whenever anything has come."""

    def should_fire(self, state: Any, window: Window, clocks: df.Clocks) -> bool:
        return True


def test_a_trigger_made_of_the_default_one_is_not_the_default_one() -> None:
    """What it overrides may let a window emit earlier, or again."""
    assert panes_of(trigger=EagerTrigger()) == [None, None]


def columns_of(partials: Sequence[tuple[int, int, int]]) -> PartialColumns:
    """Partials (key, start, length) of sums, in microseconds."""
    keys, starts, lengths = np.array(partials, np.int64).reshape(-1, 3).T
    return PartialColumns(
        (pa.array(keys),),
        WindowColumn(starts, starts + lengths, None),
        np.ones(len(keys), np.int64),
        ((np.ones(len(keys), np.int64),),),
        combiners=(SumColumns(),),
        is_single=True,
    )


partials = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 3))


@given(st.lists(st.tuples(partials, st.booleans()), min_size=1, max_size=8))
def test_columns_in_two_parts_are_the_chosen_and_the_others(chosen: list[Any]) -> None:
    """Each in the order in which it came."""
    columns, is_chosen = columns_of([each for each, _ in chosen]), [each for _, each in chosen]
    rows = list(columns)

    for part, wanted in zip(columns.parted(np.array(is_chosen)), (True, False), strict=True):
        expected = [row for row, mine in zip(rows, is_chosen, strict=True) if mine is wanted]
        assert expected == list(part)


@given(st.lists(st.lists(partials, min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
@example([[(0, 0, 1)], [(0, 0, 2)], [(0, 0, 1)]], True)
def test_columns_of_several_lengths_of_windows_are_merged_by_their_windows(
    parts: list[Any], is_known: bool
) -> None:
    """Also where all windows of a part are of one length, and of the next part of another one."""
    given_parts = [columns_of(part) for part in parts]
    for each in given_parts:
        lengths = set((each.windows.ends_us - each.windows.starts_us).tolist())
        each.windows.size_us = lengths.pop() if is_known and len(lengths) == 1 else None
    merged = merged_columns(given_parts, is_merging=False)

    assert merged is not None
    assert rows_of([merged]) == rows_of(given_parts)
    assert len(merged) == len(rows_of(given_parts)), "one row for each key and window"


acts = st.one_of(
    st.lists(partials, max_size=6),
    st.integers(0, 7),
    st.builds(Window, st.integers(0, 3), st.integers(4, 6)),
    st.just("all"),
)


def rows_of(parts: Sequence[PartialColumns]) -> dict[tuple[Any, Window], int]:
    """The records by key and window."""
    found: dict[tuple[Any, Window], int] = {}
    for part in parts:
        for key, window, _, count in part:
            found[key, window] = found.get((key, window), 0) + count
    return found


@given(script=st.lists(acts, max_size=12))
def test_what_is_kept_is_what_was_added_and_not_removed(script: list[Any]) -> None:
    """And its size, its bytes and its first end are those of what is kept now, not of what was."""
    panes = panes_of()[1]
    assert panes is not None
    kept, expected = ColumnWindows(panes.lifter.merging), dict[tuple[Any, Window], int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_windows, "FOLD_PARTIALS_MIN", 3)
        for act in script:
            gone: dict[tuple[Any, Window], int] = {}
            if isinstance(act, list):
                kept.hold(columns_of(act))
                for key, start, length in act:
                    place = key, Window(start, start + length)
                    expected[place] = expected.get(place, 0) + 1
            elif isinstance(act, int):
                gone = {place: count for place, count in expected.items() if place[1].end_us <= act}
                assert rows_of(kept.pop_due(act)) == gone
            elif isinstance(act, Window):
                gone = {place: count for place, count in expected.items() if place[1] == act}
                assert rows_of(kept.pop_windows([act])) == gone
            else:
                gone = dict(expected)
                kept.is_unfoldable = True
                assert rows_of(kept.pop_all()) == gone
                assert not kept.is_unfoldable
            expected = {place: count for place, count in expected.items() if place not in gone}

            assert rows_of(kept.parts) == expected
            assert len(kept) == sum(map(len, kept.parts))
            assert kept.nbytes == sum(part.nbytes for part in kept.parts)
            ends_us = [window.end_us for _, window in expected]
            assert kept.next_end_us == min(ends_us, default=NEVER_US)
            # Twice as many as there were after the last merge are merged again.
            assert len(kept) <= 2 * len(expected) + 6

"""Open windows emit the same however they are kept, and go on after `spill` and `restore` as they would have."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import IntColumn
from runners.core.ground.bundle import Bundle
from runners.core.open_windows.buffered import Buffered
from runners.core.open_windows.choice import (
    opened,
    opened_for_stream,
    opened_until_all_is_there,
)
from runners.core.open_windows.open_windows import Arrival, OpenWindows
from runners.core.open_windows.replayed import Replayed
from runners.core.open_windows.stream_cells import StreamCells
from runners.core.open_windows.stream_windows import StreamWindows
from runners.core.single_firing import column_windows, row_windows
from runners.core.stages.entries import Changes, Entry
from runners.core.stages.grouping import GroupingStage, Step
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.stored.journal import decode_entry, encode_changes
from runners.stored.partials import decode_partials, encode_partials
from tests.columnar import Batch, Collection, Event, EventSource, Recorder, TwoSizes, columns_of
from tests.property.test_columns import (
    BATCHES,
    KEYS,
    SECOND_US,
    WINDOW_FNS,
    aggregation,
    at_seconds,
)
from triggers.default_trigger import DefaultTrigger
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

Open = Callable[[GroupingStage], OpenWindows]
DISCARDING = df.AccumulationMode.DISCARDING


def for_stream(stage: GroupingStage) -> OpenWindows:
    return opened_for_stream(stage, {}, lambda _: None, None)


def crowded(stage: GroupingStage) -> OpenWindows:
    return opened_for_stream(stage, {}, lambda _: None, 0)


def rows_in_cells(stage: GroupingStage) -> OpenWindows:
    """Rows are brought into cells when they have come, and columns stay."""
    return for_stream(stage)


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """So that a few records are enough for several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_windows, "FOLD_PARTIALS_MIN", 3)
        patch.setattr(row_windows, "MERGED_AT", 3)
        yield


class Run:
    """A grouping with its open windows; every act returns what it has emitted, in any order of keys."""

    def __init__(
        self,
        transform: Callable[[Collection], Collection],
        open_: Open,
        *,
        most: int | None = None,
    ) -> None:
        pipeline, self._recorder = df.Pipeline(), Recorder()
        source = EventSource([], as_columns=False)
        transform(pipeline | df.Read(source)) | df.ParDo(self._recorder)
        planned = plan(pipeline.graph())
        (root,), (stage,) = planned.sources(), planned.groupings()
        self._executor = StageExecutor(planned, root)
        self._stage, self._open, self._most = GroupingStage(planned, stage), open_, most
        strategy = planned.graph.pcollections[stage.root.inputs[0]].strategy
        #: Whether each window fires once, when it ends.
        self._fires_once = type(strategy.trigger) is DefaultTrigger and (
            strategy.allowed_lateness_us == 0
        )
        self.windows = open_(self._stage)
        self._watermark_us = MIN_TIMESTAMP_US
        self._late: list[Any] = []

    def take(self, batch: Batch, *, as_columns: bool, owner: str | None = None) -> list[str]:
        """What comes in one batch."""
        events, times_us = [event for event, _ in batch[0]], [at_us for _, at_us in batch[0]]
        bundle = Bundle(events, times_us)
        if as_columns:
            bundle = Bundle(columns_of(events), IntColumn(np.array(times_us, np.int64)))
        clocks = StageClocks.of_source(watermark_us=self._watermark_us, now_us=0)
        for partials in self._executor.process(bundle, clocks).groups.values():
            blob = encode_partials(partials)
            received = decode_partials(blob, self._stage.combiners)
            self._note(self.windows.take([Arrival(received, owner, blob)], self._clocks))
            for each in self._crowded(as_columns=as_columns):
                assert isinstance(self.windows, StreamWindows)
                self._note(self.windows.relieve(each, self._clocks))
        return self._emitted()

    def _crowded(self, *, as_columns: bool) -> Sequence[Any]:
        if not isinstance(self.windows, StreamWindows):
            return ()
        is_for_cells = self._open is rows_in_cells and not as_columns
        return self.windows.owners if is_for_cells else self.windows.crowded

    def advance(self, watermark_us: int) -> list[str]:
        """The watermark moves."""
        self._watermark_us = max(self._watermark_us, watermark_us)
        reached_us = fired_us = MIN_TIMESTAMP_US
        seen = 0
        while (step := self._advance()) is not None:
            ends_us = [window[1] for _, _, window, _ in self._recorder.seen[seen:]]
            seen += len(ends_us)
            if self._fires_once and ends_us:
                # What an engine has reported of event time is true, and the last row of a key is that of the last
                # window.
                assert reached_us < ends_us[0]
                assert [fired_us, *ends_us] == sorted([fired_us, *ends_us])
                fired_us = ends_us[-1]
                self._check_size(step, ends_us)
            if step.reached_us is not None:
                assert reached_us <= step.reached_us <= self._watermark_us
                reached_us = step.reached_us
            self._note(step)
        return self._emitted()

    def _check_size(self, step: Step, ends_us: Sequence[int]) -> None:
        """A step is as small as it was asked to be: by timers or rows, and by columns, where one end fires at once."""
        if self._most is not None and not isinstance(self.windows, Replayed):
            of_one_end = max(map(ends_us.count, ends_us))
            assert len(ends_us) <= 2 * self._most or len(ends_us) - of_one_end <= self._most

    def _advance(self) -> Step | None:
        most, is_due = self._most, None
        if isinstance(self.windows, StreamWindows):
            next_us = self.windows.next_event_us
            is_due = next_us is not None and next_us <= self._watermark_us
        step = self.windows.advance(self._clocks, timers_max=most, panes_max=most)
        assert is_due in (None, step is not None)
        return step

    def spill(self) -> list[str]:
        """All windows go through their entries, as they would be stored, to others."""
        hold_us = self.windows.hold_us
        entries = list(map(self._stored, self.windows.spill()))
        assert len(self.windows) == 0
        assert next(self.windows.keys(), None) is None
        assert self.windows.hold_us is None
        self.windows = self._open(self._stage)
        for entry in entries:
            self.windows.restore(entry)
        assert self.windows.hold_us == hold_us
        return self._emitted()

    def join(self, other: "Run", owner: str) -> list[str]:
        """The windows of another run come here, as those of another owner; nothing has fired in either."""
        assert isinstance(self.windows, StreamWindows)
        for entry in map(self._stored, other.windows.spill()):
            self.windows.restore(entry, owner)
        return self._emitted()

    def _stored(self, entry: Entry) -> Any:
        blob = encode_changes(*entry) if isinstance(entry, Changes) else encode_partials(entry)  # type: ignore[arg-type]
        return decode_entry(blob, self._stage.combiners)

    @property
    def _clocks(self) -> StageClocks:
        return StageClocks(
            watermark_us=self._watermark_us, output_watermark_us=MIN_TIMESTAMP_US, now_us=0
        )

    def _note(self, step: Step) -> None:
        self._late += [
            ("late", each.key, each.window, each.accumulator, each.count)
            for each in step.effects.late
        ]

    def _emitted(self) -> list[str]:
        emitted = sorted(map(repr, [*self._recorder.seen, *self._late]))
        self._recorder.seen.clear()
        self._late.clear()
        return emitted


#: Windows hold the watermark behind the grouping only where panes have event times of their records.
END_OF_WINDOW, EARLIEST = df.TimestampCombiner.END_OF_WINDOW, df.TimestampCombiner.EARLIEST

TRANSFORMS = st.builds(
    lambda window_fn, keys, trigger, lateness_s, mode, stamp: aggregation(
        window_fn,
        keys,
        [("value", sum), ("shard", max)],
        trigger=trigger,
        allowed_lateness=lateness_s,
        accumulation_mode=mode,
        timestamp_combiner=stamp,
    ),
    WINDOW_FNS,
    KEYS,
    st.sampled_from([None, None, None, df.AfterWatermark(early=df.AfterCount(2))]),
    st.sampled_from([0, 0, 0, 5]),
    st.sampled_from([DISCARDING, df.AccumulationMode.ACCUMULATING]),
    st.sampled_from([END_OF_WINDOW, END_OF_WINDOW, EARLIEST]),
)
COLUMNS = st.lists(st.booleans(), min_size=5, max_size=5)
SPILLS = st.lists(st.booleans(), min_size=5, max_size=5)
MOST = st.sampled_from([None, 1, 2])


def played(
    run: Run,
    batches: Sequence[Batch],
    as_columns: Sequence[bool],
    spills: Sequence[bool] = (),
    *,
    moves: bool,
) -> list[list[str]]:
    """What is emitted by each batch, and by the watermark after it; ``moves``: it does not only at the end."""
    emitted = []
    for number, batch in enumerate(batches):
        emitted.append(run.take(batch, as_columns=as_columns[number]))
        if number < len(spills) and spills[number]:
            emitted[-1] += run.spill()
        emitted.append(run.advance(batch[1]) if moves else [])
    return [*emitted, run.advance(MAX_TIMESTAMP_US)]


SCRIPTS: dict[str, Any] = {
    "transform": TRANSFORMS,
    "batches": BATCHES,
    "as_columns": COLUMNS,
    "spills": SPILLS,
    "most": MOST,
}


def check_a_stream(
    transform: Any,
    batches: list[Batch],
    as_columns: list[bool],
    spills: list[bool],
    most: int | None,
) -> None:
    """All ways of keeping windows emit the same while input comes and windows fire in turns."""
    expected = played(Run(transform, opened), batches, as_columns, moves=True)

    for open_ in (opened, for_stream, crowded, rows_in_cells):
        run = Run(transform, open_, most=most)
        assert expected == played(run, batches, as_columns, spills, moves=True), open_
        assert len(run.windows) == 0
        assert next(run.windows.keys(), None) is None


def check_a_batch(
    transform: Any,
    batches: list[Batch],
    as_columns: list[bool],
    spills: list[bool],
    most: int | None,
) -> None:
    """All ways of keeping windows emit the same where all of them fire when all input is there."""
    expected = played(Run(transform, opened), batches, as_columns, moves=False)

    for open_ in (opened, for_stream, opened_until_all_is_there):
        run = Run(transform, open_, most=most)
        assert expected == played(run, batches, as_columns, spills, moves=False), open_


def _at(watermark_s: int, *seconds: int) -> Batch:
    return at_seconds(*seconds)[0], watermark_s * SECOND_US


_SUMS = [("value", sum)]
#: Columns and rows of one window in turns, windows that end at one instant, and late ones; by hand.
HARD: list[dict[str, Any]] = [
    {
        "transform": aggregation(window_fn, ["user"], _SUMS, accumulation_mode=DISCARDING),
        "batches": [_at(0, 1, 11, 21), _at(5, 2, 12, 13), _at(12, 3, 14, 22), _at(20, 4, 15, 23)],
        "as_columns": as_columns,
        "spills": spills,
        "most": most,
    }
    for window_fn in (df.FixedWindows(10), df.Sessions(3))
    for as_columns in ([True, False, True, True], [False, True, True, False], [True] * 4)
    for spills in ([True, False, True, True], [False, True, False, False])
    for most in (None, 1)
]
#: Windows in cells and others in columns are due at once: between them in time, and with the same end.
HARD += [
    {
        "transform": aggregation(window_fn, ["user"], _SUMS, accumulation_mode=DISCARDING),
        "batches": [_at(0, *in_cells), _at(40, *in_columns)],
        "as_columns": [False, True],
        "spills": [],
        "most": most,
    }
    for window_fn, in_cells, in_columns in (
        (df.FixedWindows(10), (11, 21), (1, 31, 35)),
        (TwoSizes(), (16,), (3, 21)),
    )
    for most in (None, 1, 2)
]
#: Cells that hold the watermark.
HARD += [
    {
        "transform": aggregation(
            window_fn, ["user"], _SUMS, accumulation_mode=DISCARDING, timestamp_combiner=EARLIEST
        ),
        "batches": [_at(0, 1, 11, 21), _at(5, 2, 12, 13)],
        "as_columns": [True, False],
        "spills": [True, True],
        "most": None,
    }
    for window_fn in (df.FixedWindows(10), df.Sessions(3))
]


@pytest.mark.slow
@pytest.mark.parametrize("script", HARD)
def test_hard_scripts_emit_the_same_however_windows_are_kept(script: dict[str, Any]) -> None:
    check_a_stream(**script)
    check_a_batch(**script)


@given(**SCRIPTS)
def test_a_stream_emits_the_same_however_its_windows_are_kept(**script: Any) -> None:
    check_a_stream(**script)


@given(**SCRIPTS)
def test_a_batch_emits_the_same_however_its_windows_are_kept(**script: Any) -> None:
    check_a_batch(**script)


#: Who has a record, its second, and whether it comes as a column.
_ARRIVAL = (st.sampled_from("ab"), st.integers(0, 25), st.booleans())
_ARRIVALS = st.lists(st.tuples(*_ARRIVAL), max_size=6)
#: And how far the watermark is after it.
_ARRIVALS_AND_TIMES = st.lists(st.tuples(*_ARRIVAL, st.integers(0, 30)), max_size=6)


@given(
    window_fn=WINDOW_FNS,
    before=_ARRIVALS,
    after=_ARRIVALS_AND_TIMES,
    most=MOST,
    open_=st.sampled_from([for_stream, rows_in_cells]),
)
# What the one has in cells the other has as columns, and more comes for these.
@example(
    window_fn=df.FixedWindows(10),
    before=[("a", 1, False), ("b", 2, True)],
    after=[("b", 3, True, 0)],
    most=None,
    open_=rows_in_cells,
)
@example(
    window_fn=df.FixedWindows(10),
    before=[("a", 1, True), ("b", 2, False)],
    after=[("a", 3, False, 0), ("a", 11, True, 0)],
    most=1,
    open_=rows_in_cells,
)
# They fire with both ways of the one window, and what comes for it then is late.
@example(
    window_fn=df.FixedWindows(10),
    before=[("a", 1, True), ("a", 11, True), ("b", 2, False), ("b", 12, False)],
    after=[("a", 21, True, 10), ("a", 3, True, 10), ("b", 13, True, 20)],
    most=1,
    open_=rows_in_cells,
)
def test_windows_that_come_from_another_owner_fire_once(
    window_fn: Any,
    before: list[tuple[str, int, bool]],
    after: list[tuple[str, int, bool, int]],
    most: int | None,
    open_: Open,
) -> None:
    """Once for a key, however its owner had kept the window before the two came together, and all that is in it."""
    transform = aggregation(window_fn, ["user"], _SUMS, accumulation_mode=DISCARDING)
    together = Run(transform, opened)
    runs = {user: Run(transform, open_, most=most) for user in "ab"}
    emitted, expected = list[str](), list[str]()
    for user, second, as_columns in before:
        batch = _of(user, second)
        expected += together.take(batch, as_columns=as_columns)
        emitted += runs[user].take(batch, as_columns=as_columns, owner=user)
    run = runs["a"]
    emitted += run.join(runs["b"], "b")
    assert sorted(emitted) == sorted(expected)
    for user, second, as_columns, watermark_s in after:
        batch = _of(user, second)
        assert run.take(batch, as_columns=as_columns, owner=user) == together.take(
            batch, as_columns=as_columns
        )
        assert run.advance(watermark_s * SECOND_US) == together.advance(watermark_s * SECOND_US)
    assert run.advance(MAX_TIMESTAMP_US) == together.advance(MAX_TIMESTAMP_US)


def _of(user: str, second: int) -> Batch:
    event = Event(user, is_test=True, shard=0, value=1, price=0.0)
    return [(event, second * SECOND_US)], 0


def check_holds(window_fn: df.WindowFn, batches: list[Batch]) -> None:
    """Cells that are restored one over the other hold the watermark as those that were never away."""
    transform = aggregation(
        window_fn,
        ["user"],
        _SUMS,
        timestamp_combiner=EARLIEST,
        allowed_lateness=5,
        accumulation_mode=DISCARDING,
    )
    run, copy = Run(transform, for_stream), Run(transform, for_stream)
    for batch in batches:
        run.take(batch, as_columns=False)
        run.advance(batch[1])
        # As of a journal: whole cells, and those that are gone.
        assert isinstance(run.windows, StreamCells)
        assert isinstance(copy.windows, StreamCells)
        gone = [
            (cell_id, None) for cell_id in copy.windows.cells if cell_id not in run.windows.cells
        ]
        cells = [(cell_id, deepcopy(cell)) for cell_id, cell in run.windows.cells.items()]
        copy.windows.restore(Changes([*gone, *cells], []))

        assert copy.windows.hold_us == run.windows.hold_us


WINDOWS_WITH_HOLDS = st.sampled_from([df.FixedWindows(10), df.Sessions(3)])


@given(window_fn=WINDOWS_WITH_HOLDS, batches=BATCHES)
@example(window_fn=df.Sessions(3), batches=[_at(0, 1), _at(2, 2, 7), _at(20, 21)])
def test_restored_cells_hold_the_watermark(window_fn: df.WindowFn, batches: list[Batch]) -> None:
    check_holds(window_fn, batches)


def test_every_way_of_keeping_windows_is_among_these() -> None:
    """Or the laws would compare cells with cells."""
    kept = {
        type(Run(aggregation(window_fn, ["user"], [("value", sum)]), open_).windows)
        for window_fn in (df.FixedWindows(10), df.Sessions(3))
        for open_ in (opened, for_stream, opened_until_all_is_there)
    }

    assert {Buffered, Replayed} < kept


def test_what_is_in_cells_and_what_is_buffered_are_kept_apart() -> None:
    """Columns of windows that are in cells go there; the others stay."""
    run = Run(aggregation(df.FixedWindows(10), ["user"], [("value", sum)]), rows_in_cells)
    run.take(at_seconds(1), as_columns=False)
    run.take(at_seconds(2, 12), as_columns=True)

    assert isinstance(run.windows, StreamWindows)
    assert len(run.windows) == 1
    assert run.windows.nbytes > 0
    assert [] == run.advance(9 * SECOND_US)
    assert 1 == len(run.advance(10 * SECOND_US))
    assert 1 == len(run.advance(20 * SECOND_US))
    assert run.windows.nbytes == 0


@pytest.mark.parametrize("spills", [False, True])
def test_rows_of_one_end_fire_in_several_steps(*, spills: bool) -> None:
    """A key that has fired is gone from what is kept, as a cell would be, and does not fire again."""
    run = Run(aggregation(df.FixedWindows(10), ["user"], [("value", sum)]), for_stream, most=2)
    events = [Event(user, is_test=True, shard=0, value=1, price=0.0) for user in "abcde"]
    run.take(([(event, SECOND_US) for event in events], 0), as_columns=False)
    run._watermark_us = 10 * SECOND_US
    emitted, gone = list[str](), list[Any]()
    for size in (2, 2, 1):
        step = run._advance()
        assert step is not None
        assert step.fired_rows == size
        gone += step.effects.touched
        emitted += run._emitted()
        if spills:
            run.spill()

    assert len(set(emitted)) == len(emitted) == 5
    # The last ones are behind the event time that is reached with them.
    assert len(set(gone)) == len(gone) == 4
    assert run.advance(MAX_TIMESTAMP_US) == []


def test_a_key_that_has_fired_is_gone_from_what_is_restored() -> None:
    transform = aggregation(df.FixedWindows(10), ["user"], [("value", sum)])
    run, kept = Run(transform, for_stream, most=1), Run(transform, for_stream)
    events = [Event(user, is_test=True, shard=0, value=1, price=0.0) for user in "ab"]
    for each in (run, kept):
        each.take(([(event, SECOND_US) for event in events], 0), as_columns=False)
    run._watermark_us = 10 * SECOND_US
    step = run._advance()
    assert step is not None
    first = run._emitted()
    kept.windows.restore(Changes([(cell_id, None) for cell_id in step.effects.touched], []))

    assert kept.advance(10 * SECOND_US) == run.advance(10 * SECOND_US) != first


def test_what_is_noted_of_rows_is_as_they_came_although_they_are_merged() -> None:
    """Lists are merged in place; the entry of a journal is made of the rows afterwards."""
    run = Run(
        lambda events: events | df.Map(lambda each: (each.user, 1)) | df.GroupByKey(), for_stream
    )
    window = Window(0, 10 * SECOND_US)
    rows: list[Any] = [("a", window, [number], 1) for number in range(5)]
    step = run.windows.take([Arrival(rows, "owner", None)], run._clocks)

    entry: Any = step.noted[0].entry
    assert [accumulator for _, _, accumulator, _ in entry] == [[number] for number in range(5)]

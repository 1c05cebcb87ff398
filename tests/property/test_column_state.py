"""What is kept as columns emits what cells and timers emit: pane by pane, and record by record that comes too late.

The ranges of one grouping are given the same productions twice, once with the columns and once without; in between the
watermark moves, owners change, journals are compacted, and columns are released.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.open_windows.buffered import Buffered
from runners.core.single_firing import column_windows, row_windows
from runners.core.single_firing.single_panes import SinglePanes
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.productions import note_durable, note_submitted, production_of
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.partials import decode_partials
from tests.columnar import Batch, Collection, EventSource, Recorder, note_bundles, read
from tests.property.test_columns import (
    BATCHES,
    CHOSEN,
    SECOND_US,
    WINDOW_FNS,
    aggregation,
    at_seconds,
    is_exact,
    with_values,
)
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window_fn import WindowFn

JOB = "job"
KEYS = st.lists(st.sampled_from(["user", "shard", "is_test"]), min_size=1, max_size=2, unique=True)
#: What happens between a batch and the next: time goes on, or the owner changes, or state goes to another place.
EVENTS = st.sampled_from(["advance", "take over", "compact a bit", "compact", "release"])


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    """So that a few records are enough for several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_windows, "FOLD_PARTIALS_MIN", 3)
        patch.setattr(row_windows, "MERGED_AT", 3)
        yield


class Grouped:
    """The grouping of a pipeline, its input, and whoever owns its ranges."""

    def __init__(
        self,
        transform: Callable[[Collection], Collection],
        source: EventSource,
        cache_bytes: int | None,
    ) -> None:
        pipeline, self._recorder = df.Pipeline(), Recorder()
        transform(pipeline | df.Read(source)) | df.ParDo(self._recorder)
        self._plan = plan(pipeline.graph())
        (root,), (self._stage,) = self._plan.sources(), self._plan.groupings()
        self._root = RangeId(root.name, 0)
        self._executor = StageExecutor(self._plan, root)
        self._store, self._router = MemoryStore(), Router(self._plan)
        spec = job_spec(JOB, "streaming", self._plan, splits_desired=1, ranges_per_grouping=2)
        self._store.open_job(spec)
        self._keys = {each.range_id: each.keys for each in spec.ranges if each.keys is not None}
        self._router.follow(Routing(number=1, keys=self._keys))
        self._sent: dict[RangeId, int] = dict.fromkeys(self._keys, 0)
        self._output_watermark_us = MIN_TIMESTAMP_US
        self._cache_bytes = cache_bytes
        self.seen_bundles: list[Bundle] = []
        self._take_over()

    def take(self, bundle: Bundle, watermark_us: int) -> None:
        """Have the bundle of a source grouped, then time goes on to a watermark of the source."""
        outputs = self._executor.process(
            bundle, StageClocks.of_source(watermark_us=self._output_watermark_us, now_us=0)
        )
        deliveries = []
        for range_id, payload in self._router.payloads(outputs.groups):
            self._sent[range_id] += 1
            channel = Channel(self._root, range_id)
            deliveries.append(Deliver(channel, self._sent[range_id], payload))
        self._commit(self._owner.deliveries.take_in(deliveries, 0))
        self._release(self._owner.state.windows.crowded)
        self._output_watermark_us = max(self._output_watermark_us, watermark_us)

    def meet(self, event: str) -> list[tuple[Any, ...]]:
        """What was emitted since the last time, after something has happened."""
        if event == "advance":
            self._advance(self._output_watermark_us)
        elif event == "take over":
            self._take_over()
        elif event == "release":
            self._release(self._owner.state.windows.owners)
        else:
            self._compact(steps=1 if event == "compact a bit" else 1_000)
        emitted, self._recorder.seen[:] = list(self._recorder.seen), []
        return emitted

    @property
    def late(self) -> list[str]:
        """What came too late so far."""
        return sorted(map(repr, self._store.read_late(JOB)))

    @property
    def left(self) -> Mapping[str, int]:
        """What the store has of it, when all is compacted."""
        self._compact(steps=1_000)
        counts = self._store.statistics(JOB)
        return {name: counts[name] for name in ("cells", "timers", "journal")}

    def _take_over(self) -> None:
        self._owner = GroupingComputation(
            JOB,
            self._plan,
            self._stage,
            self._router,
            self._store,
            cache_bytes=self._cache_bytes,
            steps=StepLimits(panes=2, compacted=1, piece_bytes=1),
        )
        note_bundles(self._owner.stage.executor, self.seen_bundles)
        taken = self._store.acquire(JOB, list(self._keys), "somebody")
        for each in taken.values():
            self._owner.take(each)
        self._advance(MIN_TIMESTAMP_US)

    def _advance(self, watermark_us: int) -> None:
        while self._owner.firing.has_due(df.Clocks(watermark_us=watermark_us, now_us=0)):
            self._commit(self._owner.firing.advance(df.Clocks(watermark_us=watermark_us, now_us=0)))
        # Or there would be more and more of them, and each is looked for in all that comes.
        input_watermark_us = self._owner.state.time.watermark_us
        windows = self._owner.state.windows
        singles = windows.singles.values() if isinstance(windows, Buffered) else ()
        assert all(window.end_us > input_watermark_us for each in singles for window in each)

    def _release(self, range_ids: Sequence[RangeId]) -> None:
        for step in self._owner.window_steps.relieve(range_ids, 0):
            self._commit(step)

    def _compact(self, steps: int) -> None:
        for _ in range(steps):
            step = self._owner.state.journal.compact()
            if step is None:
                return
            self._commit(step)
            self._owner.state.journal.evict()

    def _commit(self, step: WorkerStep | None) -> None:
        if step is not None:
            sealed = step.seal()
            assert isinstance(self._store.commit(production_of(JOB, sealed, {})), Committed)
            note_submitted(sealed)
            note_durable(sealed)


def grouped(
    transform: Callable[[Collection], Collection],
    source: EventSource,
    events: Sequence[str],
    *,
    in_columns: bool,
    cache_bytes: int | None = None,
) -> tuple[list[list[tuple[Any, ...]]], list[str], Mapping[str, int], int]:
    """What is emitted after each event, what is late, what is left, and how many bundles were emitted as columns."""
    with pytest.MonkeyPatch.context() as patch:
        if not in_columns:
            patch.setattr(SinglePanes, "of_stream", lambda *_: None)
        run = Grouped(transform, source, cache_bytes)
        left, emitted = list(events), []
        for batch in read(source):
            run.take(Bundle(batch.values, batch.timestamps_us), batch.watermark_us)
            emitted.append(run.meet(left.pop(0) if left else "advance"))
        run.take(Bundle([], []), MAX_TIMESTAMP_US)
        emitted += [run.meet(event) for event in (*left, "advance")]
        in_arrays = sum(not isinstance(each.values, list) for each in run.seen_bundles)
        return emitted, run.late, run.left, in_arrays


@pytest.mark.parametrize("as_rows", [False, True])
@given(behind_us=st.integers(-1, 1), seconds=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_what_is_kept_is_of_windows_that_have_not_fired(
    behind_us: int, seconds: list[int], *, as_rows: bool
) -> None:
    """A window that ends exactly at the input watermark of the range has fired."""
    batch = at_seconds(*seconds)
    source = EventSource([batch], as_columns=True)
    run = Grouped(aggregation(df.FixedWindows(10), ["user"], [("value", sum)]), source, None)
    (read_batch,) = read(source)
    bundle = Bundle(read_batch.values, read_batch.timestamps_us)
    outputs = run._executor.process(
        bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
    )
    input_watermark_us = (seconds[0] // 10 + 1) * 10 * SECOND_US + behind_us
    for range_id, payload in run._router.payloads(outputs.groups):
        partials = decode_partials(payload, None)
        windows = run._owner.state.windows
        assert isinstance(windows, Buffered)
        # So that it is known what partials look like that can be kept.
        windows._parted(range_id, partials, MAX_TIMESTAMP_US)
        kept, others = windows._parted(
            range_id, list(partials) if as_rows else partials, input_watermark_us
        )

        ends_us = sorted(window.end_us for _, window, _, _ in partials)
        assert sorted(each[1].end_us for each in kept) == [
            end_us for end_us in ends_us if end_us > input_watermark_us
        ]
        assert sorted(each[1].end_us for each in others) == [
            end_us for end_us in ends_us if end_us <= input_watermark_us
        ]


@given(
    batches=BATCHES,
    window_fn=WINDOW_FNS,
    keys=KEYS,
    aggregates=CHOSEN,
    events=st.lists(EVENTS, max_size=8),
    mode=st.sampled_from([df.AccumulationMode.DISCARDING, df.AccumulationMode.ACCUMULATING]),
    closing=st.sampled_from(df.FiringBehavior),
    cache_bytes=st.sampled_from([None, 0, 2_000]),
    as_columns=st.booleans(),
)
# A sum that needs more than 64 bits, out of two bundles of which each is a column.
@example(
    batches=[with_values(2**62), with_values(2**62), with_values(2**62)],
    window_fn=df.FixedWindows(10),
    keys=["user"],
    aggregates=[("value", sum)],
    events=["compact", "take over"],
    mode=df.AccumulationMode.DISCARDING,
    closing=df.FiringBehavior.FIRE_IF_NON_EMPTY,
    cache_bytes=None,
    as_columns=True,
)
# All that a range holds is in several entries of the journal, which the next owner reads.
@example(
    batches=[at_seconds(1, 11, 21, 31), at_seconds(2, 12, 22, 32)],
    window_fn=df.FixedWindows(10),
    keys=["user"],
    aggregates=[("value", sum)],
    events=["compact", "take over", "compact", "take over"],
    mode=df.AccumulationMode.DISCARDING,
    closing=df.FiringBehavior.FIRE_IF_NON_EMPTY,
    cache_bytes=None,
    as_columns=True,
)
# What no column has comes for a window of which something is kept; then there is another owner.
@example(
    batches=[at_seconds(0, 1, 2), with_values(2**63 - 1, 2**63 - 1), at_seconds(3, 11)],
    window_fn=df.FixedWindows(10),
    keys=["user"],
    aggregates=[("value", sum)],
    events=["take over", "take over", "take over"],
    mode=df.AccumulationMode.DISCARDING,
    closing=df.FiringBehavior.FIRE_IF_NON_EMPTY,
    cache_bytes=None,
    as_columns=True,
)
def test_what_is_buffered_emits_what_cells_emit(
    batches: list[Batch],
    window_fn: WindowFn,
    keys: list[str],
    aggregates: list[tuple[str, Any]],
    events: list[str],
    mode: df.AccumulationMode,
    closing: df.FiringBehavior,
    cache_bytes: int | None,
    *,
    as_columns: bool,
) -> None:
    if not is_exact(batches):
        aggregates = [each for each in aggregates if each[0] != "price"] or [("value", sum)]
    transform = aggregation(
        window_fn, keys, aggregates, accumulation_mode=mode, closing_behavior=closing
    )
    source = EventSource(batches, as_columns=as_columns)

    buffered = grouped(transform, source, events, in_columns=True, cache_bytes=cache_bytes)
    by_cell = grouped(transform, source, events, in_columns=False, cache_bytes=cache_bytes)

    for at_once, expected in zip(buffered[0], by_cell[0], strict=True):
        assert sorted(at_once, key=repr) == sorted(expected, key=repr)
        # Where the last word for a key of a table counts, it is that of the last window.
        times = [timestamp for _, timestamp, *_ in at_once]
        assert times == sorted(times)
    assert buffered[1] == by_cell[1]
    assert buffered[2] == by_cell[2] == {"cells": 0, "timers": 0, "journal": 0}


@given(
    batches=BATCHES,
    window_fn=WINDOW_FNS,
    keys=KEYS,
    events=st.lists(EVENTS.filter(lambda event: event != "release"), max_size=8),
)
def test_what_fits_into_columns_stays_there(
    batches: list[Batch], window_fn: WindowFn, keys: list[str], events: list[str]
) -> None:
    """Or the law above would be true because nothing ever is kept."""
    in_time: list[Batch] = [
        ([(event._replace(value=1), at_us) for event, at_us in rows], MIN_TIMESTAMP_US)
        for rows, _ in batches
    ]
    transform = aggregation(window_fn, keys, [("value", sum), ("value", df.MeanCombineFn())])

    emitted, _, _, in_arrays = grouped(
        transform, EventSource(in_time, as_columns=True), events, in_columns=True
    )

    is_columnar = any(emitted) and not isinstance(window_fn, df.CalendarWindows | df.Sessions)
    assert bool(in_arrays) is is_columnar


def test_records_behind_the_watermark_leave_columns_what_they_are() -> None:
    first, _ = at_seconds(1, 2)
    # The window ends at 10 s: one record of the second bundle is behind the watermark, and in time all the same.
    second, _ = at_seconds(3, 6)
    batches: list[Batch] = [(first, 5 * SECOND_US), (second, 7 * SECOND_US)]
    transform = aggregation(df.FixedWindows(10), ["user"], [("value", sum)])

    emitted, late, _, in_arrays = grouped(
        transform, EventSource(batches, as_columns=True), ["advance", "take over"], in_columns=True
    )

    assert ["result0=4" in text for panes in emitted for text, *_ in panes] == [True]
    assert (late, in_arrays) == ([], 1)


@given(
    batches=BATCHES,
    window_fn=WINDOW_FNS,
    keys=st.lists(st.sampled_from(["user", "is_test", "shard"]), min_size=1, unique=True),
    aggregates=CHOSEN,
)
def test_partials_that_fit_into_columns_are_the_same_there(
    batches: list[Batch],
    window_fn: WindowFn,
    keys: list[str],
    aggregates: list[tuple[str, Any]],
) -> None:
    pipeline, source = df.Pipeline(), EventSource(batches, as_columns=True)
    aggregation(window_fn, keys, aggregates)(pipeline | df.Read(source))
    execution = plan(pipeline.graph())
    (root,) = execution.sources()
    executor = StageExecutor(execution, root)
    example: PartialColumns | None = None
    for batch in read(source):
        bundle = Bundle(batch.values, batch.timestamps_us)
        outputs = executor.process(
            bundle, StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=0)
        )
        for partials in outputs.groups.values():
            again = example.like(partials) if example is not None and len(partials) else None
            if again is not None:
                assert repr(list(again)) == repr(list(partials))
            if isinstance(partials, PartialColumns):
                same = example is not None and example.schema == partials.schema
                assert (again is not None) is same
                example = partials

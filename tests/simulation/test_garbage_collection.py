"""What has expired is gone from the store and from the workers while the job goes on, whoever dies."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.stored.places import decode_position
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import Fault
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, TRIGGERS, Cluster, batches, row

DAY_US = 24 * 3600 * 1_000_000
#: The last records of a stream that goes on: so that what is before them has expired.
NEW_US = 100 * DAY_US
WINDOW_FNS = [
    df.FixedWindows(60),
    df.SlidingWindows(60, period=40),
    df.Sessions(30),
    df.CalendarWindows.days(time_zone="Europe/Berlin"),
]


class GoesOn(ScriptedSource):
    """After its script it has nothing, and does not end."""

    is_bounded = False

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _Reader(super().open(split, position, fence=fence))


class _Reader(df.SourceReader):
    def __init__(self, reader: df.SourceReader) -> None:
        self.reader = reader

    def read(self, max_records: int) -> df.SourceBatch:
        batch = self.reader.read(max_records)
        if batch.status is not df.SplitStatus.FINISHED:
            return batch
        return df.SourceBatch(
            values=[],
            timestamps_us=[],
            position=batch.position,
            watermark_us=NEW_US,
            status=df.SplitStatus.ACTIVE,
        )


class EndlessCluster(Cluster):
    """Runs until the store and the workers are as small as they should be."""

    def kept(self) -> tuple[int, ...]:
        """Cells, timers and productions in the store; cells and timers with the workers that are alive."""
        statistics = self.store.statistics("sim")
        groupings: list[Any] = [
            each
            for process in self.workers
            if process is not None and process.worker is not None
            for each in process.worker._computations.values()
            if isinstance(each, GroupingComputation)
        ]
        return (
            *(statistics[each] for each in ("cells", "timers", "checkpoints")),
            sum(len(each.state.cells) for each in groupings),
            sum(len(each.state.windows.timers) for each in groupings),
        )

    def has_only(self, opened: int) -> bool:
        """Whether all that is kept is so many windows of the first grouping, and what they have emitted by now."""
        cells, timers, _, cells_kept, timers_kept = self.kept()
        if self.options.state_cache_bytes is not None:
            # A worker need not have in memory what is open.
            cells_kept = max(cells_kept, cells)
        return opened <= cells <= 2 * opened and (cells, timers) == (cells_kept, timers_kept)

    def run_until_all_is_read(self, position: int) -> None:
        """And has arrived where it is grouped."""

        def is_read() -> bool:
            rows = self.store._jobs["sim"].ranges.values()
            read = [decode_position(each.position) for each in rows if each.position is not None]
            return read == [position] and self.kept()[2] == 0

        self.run_until(is_read)


def with_something_new(script: Sequence[Sequence[tuple[int, int]]]) -> GoesOn:
    """The script with a watermark that is often wrong; then, months later, one record of a key of its own."""
    newest_us, batches_sent = 0, []
    for each in script:
        times_us = [second * 1_000_000 for _, second in each]
        newest_us = max([newest_us, *times_us])
        batches_sent.append(Batch([value for value, _ in each], times_us, newest_us))
    return GoesOn([*batches_sent, Batch([7], [NEW_US], NEW_US)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@pytest.mark.parametrize("mode", df.AccumulationMode)
@costly(cells=3)
@given(
    script=batches,
    seed=st.integers(0, 2**32),
    window_fn=st.sampled_from(WINDOW_FNS),
    trigger=st.none() | st.sampled_from(TRIGGERS),
    combiner=st.sampled_from(df.TimestampCombiner),
)
def test_only_what_is_open_is_kept(
    mode: df.AccumulationMode,
    script: list[list[tuple[int, int]]],
    seed: int,
    window_fn: df.WindowFn,
    trigger: df.Trigger | None,
    combiner: df.TimestampCombiner,
) -> None:
    """Of a grouping and one that takes in its answers, also those retracted: in the end one open window each."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(with_something_new(script))
        | df.Map(lambda v: (v % 5, v))
        | df.WindowInto(
            window_fn,
            trigger=trigger,
            accumulation_mode=mode,
            allowed_lateness=timedelta(minutes=5),
            timestamp_combiner=combiner,
        )
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: ("all", pair[1]))
        | "again" >> df.GroupByKey()
        | df.Map(row)
        | df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start", "end"])
    )
    # What commits nothing any more does not find out that its part of the store has gone back.
    cluster = EndlessCluster(
        pipeline.graph(), seed, crash_rate=0.05, without=frozenset({Fault.LOST_PART})
    )
    opened = len(window_fn.assign_windows(NEW_US, (2, 7)))

    cluster.run_until_all_is_read(len(script) + 1)
    cluster.run_until(lambda: cluster.has_only(opened))

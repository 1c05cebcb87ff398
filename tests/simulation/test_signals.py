"""Signals on their way through the real master and workers, which die at random moments.

Each window gets a signal once, for all that had been read when it was sent, whoever owns it by then; and whatever is
emitted because of signals, the panes add up to the same.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.stored.places import decode_position
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import Fault
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, batches, build, row, scripted
from triggers.trigger import Elements
from windowing.timestamps import MIN_TIMESTAMP_US

pytestmark = pytest.mark.slow

COLUMNS = {"key": str, "start": float, "end": float, "values": str}
FLUSH = df.Repeatedly(df.AfterSignal("flush"))
WINDOW_FNS = [df.FixedWindows(60), df.SlidingWindows(60, period=30), df.Sessions(30)]
TRIGGERS = [
    df.AfterWatermark(early=df.AfterSignal("flush"), late=df.AfterSignal("flush")),
    FLUSH,
    df.Repeatedly(df.AfterAny(df.AfterSignal("flush"), df.AfterCount(3))),
    df.OrFinally(FLUSH, df.AfterSignal("stop")),
    df.AfterEach(df.AfterSignal("stop"), df.AfterAll(df.AfterSignal("flush"), df.AfterCount(2))),
]

#: What one split reads between two signals: values, each with its second.
phases = st.lists(
    st.tuples(*[st.lists(st.tuples(st.integers(0, 30), st.integers(0, 200)), max_size=8)] * 2),
    min_size=1,
    max_size=5,
)


class EverySecond(df.Trigger):
    """Fires on the second, the fourth, ... signal since a window was opened: to get one twice makes a difference."""

    signals = frozenset({"flush"})

    def initial_state(self) -> int:
        return 0

    def on_elements(
        self, state: int, window: df.Window, elements: Elements, clocks: df.Clocks
    ) -> int:
        return state

    def on_signal(self, state: int, window: df.Window, name: str, clocks: df.Clocks) -> int:
        return state + 1

    def should_fire(self, state: int, window: df.Window, clocks: df.Clocks) -> bool:
        return state >= 2

    def on_fire(self, state: int, window: df.Window, clocks: df.Clocks) -> df.Progress:
        return df.Progress(0)

    def next_timers(self, state: int, window: df.Window, clocks: df.Clocks) -> df.TriggerTimers:
        return df.TriggerTimers()

    def merge_states(self, states: Sequence[int], window: df.Window) -> int:
        return max(states)


class GatedSource(ScriptedSource):
    """Two splits that read up to where they are let, one record at a time; quiet from there on."""

    def __init__(self, *scripts: Sequence[Batch]) -> None:
        super().__init__(*scripts)
        self.gates = [0 for _ in scripts]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _GatedReader(self, split, super().open(split, position, fence=fence), position or 0)


class _GatedReader(SourceReader):
    def __init__(self, source: GatedSource, split: int, inner: SourceReader, position: int) -> None:
        self._source, self._split, self._inner = source, split, inner
        self._position = position

    def read(self, max_records: int) -> SourceBatch:
        if self._position >= self._source.gates[self._split]:
            return SourceBatch(
                values=[],
                timestamps_us=[],
                position=self._position,
                watermark_us=MIN_TIMESTAMP_US,
                status=SplitStatus.IDLE,
            )
        batch = self._inner.read(max_records)
        self._position = batch.position
        return batch


#: A range with three cells processes a signal in two commits.
FEW_CELLS = WorkerOptions(steps=StepLimits(cells=2))


def build_panes(p: df.Pipeline, source: Any, window_fn: df.WindowFn, trigger: df.Trigger) -> None:
    """Every pane is a row: sums in windows, and sums of these, on request."""
    panes = (
        p
        | "read" >> source
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "windows"
        >> df.WindowInto(
            window_fn, trigger=trigger, accumulation_mode=df.AccumulationMode.DISCARDING
        )
        | "sum" >> df.CombinePerKey(sum)
    )
    panes | "row" >> df.Map(row) | "panes" >> df.WriteToPostgres("panes", columns=COLUMNS)
    (
        panes
        | "whole"
        >> df.WindowInto(
            df.GlobalWindows(), trigger=FLUSH, accumulation_mode=df.AccumulationMode.DISCARDING
        )
        | "total" >> df.CombinePerKey(sum)
        | "total row" >> df.Map(row)
        | "totals" >> df.WriteToPostgres("totals", columns=COLUMNS)
    )


@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
@costly(cells=2)
@given(
    read=phases,
    window_fn=st.sampled_from(WINDOW_FNS),
    trigger=st.sampled_from([FLUSH, EverySecond()]),
    signals=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_each_window_gets_a_signal_once_for_all_that_was_read(
    crash_rate: float,
    read: list[tuple[list[tuple[int, int]], ...]],
    window_fn: df.WindowFn,
    trigger: df.Trigger,
    signals: int,
    seed: int,
) -> None:
    """Pane by pane what the direct runner emits for the same script: none is split, and none waits for the next."""
    stream = TestStream()
    for phase in read:
        stream = stream.add_elements(
            df.TimestampedValue(value, second) for split in phase for value, second in split
        )
        for _ in range(signals):
            stream = stream.send_signal("flush")
    direct = df.Pipeline(DirectRunner())
    build_panes(direct, stream, window_fn, trigger)
    expected = direct.run()

    source = GatedSource(
        *[
            [Batch([value], [second * 1_000_000]) for phase in split for value, second in phase]
            for split in zip(*read, strict=True)
        ]
    )
    pipeline = df.Pipeline(DirectRunner())
    build_panes(pipeline, df.Read(source), window_fn, trigger)
    # A store that goes back, or is restored because a part of it has, may not have the signal any more, for which
    # the test waits.
    lost = frozenset({Fault.LOST_COMMITS, Fault.LOST_PART})
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=FEW_CELLS, without=lost)
    for phase in read:
        source.gates = [gate + len(split) for gate, split in zip(source.gates, phase, strict=True)]
        cluster.run_until(lambda: has_read(cluster, source.gates))
        for _ in range(signals):
            sent = cluster.store.send_signal("sim", "flush")
        cluster.run_until(lambda up_to=sent: _has_arrived(cluster, up_to))  # type: ignore[misc]
        if crash_rate and cluster.random.random() < 0.5:
            cluster.run_until(lambda: not cluster.shared.is_down)
            cluster.start_driver()
    source.gates = [gate + 1 for gate in source.gates]
    cluster.run()

    for spec in direct.graph().tables():
        rows = Counter(tuple(each.values()) for each in expected.read_table(spec.name))
        assert rows == Counter(cluster.store.read_table(spec)), f"seed={seed}"
    assert (0, 0, 0) == _left(cluster)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_window_that_opens_after_a_crash_gets_no_signal_from_before(seed: int) -> None:
    """A signal that found no window is known to all owners of a range, though there was nothing else to commit."""
    source = GatedSource([Batch([1], [0]), Batch([1], [1_000_000])], [])
    pipeline = df.Pipeline(DirectRunner())
    build_panes(pipeline, df.Read(source), df.FixedWindows(60), FLUSH)
    cluster = Cluster(pipeline.graph(), seed, 0.0)
    cluster.run_until(lambda: cluster.master.is_at_rest)
    sent = cluster.store.send_signal("sim", "flush")
    cluster.run_until(lambda: _has_arrived(cluster, sent))
    for process in cluster.workers:
        if process is not None:
            process.die()
    cluster.start_driver()
    source.gates = [2, 0]
    cluster.run_until(lambda: has_read(cluster, source.gates))
    source.gates = [3, 1]
    cluster.run()

    # One pane at the end of the window: no signal has split it.
    (table,) = (each for each in pipeline.graph().tables() if each.name == "panes")
    assert [int(each[3]) for each in cluster.store.read_table(table)] == [2]
    job = cluster.store.read_job("sim")
    assert job is not None
    assert {row.signal_mark.number for row in job.ranges.values() if row.split is None} == {sent}


def test_nothing_is_addressed_to_a_range_that_is_retired() -> None:
    """A production that was acknowledged and not deleted when its sender learned of a merge: its next owner has it."""
    test_each_window_gets_a_signal_once_for_all_that_was_read.hypothesis.inner_test(
        crash_rate=0.1,
        read=[
            ([(1, 0), (0, 0), (1, 0), (1, 0)], [(0, 0), (28, 0), (0, 0), (1, 0), (0, 0), (0, 0)])
        ],
        window_fn=df.FixedWindows(60),
        trigger=FLUSH,
        signals=1,
        seed=238,
    )


def test_a_signal_waits_for_a_worker_that_is_never_reached() -> None:
    """What it has sent first was lost; it ends itself after a while, and another one starts."""
    test_each_window_gets_a_signal_once_for_all_that_was_read.hypothesis.inner_test(
        crash_rate=0.1,
        read=[([(1, 0), (1, 0), (3, 0), (1, 0), (0, 0)], [(1, 0), (1, 0)])],
        window_fn=df.FixedWindows(60),
        trigger=FLUSH,
        signals=1,
        seed=11967,
    )


@costly()
@given(
    batches=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    trigger=st.sampled_from(TRIGGERS),
)
def test_panes_add_up_whenever_signals_come(
    batches: list[list[tuple[int, int]]], disorder: int, seed: int, trigger: df.Trigger
) -> None:
    """Signals at random moments, and crashes: the rows are those of a run that got none, and nothing is left open."""
    source = scripted(batches, disorder)
    direct = df.Pipeline(DirectRunner())
    build(direct, source)
    expected = direct.run()
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, source, trigger)
    cluster = Cluster(pipeline.graph(), seed, crash_rate=0.1, options=FEW_CELLS)

    def send_now_and_then() -> bool:
        if cluster.random.random() < 0.1:
            cluster.store.send_signal("sim", cluster.random.choice(sorted(trigger.signals)))
        return cluster.master.is_done

    cluster.run_until(send_now_and_then)
    cluster.run()

    for spec in direct.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == set(cluster.store.read_table(spec)), f"seed={seed}"
    assert (0, 0, 0) == _left(cluster)


def has_read(cluster: Cluster, gates: Sequence[int]) -> bool:
    """Whether every split has committed all that it is let."""
    job = cluster.store.read_job("sim")
    assert job is not None
    return all(
        gates[range_id.index] == (0 if found.position is None else decode_position(found.position))
        for range_id, found in job.ranges.items()
        if found.split is not None
    )


def _has_arrived(cluster: Cluster, number: int) -> bool:
    """Whether everybody has processed a signal, and all that this caused."""
    master = cluster.master
    return master.latest_signal >= number and not master._signals.news.signals


def _left(cluster: Cluster) -> tuple[int, ...]:
    statistics = cluster.store.statistics("sim")
    return tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))

"""Percentile watermarks over the real master and workers, some of which die: quick panes, and the same answers."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Committed
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

COLUMNS = {"stage": str, "key": str, "start": float, "index": int, "timing": str, "values": str}
TIMINGS = ["EARLY", "ON_TIME", "LATE"]


class WatchfulStore(MemoryStore):
    """Sees to it that no percentile watermark goes back, and remembers which were ahead of the watermark."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0

    def commit(self, production: Production) -> CommitOutcome:
        before = {each: self._jobs["sim"].ranges[each] for each in production.percentiles_us}
        outcome = super().commit(production)
        if not isinstance(outcome, Committed):
            return outcome
        for range_id, row in before.items():
            after = self._jobs["sim"].ranges[range_id]
            assert after.percentile_us is not None
            assert after.watermark_us is not None
            assert row.percentile_us is None or row.percentile_us <= after.percentile_us
            assert after.percentile_us >= after.watermark_us
            self.ahead += after.percentile_us > after.watermark_us
        return outcome


class SenderProgress(df.DoFn):
    """A pane as a row that nothing overwrites."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def process(
        self,
        element: tuple[Any, Any],
        /,
        window: df.Window = df.DoFn.WindowParam,
        pane: df.PaneInfo = df.DoFn.PaneParam,
    ) -> Any:
        key, values = element
        yield {
            "stage": self.stage,
            "key": str(key),
            "start": window.start.timestamp(),
            "index": pane.index,
            "timing": pane.timing.name,
            "values": ",".join(map(str, sorted(values))),
        }


def build(p: df.Pipeline, source: df.Source, percentile: float) -> None:
    """Two groupings in a chain, each following the percentile; the second regroups what the first has newly emitted."""
    first = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 5, v))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=timedelta(hours=2),
            watermark_percentile=percentile,
        )
        | "first" >> df.GroupByKey()
    )
    second = (
        first
        | "flatten" >> df.FlatMap(lambda pair: [(pair[0] % 2, value) for value in pair[1]])
        | "second" >> df.GroupByKey()
    )
    both = (
        first | "note first" >> df.ParDo(SenderProgress("first")),
        second | "note second" >> df.ParDo(SenderProgress("second")),
    )
    both | df.Flatten() | "panes" >> df.WriteToPostgres("panes", columns=COLUMNS)


@pytest.mark.slow
@costly()
@given(
    batches=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    crash_rate=st.sampled_from([0.0, 0.1]),
    percentile=st.sampled_from([20, 50, 80]),
)
def test_panes_are_in_order_and_add_up(
    batches: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    crash_rate: float,
    percentile: float,
) -> None:
    """Each record is in one pane of each stage, no window fires on time twice, and nothing is left open."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted(batches, disorder), percentile)
    cluster = Cluster(pipeline.graph(), seed, crash_rate, WatchfulStore())
    cluster.run()
    (table,) = pipeline.graph().tables()
    emitted: dict[str, list[int]] = {"first": [], "second": []}
    windows: dict[Any, list[tuple[int, int]]] = {}
    for stage, key, start, index, timing, values in cluster.store.read_table(table):
        emitted[stage] += map(int, values.split(",")) if values else []
        windows.setdefault((stage, key, start), []).append((index, TIMINGS.index(timing)))
    sent = sorted(value for batch in batches for value, _ in batch)

    assert sent == sorted(emitted["first"]) == sorted(emitted["second"]), f"seed={seed}"
    for panes in windows.values():
        timings = [timing for _, timing in sorted(panes)]
        assert sorted(timings) == timings, f"seed={seed}"
        assert timings.count(TIMINGS.index("ON_TIME")) <= 1
        assert [index for index, _ in sorted(panes)] == list(range(len(panes)))
    assert cluster.store.read_late("sim") == []
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


@pytest.mark.slow
def test_it_is_ahead_of_the_watermark() -> None:
    """A source that promises little: its watermark stays ten minutes behind, that of the median does not."""
    pipeline = df.Pipeline(DirectRunner())
    ticks = [[(second, second)] for second in range(300)]
    build(pipeline, scripted(ticks, 600), 50)
    store = WatchfulStore()
    cluster = Cluster(pipeline.graph(), 1, 0.05, store)
    cluster.run()

    assert store.ahead > 20

"""Early, on time and late over the real master and workers: right in a backlog, and whoever dies."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from tests.effort import costly
from tests.simulation.test_stateful_do_fns import never_late
from tests.simulation.test_worker_crashes import Cluster, batches

#: From 1970, where the records are, to 2020.
FIFTY_YEARS_MS = 50 * 365 * 24 * 3600 * 1_000
TRIGGERS = [
    df.AfterWatermark(early=df.AfterProcessingTime(0.2), late=df.AfterProcessingTime(0.2)),
    df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
    df.AfterWatermark(early=df.AtPeriod(1)),
    df.AfterWatermark(),
]
COLUMNS = {"key": str, "start": float, "index": int, "timing": str}


def label(
    pair: tuple[int, Any],
    window: df.Window = df.DoFn.WindowParam,
    pane: df.PaneInfo = df.DoFn.PaneParam,
) -> dict[str, Any]:
    """The `PaneInfo` of a pane."""
    return {
        "key": str(pair[0]),
        "start": window.start.timestamp(),
        "index": pane.index,
        "timing": pane.timing.value,
    }


@costly()
@given(script=batches, seed=st.integers(0, 2**32), trigger=st.sampled_from(TRIGGERS))
def test_a_backlog_of_fifty_years_ago_is_in_time(
    script: list[list[tuple[int, int]]], seed: int, trigger: df.Trigger
) -> None:
    """Each window is early as often as its trigger fires, then on time once; and workers that die repeat no pane."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(never_late(script))
        | df.Map(lambda v: (v % 5, v))
        | df.WindowInto(
            df.FixedWindows(60),
            trigger=trigger,
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=600,
        )
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(label)
        | df.WriteToPostgres("labels", columns=COLUMNS)
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate=0.1)
    cluster.clock.advance(FIFTY_YEARS_MS)
    cluster.run()
    (table,) = pipeline.graph().tables()
    emitted: dict[Any, list[tuple[int, str]]] = {}
    for key, start, index, timing in cluster.store.read_table(table):
        emitted.setdefault((key, start), []).append((index, timing))

    assert set(emitted) == {(str(v % 5), at // 60 * 60) for batch in script for v, at in batch}
    for panes in emitted.values():
        expected = ["early"] * (len(panes) - 1) + ["on_time"]
        assert list(enumerate(expected)) == sorted(panes), f"seed={seed}"

"""A stream whose source follows a wrong record: what is right is not late, whatever dies."""

import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator.cluster import JOB
from tests.simulation.test_worker_crashes import Cluster

pytestmark = pytest.mark.slow

US = 1_000_000
#: In the year 2200.
FAR_US = 7_258_118_400 * US


def followed(far_at: int) -> ScriptedSource:
    """A record each minute, and one that is far ahead; the watermark follows the newest of all from there on."""
    script, newest_us = [], 0
    for minute in range(40):
        time_us = FAR_US if minute == far_at else minute * 60 * US
        newest_us = max(newest_us, time_us)
        script.append(Batch([minute], [time_us], newest_us))
    return ScriptedSource(script)


@pytest.mark.parametrize("crash_rate", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_record_that_is_right_is_late(seed: int, crash_rate: float) -> None:
    far_at = 7 * seed
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(followed(far_at))
        | "pair" >> df.Map(lambda minute: ("all", minute))
        | "windows" >> df.WindowInto(df.FixedWindows(600))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns={"total": int})
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate)
    cluster.run()

    (table,) = pipeline.graph().tables()
    rows = cluster.store.read_table(table)
    assert sum(total for (total,) in rows) == sum(range(40)) - far_at
    assert list(cluster.store.read_late(JOB)) == []
    [letter] = cluster.store.read_dead_letters(JOB)
    assert "ahead of the clock" in letter["error"]

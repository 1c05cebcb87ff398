"""Late records over the real master and workers, some of which die: rows that can be counted, and replayed."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.stored.letters import stored_late_mapping
from runners.testing.simulator import Fault, simulate
from tests.effort import costly
from tests.simulation.test_worker_crashes import (
    COLUMNS,
    Cluster,
    batches,
    build_counts,
    row,
    scripted,
)

#: Drivers die often, and workers.
OFTEN_DEAD = {
    Fault.DRIVER_CRASH: 0.1,
    Fault.CRASH: 0.02,
    Fault.SLOW_COMMIT: 0.05,
    Fault.DUPLICATE: 0.1,
    Fault.LOSS: 0.05,
}


def counts(rows: Any) -> Counter[Any]:
    """Records by key and minute, of rows as the table has them."""
    return Counter({(key, start): int(count) for key, start, _, count in rows})


@costly()
@given(batches=batches, seed=st.integers(0, 2**32))
def test_what_was_too_late_can_be_replayed(batches: list[list[tuple[int, int]]], seed: int) -> None:
    """The job's rows and those of a replay add up to every record, by key and minute."""
    pipeline, replay = df.Pipeline(DirectRunner()), df.Pipeline(DirectRunner())
    build_counts(pipeline, scripted(batches, 0))
    cluster = Cluster(pipeline.graph(), seed, crash_rate=0.1)
    cluster.run()
    late = [stored_late_mapping(each) for each in cluster.store.read_late("sim")]
    (
        replay
        | df.Create([each["element"] for each in late])
        | df.WindowInto(df.FixedWindows(60))
        | df.CombinePerKey(sum)
        | df.Map(row)
        | df.WriteToPostgres("counts", columns=COLUMNS, key=["key", "start"])
    )
    replayed = [tuple(each.values()) for each in replay.run().read_table("counts")]
    (table,) = pipeline.graph().tables()
    everything = Counter(
        (str(value % 5), at // 60 * 60) for batch in batches for value, at in batch
    )

    assert everything == counts(cluster.store.read_table(table)) + counts(replayed), f"seed={seed}"
    assert Counter(each["transform"] for each in late) == cluster.store.read_late_counts("sim")


# Seeds with which a worker of a former driver takes a split over that a worker of the present one has polled in vain.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [129, 575, 1300])
def test_what_a_worker_of_a_former_driver_takes_over_is_as_idle_as_before(seed: int) -> None:
    """The driver learns of it when its own worker is fenced, or the lease of that one is over."""
    simulate("late", seeds=[seed], workers=1, steps=1, faults=OFTEN_DEAD)


# Seeds with which a window opened once more whose owner and driver had died while only some of what was due had fired.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 55, 130, 349, 380, 420, 452, 464, 500])
def test_no_window_opens_once_more_after_some_of_what_was_due_has_fired(seed: int) -> None:
    """Nothing is left of it, so the next owner must know by which watermark it has fired (ADR 0110)."""
    simulate("late", seeds=[seed], workers=1, steps=1, faults=OFTEN_DEAD)

"""Splits and merges that a driver did not live to hear of."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.ids import Fence, RangeId
from runners.millwheel.key_range import KEY_SPACE_END, KeyRange, even_ranges
from runners.millwheel.production import Production, Reshape
from runners.millwheel.store.port import Committed, JobRow, JobSpec
from runners.testing.simulator import ALL_FAULTS, NO_FAULTS, Fault
from runners.testing.simulator.cluster import JOB, Cluster
from runners.testing.simulator.store import SimulatedStore
from tests.simulation.test_worker_crashes import build_counts, scripted

FIRST, SECOND, THIRD, BORN = (RangeId("count", index) for index in range(4))
KEYS = even_ranges(3)
MERGED = {FIRST: KeyRange(0, KEYS[1].high), SECOND: None}
AT = KEYS[0].high // 3
SPLIT = {FIRST: KeyRange(0, AT), BORN: KeyRange(AT, KEYS[0].high)}


@pytest.mark.parametrize("keys", [MERGED, SPLIT], ids=["merge", "split"])
@pytest.mark.parametrize(
    "faults", [NO_FAULTS, ALL_FAULTS - {Fault.SPLIT, Fault.MERGE}], ids=["calm", "faults"]
)
@given(seed=st.integers(0, 2**32))
def test_a_new_driver_finds_out(keys: Any, faults: frozenset[Fault], seed: int) -> None:
    """It has looked into the store before an owner did what the one before had asked for, and deals the ranges out."""
    pipeline = df.Pipeline(DirectRunner())
    build_counts(pipeline, scripted([[(n, 7 * n), (n + 1, 7 * n)] for n in range(30)], 0))
    cluster = Cluster(pipeline.graph(), seed, faults=faults)
    assert FIRST in {each.range_id for each in cluster.spec.ranges}
    cluster.run_until(lambda: cluster.master.statistics().records_read > 10)
    assume(not cluster.master.is_done)
    stale = cluster.store.read_job(JOB)
    assert stale is not None
    reshaped_by_an_owner(cluster, keys)

    def open_job(store: SimulatedStore, spec: JobSpec) -> JobRow:
        del store, spec
        return stale

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedStore, "open_job", open_job)
        cluster.start_driver()
    cluster.run()
    (table,) = pipeline.graph().tables()

    assert sum(int(each[3]) for each in cluster.store.read_table(table)) == 60, f"seed={seed}"
    job = cluster.store.read_job(JOB)
    assert job is not None
    assert all(row.tied_to is None for row in job.ranges.values())
    covered = [row.keys for each, row in job.ranges.items() if each.computation == "count"]
    width = sum(each.high - each.low for each in covered if each is not None)
    assert width == KEY_SPACE_END


def reshaped_by_an_owner(cluster: Cluster, keys: Any) -> None:
    known = [each for each in keys if each != BORN]
    taken = cluster.store.acquire(JOB, known, "an owner of old")
    fences = [
        Fence(range_id=each, token=row.row.token, bundle=row.row.bundle + 1)
        for each, row in taken.items()
    ]
    production = Production(job=JOB, fences=fences, reshape=Reshape(keys=keys, tied_to=FIRST))
    before = cluster.ledger.before(production)
    assert cluster.store.commit(production) == Committed()
    cluster.ledger.applied(production, before)

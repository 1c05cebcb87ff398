"""Many keys behind a small cache: what is in memory stays within its bytes, and every key is right."""

from typing import Any

import pytest

import dataflow as df
from benchmarks.scale.load import Rounds
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.system_clock import SystemClock
from runners.testing.local_network import LocalNetwork
from tests.simulation.test_cell_cache import IN_CELLS

pytestmark = pytest.mark.slow

KEYS, ROUNDS, VALUE_BYTES = 20_000, 2, 50
CACHE_BYTES = 500_000
ROUNDS_MAX = 10_000


def test_many_keys_stay_within_the_bytes_of_the_cache() -> None:
    p = df.Pipeline()
    (
        p
        | "read" >> df.Read(Rounds(keys=KEYS, rounds=ROUNDS, value_bytes=VALUE_BYTES, parts=1))
        | "in cells" >> IN_CELLS
        | "buffer" >> df.GroupByKey()
        | "size" >> df.Map(lambda pair: {"key": pair[0], "count": len(pair[1])})
        | df.WriteToPostgres("sizes", columns={"key": int, "count": int})
    )
    execution, store, clock, network = plan(p.graph()), MemoryStore(), SystemClock(), LocalNetwork()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=4)
    master = Master(store.open_job(spec), execution, 1, network.endpoint("master"), clock)
    options = WorkerOptions(state_cache_bytes=CACHE_BYTES)
    worker_spec = WorkerSpec(job="job", slot=0, worker="w", master="master", options=options)
    worker = Worker(worker_spec, execution, store, network.endpoint("w"), clock)
    worker.start()
    most: dict[str, Any] = {"bytes": 0, "cells": 0}
    for _ in range(ROUNDS_MAX):
        master.step()
        worker.step()
        counts = master.statistics().cell_cache
        most["bytes"] = max(most["bytes"], counts.bytes_buffered)
        most["cells"] = max(most["cells"], store.statistics("job")["cells"])
        if master.is_done:
            break

    assert master.is_done
    (table,) = p.graph().tables()
    assert sorted(store.read_table(table)) == [(key, ROUNDS) for key in range(KEYS)]
    assert 0 < most["bytes"] <= CACHE_BYTES
    # All of them had state at once, of which the cache had room for some in a hundred.
    assert most["cells"] == KEYS
    assert counts.evictions > KEYS

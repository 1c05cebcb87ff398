"""A master of many workers that all start at once: each is sent once who has what, and each is given its ranges."""

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import Assign, Ready, Register, Routes, decode, encode
from runners.testing.local_network import LocalNetwork, LocalTransport
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

WORKERS = 40


def received(endpoints: list[LocalTransport]) -> list[list[object]]:
    """What has come for each worker."""
    return [[decode(blob) for blob in each.receive(0)] for each in endpoints]


def test_many_that_start_together_learn_of_each_other_once() -> None:
    p = df.Pipeline()
    p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
    execution, store, network = plan(p.graph()), MemoryStore(), LocalNetwork()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=WORKERS)
    job = store.open_job(spec)
    master = Master(job, execution, WORKERS, network.endpoint("master"), ManualClock())
    endpoints = [network.endpoint(f"w{slot}") for slot in range(WORKERS)]
    for slot, each in enumerate(endpoints):
        each.send("master", encode(Register(slot=slot, worker=f"w{slot}", address=f"w{slot}")))
    master.step()
    asked = received(endpoints)

    assert all(sum(isinstance(one, Routes) for one in each) == 1 for each in asked)
    given = [[one for one in each if isinstance(one, Assign)] for each in asked]
    assert {len(each) for each in given} == {1}
    assert sorted(range_id for (one,) in given for range_id in one.ranges) == sorted(job.ranges)

    for slot, ((one,), each) in enumerate(zip(given, endpoints, strict=True)):
        ready = Ready(slot=slot, worker=f"w{slot}", ranges=one.ranges, shapes={})
        each.send("master", encode(ready))
    master.step()
    for messages in received(endpoints):
        (routes,) = (one for one in messages if isinstance(one, Routes))
        assert routes.addresses == {
            range_id: f"w{slot}" for slot, (one,) in enumerate(given) for range_id in one.ranges
        }

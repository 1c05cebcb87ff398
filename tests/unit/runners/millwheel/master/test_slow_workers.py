"""Workers whose steps last longer than a lease: the job gets on, however long a step is.

What is simulated elsewhere has steps of no duration.  On a machine with too much to do, or with user code that takes
its time, a worker is silent for as long as its step lasts; it loses its ranges, has its commit refused, and ends.
"""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.master.slots import LEASE_TTL_MS
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import Assign, Died, Ready, Register, Report, decode, encode
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

TICK_MS, RESTART_MS = 500, 3_000
SLOW = RangeId("group", 0)
STEPS = 3


@attrs.define
class Store:
    """Who owns the slow range, and how many of its steps are committed."""

    owner: str = ""
    committed: int = 0


class Slot:
    """One worker after the other in one slot; each is as slow as the others at the slow range, and quick otherwise.

    Args:
        number: of the slot.
        network: with the master.
        store: shared by all.
        step_ms: how long a step of the slow range lasts.
    """

    def __init__(self, number: int, network: LocalNetwork, store: Store, step_ms: int) -> None:
        self._number, self._network, self._store, self._step_ms = number, network, store, step_ms
        self._born, self._starts_ms = 0, 0
        self._busy_until_ms: int | None = None
        self._name = ""

    def step(self, now_ms: int) -> None:
        """What the worker does at this moment."""
        if not self._name:
            if now_ms >= self._starts_ms:
                self._start()
            return
        if self._busy_until_ms is not None:
            if now_ms < self._busy_until_ms:
                return
            self._busy_until_ms = None
            if self._store.owner != self._name:
                self._end(now_ms)
                return
            self._store.committed += 1
        for blob in self._endpoint.receive(0):
            message = decode(blob)
            if isinstance(message, Assign):
                self._take(message)
        if self._store.owner == self._name and self._store.committed < STEPS:
            self._busy_until_ms = now_ms + self._step_ms
        self._report()

    def _start(self) -> None:
        self._born += 1
        self._name = f"w{self._number}.{self._born}"
        self._endpoint = self._network.endpoint(self._name)
        self._send(Register(slot=self._number, worker=self._name, address=self._name))

    def _take(self, message: Assign) -> None:
        if SLOW in message.ranges:
            self._store.owner = self._name
        self._send(Ready(slot=self._number, worker=self._name, ranges=message.ranges, shapes={}))

    def _report(self) -> None:
        report = Report(
            slot=self._number,
            worker=self._name,
            watermarks_us={},
            idle=frozenset(),
            signals={},
            percentiles_us={},
            progress={},
            polls={},
            routings={},
            commits={},
            is_quiet=False,
            is_paused=False,
            counts=Counts(),
            as_of_ms=0,
        )
        self._send(report)

    def _end(self, now_ms: int) -> None:
        """Its commit was refused: the task beside the process reports that, and Spark starts the next one."""
        self._send(Died(slot=self._number, at=(), reason="fenced", is_silent=False))
        self._name, self._starts_ms = "", now_ms + RESTART_MS

    def _send(self, message: object) -> None:
        self._endpoint.send("master", encode(message))


def lasts_ms(step_ms: int, workers: int, at_most_ms: int) -> int:
    """How long it takes until all steps are committed."""
    p = df.Pipeline()
    p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
    execution, network, clock = plan(p.graph()), LocalNetwork(), ManualClock()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=workers)
    job, store = MemoryStore().open_job(spec), Store()
    master = Master(job, execution, workers, network.endpoint("master"), clock)
    slots = [Slot(number, network, store, step_ms) for number in range(workers)]
    began_ms = clock.monotonic_ms()
    while store.committed < STEPS:
        assert (passed_ms := clock.monotonic_ms() - began_ms) <= at_most_ms, passed_ms
        master.step()
        for slot in slots:
            slot.step(clock.monotonic_ms())
        clock.advance(TICK_MS)
    return clock.monotonic_ms() - began_ms


@pytest.mark.slow
@given(step_ms=st.integers(0, 20 * LEASE_TTL_MS), workers=st.integers(1, 4))
def test_the_job_gets_on_however_long_a_step_lasts(step_ms: int, workers: int) -> None:
    """Leases double until a step is within one; a worker in each slot may have to find out how long that is."""
    doublings = (step_ms // LEASE_TTL_MS).bit_length() + 1
    lasts_ms(step_ms, workers, STEPS * step_ms + workers * doublings * (step_ms + 60_000))


@pytest.mark.parametrize("step_ms", [LEASE_TTL_MS + TICK_MS, 15_000])
def test_a_step_that_is_a_little_longer_than_a_lease(step_ms: int) -> None:
    """A machine with too much to do takes so long."""
    assert lasts_ms(step_ms, 2, 120_000) >= STEPS * step_ms

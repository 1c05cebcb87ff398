"""WorkerProcess: one worker with its clock, and whether the process that it stands for is alive."""

from collections.abc import Callable
from typing import Protocol

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker import Worker
from runners.testing.simulator.clock import SkewedClock
from runners.testing.simulator.fault import SyncPoint
from runners.testing.simulator.memory import check_memory, retired_of
from runners.testing.simulator.network import VirtualNetwork
from runners.testing.simulator.store import SimulatedStore


class Steps(Protocol):
    """A worker, or something around one."""

    def step(self) -> object:
        """Run one round; true if there was something to do."""


@attrs.define(eq=False)
class WorkerProcess:
    """A simulated process.

    Attributes:
        network: that of the driver which started it.
        store: its connection to the store.
        sync: called at the points at which it can die or be paused.
        worker: None while it is being made.
        stepper: what is asked to do its next step; the worker, unless a test has put something around it
            (`Cluster.start_worker`).
        is_paused: it is stopped inside a step.
        stepped_ms: when it last ended a step.
        stepped_before_ms: and the one before: what that has sent may have waited for the commit of its round.
    """

    name: str
    slot: int
    clock: SkewedClock
    network: VirtualNetwork
    store: SimulatedStore
    sync: Callable[[SyncPoint], None]
    worker: Worker | None = None
    stepper: Steps | None = None
    is_dead: bool = False
    is_paused: bool = False
    stepped_ms: int = 0
    stepped_before_ms: int = 0
    _owned: frozenset[RangeId] = frozenset()
    _taken_retired: frozenset[RangeId] = frozenset()

    @property
    def can_step(self) -> bool:
        """Whether it can do something now."""
        return not self.is_dead and not self.is_paused and self.stepper is not None

    def die(self) -> None:
        """End it; what it has sent still arrives."""
        self.is_dead = True
        self.network.cut(self.name)

    def check_memory(self, store: MemoryStore, job: str, *, at_rest: bool = False) -> None:
        """Check what its worker has in memory when its ranges have changed; `check_memory` in `memory`.

        Args:
            store: what is durable.
            job: its name.
            at_rest: whether to check it in any case.
        """
        assert self.worker is not None
        if self.store.is_another:
            return  # it can commit nothing, and the tokens that it has are given out again
        owned = frozenset(self.worker._ranges)  # noqa: SLF001 - the simulator sees everything
        if at_rest or owned != self._owned:
            taken = retired_of(owned - self._owned, store, job)
            self._taken_retired = (self._taken_retired | taken) & owned
            self._owned = owned
            check_memory(self.worker, store, job, self._taken_retired)

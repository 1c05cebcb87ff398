"""The simulator: a pipeline on the real exactly-once core, in one thread, with every fault by seed.

``from runners.testing.simulator import simulate``; `docs/how-to/break-your-pipeline.md` shows how.
"""

from runners.testing.simulator.cluster import SimulatedCluster
from runners.testing.simulator.errors import SimulationError
from runners.testing.simulator.fault import ALL_FAULTS, NO_FAULTS, Fault, SyncPoint
from runners.testing.simulator.simulate import Summary, simulate

__all__ = [
    "ALL_FAULTS",
    "NO_FAULTS",
    "Fault",
    "SimulatedCluster",
    "SimulationError",
    "Summary",
    "SyncPoint",
    "simulate",
]

"""Dice: everything in a run that is left to chance, out of one seed."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random

from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits
from runners.testing.simulator.clock import Drift
from runners.testing.simulator.fault import Fault

#: How often a fault strikes where it can; a run draws one of them.
_RATES = {
    Fault.CRASH: (0.002, 0.01, 0.03),
    Fault.PAUSE: (0.002, 0.01),
    Fault.ZOMBIE: (0.005, 0.02),
    Fault.DRIVER_CRASH: (0.002, 0.01),
    Fault.LOST_REPLY: (0.02, 0.1),
    Fault.LATE_COMMIT: (0.02, 0.1),
    Fault.OUTAGE: (0.003, 0.01),
    Fault.LOST_COMMITS: (0.01, 0.05),
    Fault.LOST_PART: (0.01, 0.05),
    Fault.DELAY: (1.0,),
    Fault.LOSS: (0.003, 0.02),
    Fault.DUPLICATE: (0.02, 0.1),
    Fault.PARTITION: (0.003, 0.01),
    Fault.MOVE: (0.01, 0.05),
    Fault.SPLIT: (0.01, 0.05),
    Fault.MERGE: (0.01, 0.05),
    Fault.CLOCK_JUMP: (0.01,),
    Fault.CLOCK_DRIFT: (1.0,),
    Fault.ONE_WAY: (0.003, 0.01),
    Fault.HALF_OPEN: (0.003, 0.01),
    Fault.STORE_CUT: (0.003, 0.01),
    Fault.SLOW_COMMIT: (0.02, 0.1),
    Fault.REFUSED: (0.01, 0.05),
    Fault.CUT_COMMIT: (0.02, 0.1),
    Fault.SIZE_LIMIT: (1.0,),
}
#: How much state a worker keeps in memory: all, nothing, or that of a few windows; a run draws one of them.
CACHES_BYTES = (None, 0, 4_000)


def tiny_steps(count: int, piece_bytes: int = 150) -> StepLimits:
    """Steps of so many records, deliveries, timers, cells and panes each.

    Args:
        count: how many of each.
        piece_bytes: how large a piece of a journal or of a delivery may be; a step may write four times as much.
    """
    return StepLimits(
        records=count,
        column_records=count,
        deliveries=count,
        timers=count,
        cells=count,
        panes=count,
        compacted=count,
        nbytes=4 * piece_bytes,
        piece_bytes=piece_bytes,
        first=count,
    )


#: How much a worker does in one step: what it does in a running job, or hardly anything; a run draws one of them.
STEPS = (
    STEP_LIMITS,
    STEP_LIMITS,
    tiny_steps(1),
    STEP_LIMITS,
    STEP_LIMITS,
    tiny_steps(2, piece_bytes=500),
)
#: How large a value may be, in bytes, where that is limited: less than some pipelines need, or than a piece has.
VALUES_BYTES_MAX = (150, 300, 1_000)
#: How fast the clocks of a process run, and where its monotonic one begins.
_RATES_OF_CLOCKS, _ORIGINS_MS = (0.5, 0.95, 1.0, 1.05, 2.0), (60_000, 86_400_000)
#: How long a commit is on its way while its process does something else; 0: it arrives at once; None: when the process
#: waits for it, and never if that dies before.
_TRAVELS_MS = (0, None, 1, 10, 60)
#: Kinds of which there is no end: how often they strike does not matter.
_ENDLESS = (Fault.DUPLICATE, Fault.CLOCK_DRIFT)
#: Faults that came later, with chance of their own, so that seeds without them do what they did before; and in what
#: share of the runs each can strike.
_LATER = {
    Fault.LOST_COMMITS: 0.3,
    Fault.LOST_PART: 0.2,
    Fault.CUT_COMMIT: 0.3,
    Fault.SIZE_LIMIT: 0.3,
}
#: Faults of one run, at most; then the job must come to its end.
FAULTS_MAX = 25
#: Faults of one run for which it is configured how often they strike, at most.
DENSE_FAULTS_MAX = 100


class Dice:
    """Decides, and counts what struck.

    Each run has only some of the kinds that are allowed, and another rate for each: a run with all of them at once
    would hardly ever get far enough to be interesting.

    Args:
        seed: of the run; the same seed decides the same.
        faults: the kinds that are allowed; or how often each of them strikes where it can, in every run.
    """

    def __init__(self, seed: int, faults: Collection[Fault]) -> None:
        self.random = Random(f"schedule {seed}")  # noqa: S311 - to be repeated, not to be secret
        self._strikes = Random(f"faults {seed}")  # noqa: S311 - a seed that can be used again is the point
        self.rates: dict[Fault, float] = {}
        self._later = {
            fault: Random(_name(fault, seed))  # noqa: S311 - a seed that can be used again is the point
            for fault in _LATER
        }
        self._faults_max = FAULTS_MAX
        #: Whether it is configured how often faults strike, in every run.
        self.is_dense = isinstance(faults, Mapping)
        if isinstance(faults, Mapping):
            self.rates.update(faults)
            self._faults_max = DENSE_FAULTS_MAX
        else:
            self._draw(faults)
        self.struck: Counter[Fault] = Counter()
        self.is_healed = not self.rates
        #: How much state each worker keeps in memory.
        self.cache_bytes = Random(f"cache {seed}").choice(CACHES_BYTES)  # noqa: S311 - a seed that can be used again is the point
        #: How much each worker does in one step.
        self.steps = Random(f"steps {seed}").choice(STEPS)  # noqa: S311 - a seed that can be used again is the point
        self._under_way = Random(f"under way {seed}")  # noqa: S311 - a seed that can be used again is the point
        self._latency_ms_max = self._strikes.choice([5, 50, 400])

    def _draw(self, faults: Collection[Fault]) -> None:
        for fault in sorted(set(faults) - _LATER.keys()):
            if self._strikes.random() < 0.5:
                self.rates[fault] = self._strikes.choice(_RATES[fault])
        for fault in sorted(_LATER.keys() & faults):
            chance = self._later[fault]
            if chance.random() < _LATER[fault]:
                self.rates[fault] = chance.choice(_RATES[fault])

    def strikes(self, fault: Fault) -> bool:
        """Whether a fault strikes here and now."""
        rate = self.rates.get(fault)
        chance = self._later.get(fault, self._strikes)
        if rate is None or self.is_healed or chance.random() >= rate:
            return False
        self.struck[fault] += 1
        if self.struck.total() - sum(map(self.struck.__getitem__, _ENDLESS)) >= self._faults_max:
            self.is_healed = True
        return True

    def latency_ms(self) -> int:
        """How long a message takes."""
        if Fault.DELAY not in self.rates or self.is_healed:
            return 0
        return self._strikes.randint(0, self._latency_ms_max)

    def duration_ms(self) -> int:
        """How long a fault lasts: mostly short, sometimes past every timeout."""
        return self._strikes.choice([5, 100, 1_000, 3_000, 20_000])

    def travel_ms(self) -> int | None:
        """How long a commit is on its way; see `_TRAVELS_MS`."""
        return self._under_way.choice(_TRAVELS_MS)

    def is_answered(self) -> bool:
        """Whether the answer to a commit is there when its process looks for it."""
        return self._under_way.random() < 0.5

    def drift(self) -> Drift:
        """How the clock of a new process drifts; it stays when nothing fails any more."""
        if Fault.CLOCK_DRIFT not in self.rates:
            return Drift()
        self.struck[Fault.CLOCK_DRIFT] += 1
        return Drift(self._strikes.choice(_ORIGINS_MS), self._strikes.choice(_RATES_OF_CLOCKS))

    def value_bytes_max(self) -> int | None:
        """How large a value may be at first; None: as large as in a running job."""
        if Fault.SIZE_LIMIT not in self.rates:
            return None
        return self._later[Fault.SIZE_LIMIT].choice(VALUES_BYTES_MAX)

    def one_of(self, names: Sequence[str]) -> str:
        """One of the names, by chance."""
        return self._strikes.choice(names)

    def is_heads(self) -> bool:
        """One of two ways in which a fault can go."""
        return self._strikes.random() < 0.5


def _name(fault: Fault, seed: int) -> str:
    # The first of them has an older name.
    return f"{'losses' if fault is Fault.LOST_COMMITS else fault} {seed}"

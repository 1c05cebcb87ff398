"""SimulatedCluster: one driver and its workers, the real ones, in one thread over a virtual clock, network and store.

Everything that happens is decided by a seed.  A process that is paused inside a step stands on the stack while the
others go on above it, so it can be stopped anywhere and go on later as if nothing had happened.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from random import Random
from typing import Any, TypeVar

import attrs

from dataflow.errors import TransformError
from dataflow.graph import PipelineGraph
from dataflow.serialization import dumps_code, loads_code
from dataflow.source import SourceBatch
from runners.core.ground.lineage import Lineage
from runners.core.stages.committed_positions import TRIES_AT_END
from runners.core.stages.plan import ExecutionPlan, plan
from runners.errors import LostCommitsError, StoreError, StoreRestartedError, WorkerStoppedError
from runners.millwheel.control.discovery import SplitDiscovery
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.model.production import Production
from runners.millwheel.model.requests import Request
from runners.millwheel.store import port
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobSpec
from runners.millwheel.versions.job_versions import (
    OpenedJob,
    Sinks,
    Update,
    open_version,
    plan_version,
)
from runners.millwheel.versions.update import Fate, UpdatePlan
from runners.millwheel.wire.messages import Acknowledge, Deliver
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.tracing import SpanMaker
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.relay.relays import Relays
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.backups import Backups
from runners.testing.simulator.balancer import balance
from runners.testing.simulator.clock import SkewedClock
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.driver import Driver
from runners.testing.simulator.errors import (
    InvariantError,
    ProcessDied,
    SystemSilentError,
    as_simulation_error,
)
from runners.testing.simulator.fault import ALL_FAULTS, ARRANGED_FAULTS, Fault, SyncPoint
from runners.testing.simulator.ledger import Ledger
from runners.testing.simulator.network import VirtualNetwork
from runners.testing.simulator.new_splits import NewSplits
from runners.testing.simulator.notifications import Notifications
from runners.testing.simulator.panes import PaneLog, Tap
from runners.testing.simulator.polls import Polls
from runners.testing.simulator.process import Steps, WorkerProcess
from runners.testing.simulator.resends import Resends
from runners.testing.simulator.sources import fragile
from runners.testing.simulator.store import SharedStore, SimulatedStore
from runners.testing.simulator.strikes import strike
from runners.testing.simulator.trace import Trace
from runners.testing.simulator.waits import Waits

T = TypeVar("T")

JOB = "sim"
_MASTER = "master"
#: Rounds that a run may take; far more than any needs.
ROUNDS_MAX = 20_000
#: When nothing fails any more.
_HEALED_MS = (2_000, 20_000, 60_000)
#: Pauses inside pauses.
_DEPTH_MAX = 3
#: How often the system behind a source does not answer when it is notified.
_SILENCE_RATE = 0.2
#: And how often in a row: a reader that is closed is notified once more.
_SILENCES_MAX = TRIES_AT_END - 1
#: Former workers that are still there, at most.
_ZOMBIES_MAX = 4


class SimulatedCluster:
    """A job on a simulated cluster.

    Args:
        graph: the pipeline.
        seed: decides everything.
        faults: the kinds that can strike.
        store: keeps the job, which it may already have in part; new by default.
        taps: of the pipeline's groupings, whose panes are to be checked.
        workers: places for workers.
        ranges_per_grouping: key ranges.
        options: of the workers.
        is_shipped: whether each worker gets the pipeline as bytes, as on a cluster.  If not, all use the same
            objects, with which a test can then reach them.
        signals_max: how many of the signals that the pipeline listens to are sent, at random moments.
        is_detailed: whether the story of the run is recorded.
        lineage: how much of the lineage of panes is recorded; None: nothing.
        spans: makes spans of what workers do; None: nothing is traced.

    Attributes:
        live_ms: virtual time in which a job must end when nothing fails any more; a test with slow workers needs more.
    """

    live_ms = 120_000

    def __init__(
        self,
        graph: PipelineGraph,
        seed: int,
        *,
        faults: Collection[Fault] = ALL_FAULTS,
        store: MemoryStore | None = None,
        taps: Sequence[Tap] = (),
        workers: int = 2,
        ranges_per_grouping: int = 3,
        options: WorkerOptions = WorkerOptions(),  # noqa: B008 - a value
        is_shipped: bool = False,
        signals_max: int = 0,
        is_detailed: bool = False,
        lineage: Lineage | None = None,
        spans: SpanMaker | None = None,
    ) -> None:
        self.dice = Dice(seed, faults)
        self.options = options
        if options.state_cache_bytes is None:
            self.options = attrs.evolve(self.options, state_cache_bytes=self.dice.cache_bytes)
        if options.steps == STEP_LIMITS:
            self.options = attrs.evolve(self.options, steps=self.dice.steps)
        self._bytes_max = self.dice.value_bytes_max()
        if self._bytes_max is not None:
            self.options = attrs.evolve(self.options, value_bytes_max=self._bytes_max)
        self.random: Random = self.dice.random
        self.clock = ManualClock()
        self.trace = Trace(self.clock, is_detailed=is_detailed)
        self._lineage, self._spans = lineage, spans
        self.plan, self.store = plan(graph, lineage=lineage), store or MemoryStore()
        if self._bytes_max is not None:
            self.store.value_bytes_max = self._bytes_max
        self.panes = PaneLog(taps)
        self.ledger = Ledger(self.store, JOB, self.plan, self.panes, options.guarantees)
        self.polls = Polls(self.store, JOB, self.plan, self.clock)
        self._new_splits = NewSplits(self.store, JOB, self.plan, self.polls)
        self.notifications = Notifications(self.store, JOB, self.polls)
        self._silences = Random(f"silences {seed}")  # noqa: S311 - a seed that can be used again is the point
        # A worker whose first message is lost is replaced only when it has ended itself, which takes most of this.
        self._waits = Waits(self.store, JOB, self.clock, self.live_ms // 4 + 5_000)
        self._struck_before, self._resends = 0, Resends(self.clock)
        self.shared = SharedStore(
            self.store, self.ledger, self.clock, self.trace, self._note_committed
        )
        self.backups = Backups(seed, self.store, self.ledger, self.panes)
        #: What drivers have reported of a store that had lost something.
        self.lost: list[LostCommitsError] = []
        #: The errors with which the job has ended where only a part of the store had gone back.
        self.lost_parts: list[LostCommitsError] = []
        self._graph, self._signals_left = graph, signals_max
        #: Whether a source may go back behind its watermark, so that watermarks can be ahead of records.
        self.can_be_late = True
        #: Whether no worker may die where nothing fails; a test that takes ranges from them does not ask for that.
        self.must_live = False
        self._shipped = dumps_code(graph, "the pipeline") if is_shipped else None
        self._ranges_per_grouping = ranges_per_grouping
        self.spec = self.spec_of(graph)
        self._healed_ms = self.random.choice(_HEALED_MS)
        if self.dice.is_dense:
            # To the very end: what is wrong there needs something that fails there.
            self._healed_ms = max(_HEALED_MS)
        self._due_by_ms = self._healed_ms + self.live_ms
        self._depth = self._born = self._lull = self._drivers = 0
        self._is_over = False
        self.workers: list[WorkerProcess | None] = [None] * workers
        self._due_ms = [0] * workers
        self._processes: list[WorkerProcess] = []
        self.start_driver()

    def spec_of(self, graph: PipelineGraph) -> JobSpec:
        """The specification of the job for a pipeline."""
        ranges = self._ranges_per_grouping
        return job_spec(JOB, "streaming", plan(graph), splits_desired=2, ranges_per_grouping=ranges)

    @property
    def is_over(self) -> bool:
        """Whether the job is done."""
        return self._is_over

    def start_driver(self) -> None:
        """Start a new driver, which finds the job in the store; its network is its own, without the other workers."""
        self._drivers += 1
        self._shown_us: dict[str, int] = {}
        self._driver_clock = SkewedClock(self.clock, self.dice.drift())
        incarnation = self._incarnation = self.shared.incarnation
        self._driver_store = SimulatedStore(
            self.shared, "driver", self.dice, lambda _: self._driver_sync(), incarnation
        )

        def sent(message: Deliver | Acknowledge) -> None:
            # A process that does not know yet that the store is another one sends to nobody who can commit.
            if incarnation != self.shared.incarnation:
                return
            if isinstance(message, Deliver):
                self._resends.sent(message.channel)
                self.ledger.sent(message)
            else:
                self.ledger.acknowledged(message)

        self.network = VirtualNetwork(self.clock, self.dice, sent, self.trace)
        self.job = job = self._driver_store.open_job(self.spec)
        endpoint = self.network.endpoint(_MASTER, self._driver_sync)
        self.master = Master(job, self.plan, len(self.workers), endpoint, self._driver_clock)
        discovery = SplitDiscovery(job, self.plan, self._driver_clock)
        self.driver = Driver(self.master, self._driver_store, JOB, self._driver_clock, discovery)
        self._is_driver_dead = False
        self.workers = [None] * len(self.workers)
        self._due_ms = [self.clock.monotonic_ms()] * len(self.workers)
        self.trace.note("driver", f"starts, number {self._drivers}")
        self._replace()

    def send_signal(self, name: str) -> int:
        """Send the job a signal, and return its number."""
        self.trace.note("user", f"sends signal {name}")
        return self.store.send_signal(JOB, name)

    def send_request(self, request: Request) -> int:
        """Send the job a request, and return its number."""
        self.trace.note("user", f"asks to {request}")
        return self.store.send_request(JOB, request)

    def update(self, graph: PipelineGraph, update: Update, taps: Sequence[Tap] = ()) -> UpdatePlan:
        """Go over to another pipeline at once; processes of the old one are not notified.

        Where something is to be retracted first (`is_retracting`) go over again, in the same manner, when the master
        has come to rest.

        Args:
            graph: the next pipeline.
            update: what may be lost, and which computations have new names.
            taps: those of the next pipeline.

        Returns:
            What became of each computation.

        Raises:
            UpdateRefusedError: something would be lost, and ``update`` does not allow it.
        """
        self.trace.note("user", "updates")
        while self.shared.is_down:
            self.clock.advance(1_000)
        for network in (self.network, *(each.network for each in self._processes)):
            # What the old version still sends to its own processes does not matter.
            network.look_away()
        self.shared.wait_for(JOB, self.job.ranges)
        if self.backups.is_torn:
            self.backups.mend()
            self.shared.restart()
            self.notifications.has_gone_back = True
        self._graph, self.plan = graph, plan(graph, lineage=self._lineage)
        if self._shipped is not None:
            self._shipped = dumps_code(graph, "the pipeline")
        self.spec = self.spec_of(graph)
        planned = plan_version(self.store, self.spec, self.plan, update)
        assert planned is not None
        opened = open_version(self.store, self.spec, self.plan, update, lambda _: None, self._send)
        kept = {each.name for each in planned.computations if each.fate is Fate.KEPT}
        if opened.plan.retirement is not None:
            self._run_former(opened)
            kept = {*self.plan.stages}
        self.ledger.updated(self.plan, kept)
        self.panes.updated(taps, kept)
        self.backups.forget()
        self.start_driver()
        return planned

    @property
    def is_retracting(self) -> bool:
        """Whether the job is at a version that retracts, on its way to another pipeline."""
        return self.plan.retirement is not None

    def _send(self, sinks: Sinks) -> None:
        """Send what waits for sinks that go."""

        def wait(delay_s: float) -> None:
            self.clock.advance(round(delay_s * 1_000))

        with closing(Relays(self.store, JOB, sinks, self.clock)) as relays:
            relays.flush(60.0, wait)

    def _run_former(self, opened: OpenedJob) -> None:
        self._graph, self.plan, job = opened.plan.graph, opened.plan, opened.job
        if self._shipped is not None:
            self._shipped = dumps_code(self._graph, "the pipeline")
        self.spec = attrs.evolve(self.spec_of(self._graph), fingerprint=job.fingerprint)

    def upgrade(self) -> None:
        """Kill all processes; a driver of the version of the code that there is now goes on with the job.

        Raises:
            StoredFormatError: this version does not read what is stored.
        """
        self.trace.note("user", "kills everybody, and goes on with another version of the code")
        while self.shared.is_down:
            self.clock.advance(1_000)
        self.network.cut(_MASTER)
        for each in self._processes:
            each.die()
        self._processes = []
        self.spec = self.spec_of(self._graph)
        self.start_driver()

    def run(self) -> None:
        """Run to the end of the job and of all its processes, and check that nothing is left behind.

        Raises:
            SimulationError: an invariant was violated.
            Exception: what user code raised.
        """
        self.run_until(lambda: False)
        with as_simulation_error():
            self._let_all_end()
            self.store.finish_job(JOB, is_drained=self.driver.desk.is_draining)
            self._check_clean()

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        """Run until a condition holds, or the job is done; errors as those of `run`."""
        self._due_by_ms = max(self._healed_ms, self.clock.monotonic_ms()) + self.live_ms
        with as_simulation_error():
            for _ in range(ROUNDS_MAX):
                if self._is_over or self._in_driver(is_reached):
                    return
                self._round()
            raise InvariantError(f"I11: not there after {ROUNDS_MAX} rounds; {self._state()}")

    def _round(self) -> None:
        self.clock.advance(self.random.choice([0, 1, 10, 50]) if self._lull < 8 else 250)
        self.shared.land()
        if not self.dice.rates.keys().isdisjoint({Fault.LOST_COMMITS, Fault.LOST_PART}):
            self.backups.take()
        self._strike()
        self._replace()
        self._check_live()
        if self._signals_left and self.spec.signals and self.random.random() < 0.05:
            self._signals_left -= 1
            self.send_signal(self.random.choice(sorted(self.spec.signals)))
        able = [each for each in self._processes if each.can_step]
        if not able or self.random.random() < 0.3:
            self._step_master()
        else:
            self._step(self.random.choice(able))

    def _strike(self) -> None:
        dice = self.dice
        if not dice.is_healed and self.clock.monotonic_ms() >= self._healed_ms:
            dice.is_healed = True
        if dice.is_healed:
            for each in self._processes:
                each.clock.correct()
            self._driver_clock.correct()
            return
        if dice.strikes(Fault.OUTAGE):
            self.shared.fail(dice.duration_ms())
        if dice.strikes(Fault.LOST_COMMITS) and self.backups.restore():
            self.shared.restart()
            self.notifications.has_gone_back = True
        if dice.strikes(Fault.LOST_PART) and (name := self.backups.tear(self.plan)):
            self.shared.tear(name)
            self.notifications.has_gone_back = True
        current = [each for each in self.workers if each is not None and each.can_step]
        if not current:
            return
        struck = self.random.choice(current)
        if dice.strikes(Fault.ZOMBIE):
            self.trace.note(struck.name, "is taken for dead")
            self.workers[struck.slot] = None
        if not self._is_driver_dead:
            self._in_driver(lambda: balance(self.master, len(self.workers), dice, self.trace))
        names = [each.name for each in current if each is not struck]
        strike(struck, [_MASTER, *names], self._driver_clock, dice, self.trace)

    def _replace(self) -> None:
        """Start again what has died, as Spark does."""
        now_ms = self.clock.monotonic_ms()
        if self._is_driver_dead:
            try:
                self.start_driver()
            except StoreError:
                return
        for slot, process in enumerate(self.workers):
            if process is not None and process.is_dead:
                self.workers[slot] = None
                self._due_ms[slot] = now_ms + self.random.choice([0, 10, 500, 2_000])
            elif process is None and self._due_ms[slot] <= now_ms:
                self.workers[slot] = self._start_process(slot)
        zombies = [each for each in self._processes if each not in self.workers]
        for each in zombies[:-_ZOMBIES_MAX]:
            each.die()
        self._processes = [each for each in self._processes if not each.is_dead]

    def _start_process(self, slot: int) -> WorkerProcess:
        self._born += 1
        name = f"worker-{slot}-{self._born}"
        clock = SkewedClock(self.clock, self.dice.drift())

        def sync(point: SyncPoint) -> None:
            self._sync(process, point)

        store = SimulatedStore(self.shared, name, self.dice, sync, self._incarnation)
        process = WorkerProcess(name, slot, clock, self.network, store, sync)
        self._processes.append(process)
        self._starting = process
        self.trace.note(name, "starts")
        process.stepper = self.start_worker(slot)
        return process

    def start_worker(self, slot: int) -> Steps:
        """Make the worker of a new process; a test can override it, and put something around the worker."""
        process = self._starting
        spec = WorkerSpec(
            job=JOB,
            slot=slot,
            worker=process.name,
            master=_MASTER,
            version=self.job.version,
            options=self.options,
        )
        endpoint = self.network.endpoint(process.name, partial(process.sync, SyncPoint.BEFORE_SEND))
        worker = Worker(
            spec,
            self._plan_for(process),
            process.store,
            endpoint,
            process.clock,
            spans=self._spans,
        )
        process.worker = worker
        with suppress(ProcessDied):
            worker.start()
        return worker

    def _plan_for(self, process: WorkerProcess) -> ExecutionPlan:
        graph = self._graph if self._shipped is None else loads_code(self._shipped)

        def on_batch(label: str, split: Any, batch: SourceBatch) -> None:
            self.polls.polled(process.name, label, split, batch)
            self.trace.read(process.name, batch)

        silent: list[bool] = []

        def on_committed(label: str, split: Any, reader: int, position: Any) -> None:
            if silent[-_SILENCES_MAX:] != [True] * _SILENCES_MAX:
                silent.append(self._silences.random() < _SILENCE_RATE)
            else:
                silent.append(False)
            if silent[-1]:
                self.notifications.tried(label, split, position)
                raise SystemSilentError
            self.notifications.notified(f"{process.name}.{reader}", label, split, position)

        execution = plan(
            fragile(graph, process.sync, self._records_max, on_batch, on_committed),
            lineage=self._lineage,
        )
        return attrs.evolve(execution, retirement=self.plan.retirement)

    def _note_committed(self, production: Production) -> None:
        self.polls.committed(production)
        self.notifications.committed(production)

    def _records_max(self) -> int:
        return self.random.choice([1, 3, 1_000])

    def _sync(self, process: WorkerProcess, point: SyncPoint) -> None:
        if process.is_dead:
            raise ProcessDied
        if self.dice.strikes(Fault.CRASH):
            self.trace.note(process.name, f"dies {point}")
            process.die()
            raise ProcessDied
        if self._depth < _DEPTH_MAX and self.dice.strikes(Fault.PAUSE):
            self._pause(process, point)

    def _pause(self, process: WorkerProcess, point: SyncPoint) -> None:
        duration_ms = self.dice.duration_ms()
        until_ms = self.clock.monotonic_ms() + duration_ms
        self.trace.note(process.name, f"stands still {point} for {duration_ms} ms")
        if process in self.workers and self.dice.is_heads():
            self.workers[process.slot] = None
        process.is_paused = True
        self._depth += 1
        while self.clock.monotonic_ms() < until_ms and not self._is_over:
            self._round()
        self._depth -= 1
        process.is_paused = False
        self.trace.note(process.name, f"goes on {point}")
        if process.is_dead:
            raise ProcessDied

    def _driver_sync(self) -> None:
        if self.dice.strikes(Fault.DRIVER_CRASH):
            raise ProcessDied

    def _step_master(self) -> None:
        if self._is_driver_dead:
            return
        master, before_us = self.master, dict(self.master._authority.inputs_us)  # noqa: SLF001 - it sees everything
        try:
            self._step_helpers()
        except StoreRestartedError:
            self._begin_again()
            return
        if not self._is_driver_dead:
            self._in_driver(master.step)
        self.trace.detail("driver", self._new_watermarks)
        if isinstance(master.failure, LostCommitsError):
            self._mend(master.failure)
            return
        if master.failure and self._bytes_max and _is_too_large(master.failure, self._bytes_max):
            self._allow_more(master.failure)
            return
        if master.failure:
            raise master.failure
        if self._incarnation == self.shared.incarnation:
            # What it believes of a store that is gone reaches nobody who can commit.
            inputs_us = master._authority.inputs_us  # noqa: SLF001 - the simulator sees everything
            self.polls.check(before_us, inputs_us, master._slots)  # noqa: SLF001 - it sees everything
            self.ledger.on_watermarks(inputs_us, self.polls, can_be_late=self.can_be_late)
        if master.is_done and not (self._is_driver_dead or self.is_retracting):
            try:
                # As a driver that marks a job as finished does.
                self._driver_store.check()
                self.master.witness.check(self.store.read_job(JOB), "the simulated store")
            except StoreRestartedError:
                self._begin_again()
            except LostCommitsError as error:
                self._mend(error)
            else:
                self._check_clean()
                self._check_owners()
                self._is_over = True

    def _step_helpers(self) -> None:
        if self.random.random() < 0.3:
            self._in_driver(self.driver.look)
        grows = self.driver.discovery.is_needed and not self._is_driver_dead
        if grows and self.random.random() < 0.3:
            self._in_driver(self.driver.discover)
            if self._incarnation == self.shared.incarnation:
                self._new_splits.check(self.master)

    def _mend(self, error: LostCommitsError) -> None:
        """Restore the whole store: the job has ended because the store has lost something."""
        if self._incarnation == self.shared.incarnation:
            if not self.backups.is_torn:
                raise InvariantError(f"I8: commits are reported as lost, and none is: {error}")
            self.trace.note("driver", f"ends: {error}")
            self.lost_parts.append(error)
            self.backups.mend()
            self.shared.restart()
            self.notifications.has_gone_back = True
            self._due_by_ms = max(self._due_by_ms, self.clock.monotonic_ms() + self.live_ms)
        self.network.cut(_MASTER)
        self._is_driver_dead = True

    def _allow_more(self, error: Exception) -> None:
        """Start the job again with the usual limit of sizes, as a user does after an error about a value above it."""
        self.trace.note("user", f"allows larger values: {error}".splitlines()[0])
        self.dice.struck[Fault.SIZE_LIMIT] += 1
        self._bytes_max = None
        self.store.value_bytes_max = port.VALUE_BYTES_MAX
        self.options = attrs.evolve(self.options, value_bytes_max=VALUE_BYTES_MAX)
        self._due_by_ms = max(self._due_by_ms, self.clock.monotonic_ms() + self.live_ms)
        self.network.cut(_MASTER)
        self._is_driver_dead = True

    def _begin_again(self) -> None:
        """Begin again, as a run does whose store is another one; if something is lost, it fails and is restarted."""
        try:
            self.master.witness.check(self.store.read_job(JOB), "the simulated store")
        except LostCommitsError as error:
            self.trace.note("driver", "reports what is lost")
            self.lost.append(error)
        self.trace.note("driver", "begins again from the store")
        self.network.cut(_MASTER)
        self._is_driver_dead = True

    def _new_watermarks(self) -> Iterable[tuple[str, frozenset[str]]]:
        inputs_us = self.master._authority.inputs_us  # noqa: SLF001 - the simulator sees everything
        for name, watermark_us in inputs_us.items():
            if watermark_us != self._shown_us.get(name):
                self._shown_us[name] = watermark_us
                yield f"  sends {name} the input watermark {watermark_us} us", frozenset()

    def _in_driver(self, act: Callable[[], T]) -> T | None:
        """Do something in the driver, which may die of it, and return the result."""
        try:
            return act()
        except ProcessDied:
            self.trace.note("driver", "dies")
            self.network.cut(_MASTER)
            self._is_driver_dead = True
            return None

    def _step(self, process: WorkerProcess) -> None:
        worker, stepper = process.worker, process.stepper
        assert worker is not None
        assert stepper is not None
        try:
            worked = stepper.step()
        except ProcessDied:
            return
        except (WorkerStoppedError, StoreError) as error:
            self.trace.note(process.name, f"stops: {type(error).__name__}")
            worker.close()
            if self.must_live and self.dice.rates.keys() <= ARRANGED_FAULTS:
                raise InvariantError(
                    f"I11: {process.name} dies, and nothing fails: {error}"
                ) from None
            process.die()
            return
        process.stepped_before_ms = process.stepped_ms
        process.stepped_ms = self.clock.monotonic_ms()
        self._lull = 0 if worked else self._lull + 1
        if worker.is_stopped:
            # One that has failed did so in the middle of something, and does nothing any more.
            self.trace.note(process.name, "ends")
            worker.close()
            process.die()
        elif process in self.workers:
            self._check_reported(worker)
            process.check_memory(self.store, JOB)

    def _check_reported(self, worker: Worker) -> None:
        """Refuse a worker that goes on with less of a range than former owners have reported of it."""
        owned = worker._ranges  # noqa: SLF001 - the simulator sees everything
        sent = self.master.witness.known_of({each.computation for each in owned})
        for range_id in sent.keys() & owned.keys():
            mark, mine = sent[range_id], owned[range_id].mark
            if mark.token < mine.token and mine.bundle < mark.bundle:
                raise InvariantError(
                    f"I8: {range_id} goes on from {mine}, and {mark} was reported and counted on"
                )

    def _check_live(self) -> None:
        if self._waits.is_time:
            if self._is_calm():
                owned = {
                    each.name: each.worker._ranges  # noqa: SLF001 - the simulator sees everything
                    for each in self.workers
                    if each is not None and each.can_step and each.worker is not None
                }
                self._waits.look(self.master, owned, self.ledger.open_deliveries)
            else:
                self._waits.begin_again()
        if self._resends.is_time:
            self._check_resends()
        if self.clock.monotonic_ms() > self._due_by_ms:
            raise InvariantError(
                f"I11: nothing has failed for {self.live_ms} ms, and it is not there; {self._state()}"
            )

    def _check_resends(self) -> None:
        job = self.store.read_job(JOB)
        if job is None or self._incarnation != self.shared.incarnation:
            self._resends.begin_again()
            return
        able = {each.name: each for each in self.workers if each is not None and each.can_step}
        self._resends.look(self.ledger.undelivered, job.ranges, able)

    def _is_calm(self) -> bool:
        """Whether nothing has failed since the last time, and nothing is down."""
        struck, self._struck_before = self._struck_before, self.dice.struck.total()
        return (
            struck == self._struck_before
            and not self._is_driver_dead
            and not self.shared.is_down
            and not self.shared.is_busy
            and not self.network.is_broken
            and not any(each.is_paused or each.store.is_cut_off for each in self._processes)
        )

    def _state(self) -> str:
        statistics = dict(self.store.statistics(JOB))
        return f"store: {statistics}, master: {self.master.statistics()}"

    def _let_all_end(self) -> None:
        """Let the remaining processes find out that the job is over, and let messages on the wire arrive."""
        self.dice.is_healed = True
        self.shared.land(is_over=True)
        for _ in range(3):
            for process in self._processes:
                if process.can_step:
                    self._step(process)
        for process in self._processes:
            if process.can_step:
                process.check_memory(self.store, JOB, at_rest=True)
        self.master.stop()
        for process in self._processes:
            if process.can_step:
                self._step(process)

    def _check_owners(self) -> None:
        """A range that is on its way from one worker to another may have something to do yet."""
        job = self.store.read_job(JOB)
        assert job is not None
        current = {each.name: each for each in self.workers if each is not None and each.can_step}
        for range_id, row in job.ranges.items():
            owner = current.get(row.owner or "")
            if row.is_retired or owner is None or owner.worker is None:
                continue
            if range_id not in owner.worker._ranges:  # noqa: SLF001 - the simulator sees everything
                raise InvariantError(f"I10: the job is done, and nobody has {range_id}")

    def _check_clean(self) -> None:
        left = self.store.statistics(JOB)
        if any(left[each] for each in ("cells", "timers", "journal", "checkpoints")):
            raise InvariantError(f"I10: the job is done and not clean: {dict(left)}")
        job = self.store.read_job(JOB)
        for range_id, row in ({} if job is None else job.ranges).items():
            if row.handover_with is not None and not row.is_retired:
                raise InvariantError(
                    f"I10: the job is done, and {range_id} is in handover with {row.handover_with}"
                )
            if row.keys is None and row.split is None and not row.is_retired:
                raise InvariantError(f"I10: {range_id} has no keys any more, and is not retired")


def _is_too_large(error: Exception, bytes_max: int) -> bool:
    """Whether a job has ended because a value was larger than its limit."""
    return isinstance(error, TransformError) and f"may have {bytes_max:,}" in str(error)

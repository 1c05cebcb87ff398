"""A cluster of any size in one thread: the real workers and the real master, on virtual time that their steps cost.

The worker or driver that is due makes a step of the real code, at a time of its own, and measured costs are added to
that time for what the step does: records, commits, productions.  A commit waits for the processors of its Postgres,
which others use too, and a message for the network.  So the queues, what is batched under load, the reports and the
watermarks are those of the code.  The driver is charged the time that its code really takes here.

What is left out: everything else on the machines, and what their systems take to wake a process up; Postgres'
checkpoints, vacuum and locks, the growth of its tables, and its disk but for the flush of a commit; the width of the
network.  The watermark of a source moves with its records only.

`runners.testing.simulator` serves another purpose: its time passes at random, to find what is wrong, not what is slow.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import attrs

import dataflow as df
from benchmarks.peers.ours_latency import COLUMNS, TABLE, CountVisits
from benchmarks.scale.costs import Costs
from benchmarks.scale.virtual import Agenda, Network, Node, Processors, VirtualClock, decoded
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.model.ids import Channel
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome
from runners.millwheel.worker import worker as worker_module
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.streaming.job_thread import COUNT_INTERVAL_MS
from runners.streaming.worker_task import round_wait_ms
from windowing.timestamps import MIN_TIMESTAMP_US, US_PER_SECOND

JOB = "model"
_MASTER = "master"
_GROUPING = "count"
_MASTER_WAIT_US = 20_000
_RANGES_PER_WORKER = 2
#: From the moment that all workers are ready, and the driver has dealt with that, until the first record.
_LEAD_US = 100_000
#: How long after its last record a run may go on.
_DRAIN_US = 2 * US_PER_SECOND
_LOOK_INTERVAL_US = 10_000


@attrs.frozen(kw_only=True)
class Shape:
    """The size of a cluster and its load.

    ``rate``: records a second that each worker reads, one as long after the other.  ``keys``: for each worker.
    ``servers``, ``cores``: Postgres servers, and the cores of each; workers are distributed over the servers.
    ``is_one_machine``: workers and driver are on the cores of the first Postgres too, instead of on cores of their own.
    """

    workers: int
    rate: int
    seconds: float = 1.0
    warm_up_s: float = 0.5
    keys: int = 1_000
    servers: int = 1
    cores: int = 16
    is_one_machine: bool = False

    @property
    def end_us(self) -> int:
        """From the first record to the last."""
        return int((self.warm_up_s + self.seconds) * US_PER_SECOND)


@attrs.frozen(kw_only=True)
class Outcome:
    """The results of a run, after warming up.

    ``latencies_ms``: from a record's creation to its row's commit.  ``lags_ms``: of the watermark that workers receive.
    ``offered``, ``committed``: records a second; ``commits``: a second.
    ``worker_cores``, ``postgres_cores``, ``driver_cores``: how many were busy, of one worker, all servers, the driver.
    """

    latencies_ms: Sequence[float]
    lags_ms: Sequence[float]
    offered: float
    committed: float
    commits: float
    worker_cores: float
    postgres_cores: float
    driver_cores: float


class Arrivals(df.Source):
    """A split for each worker; record i of a split exists at its phase plus i divided by the rate.

    ``start_us``: when that begins; None: not yet.  ``read``: records that were read since the last `take_read`.
    """

    def __init__(self, shape: Shape, clock: VirtualClock) -> None:
        self.shape, self.clock = shape, clock
        self.start_us: int | None = None
        self.read = 0

    @property
    def records(self) -> int:
        """How many there will have been."""
        per_split = self.shape.end_us * self.shape.rate / US_PER_SECOND
        return sum(int(per_split - phase(split)) + 1 for split in range(self.shape.workers))

    def splits(self, desired: int) -> Sequence[int]:
        """The numbers of the workers."""
        return range(self.shape.workers)

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        """From a record on."""
        return _ArrivalsReader(self, split, position or 0)


class _ArrivalsReader(df.SourceReader):
    def __init__(self, source: Arrivals, split: int, first: int) -> None:
        self._source, self._next, self._watermark_us = source, first, MIN_TIMESTAMP_US
        self._chance, self._phase = Random(split), phase(split)

    def read(self, max_records: int) -> df.SourceBatch:
        source, shape = self._source, self._source.shape
        times_us: list[int] = []
        if source.start_us is not None:
            now_us = min(source.clock.now_us(), source.start_us + shape.end_us)
            while len(times_us) < max_records and (at_us := self._at_us(source.start_us)) <= now_us:
                times_us.append(at_us)
                self._next += 1
        if times_us:
            self._watermark_us = times_us[-1]
            source.read += len(times_us)
        keys = shape.keys * shape.workers
        return df.SourceBatch(
            values=[(int(self._chance.random() * keys), at_us) for at_us in times_us],
            timestamps_us=times_us,
            position=self._next,
            watermark_us=self._watermark_us,
        )

    def _at_us(self, start_us: int) -> int:
        return start_us + int((self._next + self._phase) * US_PER_SECOND / self._source.shape.rate)


def phase(split: int) -> float:
    """The phase of a split, as a part of the time between two records."""
    return Random(-1 - split).random()


@attrs.frozen
class CostedCommit:
    """A commit that is done at a moment of virtual time, for which its worker waits."""

    node: Node
    known: CommitOutcome
    done_us: float

    @property
    def is_answered(self) -> bool:
        """Whether it is done."""
        return self.node.clock.us >= self.done_us

    def outcome(self) -> CommitOutcome:
        """Wait until it is done."""
        self.node.clock.us = max(self.node.clock.us, self.done_us)
        return self.known


class CostedStore:
    """The store of one worker: a commit takes what it costs, and everything else nothing."""

    def __init__(self, inner: MemoryStore, cluster: "Cluster", node: Node) -> None:
        self._inner, self._cluster, self._node = inner, cluster, node
        self._delivered: dict[Channel, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(
        self, production: Production, ready: Callable[[], None] = lambda: None
    ) -> "CostedCommit":
        """Send a production; whoever waits for the outcome waits until it is durable."""
        ready()
        cluster, costs = self._cluster, self._cluster.costs
        rows = [row for write in production.tables for row in write.inserts]
        sent, taken_in = len(production.checkpoints), self._taken_in(production.delivered)
        self._node.charge(
            costs.step_us
            + cluster.take_read() * costs.read_us
            + len(rows) * costs.count_us
            + (sent + taken_in) * costs.production_us / 2
        )
        work_us = costs.commit_us + len(rows) * costs.row_us + sent * costs.stored_us
        clock = self._node.clock
        done_us = cluster.server_of(self._node).done_us(clock.us, work_us) + costs.flush_us
        cluster.committed([row[-1] for row in rows], done_us)
        return CostedCommit(self._node, self._inner.commit(production), done_us)

    def _taken_in(self, delivered: Mapping[Channel, int]) -> int:
        known = self._delivered
        count = sum(number - known.get(channel, 0) for channel, number in delivered.items())
        known.update(delivered)
        return count


class Cluster:
    """A driver and its workers, which count visits by key.

    Args:
        shape: how many, and what they have to do.
        costs: of what they do.
    """

    def __init__(self, shape: Shape, costs: Costs) -> None:
        self.shape, self.costs = shape, costs
        self._clock, self._agenda = VirtualClock(), Agenda()
        self._network = Network(self._clock, self._agenda, costs.hop_us)
        self._servers = [Processors(shape.cores) for _ in range(shape.servers)]
        self._source = Arrivals(shape, self._clock)
        self._rows: list[tuple[int, float]] = []
        self._commits, self._lags_ms, self._is_ready = 0, list[float](), False
        self._look_us, self._count_us, self._watermark_us = 0.0, 0.0, MIN_TIMESTAMP_US
        self._before: _Busy | None = None
        self._after: _Busy | None = None
        pipeline = df.Pipeline()
        (
            pipeline
            | "read" >> df.Read(self._source)
            | _GROUPING >> df.ParDo(CountVisits())
            | df.WriteToPostgres(TABLE, columns=COLUMNS)
        )
        self._plan, self._store = plan(pipeline.graph()), MemoryStore()
        spec = job_spec(
            JOB,
            "streaming",
            self._plan,
            splits_desired=1,
            ranges_per_grouping=shape.workers * _RANGES_PER_WORKER,
        )
        job = self._store.open_job(spec)
        self._shared = self._servers[0] if shape.is_one_machine else None
        self._driver = Node(_MASTER, self._clock, self._shared)
        endpoint = self._network.endpoint(self._driver, costs.message_us / 2)
        self._master = Master(job, self._plan, shape.workers, endpoint, self._clock)
        self._workers = [self._worker(slot) for slot in range(shape.workers)]

    def run(self) -> Outcome:
        """Run to the last record; returns the results."""
        with patch.object(worker_module, "decode", decoded):
            for _, worker in self._workers:
                worker.start()
            nodes = {id(node): worker for node, worker in self._workers}
            pauses = dict.fromkeys(nodes, 0)
            self._agenda.put(self._driver)
            for node, _ in self._workers:
                self._agenda.put(node)
            while not self._is_over(node := self._agenda.take()):
                self._look(node.due_us)
                self._clock.us, node.free_us = node.due_us, None
                if node is self._driver:
                    self._lead()
                else:
                    pauses[id(node)] = self._work(node, nodes[id(node)], pauses[id(node)])
                self._agenda.put(node)
        return self._outcome()

    def take_read(self) -> int:
        """Records that were read since the last commit, all by the worker that commits now; steps do not overlap."""
        read, self._source.read = self._source.read, 0
        return read

    def server_of(self, node: Node) -> Processors:
        """The Postgres of a worker."""
        return self._servers[int(node.name) % len(self._servers)]

    def committed(self, created_us: Sequence[int], at_us: float) -> None:
        """Rows of records are there."""
        self._commits += self._is_measured(at_us)
        self._rows.extend((each, at_us) for each in created_us)

    def _worker(self, slot: int) -> tuple[Node, Worker]:
        node = Node(str(slot), self._clock, self._shared)
        store: Any = CostedStore(self._store, self, node)
        endpoint = self._network.endpoint(node, self.costs.message_us / 2)
        spec = WorkerSpec(
            job=JOB, slot=slot, workers=self.shape.workers, worker=node.name, master=_MASTER
        )
        return node, Worker(spec, self._plan, store, endpoint, self._clock)

    def _work(self, node: Node, worker: Worker, pauses: int) -> int:
        """A step as `runners.streaming.worker_task` makes it; the number of pauses since there was something to do."""
        if worker.step():
            node.due_us = self._clock.us
            return 0
        node.charge(self.costs.idle_us)
        pauses += 1
        node.wait(round_wait_ms(pauses, has_ranges=worker.has_ranges) * 1_000)
        return pauses

    def _lead(self) -> None:
        """A round of the driver, as `runners.streaming.job_thread` makes it."""
        began_s, master = time.process_time(), self._master
        master.step()
        # Checked in each round, as the real driver checks whether the job is to go on.
        assert not master.is_done
        assert not master.is_paused
        if self._clock.us >= self._count_us:
            self._count_us = self._clock.us + COUNT_INTERVAL_MS * 1_000
            self._is_ready = master.statistics().workers_ready == self.shape.workers
        took_us = (time.process_time() - began_s) * US_PER_SECOND
        fixed_us = self.costs.driver_us
        self._driver.charge(took_us if fixed_us is None else fixed_us)
        self._driver.wait(_MASTER_WAIT_US)
        has_caught_up = self._is_ready and took_us < _MASTER_WAIT_US
        if has_caught_up and self._source.start_us is None:
            self._source.start_us = int(self._clock.us) + _LEAD_US
        self._watermark_us = master._authority.inputs_us[_GROUPING]  # noqa: SLF001 - the model sees everything

    def _look(self, now_us: float) -> None:
        """At the job, now and then, before the next step."""
        if now_us >= self._look_us and self._is_measured(now_us):
            self._look_us = now_us + _LOOK_INTERVAL_US
            self._before = self._before or self._busy(now_us)
            self._lags_ms.append((now_us - self._watermark_us) / 1_000)

    def _is_measured(self, at_us: float) -> bool:
        start_us, shape = self._source.start_us, self.shape
        if start_us is None:
            return False
        return start_us + shape.warm_up_s * US_PER_SECOND <= at_us < start_us + shape.end_us

    def _is_over(self, following: Node) -> bool:
        start_us, now_us = self._source.start_us, following.due_us
        if start_us is None or now_us < start_us + self.shape.end_us:
            return False
        self._after = self._after or self._busy(now_us)
        is_late = now_us >= start_us + self.shape.end_us + _DRAIN_US
        return is_late or len(self._rows) == self._source.records

    def _busy(self, now_us: float) -> "_Busy":
        return _Busy(
            at_us=now_us,
            workers_us=sum(node.busy_us for node, _ in self._workers),
            servers_us=sum(each.busy_us for each in self._servers),
            driver_us=self._driver.busy_us,
        )

    def _outcome(self) -> Outcome:
        before, after, shape = self._before, self._after, self.shape
        assert before is not None
        assert after is not None
        took_us = after.at_us - before.at_us
        measured = [(a, b) for a, b in self._rows if self._is_measured(a)]
        return Outcome(
            latencies_ms=[(committed - created) / 1_000 for created, committed in measured],
            lags_ms=self._lags_ms,
            offered=shape.workers * shape.rate,
            committed=sum(self._is_measured(at_us) for _, at_us in self._rows) / shape.seconds,
            commits=self._commits / shape.seconds,
            worker_cores=(after.workers_us - before.workers_us) / took_us / shape.workers,
            postgres_cores=(after.servers_us - before.servers_us) / took_us,
            # A round that takes long is charged when it begins.
            driver_cores=min(1.0, (after.driver_us - before.driver_us) / took_us),
        )


@attrs.frozen(kw_only=True)
class _Busy:
    """The work that had been done by an instant."""

    at_us: float
    workers_us: float
    servers_us: float
    driver_us: float

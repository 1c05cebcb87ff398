"""A job goes over to a new version of its pipeline while workers and the driver of the old one are still there."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import TableConflictError
from dataflow.graph import PipelineGraph
from runners.direct import DirectRunner
from runners.millwheel.master.master import Master
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory import store as memory
from runners.millwheel.versions.job_versions import Update
from runners.millwheel.versions.update import UpdatePlan
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.errors import InvariantError, ProcessDied, SimulationError
from runners.testing.simulator.ledger import Before
from runners.testing.simulator.panes import Tap
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

pytestmark = pytest.mark.slow

COLUMNS = {"key": str, "start": float, "end": float, "value": str}


def grouped(p: Any, name: str, version: str, windows: df.WindowFn, combine: Any) -> None:
    """A grouping with a table of its own, and with one of the version, which shows who has written.

    The version is no part of a row: what the old version has emitted, the new one retracts only if it makes it alike.
    """

    def row(pair: Any, window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
        key, value = pair
        return {
            "key": str(key),
            "start": window.start.timestamp(),
            "end": window.end.timestamp(),
            "value": str(value),
        }

    rows = (
        p
        | f"{name} windows"
        >> df.WindowInto(
            windows,
            trigger=df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=timedelta(hours=2),
        )
        | name >> df.CombinePerKey(combine)
        | f"{name} row" >> df.Map(row)
    )
    key = ["key", "start", "end"]
    rows | f"{name} table" >> df.WriteToPostgres(name, columns=COLUMNS, key=key)
    (
        rows
        | f"{name} of {version}" >> df.Map(lambda each: each)
        | f"{name} table of {version}"
        >> df.WriteToPostgres(f"{name}_{version}", columns=COLUMNS, key=key)
    )


def build(p: df.Pipeline, source: df.Source, version: str, *, is_less: bool) -> None:
    """Sums and sessions are kept, with another function behind them; the rest is removed, changed or new."""
    pairs = p | "read" >> df.Read(source) | "pair" >> df.Map(lambda value: (value % 5, value))
    if version == "new":
        grouped(pairs, "added", version, df.FixedWindows(120), sum)
    grouped(pairs, "sums", version, df.FixedWindows(60), sum)
    grouped(pairs, "sessions", version, df.Sessions(30), max)
    grouped(pairs, "changed", version, df.FixedWindows(60 if version == "old" else 30), sum)
    if version == "old" and is_less:
        grouped(pairs, "removed", version, df.FixedWindows(60), min)


class HauntedCluster(Cluster):
    """After the update, the driver of the old version goes on with its workers, and gets new ones now and then."""

    old_master: Master | None = None
    haunts = refusals = emitted_by_old = 0

    @property
    def old_graph(self) -> PipelineGraph:
        return self._old[0]

    def update(self, graph: PipelineGraph, update: Update, taps: Sequence[Tap] = ()) -> UpdatePlan:
        self.old_master, self._old = self.master, (self._graph, self.plan, self.job, self.network)
        applied = self.ledger.applied

        def counted(production: Production, before: Before) -> None:
            self.emitted_by_old += sum(
                len(write.changes)
                for write in production.tables
                if write.table.name.endswith("_old")
            )
            applied(production, before)

        self.ledger.applied = counted  # type: ignore[method-assign]
        planned = super().update(graph, update, taps)
        assert self.job.version == 1
        return planned

    def _round(self) -> None:
        super()._round()
        if self.old_master is None or self._is_over or self.haunts >= 40:
            return
        if self.random.random() < 0.1:
            self.haunts += 1
            self._haunt()
        elif self.random.random() < 0.3:
            self._step_old_master()

    def _step_old_master(self) -> None:
        if self.old_master is not None:
            # It may die of the faults that are still to come.
            with suppress(ProcessDied):
                self.old_master.step()

    def _haunt(self) -> None:
        """A new worker of the old version, with an old master that gives it ranges."""
        now = self._graph, self.plan, self.job, self.network
        self._graph, self.plan, self.job, self.network = self._old
        process = self._start_process(self.random.randrange(len(self.workers)))
        self._graph, self.plan, self.job, self.network = now
        for _ in range(4):
            self._step_old_master()
            self.clock.advance(100)
            if process.can_step:
                self._step(process)
        self.refusals += process.is_dead


Ran = tuple[HauntedCluster, df.PipelineResult, PipelineGraph]


def updated(
    script: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    crash_rate: float,
    is_reached: Callable[[HauntedCluster], bool],
    *,
    is_less: bool,
) -> Ran | None:
    """A run that was updated when something was so, with what the new pipeline alone emits; None if it was done."""
    source = scripted(script, disorder)
    old, new = df.Pipeline(DirectRunner()), df.Pipeline(DirectRunner(bundle_records=3))
    build(old, source, "old", is_less=is_less)
    build(new, source, "new", is_less=is_less)
    cluster = HauntedCluster(old.graph(), seed, crash_rate)
    cluster.run_until(lambda: is_reached(cluster))
    if cluster.master.is_done:
        return None
    cluster.update(
        new.graph(), Update(allow_loss=["removed", "changed"] if is_less else ["changed"])
    )
    cluster.run()
    return cluster, new.run(), new.graph()


@costly(cells=2)
@given(
    script=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 120),
    is_less=st.booleans(),
)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_what_is_kept_equals_the_direct_runner(
    crash_rate: float,
    script: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    rounds: int,
    is_less: bool,
) -> None:
    """Whatever dies before and after, and whoever of the old version is still there."""
    left = iter(range(rounds))
    found = updated(
        script, disorder, seed, crash_rate, lambda _: next(left, None) is None, is_less=is_less
    )
    assume(found is not None)
    assert found is not None
    cluster, expected, graph = found
    for spec in graph.tables():
        if spec.name in ("sums", "sessions"):
            rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
            assert rows == {*cluster.store.read_table(spec)}, f"seed={seed}"
    assert not cluster.emitted_by_old
    assert {each["transform"] for each in cluster.store.read_late(JOB)} <= {"changed", "added"}


def fired(seed: int) -> Ran:
    """A run that was updated when the old version had emitted something for good, and had much to emit yet."""
    script = [[(value, second) for value in range(5)] for second in range(0, 900, 5)]

    def has_fired(cluster: HauntedCluster) -> bool:
        (sums,) = [each for each in cluster.spec.tables if each.name == "sums"]
        return len(cluster.store.read_table(sums)) > 20

    found = updated(script, 0, seed, 0.0, has_fired, is_less=False)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_both_versions_have_emitted_something(seed: int) -> None:
    """The old version's rows stay, the new one's functions are at work, and old workers get nothing."""
    cluster, _, graph = fired(seed)
    specs = {spec.name: spec for each in (cluster.old_graph, graph) for spec in each.tables()}
    keys = {
        name: {row[:3] for row in cluster.store.read_table(spec)} for name, spec in specs.items()
    }
    job = cluster.store.read_job(JOB)

    assert keys["sums"] == keys["sums_old"] | keys["sums_new"]
    assert keys["sums_old"] - keys["sums_new"]
    assert keys["sums_new"] - keys["sums_old"]
    assert keys["added_new"]
    assert keys["added"] == keys["added_new"]
    assert cluster.refusals > 0
    assert job is not None
    assert job.computations.keys() == cluster.plan.stages.keys()


def sums_emitted(p: df.Pipeline, source: df.Source, table: str, unit: str) -> df.Pipeline:
    (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda value: (0, value))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterWatermark(early=df.AfterCount(2)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "sums" >> df.CombinePerKey(sum)
        | f"row in {unit}"
        >> df.Map(lambda pair: {"key": str(pair[0]), "value": f"{pair[1]} {unit}"})
        | "table" >> df.WriteToPostgres(table, columns={"key": str, "value": str}, key=["key"])
    )
    return p


@pytest.mark.parametrize("table", ["sums", "sums in pounds"])
def test_rows_that_the_new_functions_make_otherwise_need_another_table(table: str) -> None:
    """What was emitted cannot be retracted: in its table the next row of the key is refused, in another one not."""
    source = scripted([[(1, 0), (2, 1)], [(3, 2)], [(4, 3)], [(5, 4)], [(6, 5)]], 0)
    old = sums_emitted(df.Pipeline(DirectRunner()), source, "sums", "euros").graph()
    new = sums_emitted(df.Pipeline(DirectRunner()), source, table, "pounds").graph()
    cluster = Cluster(old, 1, 0.0)
    cluster.run_until(lambda: bool(cluster.store.read_table(old.tables()[0])))
    assert not cluster.master.is_done
    planned = cluster.update(new, Update())

    assert ("table retracts rows of 'sums'" in str(planned)) == (table == "sums")
    if table == "sums":
        with pytest.raises(TableConflictError, match=r"euros.*pounds"):
            cluster.run()
    else:
        cluster.run()
        assert cluster.store.read_table(new.tables()[0]) == [("0", "21 pounds")]


def test_tokens_alone_let_old_code_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: where ranges are given to anybody, the old version writes rows after the update."""
    monkeypatch.setattr(memory, "check_version", lambda job, known, stored: None)

    def emitted_by_old(seed: int) -> int:
        with suppress(InvariantError, SimulationError, KeyError):
            fired(seed)
        return clusters[-1].emitted_by_old

    clusters: list[HauntedCluster] = []
    start = HauntedCluster.update

    def remembered(cluster: HauntedCluster, graph: PipelineGraph, update: Update) -> UpdatePlan:
        clusters.append(cluster)
        return start(cluster, graph, update)

    monkeypatch.setattr(HauntedCluster, "update", remembered)
    assert any(emitted_by_old(seed) for seed in range(1, 6))

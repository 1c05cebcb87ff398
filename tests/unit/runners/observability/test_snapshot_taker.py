"""What a driver makes of two looks at its master: objectives, how backlogs grow, and how busy workers are."""

import attrs
import pytest

import dataflow as df
from dataflow.source import Backlog
from runners.core.stages.plan import ExecutionPlan, plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.master.view import MasterView
from runners.millwheel.model.accounts import OverdueTimers, WorkerAccount
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.memory.store import MemoryStore
from runners.observability.evidence.snapshot import FreshnessObjective, JobSnapshot
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource
from windowing.timestamps import MAX_TIMESTAMP_US

S = 1_000_000


@pytest.fixture
def execution() -> ExecutionPlan:
    p = df.Pipeline()
    rows = p | "read" >> df.Read(ScriptedSource([])) | "sum" >> df.CombinePerKey(sum)
    rows | "fresh" >> df.FreshWithin("5s")
    return plan(p.graph())


@pytest.fixture
def view(execution: ExecutionPlan) -> MasterView:
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    clock = ManualClock()
    master = Master(
        MemoryStore(clock).open_job(spec), execution, 1, LocalNetwork().endpoint("master"), clock
    )
    return attrs.evolve(master.view(), taken_us=1_000 * S)


@pytest.fixture
def taker(execution: ExecutionPlan) -> SnapshotTaker:
    return SnapshotTaker("job", 0, "driver", 0, freshness=execution.freshness())


def objective(taker: SnapshotTaker, view: MasterView, output_us: int) -> FreshnessObjective:
    ended = dict.fromkeys(view.outputs_us, output_us)
    (found,) = taker.take(
        attrs.evolve(view, outputs_us=ended, inputs_us={"sum": output_us})
    ).objectives
    return found


def test_an_objective_follows_the_output_watermark(taker: SnapshotTaker, view: MasterView) -> None:
    for output_us, behind_us, is_met in (
        (996 * S, 4 * S, True),
        (995 * S, 5 * S, True),
        (994 * S, 6 * S, False),
        (1_001 * S, 0, True),
        (MAX_TIMESTAMP_US, None, True),
    ):
        found = objective(taker, view, output_us)
        assert (found.transform, found.stage, found.within_us) == ("fresh", "sum", 5 * S)
        assert (found.behind_us, found.is_met) == (behind_us, is_met)
    (never,) = taker.take(view).objectives
    assert (never.behind_us, never.is_met) == (None, False)


def with_backlog(view: MasterView, at_s: int, records: int | None) -> MasterView:
    poll = SplitPoll(polled_us=0, backlog=Backlog(records=records))
    (split,) = [each for each in view.owners if each.computation == "read"]
    statistics = attrs.evolve(view.statistics, splits={split: poll})
    return attrs.evolve(view, taken_us=at_s * S, statistics=statistics)


def test_how_a_backlog_grows_is_known_after_some_seconds(
    taker: SnapshotTaker, view: MasterView
) -> None:
    shown: list[tuple[int | None, float | None]] = []
    for second in range(8):
        found = taker.take(with_backlog(view, 1_000 + second, 10_000 - 100 * second)).stages["read"]
        shown.append((found.backlog_records, found.backlog_growth_per_s))
    assert [shown[0], shown[4], shown[7]] == [(10_000, None), (9_600, None), (9_300, -100)]
    unknown = taker.take(with_backlog(view, 1_008, None)).stages["read"]
    assert (unknown.backlog_records, unknown.backlog_growth_per_s) == (None, None)


def with_account(view: MasterView, at_s: int, busy_ms: int, idle_ms: int) -> MasterView:
    account = WorkerAccount(
        busy_ms=busy_ms,
        blocked_ms=0,
        idle_ms=idle_ms,
        stages_us={},
        commit_counts=(),
        commit_sum_us=0,
        committed_us=None,
        frequent={RangeId("sum", 0): ()},
        overdue={"sum": OverdueTimers(count=3, processing_us=990 * S)},
    )
    (slot,) = view.slots
    return attrs.evolve(
        view, taken_us=at_s * S, slots=[attrs.evolve(slot, worker="w", account=account)]
    )


def test_how_busy_a_worker_was_since_the_document_before(
    taker: SnapshotTaker, view: MasterView
) -> None:
    def busy(found: JobSnapshot) -> float | None:
        return found.workers[0].busy_share

    first = taker.take(with_account(view, 1_000, 5_000, 5_000))
    assert busy(first) is None
    assert busy(taker.take(with_account(view, 1_001, 5_250, 5_750))) == 0.25
    assert busy(taker.take(with_account(view, 1_002, 5_250, 5_750))) == 0.25, "no account has come"
    assert busy(taker.take(with_account(view, 1_003, 7_250, 5_750))) == 1.0
    assert (first.stages["sum"].overdue_timers, first.stages["sum"].overdue_us) == (3, 990 * S)

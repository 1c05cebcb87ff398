"""Under a fault the leaf is the part that is at fault: a worker that is dead or stopped, a split, a lost delivery."""

import re
from random import Random
from typing import Any

import pytest

import dataflow as df
from runners.millwheel.model.ids import Channel
from runners.millwheel.model.troubles import TroubleKind
from runners.millwheel.wire.messages import Deliver, decode
from runners.millwheel.worker import courier
from runners.observability.why.chain import chain_of
from runners.observability.why.explanation import CauseKind, HolderKind, WhyExplanation
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.evidence import evidence_of
from tests.gated_jobs import US_PER_S, Cluster, started, stop_worker

pytestmark = pytest.mark.slow

#: More than a worker needs to be called silent, and less than its lease.
SILENT_MS = 6_000
SEEDS = range(1, 6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_dead_worker_is_named(seed: int, number: int) -> None:
    cluster = started(seed)
    cluster.run_for(1_000)
    name = stop_worker(cluster, number)
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)

    found = cluster.why(transform="all")
    assert found.leaf is not None
    assert found.cause in (CauseKind.WORKER_SILENT, CauseKind.RANGE_WITHOUT_OWNER)
    assert found.leaf.name == name
    assert name in found.sentence


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_that_nobody_has_are_named(seed: int) -> None:
    """Both workers are gone, and their leases too: another driver finds nobody."""
    cluster = started(seed)
    for number in (0, 1):
        stop_worker(cluster, number)
    cluster.start_driver()
    cluster._due_ms = [10**9] * 2
    for number in (0, 1):
        if cluster.workers[number] is not None:
            stop_worker(cluster, number)
    cluster.run_for(SILENT_MS)

    found = cluster.why(transform="all")
    assert found.cause is CauseKind.RANGE_WITHOUT_OWNER


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("stuck", [0, 1])
def test_a_stuck_split_is_named(seed: int, stuck: int) -> None:
    """It has nothing, and does not say that it is idle; the other one goes on."""
    cluster = started(seed)
    cluster.open_to(60, [1 - stuck])
    cluster.run_for(10_000)

    found = cluster.why(transform="all", window=df.Window(20 * US_PER_S, 30 * US_PER_S))
    assert found.leaf is not None
    assert (found.leaf.kind, found.leaf.name) == (HolderKind.SPLIT, f"read[{stuck}]")
    assert found.cause is CauseKind.WAITS_FOR_RECORD
    assert found.leaf.value_us == 20 * US_PER_S
    assert [each.name for each in found.chain] == ["all", "sum", f"read[{stuck}]"]
    assert f"split read[{stuck}] is at" in found.sentence


def why_once_reported(cluster: Cluster, **asked: Any) -> WhyExplanation:
    """The answer when every worker has had its turn, which by chance it may not have had for seconds."""
    for _ in range(20):
        found = cluster.why(**asked)
        if found.cause is not CauseKind.WORKER_SILENT:
            break
        cluster.run_for(500)
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("away", [0, 1])
def test_an_input_that_cannot_be_read_is_named_until_it_can(seed: int, away: int) -> None:
    """What it is, since when and the last error, among troubles too; the other split goes on."""
    cluster = started(seed)
    errors = [df.Outage(what="the table a", error=f"OSError: error {n}") for n in (1, 2)]
    cluster.gate.away[away] = errors[0]
    cluster.open_to(60)
    cluster.run_for(7_000)
    cluster.gate.away[away] = errors[1]
    cluster.run_for(70_000)

    found = why_once_reported(
        cluster, transform="all", window=df.Window(20 * US_PER_S, 30 * US_PER_S)
    )
    assert found.leaf is not None
    assert (found.leaf.kind, found.leaf.name) == (HolderKind.SPLIT, f"read[{away}]")
    assert found.cause is CauseKind.INPUT_AWAY
    assert re.search(r"the table a cannot be read, for 1 minute.*OSError: error 2", found.sentence)
    # The reports of one range are at most a minute apart, and have the error of their time.
    place, head = f"read[{away}]", "the table a cannot be read"
    assert [
        (each.kind, each.place, each.count, each.reason.splitlines())
        for each in cluster.master.troubles.take()
    ] == [(TroubleKind.WAIT, place, 2, [head, "OSError: error 2"])]

    cluster.gate.away.clear()
    cluster.run_to(lambda: cluster.at("all") == 60)
    assert cluster.why(transform="all").cause is not CauseKind.INPUT_AWAY
    assert [(each.kind, each.place) for each in cluster.master.troubles.take()] == [
        (TroubleKind.RESUMED, place)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_delivery_is_named(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one range has sent to another does not arrive, and both workers are well."""
    monkeypatch.setattr(courier, "RESEND_INTERVAL_MS", 10**9)
    cluster = started(seed)
    random, lost = Random(seed), list[Channel]()
    put = cluster.network.put

    def losing(link: Any, message: bytes) -> None:
        sent = decode(message)
        if isinstance(sent, Deliver):
            channel = sent.channel
            if not lost and channel.receiver.computation == "sum" and random.random() < 0.5:
                lost.append(channel)
            if channel in lost:
                return
        put(link, message)

    monkeypatch.setattr(cluster.network, "put", losing)
    second = 20
    while not lost:
        second += 10
        cluster.open_to(second)
        cluster.run_for(1_000)
    cluster.open_to(second + 20)
    cluster.run_for(2_000)

    found = cluster.why(transform="all")
    assert found.leaf is not None
    assert found.cause is CauseKind.UNACKNOWLEDGED
    (channel,) = lost
    named = [found.leaf.name, *found.leaf.as_far]
    assert f"{channel.sender} to {channel.receiver}" in named
    pending = {(str(c.sender), str(c.receiver)) for c in cluster.store.read_pending(JOB)}
    assert all(tuple(each.split(" to ")) in pending for each in named)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_that_stands_in_a_commit_is_named(seed: int) -> None:
    """It is stopped inside the step, so it sends nothing, and nobody gets what it has read."""
    cluster = started(seed)
    process = cluster.workers[seed % 2]
    assert process is not None
    process.is_paused = True
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)

    found = cluster.why(transform="all")
    assert found.cause is CauseKind.WORKER_SILENT
    assert found.leaf is not None
    assert found.leaf.name == process.name
    process.is_paused = False


@pytest.mark.parametrize("seed", SEEDS)
def test_a_driver_that_is_dead_is_named(seed: int) -> None:
    cluster = started(seed)
    cluster._is_driver_dead = True

    assert cluster.why().cause is CauseKind.NOT_RUNNING


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_is_well_is_well(seed: int) -> None:
    """And the way from stage to stage is that to its slowest split."""
    cluster = started(seed)
    cluster.open_to(31, [0])
    cluster.open_to(30, [1])
    cluster.run_to(lambda: cluster.at("all") == 30)
    found = cluster.why(transform="rows")

    assert found.cause is CauseKind.NOTHING_DUE
    assert [each.name for each in found.chain] == ["all", "sum", "read[1]"]
    assert WhyExplanation.of_json(found.as_json()) == found


def test_a_split_that_is_read_is_the_leaf() -> None:
    """So that none is shown before one that is more likely to be wrong by accident."""
    cluster = started(1)
    leaf = chain_of(evidence_of(cluster), "all")[-1]

    assert leaf.cause is CauseKind.READING

"""Nothing waits for long when nothing is down: a core that gets over it by luck, and late, is found (I11)."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

import dataflow as df
from runners.millwheel.master import master
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import Request, Verb
from runners.millwheel.model.signals import SignalBoard
from runners.millwheel.wire.messages import Revoke
from runners.millwheel.worker import courier
from runners.millwheel.worker.worker import Worker
from runners.testing.simulator import Fault, SimulatedCluster, SimulationError, simulate
from tests.simulation import dense

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
#: Long after it should have been; and before all is over by itself.
LATE_MS = 100_000


def ask_again_late(patch: Patch) -> None:
    """What is lost with a connection is sent again, in the end."""
    patch.setattr(master, "ASK_AGAIN_MS", LATE_MS)


def send_again_late(patch: Patch) -> None:
    """Deliveries are sent again late."""
    patch.setattr(courier, "RESEND_INTERVAL_MS", LATE_MS)


def let_go_without_a_word(patch: Patch) -> None:
    """A range that is to move is nobody's, and nobody is notified."""

    def broken(worker: Worker, revoke: Revoke) -> None:
        for range_id in revoke.ranges:
            if range_id in worker._ranges:
                worker._committer.flush(range_id.computation)
                worker._forget(range_id)

    patch.setattr(Worker, "_release", broken)


def never_divide(patch: Patch) -> None:
    """Who is asked to divide a range does not."""
    patch.setattr(Worker, "_reshape", lambda *_: None)


def never_end_handovers(patch: Patch) -> None:
    """What has been divided stays together."""
    patch.setattr(Worker, "_end_handovers", lambda *_: None)


def receive_no_signal(patch: Patch) -> None:
    """Signals are in the store, and the master passes over them."""
    patch.setattr(SignalBoard, "post", lambda *_: False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutation", "pipeline", "faults", "what"),
    [
        (ask_again_late, dense.resting, {Fault.MOVE: 0.1, Fault.LOSS: 0.03}, r"has no worker"),
        (
            send_again_late,
            dense.resting,
            {Fault.LOSS: 0.02},
            r"is not delivered and deleted|without sending again",
        ),
        (let_go_without_a_word, dense.resting, {Fault.MOVE: 0.05}, r"has no worker"),
        (never_divide, dense.resting, {Fault.SPLIT: 0.02}, r"is asked for"),
        (never_end_handovers, dense.resting, {Fault.SPLIT: 0.02}, r"is in handover with"),
        (receive_no_signal, dense.resting, {}, r"has not processed signal"),
    ],
)
def test_simulator_rejects(
    mutation: Callable[[Patch], None],
    pipeline: Any,
    faults: Mapping[Fault, float],
    what: str,
    monkeypatch: Patch,
) -> None:
    mutation(monkeypatch)

    with pytest.raises(SimulationError, match=rf"seed \d+: I11: .*({what})"):
        simulate(pipeline, seeds=200, faults=faults)


def asked_to_split() -> SimulatedCluster:
    p = df.Pipeline()
    dense.resting(p, Random(1))
    cluster = SimulatedCluster(p.graph(), 1, faults=())
    cluster.run_until(lambda: cluster.master.is_at_rest)
    (name,) = {each.computation for each in cluster.master.key_ranges}
    cluster.send_request(Request(Verb.SPLIT, (str(RangeId(name, 0)),)))
    return cluster


def test_a_request_is_answered() -> None:
    cluster = asked_to_split()
    cluster.run()

    (asked,) = cluster.store.read_requests("sim", 0)
    assert asked.answer is not None
    assert asked.answer.is_done


def test_a_request_that_nobody_answers_is_found(monkeypatch: Patch) -> None:
    """It is carried out, and who has asked waits."""
    monkeypatch.setattr(RequestDesk, "answers", lambda _: ())

    with pytest.raises(SimulationError, match=r"I11: for \d+ ms there is no answer to request 1"):
        asked_to_split().run()


@pytest.mark.parametrize("pipeline", [dense.chain, dense.silent, dense.pausing, dense.resting])
def test_dense_pipelines_keep_their_promises(pipeline: Any) -> None:
    """So that what is found by them is the breakage."""
    often = dict.fromkeys([Fault.MOVE, Fault.SPLIT, Fault.MERGE], 0.05) | {Fault.CRASH: 0.01}
    simulate(pipeline, seeds=2, faults={**often, Fault.LOSS: 0.01, Fault.ZOMBIE: 0.02})
    simulate(pipeline, seeds=2)

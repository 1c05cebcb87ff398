"""Laws of the chain in every state that jobs come to: its leaf is at the watermark, is its cause, and is the fault.

The watermarks here are those of the real authority: what a leaf is raised to is reported to a copy of it, and passed
on from stage to stage as ranges that have nothing of their own would.
"""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import dataflow as df
from runners.millwheel.master.watermark_authority import WatermarkAuthority
from runners.millwheel.model.ids import RangeId
from runners.observability.evidence.snapshot import RangeEvidence
from runners.observability.why.chain import chain_of, ways_of
from runners.observability.why.evidence import Evidence
from runners.observability.why.explanation import CauseKind, Holder, HolderKind
from runners.testing.simulator import ALL_FAULTS, SimulatedCluster
from runners.testing.simulator.evidence import evidence_of
from runners.testing.simulator.pipelines import PIPELINES
from tests.simulation import dense
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

pytestmark = pytest.mark.slow

#: Every pipeline that comes along, and denser ones.
BUILDS: dict[str, Any] = {
    **{name: each.build for name, each in PIPELINES.items()},
    **{each.__name__: each for each in (dense.chain, dense.silent, dense.pausing, dense.resting)},
}
#: Rounds between two looks: so many that a run has hundreds.
LOOK_EVERY = 3


class Watched(SimulatedCluster):
    """A cluster whose every state is looked at."""

    def watch(self, look: Callable[[Evidence], None]) -> int:
        """Run to the end; returns how many states were looked at."""
        rounds = seen = 0

        def at_round() -> bool:
            nonlocal rounds, seen
            rounds += 1
            if rounds % LOOK_EVERY == 0 and not self._is_driver_dead:
                look(evidence_of(self))
                seen += 1
            return False

        self.run_until(at_round)
        return seen


def cluster_of(build: Any, seed: int, faults: Any) -> Watched:
    p = df.Pipeline()
    if build.__code__.co_argcount > 1:
        build(p, Random(f"input {seed}"))
    else:
        build(p)
    return Watched(p.graph(), seed, faults=faults, signals_max=3)


def fed_by(authority: WatermarkAuthority, evidence: Evidence, raised: set[str]) -> None:
    """Report what follows when some leaves hold nothing any more, until nothing moves."""
    for _ in range(len(evidence.stages) + 1):
        outputs_us = {}
        for name, each in evidence.ranges.items():
            input_us = authority.inputs_us.get(each.stage)
            before_us = evidence.stages[each.stage].input_us or MIN_TIMESTAMP_US
            outputs_us[RangeId.parse(name)] = output_without(
                name, each, input_us, before_us, raised
            )
        authority.report(outputs_us)
        if not authority.advance(authority._idle):
            return


def output_without(
    name: str, each: RangeEvidence, input_us: int | None, before_us: int, raised: set[str]
) -> int:
    """What a range would report if what is raised held nothing.

    One that is not raised itself stays where it has fired or read; one that has come to the end of its input goes on.
    """
    holds_us: list[int] = []
    if name not in raised:
        reached_us = each.output_us if each.processed_us is None else each.processed_us
        goes_on = input_us is not None and reached_us >= before_us and each.worker is not None
        holds_us.append(input_us if goes_on and input_us is not None else reached_us)
    else:
        holds_us.append(MAX_TIMESTAMP_US if input_us is None else input_us)
    if f"{name} sent" not in raised and each.unacknowledged_us is not None:
        holds_us.append(each.unacknowledged_us)
    if f"{name} window" not in raised and each.window_hold_us is not None:
        holds_us.append(each.window_hold_us)
    # One that comes to its end would not be waited for, and idle neighbours would.
    return max(each.output_us, min([*holds_us, MAX_TIMESTAMP_US - 1]))


def raised_by(way: tuple[Holder, ...]) -> str:
    """What holds nothing any more once the end of a way is raised."""
    at = way[-2] if len(way) > 1 and way[-2].kind is HolderKind.PRODUCTION else way[-1]
    if at.kind is HolderKind.PRODUCTION:
        return f"{at.name.partition(' to ')[0]} sent"
    if at.kind is HolderKind.WINDOW:
        return f"{at.name} window"
    return str(at.details.get("range") or at.name)


def check_leaf(evidence: Evidence, authority: WatermarkAuthority) -> None:
    for stage, found in evidence.stages.items():
        if found.input_us is None:
            continue
        chain = chain_of(evidence, stage)
        leaf = chain[-1]
        assert found.input_us in (leaf.value_us, MAX_TIMESTAMP_US), (stage, chain)
        assert [each.value_us for each in chain] == sorted(each.value_us for each in chain)
        assert leaf.cause not in (None, CauseKind.UNKNOWN), (stage, chain)
        if leaf.cause in (CauseKind.ENDED, CauseKind.MAY_GROW, CauseKind.NEW_SPLITS):
            continue
        if found.input_us >= MAX_TIMESTAMP_US:
            continue
        later = copy.deepcopy(authority)
        fed_by(later, evidence, {raised_by(way) for way in ways_of(evidence, stage)})
        assert later.inputs_us[stage] > found.input_us, (stage, chain)


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("seed", [10, 11, pytest.param(12, marks=pytest.mark.nightly)])
@pytest.mark.timeout(600)
def test_the_leaf_holds_and_alone(name: str, seed: int) -> None:
    """In every state, with whatever faults the seed has (each tenth has none)."""
    faults = () if seed % 10 == 0 else ALL_FAULTS
    cluster = cluster_of(BUILDS[name], seed, faults)

    def look(evidence: Evidence) -> None:
        check_leaf(evidence, cluster.master._authority)

    assert cluster.watch(look) > 10

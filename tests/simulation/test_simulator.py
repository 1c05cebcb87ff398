"""The shipped pipelines under many seeds, and the simulator itself: it repeats what it did, and prints how."""

import re
import subprocess
import sys
from random import Random
from typing import Any

import pytest

import dataflow as df
from dataflow.source import Source
from dataflow.testing import assert_that, contains_in_any_order, in_final_fold
from runners.testing.simulator import (
    ALL_FAULTS,
    NO_FAULTS,
    Fault,
    SimulationError,
    SyncPoint,
    simulate,
    trace,
)
from runners.testing.simulator.__main__ import main
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.simulation import Simulation
from runners.testing.simulator.sources import _Wrapped
from runners.testing.simulator.trace import STORY_LINES_MAX
from tests.effort import by_profile, each_third
from tests.simulation.bad_seeds import BAD_SEEDS
from tests.simulation.test_core_mutations import skip_the_token

#: Of each pipeline.
SEEDS = by_profile(2, nightly=20_000)
#: Of each pipeline, run twice.
REPEATED = by_profile(1, nightly=3)


#: Pipelines of which a run takes several times as long as of the others.
DEAR = ("sides", "stamped")


@pytest.mark.parametrize(
    "pipeline",
    [
        # A third of those that are cheap is enough for the daily loop.
        pytest.param(each, marks=pytest.mark.slow if each in DEAR or index % 3 else ())
        for index, each in enumerate(PIPELINES)
    ],
)
def test_shipped_pipelines_keep_their_promises(pipeline: str) -> None:
    bad = [seed for name, seed in BAD_SEEDS if name == pipeline]
    summary = simulate(pipeline, seeds=[*bad, *range(SEEDS)])

    assert summary.seeds == len(bad) + SEEDS
    assert summary.faults.total() > SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 1))
def test_shipped_pipelines_keep_their_promises_on_one_worker(pipeline: str) -> None:
    """Which computes its watermarks itself (ADR 0111)."""
    assert simulate(pipeline, seeds=SEEDS, workers=1).seeds == SEEDS


def digest(pipeline: str, seed: int) -> str:
    named = PIPELINES[pipeline]
    simulation = Simulation(named.build, seed, faults=ALL_FAULTS, tables=named.tables)
    simulation.run()
    return simulation.cluster.trace.digest


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 0))
def test_a_seed_repeats_itself(pipeline: str) -> None:
    once = [digest(pipeline, seed) for seed in range(1, REPEATED + 2)]

    assert once[:REPEATED] == [digest(pipeline, seed) for seed in range(1, REPEATED + 1)]
    assert len(set(once)) == len(once)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_seed_repeats_itself_in_another_process() -> None:
    """Where strings have other hashes, so that sets of them have another order."""
    code = (
        "from tests.simulation.test_simulator import PIPELINES, digest\n"
        "for pipeline in PIPELINES: print(digest(pipeline, 7))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == len(PIPELINES)


#: Seeds in which workers die at all points, and in which all faults strike; as `known_first`, they only save time.
POINTS, STRUCK = [38, 3, 538], [72, 34, 54, 14]


@pytest.mark.slow
def test_every_fault_strikes_and_a_worker_dies_at_every_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "STORY_LINES_MAX", 1_000_000)
    died: set[str] = set()
    for seed in [*POINTS, *range(600)]:
        if died >= set(SyncPoint):
            break
        kinds = {Fault.CRASH, Fault.LOST_REPLY, Fault.LATE_COMMIT}
        simulation = Simulation(PIPELINES["chain"].build, seed, faults=kinds, is_detailed=True)
        simulation.run()
        died |= set(re.findall(r"dies ([\w-]+)", "\n".join(simulation.cluster.trace.story())))

    assert died >= set(SyncPoint)
    # A delay is no single event.
    struck = {Fault.DELAY}
    for seed in [*STRUCK, *range(150)]:
        if struck == ALL_FAULTS:
            break
        struck |= {*simulate("sums", seeds=[seed]).faults}
    assert struck == ALL_FAULTS


@pytest.mark.slow
def test_without_faults_nothing_strikes() -> None:
    assert not simulate("sums", seeds=5, faults=NO_FAULTS).faults


@pytest.mark.slow
def test_a_failing_seed_prints_its_story_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_the_token(monkeypatch)
    with pytest.raises(SimulationError) as failure:
        simulate("sums", seeds=100)
    message = str(failure.value)
    (arguments,) = re.findall(r"replay: python -m runners.testing.simulator (.*)", message)

    assert main(arguments.split()) == 1
    assert capsys.readouterr().out == message + "\n"
    assert message.count("\n") < STORY_LINES_MAX + 20
    assert "worker-0-1" in message


def totals(p: df.Pipeline) -> Any:
    return (
        p
        | df.Create([df.TimestampedValue(("red", n), n) for n in range(10)])
        | df.WindowInto(df.FixedWindows(60))
        | df.CombinePerKey(sum)
    )


@pytest.mark.slow
def test_assertions_of_a_pipeline_are_checked_on_each_seed() -> None:
    def right(p: df.Pipeline) -> None:
        assert_that(totals(p), in_final_fold(contains_in_any_order([("red", 45)])))

    def wrong(p: df.Pipeline) -> None:
        assert_that(totals(p), in_final_fold(contains_in_any_order([("red", 46)])))

    simulate(right, seeds=20)
    with pytest.raises(SimulationError, match=r"seed 0: .*not as asserted"):
        simulate(wrong, seeds=20)


def test_code_whose_answer_depends_on_its_process_is_found() -> None:
    """It keeps in memory what only state survives in."""

    class Counting(df.DoFn):
        def __init__(self) -> None:
            self.seen = 0

        def process(self, element: tuple[str, int], /) -> Any:
            self.seen += 1
            yield "all", self.seen

    def build(p: df.Pipeline, random: Random) -> None:
        numbers = [("key", random.randrange(9)) for _ in range(10)]
        p | df.Create(numbers) | df.ParDo(Counting()) | df.CombinePerKey(max)

    with pytest.raises(SimulationError, match=r"I1: .*\n.*missing: key 'all'"):
        simulate(build, seeds=50)


def test_what_user_code_raises_names_the_seed() -> None:
    def build(p: df.Pipeline) -> None:
        p | df.Create([1]) | df.Map(lambda n: n / 0)

    with pytest.raises(df.TransformError) as failure:
        simulate(build, seeds=3)
    assert any("seeds=[0]" in note for note in failure.value.__notes__)


def test_all_that_a_source_declares_is_declared_by_the_wrapped_one() -> None:
    declared = {name for name, value in vars(Source).items() if isinstance(value, property)}
    assert declared <= vars(_Wrapped).keys()

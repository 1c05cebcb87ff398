"""Each construct of the SDK emits what it defines on every runner; the programs are shipped for runners of others."""

import attrs
import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.runner_conformance import (
    PROGRAMS,
    Program,
    RunnerConformanceError,
    check_runner,
)
from tests.conformance.conftest import MakeRunner


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_a_program_emits_what_it_defines(program: Program) -> None:
    check_runner(DirectRunner, [program])


@pytest.mark.slow
def test_a_runner_emits_what_all_programs_define(make_runner: MakeRunner) -> None:
    """In one pipeline, and so in one job."""
    check_runner(make_runner)


def test_a_program_that_emits_something_else_is_found() -> None:
    wrong = attrs.evolve(PROGRAMS[0], expected=["22m"])

    with pytest.raises(RunnerConformanceError, match=f"check {wrong.name}"):
        check_runner(DirectRunner, [*PROGRAMS[1:3], wrong])


def test_a_program_that_counts_something_else_is_found() -> None:
    (counting,) = [each for each in PROGRAMS if each.counters]
    wrong = attrs.evolve(counting, counters={"added": 6})

    with pytest.raises(
        RunnerConformanceError, match=f"check {wrong.name}: it defines the counters"
    ):
        check_runner(DirectRunner, [*PROGRAMS[1:3], wrong])


@pytest.mark.slow
def test_the_names_of_programs_are_their_own() -> None:
    """They are labels."""
    assert len(PROGRAMS) == len({each.name for each in PROGRAMS})
    assert all(isinstance(each.build(df.Pipeline()), df.PCollection) for each in PROGRAMS)

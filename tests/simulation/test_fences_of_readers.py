"""Each owner of a split opens its reader under a greater fence than any owner before."""

from collections import defaultdict
from random import Random
from typing import Any

import pytest

import dataflow as df
from dataflow.source import SourceReader
from runners.testing.scripted_source import ScriptedSource
from runners.testing.simulator import Fault, simulate
from runners.testing.simulator.scripts import in_order
from tests.effort import by_profile

SEEDS = by_profile(10, nightly=1_000)
#: Of each split, in the order in which readers were opened.
FENCES: dict[int, list[int]] = defaultdict(list)


class Fenced(ScriptedSource):
    """Notes the fences."""

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        FENCES[split].append(fence)
        return super().open(split, position, fence=fence)


def fenced(p: df.Pipeline, random: Random) -> None:
    """Elements are read, and no more."""
    drawn = in_order(random)
    p | "read" >> df.Read(Fenced(*drawn._scripts)) | df.Map(lambda pair: pair) | Sink()


class Sink(df.PTransform[Any, Any]):
    """A grouping, so that there is something to do."""

    def expand(self, pcoll: Any) -> Any:
        return pcoll | df.CombinePerKey(sum)


@pytest.mark.slow
def test_fences_grow_with_each_owner() -> None:
    moved = 0
    for seed in range(SEEDS):
        FENCES.clear()
        simulate(
            fenced,
            seeds=[seed],
            faults={Fault.MOVE: 0.3, Fault.CRASH: 0.02, Fault.ZOMBIE: 0.05},
        )
        for fences in FENCES.values():
            # The direct runner, which the outcome is compared with, has none.
            owners = [each for each in fences if each]
            assert owners == sorted(set(owners)), f"seed={seed}"
            moved += len(owners) > 1
    assert moved

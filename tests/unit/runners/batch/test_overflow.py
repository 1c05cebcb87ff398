"""What a single element causes for groupings gets there, also where it is more than should be in memory."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.batch import gather
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.batch.overflow import Overflow
from runners.core.ground.bundle import Bundle
from runners.core.stages import stage_executor
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.core.user_code import do_fn_invoker
from runners.stored.partials import decode_partials

LAYOUT = Layout(
    levels={"read": 0, "sums": 1, "lists": 1},
    offsets={"sums": 0, "lists": 2},
    counts={"sums": 2, "lists": 3},
    wanted={"read": frozenset([0]), "sums": frozenset(range(2)), "lists": frozenset(range(3))},
)
BOUNDS = [
    (stage_executor, "OVERFLOW_RECORDS", 5),
    (do_fn_invoker, "PART_OUTPUTS", 3),
    (gather, "RECORDS_FIRST", 7),
    (gather, "PACKED_BYTES", 200),
]


class Stage:
    """A source, a FlatMap, two groupings and a table."""

    def __init__(self, *, tries: int | None = None) -> None:
        p = df.Pipeline()
        numbers = p | "read" >> df.Create([1]) | df.FlatMap(range)
        pairs = numbers | df.Map(lambda number: (number % 3, number))
        pairs | "sums" >> df.CombinePerKey(sum)
        pairs | "lists" >> df.GroupByKey()
        rows = numbers | "row" >> df.Map(lambda number: {"number": number})
        rows | df.WriteToPostgres("rows", columns={"number": int}, key=["number"])
        execution = plan(p.graph())
        (source,) = execution.sources()
        self.executor = StageExecutor(execution, source, tries=tries)
        self.gatherer = Gatherer(execution, source, LAYOUT)
        self.overflow = Overflow(self.executor, self.gatherer)
        self.rows: list[Any] = []
        self.overflowed = 0

    def run(self, *bundles: list[int]) -> dict[tuple[int, int], Any]:
        """What arrives at each target, by key: all sums, and all values in order."""
        arrived: dict[tuple[int, int], Any] = defaultdict(list)
        for target, blob in self._packed(*bundles):
            for key, _, accumulator, _ in decode_partials(blob, None):
                arrived[target, key] += accumulator
        return {
            place: sum(found) if place[0] < LAYOUT.offsets["lists"] else found
            for place, found in arrived.items()
        }

    def _packed(self, *bundles: list[int]) -> Iterator[tuple[int, bytes]]:
        for values in bundles:
            outputs = self.executor.process(
                Bundle(values, [0] * len(values)), StageClocks.of_source(watermark_us=0, now_us=0)
            )
            for write in outputs.tables:
                self.rows += write.upserts
            packed = list(self.overflow.packed())
            self.overflowed += len(packed)
            yield from packed
            yield from self.gatherer.add(outputs.groups)
        yield from self.gatherer.flush()


@given(bundles=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=2), max_size=5))
def test_everything_arrives_once_and_in_order(bundles: list[list[int]]) -> None:
    whole = Stage()
    expected = whole.run(*bundles)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, bound in BOUNDS:
            patch.setattr(module, name, bound)
        in_parts = Stage()
        arrived = in_parts.run(*bundles)

    assert arrived == expected
    # A part has one row for each key, and so has a bundle that is not divided.
    assert set(in_parts.rows) == set(whole.rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tries", "bundle", "is_taken"),
    [(None, [100_000], True), (1, [100_000], False), (None, [50_000, 50_000], False)],
    ids=["single", "may be left out", "of a chosen size"],
)
def test_only_a_single_element_that_counts_overflows(
    tries: int | None, bundle: list[int], is_taken: bool
) -> None:
    stage = Stage(tries=tries)

    arrived = stage.run(bundle)

    assert (stage.overflowed > 0) is is_taken
    assert sum(len(found) for found in arrived.values() if isinstance(found, list)) == 100_000


@pytest.mark.slow
def test_a_file_goes_with_what_was_read_and_with_the_task() -> None:
    stage = Stage()
    for _ in range(2):
        stage.executor.process(
            Bundle([100_000], [0]), StageClocks.of_source(watermark_us=0, now_us=0)
        )
    file = stage.overflow._file
    assert file is not None
    assert len(list(stage.overflow.packed())) > 0
    assert list(stage.overflow.packed()) == []
    assert file._file.closed

    stage.executor.process(Bundle([100_000], [0]), StageClocks.of_source(watermark_us=0, now_us=0))
    file = stage.overflow._file
    assert file is not None
    stage.overflow.close()
    assert file._file.closed

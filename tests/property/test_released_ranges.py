"""A range that goes to another worker leaves nothing behind in the memory of the one that had it.

Ranges move for as long as a stream runs; what each leaves behind, however little, would add up.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.millwheel.worker.grouping_computation import GroupingComputation
from tests.oracle.laws import microseconds
from tests.property.test_taken_over_holds import STEPS, Job
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW

#: What a computation is made of, what is known of keys whoever has them, and heaps, whose outdated entries go later.
_NOT_OF_A_RANGE = frozenset(
    {"_stage", "_codec", "_combiners", "_pieces", "_column_pieces", "_table", "_heap"}
)


def kept(thing: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """How much every collection has that is reached from a thing, by its place."""
    if isinstance(thing, dict | set | list | deque):
        yield place, len(thing)
    if isinstance(thing, dict):
        for key, each in thing.items():
            yield from kept(each, f"{place}[{key}]")
    if type(thing).__module__.startswith("runners."):
        names = getattr(type(thing), "__slots__", None) or vars(thing)
        for name in set(names) - _NOT_OF_A_RANGE:
            yield from kept(getattr(thing, name, None), f"{place}.{name}")


def memory(owner: GroupingComputation) -> dict[str, int]:
    return {place: size for place, size in kept(owner.state) if size}


@pytest.mark.parametrize("cache_bytes", [None, 0])
@given(
    steps=STEPS,
    window_fn=st.sampled_from([df.FixedWindows(microseconds(20)), df.Sessions(microseconds(10))]),
    combiner=st.sampled_from(df.TimestampCombiner),
    order=st.permutations([0, 1]),
    taken_anew=st.booleans(),
)
def test_nothing_is_left_of_ranges_that_are_gone(
    cache_bytes: int | None,
    steps: Sequence[tuple[int, int, int, bool]],
    window_fn: df.WindowFn,
    combiner: df.TimestampCombiner,
    order: Sequence[int],
    taken_anew: bool,
) -> None:
    job = Job(window_fn, combiner)
    owner = job.owner(job.ranges, cache_bytes)
    unowned = memory(job.owner([], cache_bytes))
    if taken_anew:
        owner = job.owner(job.ranges, cache_bytes)
    watermark_us = MIN_TIMESTAMP_US
    for key, at_us, then_us, is_compacted in steps:
        job.add(owner, key, at_us)
        watermark_us = max(watermark_us, then_us)
        job.advance(owner, watermark_us)
        if is_compacted:
            job.compact(owner)
    for each in order:
        owner.release(job.ranges[each])
    job.advance(owner, MAX_TIMESTAMP_US)

    assert memory(owner) == unowned
    assert owner.state.cache_counts.bytes_buffered == 0
    before = owner.state.cache_counts.misses
    owner.state.cells.need([("a key", GLOBAL_WINDOW)])
    assert owner.state.cache_counts.misses == before, "there is nothing to ask the store for"

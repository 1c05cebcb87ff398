"""A window that has closed costs nothing any more: not an instruction, however many there are."""

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle.evaluator import Windowing
from tests.oracle.laws import microseconds, window_fn
from tests.property.test_garbage_collection import TRIGGERS, WINDOWINGS, Endless, EndlessReader


class CountingReader(EndlessReader):
    """Counts the instructions that the interpreter runs for some of the rounds, whatever they look at."""

    def __init__(self, rounds: int, counted: Sequence[int]) -> None:
        super().__init__(rounds)
        self.instructions = dict.fromkeys(counted, 0)
        self.round = -1

    def read(self, max_records: int) -> df.SourceBatch:
        # From the end of this until it is called again, a round is on its way through the pipeline.
        sys.settrace(None)
        batch = super().read(max_records)
        self.round += 1
        if self.round in self.instructions:
            sys.settrace(self._enter)
        return batch

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.instructions[self.round] += 1
        return self._count


class CountedSource(Endless):
    def __init__(self, reader: CountingReader) -> None:
        super().__init__(reader.rounds)
        self.reader = reader

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return self.reader


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("windowing", WINDOWINGS, ids=lambda each: each.kind)
def test_after_10000_closed_windows_a_record_costs_what_it_did_after_the_first(
    windowing: Windowing,
) -> None:
    """In instructions; five windows and more close in each round."""
    before = sys.gettrace()
    reader = CountingReader(2_001, (10, 11, 12, 1_998, 1_999, 2_000))
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(CountedSource(reader))
        | df.WindowInto(
            window_fn(windowing),
            trigger=TRIGGERS[1],
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=microseconds(windowing.lateness_us),
        )
        | df.CombinePerKey(sum)
        | df.Map(lambda pair: ("all", pair[1]))
        | "again" >> df.GroupByKey()
    )
    try:
        pipeline.run()
    finally:
        sys.settrace(before)
    first, last = (list(reader.instructions.values())[part] for part in (slice(3), slice(3, 6)))

    assert min(first) > 1_000
    # A table that grows, or a string that is interned, can cost a round a few instructions more; what grows with the
    # windows that have closed would cost ten thousand times something.
    assert abs(min(last) - min(first)) < min(first) / 1_000

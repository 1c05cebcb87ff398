"""What a handled combine function fails on does not depend on how a group is divided, ordered, stored and merged.

And in every window, with every trigger and retraction, the rest is combined as if the bad elements had never been.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.exception_handling import ExceptionHandling
from dataflow.handled_combining import HandledCombineFn
from dataflow.serialization import dumps, loads
from dataflow.testing import TestStream
from tests.effort import costly

MODES = list(df.AccumulationMode)
WINDOWS = [df.FixedWindows(60), df.Sessions(40), df.SlidingWindows(60, period=30)]
TRIGGERS = [
    df.DefaultTrigger(),
    df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1)),
    df.Repeatedly(df.AfterCount(2)),
]
#: More numbers than this have no sum, and so have different signs.
LIMIT = 4


class Strict(df.CombineFn[int, list[int], int]):
    """Fails on 0 alone, on numbers of different signs when they meet, and on the result of too many."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        if value == 0:
            raise ZeroDivisionError("nought")
        accumulator.append(value)
        return self._of_one_sign(accumulator)

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return self._of_one_sign([each for accumulator in accumulators for each in accumulator])

    def extract_output(self, accumulator: list[int]) -> int:
        if len(accumulator) > LIMIT:
            raise OverflowError("too many")
        return sum(accumulator)

    def _of_one_sign(self, accumulator: list[int]) -> list[int]:
        if len({each > 0 for each in accumulator}) > 1:
            raise ArithmeticError("different signs")
        return accumulator


@attrs.frozen
class Outcome:
    """What becomes of a group: its bad elements, and its result, or why it has none."""

    bad: list[int]
    result: int | None
    failure: str | None


def defined(values: Sequence[int]) -> Outcome:
    """Without any accumulator."""
    good = [each for each in values if each]
    if any(each > 0 for each in good) and any(each < 0 for each in good):
        return Outcome([0] * values.count(0), None, "ArithmeticError")
    if len(good) > LIMIT:
        return Outcome([0] * values.count(0), None, "OverflowError")
    return Outcome([0] * values.count(0), sum(good), None)


def folded(parts: Sequence[Sequence[int]], order: Sequence[int], *, retries: int) -> Outcome:
    """Each part is checked and folded by itself, goes through bytes, and is merged into what came before in pairs."""
    handling = ExceptionHandling(retries=retries, retry_delay_us=0)
    fn = HandledCombineFn(Strict(), handling, "combine")
    bad, accumulators = [], []
    for part in parts:
        good = []
        for value in part:
            try:
                fn.check(value)
            except ZeroDivisionError:
                bad.append(value)
            else:
                good.append(value)
        accumulator = fn.add_inputs(fn.create_accumulator(), good)
        accumulators.append(loads(dumps(accumulator)))
    while len(accumulators) > 1:
        at = order[len(accumulators)] % (len(accumulators) - 1)
        accumulators[at : at + 2] = [fn.merge_accumulators(accumulators[at : at + 2])]
    result, failure = fn.extract_output(accumulators[0])
    if failure is not None:
        return Outcome(bad, None, failure.exception)
    return Outcome(bad, result, None)


NUMBERS: Any = st.one_of(st.integers(0, 3), st.integers(1, 9), st.integers(-3, 9))


@given(
    st.lists(st.lists(NUMBERS, max_size=3), min_size=1, max_size=6),
    st.lists(st.integers(0, 9), min_size=7, max_size=7),
    st.sampled_from([0, 1]),
)
def test_bad_elements_and_bad_groups_are_those_that_are_defined(
    parts: list[list[int]], order: list[int], retries: int
) -> None:
    values = [each for part in parts for each in part]
    assert folded(parts, order, retries=retries) == defined(values)


ARRIVALS: Any = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2, "x"]), st.integers(0, 200)),
            min_size=1,
            max_size=4,
        ),
        st.integers(0, 60),
    ),
    min_size=1,
    max_size=5,
)


def changes_of(arrivals: Any, into: df.WindowInto, combine: Any, *, is_twice: bool) -> list[str]:
    """What is emitted and retracted, with event time, window and pane; of the sums of all keys, if they are summed."""
    stream, watermark = TestStream(), 0
    for elements, step in arrivals:
        stamped = [df.TimestampedValue((key, value), at) for key, value, at in elements]
        watermark += step
        stream = stream.add_elements(stamped).advance_watermark_to(watermark)
    found: list[str] = []
    with df.Pipeline() as p:
        sums = combine(p | stream | into, "once")
        if is_twice:
            sums = combine(sums | df.Map(lambda pair: ("all", pair[1])), "twice")
        sums | df.ToChangelog() | "see" >> df.Map(lambda change: found.append(seen(change)))
    return sorted(found)


def seen(change: Any) -> str:
    """All of it but the clock."""
    return repr((change.value, change.sign, change.timestamp, change.window, change.pane))


def of_numbers(pairs: Any, label: str) -> Any:
    numbers = pairs | f"numbers {label}" >> df.Filter(lambda pair: pair[1] != "x")
    return numbers | label >> df.CombinePerKey(df.SumCombineFn())


def handled(pairs: Any, label: str) -> Any:
    good, _ = pairs | label >> df.CombinePerKey(df.SumCombineFn()).with_exception_handling()
    return good


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
@costly()
@given(
    ARRIVALS,
    st.sampled_from(WINDOWS),
    st.sampled_from(TRIGGERS),
    st.sampled_from(MODES),
    st.sampled_from(list(df.TimestampCombiner)),
    st.booleans(),
)
def test_the_rest_is_combined_as_if_the_bad_elements_had_never_been(
    arrivals: Any, windows: Any, trigger: Any, mode: Any, combiner: Any, is_twice: bool
) -> None:
    into = df.WindowInto(
        windows,
        trigger=trigger,
        accumulation_mode=mode,
        allowed_lateness=100,
        timestamp_combiner=combiner,
    )
    twice = is_twice and mode is df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    assert changes_of(arrivals, into, handled, is_twice=twice) == changes_of(
        arrivals, into, of_numbers, is_twice=twice
    )

"""What a handled combine function fails on does not depend on how a group is divided, ordered, stored and merged."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.exception_handling import ExceptionHandling
from dataflow.handled_combining import HandledCombineFn
from dataflow.serialization import dumps, loads

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

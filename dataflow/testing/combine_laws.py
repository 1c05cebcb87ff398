"""The law of CombineFns, as a function that a test calls (`dataflow.testing.laws`)."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dataflow.combine_fn import CombineFn, as_combine_fn, can_retract_input
from dataflow.serialization import dumps, loads


def check_combine_fn(
    combine_fn: CombineFn | Callable[[list[Any]], Any],
    values: Iterable[Any],
    *,
    by: Callable[[Any], Any] = lambda output: output,
) -> None:
    """Check that a CombineFn is a commutative monoid on these values, and its `CombineFn.retract_input` an inverse.

    * The order of the values makes no difference, nor does accumulating them in parts that are merged, in any order.
    * An accumulator of nothing changes nothing.
    * `add_inputs` does what `add_input` does one by one.
    * An accumulator survives pickling, as it travels between processes and into the store.
    * `extract_output` may be called again, and what it gave does not change when the accumulator goes on.
    * `merge_accumulators` changes none of its arguments but the first.
    * Where there is a `retract_input`: taking a value out leaves what there was without it, also where it is taken out
      before it is put in, and from an accumulator of nothing.

    Args:
        combine_fn: yours, or a function such as ``sum`` that is `dataflow.associative`; of another function, which is
            called on whole groups, only the order of the values is checked.
        values: what is combined; at least one for anything to be checked.
        by: makes of an output what is compared, where equal outputs may look different: ``sorted`` for lists in any
            order, ``lambda mean: round(mean, 9)`` for floats.

    Raises:
        AssertionError: a law does not hold; shows the values and both outputs.
    """
    values = list(values)
    complaint = _complaint(as_combine_fn(combine_fn), values, by) if values else None
    # Raised in one place only, for hypothesis takes two places for two mistakes, and shrinks each.
    if complaint:
        raise AssertionError(complaint)


def _complaint(
    combine_fn: CombineFn, values: Sequence[Any], by: Callable[[Any], Any]
) -> str | None:
    try:
        laws = _Laws(combine_fn, values, by)
        laws.check_monoid()
        laws.check_accumulators()
        if can_retract_input(combine_fn):
            laws.check_retraction()
    except AssertionError as error:
        return str(error)
    return None


class _Laws:
    def __init__(
        self, combine_fn: CombineFn, values: Sequence[Any], by: Callable[[Any], Any]
    ) -> None:
        self._combine_fn, self._values, self._by = combine_fn, values, by
        self._expected = self._output(self._folded(values))

    def check_monoid(self) -> None:
        fn, values = self._combine_fn, self._values
        for turned in (values[::-1], [*values[1:], values[0]]):
            self._same(self._folded(turned), f"in the order {turned!r}, so it is not commutative")
        one_by_one = fn.create_accumulator()
        for value in values:
            one_by_one = fn.add_input(one_by_one, value)
        self._same(one_by_one, "by add_input, one by one")
        for cut in range(len(values) + 1):
            first, second = values[:cut], values[cut:]
            how = f"merged from {first!r} and {second!r}"
            self._same(fn.merge_accumulators([self._folded(first), self._folded(second)]), how)
            how = f"merged from {second!r} and {first!r}"
            self._same(fn.merge_accumulators([self._folded(second), self._folded(first)]), how)
        ones = [self._folded([value]) for value in values]
        self._same(fn.merge_accumulators(ones), "merged from one accumulator for each value")
        left = self._folded(values[:1])
        for value in values[1:]:
            left = fn.merge_accumulators([left, self._folded([value])])
        self._same(left, "merged one by one, so it is not associative")

    def check_accumulators(self) -> None:
        fn, values = self._combine_fn, self._values
        self._same(loads(dumps(self._folded(values))), "after its accumulator was pickled")
        accumulator = self._folded(values)
        output = fn.extract_output(accumulator)
        snapshot = copy.deepcopy(output)
        self._same(accumulator, "when extract_output is called again")
        fn.merge_accumulators([fn.add_input(accumulator, values[0]), self._folded(values)])
        assert self._by(snapshot) == self._by(output), (
            f"{self._name}: what extract_output gave has changed with its accumulator\n"
            f"  values: {list(values)!r}\n  it was {snapshot!r}\n  it is {output!r}"
        )
        second = self._folded(values)
        merged = fn.merge_accumulators([self._folded(values[:1]), second])
        fn.add_input(merged, values[0])
        self._same(second, "after its accumulator was merged into another, and that went on")

    def check_retraction(self) -> None:
        fn, values = self._combine_fn, self._values
        for index, value in enumerate(values):
            others = [*values[:index], *values[index + 1 :]]
            back = fn.add_input(fn.retract_input(self._folded(values), value), value)
            self._same(back, f"after {value!r} was taken out and put in again")
            early = fn.retract_input(fn.create_accumulator(), value)
            early = fn.add_inputs(fn.add_input(early, value), values)
            self._same(early, f"where {value!r} is taken out before it is put in once more")
            if others:
                without = self._output(fn.retract_input(self._folded(values), value))
                expected = self._output(self._folded(others))
                assert expected == without, (
                    f"{self._name}: retract_input does not invert add_input\n"
                    f"  {list(values)!r} without {value!r}\n  is {without!r}\n  and not {expected!r}"
                )

    @property
    def _name(self) -> str:
        function = getattr(self._combine_fn, "function", type(self._combine_fn))
        return getattr(function, "__name__", repr(function))

    def _folded(self, values: Sequence[Any]) -> Any:
        return self._combine_fn.add_inputs(self._combine_fn.create_accumulator(), list(values))

    def _output(self, accumulator: Any) -> Any:
        return self._by(self._combine_fn.extract_output(accumulator))

    def _same(self, accumulator: Any, how: str) -> None:
        found = self._output(accumulator)
        assert self._expected == found, (
            f"{self._name} does not always return the same\n"
            f"  values: {list(self._values)!r}\n  all at once: {self._expected!r}\n  {how}: {found!r}"
        )

"""with_exception_handling of combine functions: elements that fail alone, and groups that fail as a whole."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

import dataflow as df
from dataflow.testing import TestStream

MODE = df.AccumulationMode


class Positive(df.CombineFn[int, list[int], int]):
    """The sum of up to three numbers, none of which is below zero; the accumulator has the numbers."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        if value < 0:
            raise ValueError(f"{value} is below zero")
        accumulator.append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return sorted(each for accumulator in accumulators for each in accumulator)

    def extract_output(self, accumulator: list[int]) -> int:
        if len(accumulator) > 3:
            raise OverflowError(f"{len(accumulator)} numbers")
        return sum(accumulator)


def run(elements: list[Any], transform: Any) -> tuple[list[Any], list[df.BadElement]]:
    """The good and the bad elements of a transform."""
    good: list[Any] = []
    bad: list[df.BadElement] = []
    with df.Pipeline() as p:
        outputs = p | df.Create(elements) | "under test" >> transform
        outputs["good"] | "good" >> df.Map(good.append)
        outputs["bad"] | "bad" >> df.Map(bad.append)
    return good, bad


def test_an_element_that_cannot_be_added_is_bad_and_the_others_are_combined() -> None:
    pairs = [("a", 1), ("a", -2), ("b", -3), ("a", 4)]
    good, bad = run(pairs, df.CombinePerKey(Positive()).with_exception_handling())

    assert good == [("a", 5)]
    assert [(each.element, each.failure.message) for each in bad] == [
        (("a", -2), "-2 is below zero"),
        (("b", -3), "-3 is below zero"),
    ]
    assert bad[0].failure.transform == "under test/check"
    assert any("in add_input" in line for line in bad[0].failure.traceback)


def test_a_group_without_a_result_is_its_key_and_what_its_accumulator_was() -> None:
    pairs = [("a", each) for each in (1, 2, 3, 4)] + [("b", 1)]
    good, bad = run(pairs, df.CombinePerKey(Positive()).with_exception_handling())

    assert good == [("b", 1)]
    [(element, failure)] = bad
    assert element == ("a", "[1, 2, 3, 4]")
    assert (failure.exception, failure.message) == ("OverflowError", "4 numbers")
    assert failure.transform == "under test"
    assert any("in extract_output" in line for line in failure.traceback)


def test_values_that_fail_only_together_make_their_key_bad() -> None:
    pairs = [("a", 1), ("a", "x"), ("b", "x"), ("b", "y"), ("c", 1)]
    good, bad = run(pairs, df.CombinePerKey(max).with_exception_handling())

    assert sorted(good) == [("b", "y"), ("c", 1)]
    [(element, failure)] = bad
    assert element[0] == "a"
    assert failure.exception == "TypeError"


@pytest.mark.parametrize(
    "fn", [sum, df.SumCombineFn(), df.MeanCombineFn()], ids=["sum", "Sum", "Mean"]
)
def test_shipped_functions_have_it(fn: Any) -> None:
    good, bad = run([("a", 2), ("a", "x")], df.CombinePerKey(fn).with_exception_handling())
    assert (good, [each.element for each in bad]) == ([("a", 2)], [("a", "x")])


def test_of_all_elements_there_is_no_key() -> None:
    combine = df.CombineGlobally(Positive())
    good, bad = run([1, -2, 3], combine.with_exception_handling())
    assert (good, [each.element for each in bad]) == ([4], [-2])

    good, bad = run([1, 2, 3, 4], combine.without_defaults().with_exception_handling())
    assert (good, [each.element for each in bad]) == ([], ["[1, 2, 3, 4]"])


def test_the_result_of_nothing_is_emitted_where_all_elements_are_bad() -> None:
    good, bad = run([-1], df.CombineGlobally(Positive()).with_exception_handling())
    assert (good, [each.element for each in bad]) == ([0], [-1])
    # There is none of max, and that is no failure.
    assert run([], df.CombineGlobally(max).with_exception_handling()) == ([], [])


@pytest.mark.parametrize(
    "combine",
    [
        df.CombinePerKey(Positive()).with_hot_key_fanout(3),
        df.CombineValues(Positive()),
    ],
    ids=["fan-out", "CombineValues"],
)
def test_a_fan_out_and_values_that_are_there_have_it(combine: Any) -> None:
    if isinstance(combine, df.CombineValues):
        good, bad = run([("a", [1, 2]), ("b", [1, -2])], combine.with_exception_handling())
        assert (good, [each.element for each in bad]) == ([("a", 3)], [("b", [1, -2])])
        return
    pairs = [("a", 1), ("a", 2), ("a", -3), *(("b", each) for each in range(5))]
    good, bad = run(pairs, combine.with_exception_handling())
    assert good == [("a", 3)]
    assert [each.element for each in bad] == [("a", -3), ("b", "[0, 1, 2, 3, 4]")]


def some_shards(key: str) -> Any:
    if key == "b":
        raise LookupError(f"no shards for {key}")
    return {"c": "many"}.get(key, 2)


def test_the_function_of_a_fan_out_has_it() -> None:
    """It fails on a key: each element of it is bad, and the rest is combined."""
    combine = df.CombinePerKey(Positive()).with_hot_key_fanout(some_shards)
    pairs = [("a", 1), ("b", 2), ("a", 2), ("b", 3), ("c", 4)]
    good, bad = run(pairs, combine.with_exception_handling())

    assert good == [("a", 3)]
    assert [each.element for each in bad] == [("b", 2), ("b", 3), ("c", 4)]
    assert [each.failure.message for each in bad[:2]] == ["no shards for b"] * 2
    assert "in some_shards" in "".join(bad[0].failure.traceback)
    assert "cannot be divided into 'many' shards" in bad[2].failure.message

    with pytest.raises(df.DataflowError, match="no shards for b") as raised, df.Pipeline() as p:
        p | df.Create(pairs) | combine
    assert "element: ('b', 2)" in str(raised.value)


class Sale(NamedTuple):
    shop: str
    amount: Any


def test_aggregates_have_it() -> None:
    sales = [Sale("Oslo", 3), Sale("Oslo", "?"), Sale("Bergen", 1)]
    group = df.GroupBy("shop").aggregate_field("amount", sum, "total")
    good, bad = run(sales, group.with_exception_handling())

    assert sorted(tuple(each) for each in good) == [("Bergen", 1), ("Oslo", 3)]
    assert [each.element for each in bad] == [("Oslo", ("?",))]


class Picky(Positive):
    """Fails with its accumulator changed, for the first time that it is called with 7."""

    failed = False

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        accumulator.append(value)
        if value == 7 and len(accumulator) > 1 and not self.failed:
            self.failed = True
            raise ConnectionError("away")
        return accumulator


def test_each_attempt_begins_with_the_same_accumulator() -> None:
    pairs = [("a", 1), ("a", 7)]
    handled = df.CombinePerKey(Picky()).with_exception_handling(retries=1, retry_delay=0)
    assert run(pairs, handled) == ([("a", 8)], [])
    handled = df.CombinePerKey(Picky()).with_exception_handling()
    assert [each.element for each in run(pairs, handled)[1]] == [("a", "[1, 7]")]


def test_another_exception_ends_the_run() -> None:
    handled = df.CombinePerKey(Positive()).with_exception_handling(exc_class=OverflowError)
    with pytest.raises(df.TransformError, match="raised ValueError: -1 is below zero"):
        run([("a", -1)], handled)


def test_a_callback_is_called_of_elements_and_of_groups() -> None:
    called: list[tuple[str, Any]] = []

    def call(error: BaseException, element: Any) -> None:
        called.append((type(error).__name__, element))

    handled = df.CombinePerKey(Positive()).with_exception_handling(on_failure_callback=call)
    run([("a", each) for each in (0, 1, -2, 3, 4)], handled)
    assert called == [("ValueError", ("a", -2)), ("OverflowError", "[0, 1, 3, 4]")]


def test_too_many_bad_elements_end_the_run_and_so_do_too_many_bad_keys() -> None:
    pairs = [("a", -1), ("a", 1), ("b", 1)]
    assert run(pairs, df.CombinePerKey(Positive()).with_exception_handling(threshold=0.4))
    with pytest.raises(df.TooManyFailuresError, match="failed on 1 of 3 elements"):
        run(pairs, df.CombinePerKey(Positive()).with_exception_handling(threshold=0.3))
    pairs = [*(("a", each) for each in range(4)), ("b", 1)]
    with pytest.raises(df.TooManyFailuresError, match="failed on 1 of 2 elements"):
        run(pairs, df.CombinePerKey(Positive()).with_exception_handling(threshold=0.3))


def test_failures_are_in_the_windows_of_what_failed() -> None:
    minutes = df.WindowInto(df.FixedWindows(60))
    at = [df.TimestampedValue(("a", -1), 5), *(df.TimestampedValue(("b", 1), 65) for _ in range(4))]
    starts: list[tuple[Any, int]] = []
    with df.Pipeline() as p:
        _, bad = (
            p | df.Create(at) | minutes | df.CombinePerKey(Positive()).with_exception_handling()
        )
        grouped = bad | df.Map(lambda each: (each.element[0], 1)) | df.CombinePerKey(sum)

        def note(pair: tuple[str, int], window: Any = df.DoFn.WindowParam) -> None:
            starts.append((pair, window.start_us // 1_000_000))

        grouped | "note" >> df.Map(note)
    assert sorted(starts) == [(("a", 1), 0), (("b", 1), 60)]


class Once(Positive):
    """Has no result where one number is there twice."""

    def extract_output(self, accumulator: list[int]) -> int:
        if len(set(accumulator)) < len(accumulator):
            raise OverflowError("twice")
        return sum(accumulator)


def test_the_failure_of_a_pane_is_retracted_with_it() -> None:
    """When each name has come once, 1 is there twice, until one of the names comes again."""
    always = df.WindowInto(
        df.GlobalWindows(),
        trigger=df.Always(),
        accumulation_mode=MODE.ACCUMULATING_AND_RETRACTING,
    )
    stream = TestStream()
    for name in "xyx":
        stream = stream.add_elements([(name, 1)])
    good: list[Any] = []
    bad: list[tuple[Any, int]] = []
    with df.Pipeline() as p:
        totals = p | stream | always | df.CombinePerKey(sum)
        all_of_one = totals | df.Map(lambda pair: ("all", pair[1]))
        results, failures = all_of_one | df.CombinePerKey(Once()).with_exception_handling()
        results | df.ToChangelog() | df.Map(lambda each: good.append((each.value, each.sign)))
        texts = failures | df.Map(lambda each: each.element)
        (
            texts
            | "log" >> df.ToChangelog()
            | "bad" >> df.Map(lambda each: bad.append((each.value, each.sign)))
        )

    failed = ("all", "[1, 1]")
    assert bad == [(failed, 1), (failed, -1)]
    assert good[0] == (("all", 1), 1)
    assert good[-1] == (("all", 3), 1)


def test_what_a_check_counts_does_not_count() -> None:
    class Counting(Positive):
        def add_input(self, accumulator: list[int], value: int) -> list[int]:
            df.Metrics.counter("test", "added").inc()
            return super().add_input(accumulator, value)

    with df.Pipeline() as p:
        p | df.Create([("a", 1), ("a", 2)]) | df.CombinePerKey(Counting()).with_exception_handling()
    assert p.result is not None
    [counter] = p.result.metrics().query()["counters"]
    assert counter.committed == 2

"""assert_that: what it accepts, what it says when it fails, and that it cannot be forgotten."""

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import (
    Matcher,
    TestStream,
    UncheckedWarning,
    assert_that,
    contains_in_any_order,
    equal_to,
    in_early_panes,
    in_final_fold,
    in_final_pane,
    in_late_panes,
    in_on_time_pane,
    in_pane,
    in_window,
    is_empty,
    is_not_empty,
    retracted,
    satisfies,
)
from runners.direct import DirectRunner

Mode = df.AccumulationMode
#: Two minutes; the first has an early pane, one on time, and two corrections.
SCORES = (
    TestStream()
    .add_elements([df.TimestampedValue(("red", 5), 30)])
    .advance_processing_time(10)
    .add_elements([df.TimestampedValue(("red", 1), 40), df.TimestampedValue(("red", 7), 90)])
    .advance_watermark_to(60)
    .add_elements([df.TimestampedValue(("red", 9), 20)])
    .add_elements([df.TimestampedValue(("red", 2), 20)])
)
EVERY_PANE = df.AfterWatermark(early=df.AfterProcessingTime(10), late=df.AfterCount(1))


def totals(p: df.Pipeline, mode: Mode, window_fn: df.WindowFn | None = None) -> Any:
    return (
        p
        | SCORES
        | df.WindowInto(
            window_fn or df.FixedWindows(60),
            trigger=EVERY_PANE,
            accumulation_mode=mode,
            allowed_lateness=600,
        )
        | df.CombinePerKey(sum)
    )


def failure(*matchers: Matcher, mode: Mode = Mode.ACCUMULATING) -> str:
    """What assert_that says about the totals; empty if it agrees."""
    try:
        with df.Pipeline(DirectRunner()) as p:
            assert_that(totals(p, mode), *matchers)
    except AssertionError as error:
        return str(error)
    return ""


def red(*values: int) -> Matcher:
    return contains_in_any_order([("red", value) for value in values])


@pytest.mark.parametrize(
    ("mode", "emitted", "fold"),
    [
        (Mode.DISCARDING, [5, 1, 9, 2, 7], [5, 1, 9, 2, 7]),
        (Mode.ACCUMULATING, [5, 6, 15, 17, 7], [17, 7]),
        (Mode.ACCUMULATING_AND_RETRACTING, [5, 6, 15, 17, 7], [17, 7]),
    ],
)
def test_all_that_was_emitted_and_what_it_adds_up_to(
    mode: Mode, emitted: list[int], fold: list[int]
) -> None:
    assert "" == failure(red(*emitted), in_final_fold(red(*fold)), mode=mode)


def test_one_window_and_one_timing() -> None:
    assert "" == failure(
        in_window((0, 60), red(5, 6, 15, 17)),
        in_window(df.Window(60_000_000, 120_000_000), red(7)),
        in_window((120, 180), is_empty()),
        in_early_panes(red(5)),
        in_on_time_pane(red(6, 7)),
        in_late_panes(red(15, 17)),
        in_window((0, 60), in_on_time_pane(red(6))),
        in_pane(0, red(5, 7)),
        in_final_pane(red(7)),
        satisfies(lambda pairs: sum(value for _, value in pairs) == 50),
    )


def test_the_final_pane_is_the_one_that_is_marked_as_such() -> None:
    with df.Pipeline(DirectRunner()) as p:
        ones = p | df.Create([("red", 1)]) | df.CombinePerKey(sum)
        assert_that(ones, in_final_pane(red(1)))


def test_what_was_retracted() -> None:
    mode = Mode.ACCUMULATING_AND_RETRACTING

    assert "" == failure(retracted(red(5, 6, 15)), mode=mode)
    assert "" == failure(retracted(in_late_panes(red(15))), mode=mode)
    assert "  retracted" in failure(retracted(is_empty()), mode=mode)
    assert "" == failure(retracted(is_empty()))


def test_discarded_panes_fold_as_the_user_asks() -> None:
    fold = in_final_fold(red(17, 7), combine=sum)

    assert "" == failure(fold, mode=Mode.DISCARDING)


@pytest.mark.parametrize("mode", Mode)
def test_the_fold_of_merged_windows_has_no_stale_sessions(mode: Mode) -> None:
    """In whatever order they were merged; the last 20 joins two sessions that have fired."""
    stream = TestStream()
    for second in (0, 35, 20):
        stream = stream.add_elements([df.TimestampedValue(("red", second + 1), second)])
    with df.Pipeline(DirectRunner()) as p:
        sums = (
            p
            | stream
            | df.WindowInto(df.Sessions(30), trigger=df.Always(), accumulation_mode=mode)
            | df.CombinePerKey(sum)
        )
        assert_that(sums, in_final_fold(red(58), combine=sum))


def test_elements_without_keys_need_to_be_given_theirs() -> None:
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(AssertionError, match=r"no \(key, value\) pair; pass key_of="),
        df.Pipeline(DirectRunner()) as p,
    ):
        numbers = totals(p, Mode.ACCUMULATING) | df.Map(lambda pair: pair[1])
        assert_that(
            numbers,
            in_final_fold(contains_in_any_order([17, 7]), key_of=lambda _: "red"),
            in_final_fold(contains_in_any_order([17, 7])),
        )


def test_elements_need_not_be_hashable() -> None:
    with df.Pipeline(DirectRunner()) as p:
        lists = p | df.Create([[1], [2], [1], {"a": 1}, (1, [2])])
        assert_that(lists, contains_in_any_order([[2], [1], (1, [2]), {"a": 1}, [1]]))


@pytest.mark.parametrize("matcher", [red(5, 6, 15, 17), red(5, 6, 15, 17, 7, 7), red()])
def test_each_element_counts(matcher: Matcher) -> None:
    assert failure(matcher)


def test_a_failure_names_the_place_and_shows_what_differs() -> None:
    minute = "[1970-01-01T00:00:00+00:00, 1970-01-01T00:01:00+00:00)"
    line = line_of(failure, "assert_that(")

    assert [
        (
            f"transform 'assert_that' (tests/unit/dataflow/testing/test_assertions.py:{line}): "
            "the elements are not as asserted"
        ),
        f"  in window {minute}, in the on-time pane",
        "  missing:",
        "    ('red', 8)",
        "    ('red', 8)",
        "  unexpected:",
        f"    ('red', 6) in window {minute}, pane 1 (on_time)",
        "  in early panes",
        "  unexpected:",
        f"    ('red', 5) in window {minute}, pane 0 (early)",
    ] == failure(in_window((0, 60), in_on_time_pane(red(8, 8))), in_early_panes(red())).splitlines()


def line_of(function: Callable[..., Any], text: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    start = function.__code__.co_firstlineno
    return next(n for n, line in enumerate(lines, 1) if n > start and text in line)


def test_long_differences_are_cut() -> None:
    assert "... and 30 more" in failure(red(5, 6, 15, 17, 7, *range(100, 150)))


def test_every_failure_is_reported() -> None:
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(AssertionError) as caught,
        df.Pipeline(DirectRunner()) as p,
    ):
        numbers = p | df.Create([1])
        assert_that(numbers, is_empty(), label="first")
        assert_that(numbers, contains_in_any_order([1]))
        assert_that(numbers, contains_in_any_order([2]), is_empty())

    assert "transform 'first'" in str(caught.value)
    assert "transform 'assert_that#2'" in str(caught.value)
    assert "transform 'assert_that' " not in str(caught.value)


def test_a_function_may_assert_or_answer() -> None:
    def is_small(elements: list[Any]) -> None:
        assert len(elements) < 2, "too many"

    assert "is_small raised AssertionError: too many" in failure(satisfies(is_small))
    assert "<lambda> returned False" in failure(satisfies(lambda _: False))
    assert "elements: none" in failure(in_window((200, 300), satisfies(lambda _: 0)))
    assert "" == failure(satisfies(lambda _: None))


def test_the_check_happens_when_the_run_is_waited_for() -> None:
    p = df.Pipeline(DirectRunner())
    assert_that(p | df.Create([1]), is_empty())
    result = p.run()
    with pytest.raises(AssertionError, match="unexpected"):
        result.wait_until_finish()

    assert p.result is result
    assert [] == result.late_records()
    with pytest.raises(df.PipelineError, match="writes no table"):
        result.read_table("nothing")


def forget(*, run: bool) -> None:
    p = df.Pipeline(DirectRunner())
    assert_that(p | df.Create([1]), is_empty(), label="forgotten")
    if run:
        p.run()
    del p
    gc.collect()


@pytest.mark.usefixtures("frozen_heap")
@pytest.mark.parametrize("run", [False, True])
def test_an_assertion_that_was_never_made_warns(run: bool) -> None:
    with pytest.warns(UncheckedWarning, match=r"never checked: transform 'forgotten'"):
        forget(run=run)


@pytest.mark.slow
def test_an_assertion_that_was_never_made_warns_when_python_ends() -> None:
    program = """
        import dataflow as df
        from dataflow.testing import assert_that, is_empty
        p = df.Pipeline()
        assert_that(p | df.Create([1]), is_empty())
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )

    assert "UncheckedWarning: never checked: transform 'assert_that'" in ran.stderr


@pytest.mark.usefixtures("frozen_heap")
def test_an_error_on_its_way_is_enough() -> None:
    """No warning on top of it: not from the block, nor from the run."""
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(KeyError),
        df.Pipeline(DirectRunner()) as p,
    ):
        assert_that(p | df.Create([1]), is_empty())
        raise KeyError
    with (
        pytest.raises(df.TransformError),
        df.Pipeline(DirectRunner()) as p,
    ):
        assert_that(p | df.Create([1]) | df.Map(lambda x: x / 0), is_empty())
    del p
    gc.collect()


@pytest.mark.usefixtures("frozen_heap")
def test_the_result_may_outlive_the_pipeline() -> None:
    def started() -> df.PipelineResult:
        p = df.Pipeline(DirectRunner())
        assert_that(p | df.Create([1]), contains_in_any_order([1]))
        return p.run()

    result = started()
    gc.collect()
    result.wait_until_finish()


def test_an_assertion_of_nothing_is_refused() -> None:
    p = df.Pipeline(DirectRunner())
    numbers = p | df.Create([1])
    with pytest.raises(df.PipelineError, match="asserts nothing"):
        assert_that(numbers)
    with pytest.raises(df.PipelineError, match="needs matchers, not"):
        assert_that(numbers, [1])  # type: ignore[arg-type]
    with pytest.raises(df.PipelineError, match="ends after its start"):
        in_window((60, 0), is_empty())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["strategies", "laws"])
def test_only_strategies_need_hypothesis(module: str) -> None:
    program = f"""
        import sys
        sys.modules["hypothesis"] = None
        import dataflow.testing.{module}
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )

    message = 'ImportError: dataflow.testing.strategies needs hypothesis: pip install "dataflow-model[testing]"'
    assert (message in ran.stderr) == (module == "strategies")
    assert (ran.returncode == 0) == (module == "laws")


def test_matchers_have_the_names_of_beam() -> None:
    elements = [("red", 12), ("red", 7), ("red", 21), ("red", 23), ("red", 5)]
    assert failure(equal_to(elements), is_not_empty()) == failure(contains_in_any_order(elements))
    assert "missing" in failure(equal_to([*elements, ("blue", 1)]))
    with pytest.raises(AssertionError, match="there is none"), df.Pipeline() as p:
        assert_that(p | df.Create([]), is_not_empty())

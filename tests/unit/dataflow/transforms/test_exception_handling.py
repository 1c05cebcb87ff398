"""with_exception_handling: elements that user code fails on are an output, with what failed, and the rest goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import dataflow as df
from dataflow.testing import assert_that, contains_in_any_order


def number_of(text: str) -> int:
    return int(text)


def run(lines: list[Any], transform: Any, **options: Any) -> tuple[list[Any], list[df.BadElement]]:
    """The good and the bad elements of a transform."""
    good: list[Any] = []
    bad: list[df.BadElement] = []
    with df.Pipeline(**options) as p:
        outputs = p | df.Create(lines) | "under test" >> transform
        outputs[0 if isinstance(outputs, tuple) else "good"] | "good" >> df.Map(good.append)
        outputs[1 if isinstance(outputs, tuple) else "bad"] | "bad" >> df.Map(bad.append)
    return good, bad


def test_a_failure_has_what_failed_where() -> None:
    good, [bad] = run(["1", "nine"], df.Map(number_of).with_exception_handling())

    assert good == [1]
    element, (exception, message, lines, transform, origin) = bad
    assert (element, exception, transform, origin) == ("nine", "ValueError", "under test", None)
    assert message == "invalid literal for int() with base 10: 'nine'"
    assert lines[0] == "Traceback (most recent call last):"
    assert "in number_of" in lines[1]
    assert lines[2] == "    return int(text)"
    assert lines[-1] == f"ValueError: {message}"


@pytest.mark.parametrize(
    ("transform", "good"),
    [
        (df.Filter(number_of), ["1"]),
        (df.FlatMap(lambda text: [number_of(text)] * 2), [1, 1]),
        (df.MapTuple(lambda first, *more: number_of(first)), [1]),
        (df.Map(int, 10), [1]),
        (df.WithTimestamps(number_of), ["1"]),
    ],
    ids=["Filter", "FlatMap", "MapTuple", "arguments", "WithTimestamps"],
)
def test_every_transform_of_a_function_has_it(transform: Any, good: list[Any]) -> None:
    found, bad = run(["1", "x"], transform.with_exception_handling())

    assert found == good
    assert [(each.element, each.failure.exception) for each in bad] == [("x", "ValueError")]


class Halved(df.DoFn):
    """Emits before it fails."""

    def process(
        self, element: int, /, at: Any = df.DoFn.TimestampParam
    ) -> Iterator[int | df.TaggedOutput]:
        yield element
        if element % 2:
            raise LookupError(element)
        yield df.TaggedOutput("halves", element // 2)


def test_what_a_failed_call_has_emitted_is_not_kept() -> None:
    good, bad = run([1], df.ParDo(Halved()).with_exception_handling())
    assert (good, [each.element for each in bad]) == ([], [1])


def test_what_a_failed_call_has_emitted_is_kept_if_it_is_asked_for() -> None:
    good, bad = run([1], df.ParDo(Halved()).with_exception_handling(partial=True))
    assert (good, [each.element for each in bad]) == ([1], [1])


def test_further_outputs_stay() -> None:
    with df.Pipeline() as p:
        handled = df.ParDo(Halved()).with_outputs("halves").with_exception_handling()
        main, halves, bad = p | df.Create([1, 4]) | handled
        assert_that(main, contains_in_any_order([4]), label="main")
        assert_that(halves, contains_in_any_order([2]), label="halves")
        elements = bad | df.Map(lambda each: each.element)
        assert_that(elements, contains_in_any_order([1]), label="bad")


class Row(NamedTuple):
    x: int


class Inverted(df.DoFn):
    """Takes batches alone."""

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [10 // each.as_py() for each in batch.column(0)]
        return pa.RecordBatch.from_arrays([pa.array(numbers)], names=batch.schema.names)


def test_the_row_that_a_batch_fails_on_is_found() -> None:
    rows = [Row(each) for each in (1, 0, 5, 2, 0)]
    good, bad = run(rows, df.ParDo(Inverted()).with_exception_handling())

    assert sorted(each.x for each in good) == [2, 5, 10]
    assert [(each.element, each.failure.exception) for each in bad] == [
        (Row(0), "ZeroDivisionError")
    ] * 2


def test_another_exception_ends_the_run() -> None:
    with pytest.raises(df.TransformError, match="raised ValueError"):
        run(["x"], df.Map(number_of).with_exception_handling(exc_class=(KeyError, TypeError)))


def test_another_exception_is_a_dead_letter_where_these_are_kept() -> None:
    p = df.Pipeline(tries_per_record=1)
    p | df.Create(["x"]) | df.Map(number_of).with_exception_handling(exc_class=KeyError)
    result = p.run()
    result.wait_until_finish()

    assert [each["element"].value for each in result.dead_letters()] == ["x"]


class Flaky:
    """Fails as often as it is called for each element."""

    def __init__(self, failures: int) -> None:
        self.left, self.calls = failures, 0

    def __call__(self, element: Any) -> Any:
        self.calls += 1
        if self.calls <= self.left:
            raise ConnectionError(f"call {self.calls}")
        return element


def test_an_element_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("dataflow.exception_handling.time.sleep", waited.append)
    handled = {"retries": 3, "retry_delay": 2}

    assert run(["a"], df.Map(Flaky(3)).with_exception_handling(**handled)) == (["a"], [])  # type: ignore[call-overload]
    assert waited == [2, 4, 8]
    [bad] = run(["a"], df.Map(Flaky(4)).with_exception_handling(**handled))[1]  # type: ignore[call-overload]
    assert bad.failure.message == "call 4"


def test_a_callback_is_called_for_each_failure() -> None:
    called: list[tuple[str, Any]] = []

    def call(error: BaseException, element: Any) -> None:
        called.append((type(error).__name__, element))

    run(["x", "1"], df.Map(number_of).with_exception_handling(on_failure_callback=call))
    assert called == [("ValueError", "x")]


def test_a_callback_that_fails_is_an_error_of_the_transform() -> None:
    def call(error: BaseException, element: Any) -> None:
        raise OSError("no network")

    with pytest.raises(df.TransformError, match=r"'under test'.* raised OSError: no network"):
        run(["x"], df.Map(number_of).with_exception_handling(on_failure_callback=call))


@pytest.mark.parametrize("tries", [None, 3])
def test_too_many_failures_end_the_run(tries: int | None) -> None:
    """Also where failing records are kept: it is no single record that fails."""
    with pytest.raises(df.TooManyFailuresError) as failure:
        run(
            ["x", "y", "1", "2", "3"],
            df.Map(number_of).with_exception_handling(threshold=0.3),
            tries_per_record=tries,
        )

    assert "transform 'under test' (tests/unit" in failure.value.fact
    assert failure.value.fact.endswith(
        "failed on 2 of 5 elements, which is above its threshold of 0.3"
    )


def test_a_proportion_is_counted_for_each_window() -> None:
    lines = [df.TimestampedValue(*each) for each in [("x", 1), ("1", 61), ("2", 62)]]
    by_minute = {"threshold": 0.5, "threshold_windowing": df.FixedWindows(60)}

    run(lines, df.Map(number_of).with_exception_handling(threshold=0.5))
    with pytest.raises(
        df.TooManyFailuresError, match=r"failed on 1 of 1 elements in the window \["
    ):
        run(lines, df.Map(number_of).with_exception_handling(**by_minute))  # type: ignore[arg-type]


def test_failures_of_steps_in_other_windows_are_in_the_global_one() -> None:
    @df.ptransform_fn
    def steps(lines: df.PCollection[str]) -> df.PCollection[float]:
        numbers = lines | "parse" >> df.Map(number_of) | df.WindowInto(df.FixedWindows(60))
        return numbers | "invert" >> df.Map(lambda number: 1 / number)

    lines = [df.TimestampedValue(each, 5) for each in ("2", "0", "x")]
    good, bad = run(lines, steps().with_exception_handling())

    assert good == [0.5]
    assert {(each.element, each.failure.transform) for each in bad} == {
        ("x", "under test/parse"),
        (0, "under test/invert"),
    }


def test_a_side_input_is_no_part_of_the_bad_element() -> None:
    with df.Pipeline() as p:
        factor = p | "factor" >> df.Create([2])
        times = df.Map(lambda text, by: int(text) * by, df.AsSingleton(factor))
        good, bad = p | df.Create(["3", "x"]) | "times" >> times.with_exception_handling()
        assert_that(good, contains_in_any_order([6]), label="good")
        elements = bad | df.Map(lambda each: each.element)
        assert_that(elements, contains_in_any_order(["x"]), label="bad")


def test_a_line_that_is_no_json_is_a_bad_element(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    good: list[Any] = []
    bad: list[df.BadElement] = []
    with df.Pipeline() as p:
        rows, failures = p | df.ReadFromJsonLines(path).with_exception_handling()
        rows | "good" >> df.Map(good.append)
        failures | "bad" >> df.Map(bad.append)

    assert good == [{"a": 1}, {"a": 3}]
    [(element, failure)] = bad
    assert element == '{"a": '
    assert failure.origin is not None
    assert (failure.origin.path, failure.origin.line) == (str(path), 2)
    assert failure.origin.raw == b'{"a": \n'
    assert "a line that is not JSON, in line 2" in failure.message


def test_records_that_are_handled_are_no_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1\n")
    p = df.Pipeline(tries_per_record=1)
    p | df.ReadFromCsv(path).with_exception_handling()
    result = p.run()
    result.wait_until_finish()

    assert result.dead_letters() == []


def test_the_class_of_what_event_time_raises_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    read = df.ReadFromCsv(path, event_time=lambda row: row["at"])
    with df.Pipeline() as p:
        _, bad = p | read.with_exception_handling(exc_class=KeyError)
        names = bad | df.Map(lambda each: each.failure.exception)
        assert_that(names, contains_in_any_order(["KeyError"]))

    p = df.Pipeline()
    p | read.with_exception_handling(exc_class=ZeroDivisionError)
    with pytest.raises(df.InputError, match="without an event time, in line 2"):
        p.run()


@pytest.mark.parametrize(
    "transform",
    [df.GroupByKey(), df.Distinct(), df.Deduplicate("1 minute"), df.GroupIntoBatches(2)],
    ids=lambda transform: type(transform).__name__,
)
def test_what_has_nothing_to_handle_is_refused(transform: Any) -> None:
    with pytest.raises(df.PipelineError, match="has no exceptions that could be handled"):
        df.Pipeline() | df.Create([("a", 1)]) | transform.with_exception_handling()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"exc_class": "ValueError"}, "a class of exceptions"),
        ({"exc_class": KeyboardInterrupt}, "a class of exceptions"),
        ({"threshold": 5}, "a proportion from 0 to 1"),
        ({"threshold_windowing": 60}, "df.FixedWindows(60)"),
        ({"retries": -1}, "0 or more"),
        ({"retry_delay": "soon"}, "a length of time"),
        ({"on_failure_callback": 3}, "a function of (error, element)"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(df.PipelineError) as failure:
        df.Map(number_of).with_exception_handling(**arguments)

    assert "(tests/unit/dataflow/transforms/test_exception_handling.py:" in failure.value.fact
    assert hint in failure.value.hint


def test_outputs_of_one_name_are_refused() -> None:
    with pytest.raises(df.PipelineError, match="'good' is the tag of both"):
        df.Map(number_of).with_exception_handling("good", "good")
    handled = df.ParDo(Halved()).with_outputs("bad").with_exception_handling()
    with pytest.raises(df.PipelineError, match="has an output 'bad' already"):
        df.Pipeline() | df.Create([1]) | handled

"""Mistakes of the first day, each with the message that is to help: fact, the user's line, what to do."""

import bz2
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.pipeline import UnrunWarning


def pipeline_first() -> None:
    df.Pipeline() | df.Map(print)  # type: ignore[operator]


def class_for_object() -> None:
    df.Pipeline() | df.Create([(1, 2)]) | df.GroupByKey


def class_of_a_read() -> None:
    df.Pipeline() | df.Create


def function_for_transform() -> None:
    df.Pipeline() | df.Create([1]) | print  # type: ignore[operator]


def read_in_the_middle() -> None:
    df.Pipeline() | df.Create([1]) | df.Create([2])  # type: ignore[operator]


def collection_in_a_lambda() -> None:
    p = df.Pipeline()
    factors = p | "factors" >> df.Create([2])
    p | "numbers" >> df.Create([1]) | df.Map(lambda number: (number, factors))


def do_fn_without_process() -> None:
    class Doubles(df.DoFn):
        def proces(self, element: int) -> list[int]:
            return [2 * element]

    df.Pipeline() | df.Create([1]) | df.ParDo(Doubles())


def batch_without_a_job() -> None:
    df.Pipeline("batch")


def misspelt_option() -> None:
    df.Pipeline("direct", tries_per_recrod=2)  # type: ignore[call-arg] # is also refused at run time


def unknown_runner() -> None:
    df.Pipeline("DirectRunner")


def another_engine() -> None:
    df.Pipeline("flink")


def missing_argument() -> None:
    df.Pipeline() | df.Create([1]) | df.Map(lambda number, factor: number * factor)


def argument_too_many() -> None:
    df.Pipeline() | df.Create([1]) | df.Map(lambda number, factor: number * factor, 2, 3)


def class_of_a_combiner() -> None:
    df.Pipeline() | df.Create([("a", 1)]) | df.CombinePerKey(df.MeanCombineFn)  # type: ignore[arg-type]


def class_of_a_do_fn() -> None:
    df.Pipeline() | df.Create([1]) | df.ParDo(Upper)  # type: ignore[arg-type]


def do_fn_for_a_function() -> None:
    df.Pipeline() | df.Create([1]) | df.Map(Upper())  # type: ignore[call-overload]


def called_function() -> None:
    df.Pipeline() | df.Create([1]) | df.Map(print())  # type: ignore[call-overload]


def family_for_a_combiner() -> None:
    df.Pipeline() | df.Create([("a", 1)]) | df.CombinePerKey(df.Mean)


def function_of_two_values() -> None:
    df.Pipeline() | df.Create([("a", 1)]) | df.CombinePerKey(lambda a, b: a + b)  # type: ignore[arg-type, misc]


def flatten_of_one() -> None:
    df.Pipeline() | df.Create([1]) | df.Flatten()  # type: ignore[operator]


def join_of_one() -> None:
    df.Pipeline() | df.Create([("a", 1)]) | df.Join()  # type: ignore[operator]


def co_group_of_one() -> None:
    df.Pipeline() | df.Create([("a", 1)]) | df.CoGroupByKey()  # type: ignore[operator]


def output_that_does_not_exist() -> None:
    texts = df.Pipeline() | df.Create(["a"])
    outputs = texts | df.FlatMap(str.split).with_outputs("late")
    outputs["early"]


def loop_over_a_collection() -> None:
    numbers = df.Pipeline() | df.Create([1])
    [each + 1 for each in numbers]  # type: ignore[attr-defined]


def list_of_a_collection() -> None:
    numbers = df.Pipeline() | df.Create([1])
    list(numbers)  # type: ignore[call-overload]


def unpacked_collection() -> None:
    numbers = df.Pipeline() | df.Create([1])
    _, _ = numbers  # type: ignore[misc]


def length_of_a_collection() -> None:
    numbers = df.Pipeline() | df.Create([1])
    len(numbers)  # type: ignore[arg-type]


def first_of_a_collection() -> None:
    numbers = df.Pipeline() | df.Create([1])
    numbers[0]  # type: ignore[index]


def misspelt_job() -> None:
    df.Pipeline("batch", jbo="a")  # type: ignore[call-arg] # is also refused at run time


def element_in_another_place() -> None:
    def labelled(at: Any, element: Any = df.DoFn.ElementParam) -> Any:
        return at, element

    df.Pipeline() | df.Create([1]) | df.Map(labelled)


def text_for_elements() -> None:
    df.Pipeline() | df.Create("ab")


def forgotten_event_times() -> None:
    rows = df.Pipeline() | "rows" >> df.Create([("a", 1)])
    rows | df.WindowInto(df.FixedWindows(60))


class Upper(df.DoFn):
    def process(self, element: str) -> str:
        return element.upper()


@pytest.mark.parametrize(
    ("mistake", "fact", "hint"),
    [
        (pipeline_first, "'Map(print)' (L) is applied to the pipeline", "p | df.Create("),
        (class_for_object, "GroupByKey is a class (L)", "df.GroupByKey()"),
        (class_of_a_read, "Create is a class (L)", "df.Create(...)"),
        (function_for_transform, "<built-in function print> is no transform (L)", "df.Map("),
        (read_in_the_middle, "(L) begins a pipeline", "df.Flatten()"),
        (collection_in_a_lambda, "'Map(<lambda>)' (L) cannot be sent", "df.AsList(pcollection)"),
        (collection_in_a_lambda, "that of transform 'factors/Read(", "df.CoGroupByKey()"),
        (do_fn_without_process, "'ParDo(Doubles)' (L) has a DoFn without process", "process(self"),
        (
            batch_without_a_job,
            "'batch' needs the option job (L)",
            'df.Pipeline("batch", job="a-name")',
        ),
        (unknown_runner, "there is no runner 'DirectRunner' (L)", 'df.Pipeline("direct")?'),
        (another_engine, "there is no runner 'flink' (L)", "batch reads what is there"),
        (missing_argument, "'Map(<lambda>)' (L) cannot be called with one element", "df.Map(f, 3)"),
        (argument_too_many, "(L) was given arguments that do not fit", "the element comes first"),
        (class_of_a_combiner, "the class MeanCombineFn (L)", "call it: df.MeanCombineFn()"),
        (family_for_a_combiner, "the class Mean (L)", "df.Mean.PerKey(...)"),
        (function_of_two_values, "<lambda>, which does not take a list (L)", "functools.reduce"),
        (flatten_of_one, "'Flatten' (L) needs several PCollections", "(a, b) | df.Flatten()"),
        (
            join_of_one,
            "'Join(inner)' (L) needs several PCollections",
            "(orders, cities) | df.Join()",
        ),
        (co_group_of_one, "'CoGroupByKey' (L) needs several", "| df.CoGroupByKey()"),
        (output_that_does_not_exist, "there is no output 'early' (L)", ".with_outputs(...)"),
        (element_in_another_place, "(L) asks for ElementParam where it is not given", "put its"),
        (class_of_a_do_fn, "ParDo needs a DoFn, and Upper is a class (L)", "df.ParDo(Upper())"),
        (do_fn_for_a_function, "(L)", "df.ParDo(Upper(...))"),
        (called_function, "Map needs a function, not None (L)", "df.Map(f), and not df.Map(f(x))"),
        (text_for_elements, "Create needs several elements, not one value (L)", "['ab']"),
        (forgotten_event_times, "(FixedWindows)' (L) needs event times", "event_time=..."),
        (loop_over_a_collection, "a PCollection cannot be iterated (L)", "df.collect(pcollection)"),
        (list_of_a_collection, "a PCollection cannot be iterated (L)", "df.Map or df.FlatMap"),
        (unpacked_collection, "a PCollection cannot be iterated (L)", "df.collect(pcollection)"),
        (length_of_a_collection, "a PCollection cannot be counted (L)", "df.Count.Globally()"),
        (first_of_a_collection, "cannot be looked up by an index (L)", "df.collect(pcollection)"),
        (misspelt_option, "does not have the option tries_per_recrod (L)", "tries_per_record?"),
        (misspelt_job, "'batch' does not have the option jbo (L)", "did you mean job?"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_mistake_is_named_with_what_to_do(
    mistake: Callable[[], None], fact: str, hint: str
) -> None:
    with pytest.raises(df.PipelineError) as failure:
        mistake()

    line = max(line for _, _, line in mistake.__code__.co_lines() if line is not None)
    assert fact.replace("(L)", f"(tests/unit/dataflow/test_first_day.py:{line})") in str(
        failure.value
    )
    assert hint in str(failure.value)
    assert len(str(failure.value).splitlines()) <= 3


def test_a_collection_is_true() -> None:
    assert df.Pipeline() | df.Create([])


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("ab", "of type str"),
        ({"a": 1}, "of type dict"),
        (1, "of type int, that cannot be iterated"),
    ],
)
def test_one_value_is_no_outputs(returned: object, shown: str) -> None:
    class Returns(df.DoFn):
        def process(self, element: int) -> Any:
            return returned

    p = df.Pipeline()
    p | df.Create([1]) | df.ParDo(Returns())
    with pytest.raises(df.TransformError) as failure:
        p.run()

    assert "'ParDo(Returns)' (tests/unit/dataflow/test_first_day.py:" in failure.value.fact
    assert shown in failure.value.fact
    assert failure.value.detail.startswith(f"it returned {returned!r}")
    assert failure.value.hint == "yield it, or return a list of outputs"


def test_inputs_of_different_windows_are_refused_with_what_differs() -> None:
    p = df.Pipeline()
    minutes, hours = (
        p
        | f"at {size}" >> df.Create([df.TimestampedValue(1, 0)])
        | f"windows of {size}"
        >> df.WindowInto(
            df.FixedWindows(size),
            allowed_lateness=late,
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        for size, late in [("1 minute", 0), ("1 hour", 60)]
    )
    with pytest.raises(df.PipelineError) as failure:
        (minutes, hours) | df.Flatten()

    assert "'Flatten' (tests/unit/dataflow/test_first_day.py:" in failure.value.fact
    assert failure.value.detail == (
        "windows: FixedWindows(size_us=60000000, offset_us=0) of input 1, "
        "FixedWindows(size_us=3600000000, offset_us=0) of input 2; "
        "allowed_lateness: 0 seconds of input 1, 1 minute of input 2"
    )


def test_a_malformed_row_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("item,number\ntea,1\nmilk\n")
    p = df.Pipeline()
    p | "orders" >> df.ReadFromCsv(path)
    with pytest.raises(df.InputError) as failure:
        p.run()

    assert "'orders/Read(CsvSource)' (tests/unit/dataflow/test_first_day.py:" in failure.value.fact
    assert f"{path} has a row with 1 field, its header has 2, in line 3" in failure.value.fact
    assert "row: ['milk']" in failure.value.detail


def test_a_do_fn_without_process_is_shown_with_what_it_has() -> None:
    with pytest.raises(df.PipelineError, match=r"Doubles defines proces\n"):
        do_fn_without_process()


@pytest.mark.parametrize(
    "transform",
    [df.Keys(), df.Values(), df.KvSwap(), df.GroupByKey(), df.CombinePerKey(sum)],
    ids=lambda each: type(each).__name__,
)
def test_an_element_that_is_no_pair_is_named_with_what_to_do(transform: Any) -> None:
    with pytest.raises(df.PipelineError, match=r"'pairs.*needs \(key, value\) pairs, and is given"):
        df.Pipeline() | df.Create([7]) | "pairs" >> transform
    p = df.Pipeline()
    p | df.Create([7]) | UNTYPED | "pairs" >> transform
    with pytest.raises(df.TransformError) as failure:
        p.run()

    assert "'pairs" in failure.value.fact
    assert "(tests/unit/dataflow/test_first_day.py:" in failure.value.fact
    assert failure.value.fact.endswith("needs (key, value) pairs")
    assert failure.value.detail == "it was given 7"
    assert "df.Map(lambda x: (key_of(x), x))" in failure.value.hint


#: Makes the types of elements unknown, so that what is wrong shows when the pipeline runs.
UNTYPED: Any = df.Map(lambda element: element)


class Unprintable:
    def __repr__(self) -> str:
        raise OSError("no repr")


@pytest.mark.parametrize("element", [10**5000, Unprintable()], ids=["long", "raises"])
@pytest.mark.parametrize("transform", [df.GroupByKey(), df.Keys()], ids=["GroupByKey", "Keys"])
def test_an_element_that_cannot_be_printed_has_an_error_of_its_own(
    transform: Any, element: Any
) -> None:
    """Python prints no integer of more than 4,300 digits."""
    p = df.Pipeline()
    p | df.Create([element]) | UNTYPED | transform
    with pytest.raises(df.TransformError, match=r"it was given <\w+.*, whose repr raises "):
        p.run()


def test_inputs_of_a_join_that_are_no_pairs_are_named() -> None:
    p = df.Pipeline()
    orders = p | "orders" >> df.Create([7]) | UNTYPED
    inputs: Any = {"orders": orders, "cities": orders}
    inputs | "join" >> df.CoGroupByKey()
    with pytest.raises(df.TransformError, match=r"'join/tag orders' \(.*needs \(key, value\)"):
        p.run()


def test_an_output_that_was_not_named_is_refused_with_what_to_do() -> None:
    p = df.Pipeline()
    p | df.Create([1]) | df.Map(lambda number: df.TaggedOutput("late", number))
    with pytest.raises(df.TransformError, match=r"(?s)'late', which it does not.*with_outputs"):
        p.run()


def test_a_file_that_is_compressed_in_another_way_is_refused_and_not_read_as_text(
    tmp_path: Path,
) -> None:
    path = tmp_path / "orders.csv.bz2"
    path.write_bytes(bz2.compress(b"a,b\n1,2\n"))

    with pytest.raises(
        df.InputError,
        match=r"(?s)test_first_day.py:\d+\): .*orders.csv.bz2' is compressed.*bzip2 -dk",
    ):
        df.Pipeline() | df.ReadFromCsv(str(path))


def test_an_address_that_is_not_read_is_refused() -> None:
    with pytest.raises(
        df.InputError, match=r"(?s)'orders' \(tests/.*not read from ftp://.*filesystem="
    ):
        df.Pipeline() | "orders" >> df.ReadFromCsv("ftp://orders/2026.csv")


def test_a_file_that_is_not_there_is_named_with_the_users_line() -> None:
    with pytest.raises(
        df.InputError,
        match=r"(?s)'orders' \(tests/unit/dataflow/test_first_day.py:\d+\): there is no",
    ):
        df.Pipeline() | "orders" >> df.ReadFromJsonLines("nowhere/*.jsonl")


def build() -> df.Pipeline:
    p = df.Pipeline()
    p | df.Create([1]) | df.Map(print)
    return p


def build_and_forget() -> None:
    build()
    gc.collect()


@pytest.mark.usefixtures("frozen_heap")
def test_a_pipeline_that_was_never_run_warns_with_its_line() -> None:
    with pytest.warns(UnrunWarning, match=r"never run.*df\.Pipeline") as found:
        build_and_forget()

    # Pipelines of other tests may be forgotten at the same moment.
    places = [(Path(each.filename).name, each.lineno) for each in found]
    assert places.count(("test_first_day.py", build.__code__.co_firstlineno + 2)) == 1


def run(p: df.Pipeline) -> None:
    p.run()


def look_at_the_graph(p: df.Pipeline) -> None:
    p.graph()


def go_on_wrongly(p: df.Pipeline) -> None:
    with pytest.raises(df.PipelineError):
        p | df.Map(print)  # type: ignore[operator]


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("frozen_heap")
@pytest.mark.parametrize("use", [run, look_at_the_graph, go_on_wrongly])
def test_a_pipeline_that_was_used_or_failed_does_not(use: Callable[[df.Pipeline], None]) -> None:
    p = build()
    use(p)
    del p
    gc.collect()


SCRIPT = """
import dataflow as df
p = df.Pipeline()
p | df.Create([1]) | df.Map(print)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "is_warned"),
    [
        ("", True),
        pytest.param("1 / 0", False, marks=pytest.mark.slow),
        pytest.param("p.run()", False, marks=pytest.mark.slow),
    ],
)
def test_a_script_that_forgets_to_run_warns_when_it_ends(
    more: str, tmp_path: Path, *, is_warned: bool
) -> None:
    """And one that has failed by then shows its error alone."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + more)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=60
    )

    assert ("script.py:4: UnrunWarning" in done.stderr) is is_warned

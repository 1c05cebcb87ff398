"""Mistakes of the first day, each with the message that is to help: fact, the user's line, what to do."""

import gc
import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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


@pytest.mark.parametrize(
    ("mistake", "fact", "hint"),
    [
        (pipeline_first, "'Map(print)' (L) is applied to the pipeline", "p | df.Create("),
        (class_for_object, "GroupByKey is a class (L)", "df.GroupByKey(...)"),
        (class_of_a_read, "Create is a class (L)", "df.Create(...)"),
        (function_for_transform, "<built-in function print> is no transform (L)", "df.Map("),
        (read_in_the_middle, "(L) begins a pipeline", "df.Flatten()"),
        (collection_in_a_lambda, "'Map(<lambda>)' (L) cannot be sent", "df.CoGroupByKey()"),
        (do_fn_without_process, "'ParDo(Doubles)' (L) has a DoFn without process", "process(self"),
        (batch_without_a_job, "'batch' needs the option job", 'df.Pipeline("batch", job="a-name")'),
        (misspelt_option, "does not have the option tries_per_recrod", "tries_per_record?"),
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


def test_a_do_fn_without_process_is_shown_with_what_it_has() -> None:
    with pytest.raises(df.PipelineError, match=r"Doubles defines proces\n"):
        do_fn_without_process()


def test_a_compressed_file_is_refused_and_not_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))

    with pytest.raises(df.InputError, match=r"(?s)orders.csv.gz' is compressed.*gzip -dk"):
        df.Pipeline() | df.ReadFromCsv(str(path))


def test_an_address_is_no_path() -> None:
    with pytest.raises(df.InputError, match=r"(?s)no file 's3://.*not from s3://"):
        df.Pipeline() | df.ReadFromCsv("s3://orders/2026.csv")


def build() -> df.Pipeline:
    p = df.Pipeline()
    p | df.Create([1]) | df.Map(print)
    return p


def build_and_forget() -> None:
    build()
    gc.collect()


def test_a_pipeline_that_was_never_run_warns_with_its_line() -> None:
    with pytest.warns(UnrunWarning, match=r"never run.*df\.Pipeline") as found:
        build_and_forget()

    assert [Path(each.filename).name for each in found] == ["test_first_day.py"]
    assert found[0].lineno == build.__code__.co_firstlineno + 2


def run(p: df.Pipeline) -> None:
    p.run()


def look_at_the_graph(p: df.Pipeline) -> None:
    p.graph()


def go_on_wrongly(p: df.Pipeline) -> None:
    with pytest.raises(df.PipelineError):
        p | df.Map(print)  # type: ignore[operator]


@pytest.mark.filterwarnings("error")
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


@pytest.mark.parametrize(("more", "is_warned"), [("", True), ("1 / 0", False), ("p.run()", False)])
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

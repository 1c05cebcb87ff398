"""Apache Beam on its in-memory runner: the cases in batch and Nexmark, with Python functions."""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue

from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.peers import beam_nexmark
from benchmarks.peers.events import CountAndSum, add, parse
from benchmarks.task import Task

RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


class Totals(beam.CombineFn):  # type: ignore[misc]
    """Count and sum."""

    def create_accumulator(self, *args: Any, **kwargs: Any) -> CountAndSum:
        """Nothing."""
        return 0, 0

    def add_input(
        self, mutable_accumulator: CountAndSum, element: int, *args: Any, **kwargs: Any
    ) -> CountAndSum:
        """One more."""
        return add(mutable_accumulator, (1, element))

    def merge_accumulators(
        self, accumulators: Iterable[CountAndSum], *args: Any, **kwargs: Any
    ) -> CountAndSum:
        """Add up."""
        counts, sums = zip(*accumulators, strict=True)
        return sum(counts), sum(sums)

    def extract_output(self, accumulator: CountAndSum, *args: Any, **kwargs: Any) -> CountAndSum:
        """Both."""
        return accumulator


def window_row(total: Any, window: Any = beam.DoFn.WindowParam) -> str:
    """Of B2 and B3."""
    user_id, (count, amount) = total
    return f"{user_id},{window.start.micros // 1_000},{count},{amount}"


def session_row(total: Any, window: Any = beam.DoFn.WindowParam) -> str:
    """Of B4."""
    user_id, (count, amount) = total
    start_ms, end_ms = window.start.micros // 1_000, window.end.micros // 1_000
    return f"{user_id},{start_ms},{end_ms},{count},{amount}"


#: Windows of a case, and how a row is written.
WINDOWED: dict[str, tuple[Callable[[], Any], Callable[..., str]]] = {
    "B2": (lambda: FixedWindows(WINDOW_MS / 1_000), window_row),
    "B3": (lambda: SlidingWindows(WINDOW_MS / 1_000, PERIOD_MS / 1_000), window_row),
    "B4": (lambda: Sessions(GAP_MS / 1_000), session_row),
}


def rows(lines: Any, case: str) -> Any:
    """The answer of a case."""
    if case == "B5":
        words = lines | "split" >> beam.FlatMap(lambda line: line.split(" "))
        counts = words | beam.combiners.Count.PerElement()
        return counts | "row" >> beam.Map(lambda pair: f"{pair[0]},{pair[1]}")
    events = lines | "parse" >> beam.Map(parse)
    if case == "B1":
        even = events | "even" >> beam.Filter(lambda event: event[2] % 2 == 0)
        tripled = even | "triple" >> beam.Map(lambda event: event[2] * 3)
        total = tripled | "total" >> beam.CombineGlobally(Totals())
        return total | "row" >> beam.Map(lambda pair: f"{pair[0]},{pair[1]}")
    window_fn, row = WINDOWED[case]
    stamped = events | "stamp" >> beam.Map(
        lambda event: TimestampedValue((event[0], event[2]), event[1] / 1_000)
    )
    windowed = stamped | "window" >> beam.WindowInto(window_fn())
    return windowed | "total" >> beam.CombinePerKey(Totals()) | "row" >> beam.Map(row)


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    task.rows.mkdir()
    with (
        task.measured(),
        beam.Pipeline(options=PipelineOptions([f"--runner={RUNNER}"])) as pipeline,
    ):
        lines = pipeline | beam.io.ReadFromText(f"{task.two}/*")
        if task.case in NEXMARK:
            beam_nexmark.write(lines, task.case, task.rows)
        else:
            rows(lines, task.case) | beam.io.WriteToText(str(task.rows / "part"))


if __name__ == "__main__":
    main()

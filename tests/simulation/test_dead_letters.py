"""Poison records over the real master and workers, some of which die: the others are not delayed, and none is lost."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.io.whole_lines import WholeLines
from runners.direct import DirectRunner
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.stored.letters import stored_dead_mapping
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, batches, row, scripted


def careful(value: int) -> int:
    if value % 7 == 3:
        raise ValueError(f"{value} is poison")
    return value


def small(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[1] > 150:
        raise ValueError("too much")
    return pair


@costly()
@given(
    batches=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    crash_rate=st.sampled_from([0.0, 0.1]),
)
def test_a_record_is_in_a_result_or_a_dead_letter(
    batches: list[list[tuple[int, int]]], disorder: int, seed: int, crash_rate: float
) -> None:
    """Exactly once, whether it fails when it is read or in what a window emits; and the job ends."""
    pipeline = df.Pipeline(DirectRunner(tries_per_record=2))
    (
        pipeline
        | "read" >> df.Read(scripted(batches, disorder))
        | "careful" >> df.Map(careful)
        | "pair" >> df.Map(lambda value: (value % 5, value))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=7200,
        )
        | "sum" >> df.CombinePerKey(sum)
        | "small" >> df.Map(small)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=WorkerOptions(tries=2))
    cluster.run()
    (table,) = pipeline.graph().tables()
    letters = [stored_dead_mapping(each) for each in cluster.store.read_dead_letters("sim")]
    elements: dict[str, list[Any]] = {"read": [], "sum": []}
    for letter in letters:
        elements[letter["stage"]].append(letter["element"].value)
    written = sum(int(each[3]) for each in cluster.store.read_table(table))
    sent = [value for batch in batches for value, _ in batch]

    assert sorted(value for value in sent if value % 7 == 3) == sorted(elements["read"])
    assert all(total > 150 for _, total in elements["sum"])
    good = sum(value for value in sent if value % 7 != 3)
    assert good == written + sum(total for _, total in elements["sum"]), f"seed={seed}"
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))


#: Values with their times; a line that is no JSON; values whose time is none, or raises.
LINES = st.lists(
    st.tuples(st.integers(1, 99), st.integers(0, 600)).map(lambda pair: f"[{pair[0]}, {pair[1]}]")
    | st.sampled_from(["[1, ", "nope", "[7, null]", '[8, "x"]', "\\udcff"]),
    max_size=30,
)


@pytest.fixture
def _files_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """At the end: a process that dies in a simulation leaves its files open, which no real one can."""
    opened: list[WholeLines] = []
    init = WholeLines.__init__

    def noted(self: WholeLines, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(WholeLines, "__init__", noted)
    yield
    for each in opened:
        each.close()


def time_of(pair: Any) -> Any:
    return None if pair[1] is None else 0.0 + pair[1]


@pytest.mark.usefixtures("_files_are_closed")
@costly(cells=2)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
@given(
    lines=LINES,
    line_end=st.sampled_from(["\n", "\r", "\r\n"]),
    is_packed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_line_is_in_a_result_or_a_dead_letter(
    tmp_path_factory: pytest.TempPathFactory,
    crash_rate: float,
    lines: list[str],
    line_end: str,
    is_packed: bool,
    seed: int,
) -> None:
    """Exactly once each, with its place in the file, or in what is packed in it, whatever dies."""
    path: Path = tmp_path_factory.mktemp("lines") / ("lines.gz" if is_packed else "lines.jsonl")
    data = line_end.join(["[0, 0]", *lines]).encode()
    path.write_bytes(gzip.compress(data) if is_packed else data)
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.ReadFromJsonLines(path, event_time=time_of, max_disorder=600)
        | "pair" >> df.Map(lambda pair: (pair[0] % 5, pair[0]))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=7200,
        )
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=WorkerOptions(tries=1))
    cluster.run()
    (table,) = pipeline.graph().tables()
    letters = [stored_dead_mapping(each) for each in cluster.store.read_dead_letters("sim")]
    written = sum(int(each[3]) for each in cluster.store.read_table(table))
    good = [line for line in lines if line[-1] == "]" and line not in ("[7, null]", '[8, "x"]')]
    bad = [(number, line) for number, line in enumerate(lines, 2) if line not in good]

    origins = [(each["origin"]["line"], each["origin"]["raw"]) for each in letters]
    assert bad == sorted((number, raw.decode().rstrip("\r\n")) for number, raw in origins)
    assert sum(int(line[1:].split(",")[0]) for line in good) == written, f"seed={seed}"


class Score(NamedTuple):
    """A row in which nothing is missing."""

    number: int
    at: int


@costly(cells=2)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
@given(
    rows=st.lists(
        st.tuples(st.none() | st.integers(1, 99), st.none() | st.integers(0, 600)), max_size=30
    ),
    group_rows=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_a_row_of_parquet_is_in_a_result_or_a_dead_letter(
    tmp_path_factory: pytest.TempPathFactory,
    crash_rate: float,
    rows: list[tuple[int | None, int | None]],
    group_rows: int,
    seed: int,
) -> None:
    """Exactly once each, as columns, whatever dies."""
    path: Path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    columns = {"number": [each[0] for each in rows], "at": [each[1] for each in rows]}
    schema = pa.schema([("number", pa.int64()), ("at", pa.int64())])
    pq.write_table(pa.table(columns, schema), path, row_group_size=group_rows)
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.ReadFromParquet(path, rows=Score, event_time="at", max_disorder=600)
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=7200,
        )
        | "sum" >> df.GroupBy(key=df.col("number") % 5).aggregate_field("number", sum, "total")
        | "pair" >> df.Map(lambda sums: (sums.key, sums.total))
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=WorkerOptions(tries=1))
    cluster.run()
    (table,) = pipeline.graph().tables()
    letters = [stored_dead_mapping(each) for each in cluster.store.read_dead_letters("sim")]
    written = sum(int(each[3]) for each in cluster.store.read_table(table))
    good = [number for number, at in rows if number is not None and at is not None]

    assert len(rows) - len(good) == len(letters)
    assert sum(good) == written, f"seed={seed}"

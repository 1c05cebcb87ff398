"""A wrong answer is never taken for a right one, and the right ones are right."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from benchmarks import reference
from benchmarks.answers import Answer, added_up, rows_below, rows_of
from benchmarks.cases import GAP_MS, THROUGHPUT, Case
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import IN_EUROS
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.peers import ours_nexmark, ours_nexmark_latency
from benchmarks.peers.events import sessions
from benchmarks.peers.ours import Build
from benchmarks.peers.ours_nexmark_latency import PacedNexmarkSource
from benchmarks.peers.ours_pipelines import TABLE, build
from benchmarks.peers.registry import PEERS
from benchmarks.runs import nexmark_figures
from benchmarks.task import Task
from benchmarks.workloads import BASE_MS, Event
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.queries import QUERIES
from runners.direct import DirectRunner

B2, B4, B5 = (THROUGHPUT[name] for name in ("B2", "B4", "B5"))
NUMBERS = st.integers(0, 1_000)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=20)


def right(rows: list[Any]) -> dict[str, Answer]:
    return {reference.OK: Answer.of(B2, rows)}


@given(ROWS, st.randoms())
def test_order_of_rows_does_not_matter(rows: list[Any], chance: Any) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)

    assert reference.check_answer(Answer.of(B2, shuffled), right(rows)) == reference.OK


@given(ROWS, st.data())
def test_one_changed_number_is_found(rows: list[Any], data: Any) -> None:
    index, column = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 3))
    row = list(rows[index])
    row[column] += data.draw(st.integers(1, 5))
    wrong = [*rows[:index], row, *rows[index + 1 :]]

    assert reference.check_answer(Answer.of(B2, wrong), right(rows)).startswith("WRONG")


@given(ROWS, st.data())
def test_a_row_that_is_missing_or_there_twice_is_found(rows: list[Any], data: Any) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))

    for wrong in ([*rows, rows[index]], [*rows[:index], *rows[index + 1 :]]):
        assert reference.check_answer(Answer.of(B2, wrong), right(rows)).startswith("WRONG: rows")


@given(ROWS, st.data())
def test_values_of_two_rows_that_are_exchanged_are_found(rows: list[Any], data: Any) -> None:
    assume(len(rows) > 1)
    one = data.draw(st.integers(0, len(rows) - 2))
    first, second = rows[one], rows[one + 1]
    assume(first[:2] != second[:2] and first[2:] != second[2:])
    wrong = [*rows[:one], (*first[:2], *second[2:]), (*second[:2], *first[2:]), *rows[one + 2 :]]

    assert reference.check_answer(Answer.of(B2, wrong), right(rows)).startswith("WRONG")


@pytest.mark.parametrize(
    ("case", "ours", "right"),
    [
        (B2, [(1, 60, 2, 9), (5, 60, 3, 9)], [(1, 60, 3, 9), (5, 60, 2, 9)]),
        (B5, [("one", 1), ("two", 2)], [("one", 2), ("two", 1)]),
        (B5, [("one", 1)], [("uno", 1)]),
    ],
)
def test_what_no_sum_shows_is_found_by_the_digest(
    case: Case, ours: list[Any], right: list[Any]
) -> None:
    deduplicated = reference.check_answer(
        Answer.of(case, ours), {reference.OK: Answer.of(case, right)}
    )

    assert deduplicated.startswith("WRONG: digest")


def test_difference_names_what_differs() -> None:
    message = reference.check_answer(Answer.of(B2, [(1, 60, 2, 9)]), right([(1, 60, 2, 8)]))

    assert "sums: (1, 60, 2, 9), not (1, 60, 2, 8)" in message
    assert "rows" not in message


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of B2"):
        Answer.of(B2, [(1, 60, 2)])


def test_answer_comes_back_from_json() -> None:
    answer = Answer.of(B5, [("one", 3), ("two", 4)])

    assert Answer.from_json(answer.to_json()) == answer


def test_rows_are_read_without_what_programs_mark_as_theirs(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_text("1,2\n3,4\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part-0.crc").write_bytes(b"\xff")
    (tmp_path / "_checkpoint").mkdir()
    (tmp_path / "_checkpoint" / "part-1").write_text("5,6\n")

    assert list(rows_below(tmp_path)) == [["1", "2"], ["3", "4"]]


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in THROUGHPUT if name not in NEXMARK])
def test_our_pipeline_in_memory_has_the_answer_of_the_reference(case: str, tmp_path: Path) -> None:
    size, spec = 800, THROUGHPUT[case]
    dataset = spec.dataset(tmp_path, size)
    task = Task(case=case, size=size, out=str(tmp_path), two=str(dataset.two))

    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, task)
    result = pipeline.run()

    ours = [[row[name] for name in spec.columns] for row in result.read_table(TABLE)]
    assert (
        reference.check_answer(Answer.of(spec, ours), reference.answers(spec, size)) == reference.OK
    )


#: Each query of Nexmark as we say it.
OUR_QUERIES = [(name, ours_nexmark.build) for name in NEXMARK]
OUR_QUERIES += [
    (name, ours_nexmark.build_columns) for name in PEERS["ours-columns"].cases if name in NEXMARK
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "build_query"), OUR_QUERIES)
def test_our_queries_of_nexmark_have_the_answers_of_the_models(
    name: str, build_query: Build, tmp_path: Path
) -> None:
    """From lines of JSON to rows of a table, as the benchmark has them."""
    size, spec = 2_500, NEXMARK[name]
    dataset = spec.dataset(tmp_path, size)
    task = Task(case=name, size=size, out=str(tmp_path), two=str(dataset.two))

    pipeline = df.Pipeline(DirectRunner())
    build_query(pipeline, task)
    result = pipeline.run()

    if spec.is_in_folders:
        ours = list(rows_of(spec, task.rows))
    else:
        ours = [[row[column] for column in spec.columns] for row in result.read_table(TABLE)]
    if spec.adds_up:
        ours = list(added_up(ours))
    if name in IN_EUROS:
        ours = [[*row[:2], round(1_000 * row[2]), *row[3:]] for row in ours]
    assert (
        reference.check_answer(Answer.of(spec, ours), reference.answers(spec, size)) == reference.OK
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "in_columns"),
    [(name, False) for name in NEXMARK_LATENCY]
    + [(name, True) for name in PEERS["ours-columns"].cases if name in NEXMARK_LATENCY],
)
def test_queries_of_nexmark_by_the_clock_have_the_answers_of_the_models(
    name: str, in_columns: bool
) -> None:
    """Of events that have all happened when the first is read."""
    spec, first_time_ms = NEXMARK_LATENCY[name], BASE_MS + 777
    task = Task(case=name, size=0, out="", rate=300, seconds=3, warm_up_s=2)

    pipeline = df.Pipeline(DirectRunner())
    ours_nexmark_latency.build(pipeline, task, first_time_ms, in_columns=in_columns)
    rows = pipeline.run().read_table(TABLE)

    ours = [[row[column] for column in spec.query.columns] for row in rows]
    if spec.query.name in IN_EUROS:
        ours = [[*row[:2], round(1_000 * row[2]), *row[3:]] for row in ours]
    right = spec.rows(size=task.records, events_per_s=task.rate, first_time_ms=first_time_ms)
    expected = {reference.OK: Answer.of(spec.query, right)}
    assert reference.check_answer(Answer.of(spec.query, ours), expected) == reference.OK


@pytest.mark.slow
@given(
    st.integers(1, 3_000), st.integers(1, 3), st.lists(st.integers(0, 700), min_size=1, max_size=8)
)
def test_paced_events_are_read_when_they_happen(rate: int, step: int, waits_ms: list[int]) -> None:
    """None before its time, none that has happened is left behind, and the watermark keeps to the clock."""
    task = Task(case="q0-latency", size=0, out="", rate=rate, seconds=1, warm_up_s=0)
    source = PacedNexmarkSource(ours_nexmark_latency.config_of(task, BASE_MS))
    readers = [source.open((number, step), None, fence=1) for number in range(step)]
    now_ms, seen = BASE_MS - 300, 0

    for wait_ms in waits_ms:
        now_ms += wait_ms
        with time_machine(now_ms):
            batches = [reader.read(10_000) for reader in readers]
        times_ms = [event.date_time_ms for batch in batches for event in batch.values]
        seen += len(times_ms)
        assert all(at <= now_ms for at in times_ms)
        happened = [n for n in range(rate) if BASE_MS + n * 1_000 // rate <= now_ms]
        assert seen == len(happened)
        for batch in batches:
            is_over = batch.status is df.SplitStatus.FINISHED
            assert is_over or batch.watermark_us <= now_ms * 1_000


@contextmanager
def time_machine(now_ms: int) -> Iterator[None]:
    """Stop the clock that paced sources read."""
    with mock.patch("time.time_ns", return_value=now_ms * 1_000_000):
        yield


def test_rows_that_did_not_wait_for_the_clock_are_not_counted(tmp_path: Path) -> None:
    task = Task(case="q0-latency", size=0, out=str(tmp_path), rate=100, seconds=1, warm_up_s=1)
    rows = NEXMARK_LATENCY[task.case].rows(size=200, events_per_s=100, first_time_ms=BASE_MS)
    task.rows.mkdir()
    lines = [",".join(map(str, (*row, row[3], 1_000 * row[3] + 2_500))) for row in rows]
    (task.rows / "rows.csv").write_text("\n".join(lines))

    found = nexmark_figures(task, first_time_ms=BASE_MS)
    assert found["check"] == reference.OK
    assert 0 < found["rows"] < len(rows)
    assert (found["p50"], found["p100"]) == (2.5, 2.5)

    (task.rows / "rows.csv").write_text("\n".join(lines[1:]))
    assert nexmark_figures(task, first_time_ms=BASE_MS)["check"].startswith("WRONG: rows")


def test_columns_of_the_benchmark_are_those_of_the_example() -> None:
    ours = set(PEERS["ours-columns"].cases) & NEXMARK.keys()

    assert ours == COLUMN_QUERIES.keys()
    assert NEXMARK.keys() == QUERIES.keys()


def test_rows_in_folders_begin_with_their_folder(tmp_path: Path) -> None:
    names = ",".join(NEXMARK["q10"].columns[1:])
    (tmp_path / "dt=2026-11-26" / "hm=07-00").mkdir(parents=True)
    (tmp_path / "dt=2026-11-26" / "hm=07-00" / "one.csv").write_text(f"{names}\n1,2,3,4,x\n")
    (tmp_path / "dt=2026-11-26" / "hm=07-00" / "two").write_text("5,6,7,8,y\n")
    (tmp_path / "dt=2026-11-26" / "_SUCCESS").write_text("")

    assert list(rows_of(NEXMARK["q10"], tmp_path)) == [
        ["dt=2026-11-26/hm=07-00", "1", "2", "3", "4", "x"],
        ["dt=2026-11-26/hm=07-00", "5", "6", "7", "8", "y"],
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), min_size=1))
def test_parts_of_a_row_add_up_however_they_are_cut(parts: list[tuple[int, int]]) -> None:
    ones = [(key, 1) for key, count in parts for _ in range(count)]

    assert (
        Counter(added_up(parts))
        == Counter(added_up(ones))
        == Counter(Counter(k for k, _ in ones).items())
    )


VISITS = st.lists(st.tuples(st.integers(0, 5 * GAP_MS), NUMBERS), min_size=1, max_size=30)


@given(VISITS)
def test_sessions_of_peers_are_those_of_the_reference(visits: list[tuple[int, int]]) -> None:
    stream = [Event(7, at_ms, value) for at_ms, value in visits]

    expected = [row[1:] for row in reference._sessions(stream, GAP_MS)]
    assert list(sessions(visits)) == expected


def test_events_exactly_a_gap_apart_have_two_right_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = [Event(1, BASE_MS, 5), Event(1, BASE_MS + GAP_MS, 6)]
    monkeypatch.setattr(reference, "events", lambda size, seed: stream)

    found = reference.answers(B4, 2, kept_in=tmp_path)

    end_ms = BASE_MS + 2 * GAP_MS
    split = [(1, BASE_MS, BASE_MS + GAP_MS, 1, 5), (1, BASE_MS + GAP_MS, end_ms, 1, 6)]
    assert reference.check_answer(Answer.of(B4, split), found) == reference.OK
    joined = Answer.of(B4, [(1, BASE_MS, end_ms, 2, 11)])
    assert reference.check_answer(joined, found) == reference.INCLUSIVE_GAP
    assert reference.answers(B4, 2, kept_in=tmp_path) == found
    assert attrs.asdict(joined)["rows"] == 1

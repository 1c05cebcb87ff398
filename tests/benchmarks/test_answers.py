"""A wrong answer is never taken for a right one, and the right ones are right."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from benchmarks import reference
from benchmarks.answers import Answer, rows_below
from benchmarks.cases import GAP_MS, THROUGHPUT, Case
from benchmarks.peers.events import sessions
from benchmarks.peers.ours_pipelines import TABLE, build
from benchmarks.task import Task
from benchmarks.workloads import BASE_MS, Event
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


@pytest.mark.parametrize("case", THROUGHPUT)
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

"""The cases of scale: their events are the same whoever reads them, and what is reported of a run is true."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from benchmarks import pages, stream_scale
from benchmarks.peers.ours_load import visitors
from benchmarks.scale import faults, report, runs
from benchmarks.scale.load import PREPARES, PreparedRate, Rounds, write_start_us
from benchmarks.task import Task
from windowing.timestamps import MIN_TIMESTAMP_US, US_PER_SECOND

LONG_AGO_US = 1_000_000 * US_PER_SECOND
STRUCK_US = 50 * US_PER_SECOND
#: Between two records.
STEP_US = 10_000


def prepared(start_file: Path) -> PreparedRate:
    return PreparedRate(start_file=str(start_file), keys=7, per_second=300, records=20)


def read_to_the_end(reader: df.SourceReader, most: int) -> list[Any]:
    values: list[Any] = []
    while True:
        batch = reader.read(most)
        values += batch.values
        if batch.status is df.SplitStatus.FINISHED:
            return values


@pytest.mark.parametrize("most", [1, 3, 1_000])
def test_every_key_comes_before_the_first_record_at_the_rate(tmp_path: Path, most: int) -> None:
    source = prepared(tmp_path / "start")
    reader = source.open(0, None, fence=0)
    first = [pair for _ in range(7) for pair in reader.read(most).values]
    waiting = reader.read(most)
    write_start_us(tmp_path / "start", LONG_AGO_US)
    rest = read_to_the_end(reader, most)

    assert first == [(key, PREPARES) for key in range(7)]
    assert (waiting.values, waiting.watermark_us) == ([], MIN_TIMESTAMP_US)
    assert [user for user, _ in rest] == visitors(20, 7)
    assert [us for _, us in rest] == [LONG_AGO_US + i * US_PER_SECOND // 300 for i in range(20)]


def test_a_prepared_reader_that_starts_over_hands_over_the_same(tmp_path: Path) -> None:
    write_start_us(tmp_path / "start", LONG_AGO_US)
    source = prepared(tmp_path / "start")
    whole = read_to_the_end(source.open(0, None, fence=0), 1_000)

    for position in range(27):
        assert read_to_the_end(source.open(0, position, fence=0), 4) == whole[position:]


@given(keys=st.integers(1, 60), rounds=st.integers(1, 3), parts=st.integers(1, 3))
def test_every_round_has_every_key_once(keys: int, rounds: int, parts: int) -> None:
    source = Rounds(keys=keys, rounds=rounds, value_bytes=5, parts=parts)
    read_parts = [read_to_the_end(source.open(part, None, fence=0), 7) for part in source.splits(1)]

    assert Counter(pair for values in read_parts for pair in values) == Counter(
        {(key, "vvvvv"): rounds for key in range(keys)}
    )
    for number in range(0, keys * rounds, keys):
        assert len({source.key(each) for each in range(number, number + keys)}) == keys
    position = len(read_parts[0]) // 2
    assert read_to_the_end(source.open(0, position, fence=0), 7) == read_parts[0][position:]


def test_rounds_have_different_orders() -> None:
    source = Rounds(keys=1_000, rounds=2, value_bytes=1, parts=1)

    assert [source.key(n) for n in range(1_000)] != [source.key(1_000 + n) for n in range(1_000)]


def run_with_an_outage(silent_us: int, latency_us: int = 5_000) -> list[tuple[int, int, int, int]]:
    """Twenty seconds of records, a fault after ten, and nothing committed for so long after it."""
    lines = []
    for number in range(2_000):
        created_us = STRUCK_US - 10 * US_PER_SECOND + number * STEP_US
        committed_us = created_us + latency_us
        if STRUCK_US <= committed_us < STRUCK_US + silent_us:
            committed_us = STRUCK_US + silent_us
        lines.append((0, number, created_us, committed_us))
    return lines


@given(st.integers(0, 8_000_000))
def test_recovery_is_as_long_as_the_outage(silent_us: int) -> None:
    lines = run_with_an_outage(silent_us)
    found = faults.recovery(lines, STRUCK_US, warm_us=0, bound_ms=100)

    silent_s = silent_us / US_PER_SECOND
    assert found.before_ms == 5.0
    assert found.silent_s == pytest.approx(silent_s, abs=0.03)
    assert found.most_ms == pytest.approx(max(5.0, silent_us / 1_000 + 5), abs=STEP_US / 1_000)
    # 5 % of a second may be beyond the bound, and looks are a twentieth of a second apart.
    assert found.recovered_s == pytest.approx(max(0.1, silent_s), abs=0.12)


def test_who_never_is_within_the_bound_again_has_not_recovered() -> None:
    lines = run_with_an_outage(1_000_000, latency_us=150_000)

    assert faults.recovery(lines, STRUCK_US, warm_us=0, bound_ms=100).recovered_s is None


def test_an_answer_with_a_late_pane_is_wrong(tmp_path: Path) -> None:
    task = Task(case=runs.BACKLOG, size=400, out=str(tmp_path))
    right = [
        f"{user},{start},{count},{total},on_time,0"
        for (user, start), (count, total) in runs.day_answer(400).items()
    ]
    task.rows.mkdir()

    def check(lines: list[str], dropped: int = 0) -> str:
        (task.rows / "rows.csv").write_text("\n".join(lines))
        return str(runs.backlog_figures(task, {"seconds": 1.0, "dropped": dropped})["check"])

    assert check(right) == "ok"
    assert check(right[1:]).startswith("WRONG: other sums")
    twice = check([*right, right[0]])
    assert twice == f"WRONG: {len(right) + 1} panes of {len(right)} windows"
    assert check([right[0].replace("on_time", "late"), *right[1:]]).startswith("WRONG: 1 panes")
    assert check(right, dropped=2).startswith("WRONG: 2 panes or records are late")


def some_results() -> list[dict[str, Any]]:
    given = stream_scale.parser().parse_args([])
    figures: dict[str, dict[str, Any]] = {
        runs.LATENCY: dict.fromkeys(("p50", "p95", "p99", "p100"), 1.5),
        runs.KEYS: dict.fromkeys(
            ("first_s", "again_s", "end_s", "cache_bytes", "worker_bytes", "store_bytes"), 2e6
        ),
        runs.BACKLOG: {"seconds": 4.0, "panes": 7, "late": 0, "dropped": 0},
        runs.RECOVERY: {
            "before_ms": 5.0, "silent_s": 1.25, "recovered_s": None, "most_ms": 9.0, "server_s": None
        },
    }  # fmt: skip
    return [
        {"case": task.case, **what, **figures[task.case], "check": "ok"}
        for task, what in stream_scale.planned(given)
    ]


def test_page_has_marks_for_every_table() -> None:
    machine = {"case": pages.MACHINE, "day": "2026-01-01", "machine": "two cores", "command": "it"}
    found = report.sections([machine, *some_results()])

    assert list(found) == ["Latency", "Keys", "Backlog", "Recovery"]
    page = report.PAGE.read_text("utf-8")
    filled = pages.filled_in(page, {**found, "Machine": "two cores"})
    assert all(table in filled for table in found.values())
    assert pages.filled_in(filled, {**found, "Machine": "two cores"}) == filled


def test_every_run_of_the_default_has_a_row_of_its_own() -> None:
    tables = report.sections(some_results())

    rows = {title: len(table.splitlines()) - 2 for title, table in tables.items()}
    assert rows == {"Latency": 2 * 7, "Keys": 3, "Backlog": 2, "Recovery": 4}
    assert (
        "| kill -9 of Postgres | 2,000 | 5 | - | 1.2 | - (250 ms) | 9 | 10 | ok |"
        in (tables["Recovery"])
    )
    assert "| batch | 2,000,000 | 4.0 | 500,000 | 7 | 0 | 0 | ok |" in tables["Backlog"]


def test_runs_that_are_wrong_are_in_no_figure_and_shown() -> None:
    wrong = [{**each, "check": "WRONG: 1 users, not 2"} for each in some_results()]

    table = report.sections(wrong)["Latency"]
    assert "| 1,000 | 2 | 2 | 10,000 | - | - | - | - | WRONG: 1 users, not 2 |" in table


def test_command_of_a_file_of_results_makes_the_same_plan() -> None:
    given = ["--case", "latency", "recovery", "--rate", "7", "--reps", "2", "--bound-ms", "9.5"]
    parsed = stream_scale.parser().parse_args(given)
    again = stream_scale.command(parsed).removeprefix("python -m benchmarks.stream_scale ")

    assert list(stream_scale.planned(stream_scale.parser().parse_args(again.split(" ")))) == list(
        stream_scale.planned(parsed)
    )


def test_nothing_is_struck_when_the_run_has_ended(tmp_path: Path) -> None:
    """It ends with it: who looked twice would see that it runs."""
    task = Task(case=runs.RECOVERY, size=0, out=str(tmp_path))
    answers = [True]
    server: Any = None

    assert faults.strike(faults.COUNTER, server, task, answers.pop) is None
    assert answers == []

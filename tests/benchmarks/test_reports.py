"""Goals of commands that take long are compared with the last reports on the pages, however these are written."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import check_times, goals, pages, reports
from benchmarks.soak.__main__ import Outcome
from benchmarks.soak.resources import Growth

EMPTY = "<!-- measured: {} -->\n\n<!-- end -->\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "soak.md").write_text(EMPTY.format("soak"), "utf-8")
    (tmp_path / "benchmarks.md").write_text(EMPTY.format("check times"), "utf-8")
    return tmp_path


@pytest.fixture(autouse=True)
def _short_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_times, "STEPS", 1_000)


def outcomes(docs: Path) -> dict[str, str]:
    """Of each goal that a report is about, by its title."""
    lines = goals.table(reports.read(docs)).splitlines()[2:]
    found = [[cell.strip() for cell in each.strip("|").split(" | ")] for each in lines]
    return {title: outcome for title, *_, outcome in found if "not measured" not in outcome}


def write_soak(docs: Path, minutes: float, last: Outcome) -> None:
    report = f"2026-01-01, `python -m benchmarks.soak --minutes {minutes} --rate 5`: two cores\n\n{last.text()}"
    page = docs / "soak.md"
    page.write_text(pages.filled_in(page.read_text("utf-8"), {"Soak": report}), "utf-8")


def outcome(after: float, wrong: str = "") -> Outcome:
    grown = [Growth(name="files", before=5.0, after=after, slack=1.0)]
    return Outcome(injected=Counter(), grown=grown, wrong=wrong, records=9)


@pytest.mark.parametrize(
    ("minutes", "last", "expected"),
    [
        (60.0, outcome(5.0), ["met", "met"]),
        (10.0, outcome(5.0), ["not met", "met"]),
        (90.0, outcome(50.0), ["met", "not met"]),
        (60.0, outcome(5.0, "WRONG: 1 of 3 totals"), ["met", "not met"]),
    ],
)
def test_the_last_soak_is_compared(
    minutes: float, last: Outcome, expected: list[str], docs: Path
) -> None:
    write_soak(docs, minutes, last)

    assert [*outcomes(docs).values()] == expected


def test_nothing_is_met_without_a_report(docs: Path) -> None:
    assert outcomes(docs) == {}


def test_the_page_keeps_the_last_time_of_each_target(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [("check", 80.4, True), ("test", 1_200.0, True), ("check", 52.0, True)]
    for target, seconds, is_good in taken:
        monkeypatch.setattr(
            check_times, "measured", lambda _, s=seconds, g=is_good: (s, 1_100.0, g)
        )
        assert check_times.main([target, "--write-docs"], docs / "benchmarks.md") == 0

    assert outcomes(docs) == {"make check, seconds": "met", "make test, seconds": "not met"}
    lines = reports.check_times(docs).splitlines()[2:]
    assert [line.split(" | ")[:4] for line in lines] == [
        ["| `make check`", "52", "1,100", "ok"],
        ["| `make test`", "1,200", "1,100", "ok"],
    ]


def test_the_goals_on_a_page_follow_its_reports(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other line of the page."""
    page = docs / "benchmarks.md"
    others = "| B2 by spark-rdd | at most 0.6 | 0.40 | 1 | met |\n\nmake check, seconds | none\n"
    rows = "| make check, seconds | at most 60 | 89.00 | 1 | not met |\n"
    page.write_text(f"{page.read_text('utf-8')}{rows}{others}", "utf-8")
    monkeypatch.setattr(check_times, "measured", lambda _: (52.0, 90.0, True))

    check_times.main(["check", "--write-docs"], page)

    written = page.read_text("utf-8")
    assert written.endswith(f"| make check, seconds | at most 60 | 52.00 | 1 | met |\n{others}")


def test_what_is_red_has_met_nothing(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_times, "measured", lambda _: (9.0, 9.0, False))

    assert check_times.main(["check", "--write-docs"], docs / "benchmarks.md") == 1
    assert outcomes(docs) == {}


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 3])
def test_processor_time_is_that_of_the_command(status: int) -> None:
    program = f"import time\nwhile time.process_time() < 0.2: pass\nraise SystemExit({status})"
    seconds, processors, is_good = check_times.measured([sys.executable, "-c", program])

    assert processors >= 0.19
    assert seconds >= 0.19
    assert is_good == (status == 0)


def test_the_pages_have_both_parts() -> None:
    assert {each["case"] for each in reports.read()} >= {reports.SOAK}
    assert reports.check_times() is not None


def test_the_goals_on_the_page_are_those_of_its_last_reports() -> None:
    """Commands that take long write their own report alone."""
    rows = goals.table(reports.read()).splitlines()[2:]
    page = (reports.DOCS / "benchmarks.md").read_text("utf-8").splitlines()

    found = [row for row in rows if "not measured" not in row]
    assert found
    assert [row for row in found if row not in page] == []

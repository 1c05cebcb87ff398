"""The page about benchmarks, whose tables stand between marks and are made from the results of runs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import goals, plot, reports, tables
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.tables import Result

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
#: Nexmark has a page of its own.
NEXMARK_PAGE = ROOT / "docs" / "nexmark.md"
FIGURE = ROOT / "docs" / "figures" / "benchmarks.svg"
#: The kind of the line in a file of results that names the machine.
MACHINE = "machine"

_GOALS, _RATIOS, _LATENCY_RATIOS = "Goals", "Ratios", "Ratios of latency"
_LATENCY, _LAG, _RUNS = "Latency", "Watermark lag", "Runs"
_NEXMARK, _NEXMARK_GOALS, _NEXMARK_LATENCY = "Nexmark", "Nexmark goals", "Nexmark latency"
_MACHINE = "Machine"


def read(paths: Sequence[Path]) -> list[Result]:
    """The results of several commands; runs of different ones are not compared."""
    found: list[Result] = []
    for path in paths:
        first = 1 + max((each["rep"] for each in found if "rep" in each), default=-1)
        for line in path.read_text("utf-8").splitlines():
            each = json.loads(line)
            found.append(each | {"rep": first + each["rep"]} if "rep" in each else each)
    return found


def sections(results: Sequence[Result]) -> dict[str, str]:
    """Each table for which there are results, by its title."""
    all_runs = of_runs(results)
    runs = [each for each in all_runs if not _is_of_nexmark(each)]
    snapshots = [each for each in results if each["case"] == goals.SNAPSHOT]
    found = {
        _NEXMARK: tables.nexmark_table(all_runs),
        _NEXMARK_GOALS: goals.table(
            [each for each in all_runs if each["case"] in NEXMARK], goals.NEXMARK_GOALS
        ),
        _NEXMARK_LATENCY: tables.nexmark_latency_table(all_runs),
        _GOALS: goals.table([*runs, *snapshots, *reports.read()] if runs or snapshots else []),
        _RATIOS: tables.ratio_table(runs),
        _LATENCY_RATIOS: tables.latency_ratio_table(runs),
        _LATENCY: tables.latency_table(runs),
        _LAG: tables.lag_table(runs),
        _RUNS: tables.run_table(runs),
    }
    return {title: table for title, table in found.items() if table}


def write(results: Sequence[Result]) -> None:
    """Put tables, machine and figure into the page; a table for which there are no results stays as it is."""
    parts = sections(results)
    titles = (_NEXMARK, _NEXMARK_GOALS, _NEXMARK_LATENCY)
    nexmark = {title: parts.pop(title) for title in titles if title in parts}
    for page, tables_of_page in ((PAGE, parts), (NEXMARK_PAGE, nexmark)):
        if tables_of_page:
            filled = filled_in(
                page.read_text("utf-8"), {**tables_of_page, _MACHINE: machines(results)}
            )
            page.write_text(filled, "utf-8")
    if _RATIOS in parts:
        FIGURE.write_text(
            plot.draw([each for each in of_runs(results) if not _is_of_nexmark(each)]), "utf-8"
        )


def _is_of_nexmark(result: Result) -> bool:
    return result["case"] in NEXMARK or result["case"] in NEXMARK_LATENCY


def machines(results: Sequence[Result]) -> str:
    """Where and how the results were made, one a line."""
    found = [each for each in results if each["case"] == MACHINE]
    return "\n".join(f"* {each['day']}, `{each['command']}`: {each['machine']}" for each in found)


def machine_line(machine: str, command: str) -> Result:
    """The line about the machine that the results behind it are of.

    Args:
        machine: in words.
        command: that makes the results again.
    """
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return {"case": MACHINE, "machine": machine, "day": day, "command": command}


def of_runs(results: Sequence[Result]) -> list[Result]:
    """The results of runs of programs: without lines about machines, and about a stream under a snapshot."""
    return [each for each in results if each["case"] not in (MACHINE, goals.SNAPSHOT)]


def filled_in(page: str, parts: dict[str, str]) -> str:
    """The page with each part between its marks.  Raises `ValueError` if the page has no such marks."""
    for title, text in parts.items():
        marks = reports.marks(title)
        if not marks.search(page):
            raise ValueError(f"the page has no marks for {title!r}")
        page = marks.sub(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[3]}", page)  # type: ignore[misc]
    return page


def write_goals_of_reports(docs: Path = reports.DOCS) -> None:
    """Bring the table of goals to what the last reports of the soak and of the checks say; other rows stay.

    Args:
        docs: the folder of the pages.
    """
    page = docs / PAGE.name
    rows = goals.table(reports.read(docs)).splitlines()[2:]
    measured = {_first_cell(row): row for row in rows if "not measured" not in row}
    lines = page.read_text("utf-8").splitlines(keepends=True)
    page.write_text(
        "".join(
            f"{measured[_first_cell(line)]}\n" if _first_cell(line) in measured else line
            for line in lines
        ),
        "utf-8",
    )


def _first_cell(line: str) -> str:
    """The first cell of a row of a table; empty where the line is no row."""
    return line[2:].partition(" | ")[0] if line.startswith("| ") else ""

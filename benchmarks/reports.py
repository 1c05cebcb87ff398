"""The last reports on the pages, as results: of commands that take too long to be repeated by each `make bench`.

They stand between the same marks into which their commands write them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.reference import OK
from benchmarks.tables import Result

DOCS = Path(__file__).parents[1] / "docs"
#: Results of `make soak`, and of `benchmarks.check_times` by the target of make.
SOAK = "SOAK"
TIMED = {"check": "CHECK", "test": "TEST"}
#: The titles of the parts of pages that have them.
SOAK_PART, TIMES_PART = "Soak", "Check times"


def marks(title: str) -> re.Pattern[str]:
    """A pattern of a part of a page: the mark before it, the part, and the mark behind it.

    Args:
        title: of the part.
    """
    name = re.escape(title.lower())
    return re.compile(f"(<!-- measured: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def read(docs: Path = DOCS) -> list[Result]:
    """The results that the last reports have.

    Args:
        docs: the folder of the pages.
    """
    return [*_soak(_part(docs / "soak.md", SOAK_PART)), *_times(check_times(docs))]


def check_times(docs: Path = DOCS) -> str:
    """The part of the page that has what targets of make took.

    Args:
        docs: the folder of the pages.
    """
    return _part(docs / "benchmarks.md", TIMES_PART)


def _part(page: Path, title: str) -> str:
    found = marks(title).search(page.read_text("utf-8"))
    if found is None:
        raise ValueError(f"{page.name} has no marks for {title!r}")
    return found[2].strip()


def _soak(report: str) -> Iterator[Result]:
    minutes = re.search(r"--minutes ([\d.]+)", report)
    if minutes:
        faulty = report.count("NOT BOUNDED") + report.count("WRONG")
        yield {
            "case": SOAK,
            "rep": 0,
            "check": OK,
            "minutes": float(minutes[1]),
            "faulty": faulty,
        }


def _times(report: str) -> Iterator[Result]:
    for target, seconds, check in re.findall(
        r"^\| `make (\w+)` \| ([\d,]+) \| [\d,]+ \| (.*?) \|", report, re.MULTILINE
    ):
        yield {
            "case": TIMED[target],
            "rep": 0,
            "check": check,
            "seconds": float(seconds.replace(",", "")),
        }

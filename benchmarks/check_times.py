"""How long `make check` and `make test` take on this machine.

    python -m benchmarks.check_times                        make check, once
    python -m benchmarks.check_times test --write-docs      make test, and put its figures into docs/benchmarks.md
    python -m benchmarks.check_times --help

The goals have the figures of the page (`make bench`), so they are of a machine that had nothing else to do.
"""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks import harness, pages, reports, tables
from benchmarks.reference import OK
from benchmarks.reports import TIMED, TIMES_PART

#: Steps of the loop that shows how fast the machine is.
STEPS = 10_000_000
_HEADER = ["Target", "Seconds", "Processor seconds", "Outcome", "When, and where"]


def measured(command: Sequence[str]) -> tuple[float, float, bool]:
    """Seconds, processor seconds of all that it has waited for, and whether it has succeeded.

    Args:
        command: a program and its arguments; it runs in the repository.
    """
    began_s, before = time.monotonic(), psutil.Process().cpu_times()
    done = subprocess.run(command, cwd=harness.ROOT, check=False)
    seconds, after = time.monotonic() - began_s, psutil.Process().cpu_times()
    processors = sum(
        getattr(after, kind) - getattr(before, kind)
        for kind in ("children_user", "children_system")
    )
    return seconds, processors, done.returncode == 0


def loop_s() -> float:
    """How long a loop of Python takes, in seconds: by how much this machine is slower than another, or than itself."""
    # As in a program that is no function, where each name is looked up.
    loop = compile(f"total = 0\nfor step in range({STEPS}):\n    total += step", "loop", "exec")
    began_s = time.perf_counter()
    exec(loop, {})  # noqa: S102 - as above
    return time.perf_counter() - began_s


def with_row(part: str, target: str, row: Sequence[str]) -> str:
    """The table of the page with a new row for a target.

    Args:
        part: the table so far; empty: there is none.
        target: of make.
        row: its cells.
    """
    kept = {
        found[1]: [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in part.splitlines()
        if (found := re.match(r"\| `make (\w+)` ", line))
    }
    kept[target] = list(row)
    return tables.markdown(_HEADER, "l", [kept[each] for each in TIMED if each in kept], last="l")


def main(arguments: Sequence[str] | None = None, page: Path = pages.PAGE) -> int:
    """Run the command; returns its exit status, which is that of the target.

    Args:
        arguments: of the command line.
        page: that has the table.
    """
    parser = harness.parser(__doc__)
    parser.add_argument("target", nargs="?", choices=TIMED, default="check", help="of make")
    parser.add_argument("--write-docs", action="store_true", help=f"put it into {page.name}")
    given = parser.parse_args(arguments)
    machine, before_s = tables.machine(), loop_s()
    seconds, processors, is_good = measured(["make", given.target])
    outcome = OK if is_good else "FAILED"
    loops = f"{STEPS:,} steps of a loop took {before_s:.2f} s before and {loop_s():.2f} s behind it"
    where = f"{time.strftime('%Y-%m-%d')}: {machine}; {loops}"
    row = [f"`make {given.target}`", f"{seconds:,.0f}", f"{processors:,.0f}", outcome, where]
    print(tables.markdown(_HEADER, "l", [row], last="l"))
    if given.write_docs:
        table = with_row(reports.check_times(page.parent), given.target, row)
        page.write_text(pages.filled_in(page.read_text("utf-8"), {TIMES_PART: table}), "utf-8")
        pages.write_goals_of_reports(page.parent)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

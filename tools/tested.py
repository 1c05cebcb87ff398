"""Count what tests there are, for the page that says what was tested how.

python -m tools.tested --write-docs

Counts are of the source, so they need no run; the page has them rounded down, so that it stays true while they grow.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "tested.md"
MARKS = re.compile(r"(<!-- counted: tests -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_TESTS = ROOT / "tests"


class _Function(NamedTuple):
    """What counts of a function: the tree of its file is not kept, as those of all files are a million objects."""

    name: str
    is_law: bool
    breaks: bool


@cache
def _functions(path: Path) -> list[_Function]:
    return [
        _Function(
            name=node.name,
            is_law=any(ast.unparse(mark).startswith("given(") for mark in node.decorator_list),
            breaks=bool(node.args.args) and node.args.args[0].arg == "patch",
        )
        for node in _statements(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in a node, without a look at what is in expressions, which is most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from _statements(each)


def _in(pattern: str) -> Iterator[_Function]:
    for path in sorted(_TESTS.glob(pattern)):
        yield from _functions(path)


def tests(pattern: str) -> int:
    """How many test functions there are.

    Args:
        pattern: of files, below ``tests``.
    """
    return sum(each.name.startswith("test_") for each in _in(pattern))


def laws(pattern: str) -> int:
    """How many functions hypothesis gives examples to.

    Args:
        pattern: of files, below ``tests``.
    """
    return sum(each.is_law for each in _in(pattern))


def breakages(pattern: str) -> int:
    """How many functions break something on purpose: they are given what patches, and are no tests.

    Args:
        pattern: of files, below ``tests``.
    """
    return sum(each.breaks and not each.name.startswith("test_") for each in _in(pattern))


def faults() -> int:
    """How many kinds of faults the simulator has."""
    tree = ast.parse((ROOT / "runners/testing/simulator/fault.py").read_text("utf-8"))
    (kinds,) = (
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "Fault"
    )
    return sum(isinstance(each, ast.Assign) for each in kinds.body)


def guarantees() -> int:
    """How many guarantees the page of guarantees has, each with the test that checks it."""
    page = (ROOT / "docs/guarantees.md").read_text("utf-8").partition("## How the tests")[0]
    rows = re.findall(r"^\| (?!---|Guarantee )", page, re.MULTILINE)
    return len(rows)


def golden() -> int:
    """How many files of stored bytes there are, of all formats."""
    return sum(path.is_file() for path in (_TESTS / "golden").rglob("*"))


def counts() -> Mapping[str, int]:
    """Each count by its name on the page."""
    return {
        "Tests": tests("**/*.py"),
        "of these laws, for which hypothesis makes up the input": laws("**/*.py"),
        "Tests of the oracle": tests("oracle/*.py"),
        "Tests in the simulator": tests("simulation/*.py"),
        "Kinds of faults of the simulator": faults(),
        "Ways in which the core is broken on purpose": breakages("**/*.py"),
        "Tests of all runners, or all stores": tests("conformance/*.py"),
        "Tests with real Spark, Postgres, brokers and processes": tests("integration/**/*.py"),
        "of these kills, again and again": tests("integration/test_kill_*.py"),
        "of these faults of machines: disks, networks, clocks, fail-overs": tests(
            "integration/faults/*.py"
        ),
        "Files of stored bytes, that every later version has to read": golden(),
        "Guarantees, each with the test that checks it": guarantees(),
    }


def rounded(count: int) -> int:
    """A count rounded down to its first digit, or its first two where there are three digits or more."""
    place = 10 ** max(0, len(str(count)) - 2) if count >= 100 else 10 if count >= 20 else 1
    return count // place * place


def table(found: Mapping[str, int]) -> str:
    """The table of the page."""
    lines = ["| What | At least |", "| --- | ---: |"]
    lines += [f"| {name} | {rounded(count):,} |" for name, count in found.items()]
    return "\n".join(lines)


def stated(page: str) -> Mapping[str, int]:
    """The counts that a page states, by their names."""
    found = MARKS.search(page)
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \|$", found[2] if found else "", re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in rows}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write-docs", action="store_true", help="and put the table into the page")
    given = parser.parse_args()
    shown = table(counts())
    print(shown)
    if given.write_docs:
        page = PAGE.read_text("utf-8")
        PAGE.write_text(
            MARKS.sub(lambda found: f"{found[1]}\n{shown}\n\n{found[3]}", page), "utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

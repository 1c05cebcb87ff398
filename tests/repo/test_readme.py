"""The README tells the truth: its program prints what it says, its links lead somewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "examples", "tests") for path in (ROOT / folder).rglob("*.md")),
]


def fenced(language: str) -> list[str]:
    """The blocks of the README in a language."""
    text = README.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[str]:
    """Targets of the page's links outside fenced code, without those to other hosts."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target.partition("#")[0]


def test_program_prints_exactly_what_is_shown() -> None:
    (program,), (shown, *_) = fenced("python"), fenced("text")

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.stderr == ""
    assert ran.stdout == shown


def test_program_is_the_example_but_for_its_types() -> None:
    (program,) = fenced("python")
    example = (ROOT / "examples/team_scores.py").read_text("utf-8")

    start = "with df.Pipeline("
    assert program[program.index(start) :] == example[example.index(start) :]


def test_shown_data_are_those_of_the_example() -> None:
    assert fenced("csv") == [(ROOT / "examples/team_scores.csv").read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = [target for target in links(page) if target and not (page.parent / target).exists()]

    assert broken == []


def test_every_decision_is_in_the_index() -> None:
    directory = ROOT / "docs/adr"
    index = (directory / "README.md").read_text("utf-8")
    pages = {path.name for path in directory.glob("[0-9]*.md")} - {"0000-template.md"}

    assert pages
    assert {name for name in pages if f"]({name})" not in index} == set()

"""Names of the fragments of the changelog follow the rule of ``changelog.d/README.md``.

A name is the number of an issue, or ``+`` and a few words, and a kind that ``pyproject.toml`` declares.  Words without
the ``+`` are printed as the number of an issue, and a kind that is not declared ends `make changelog` with an error.
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "changelog.d"
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
KINDS = [each["directory"] for each in CONFIG["type"]]
NAME = re.compile(rf"(?:\d+|\+[a-z0-9]+(?:-[a-z0-9]+)*)\.(?:{'|'.join(KINDS)})\.md")


def misnamed(names: Iterable[str]) -> list[str]:
    """The names of files that are no fragments, and that towncrier is not configured to ignore."""
    return [name for name in names if name not in CONFIG["ignore"] and not NAME.fullmatch(name)]


def test_fragments_have_names_that_a_release_takes() -> None:
    names = sorted(path.name for path in FOLDER.iterdir())

    assert "README.md" in names
    assert misnamed(names) == []


def test_the_page_names_every_kind() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")

    assert KINDS
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


@pytest.mark.parametrize(
    ("name", "is_misnamed"),
    [
        ("+takeover-in-steps.fixed.md", False),
        ("14.added.md", False),
        ("README.md", False),
        ("takeover-in-steps.fixed.md", True),
        ("+takeover-in-steps.mended.md", True),
        ("+takeover-in-steps.md", True),
        ("+takeover_in_steps.fixed.md", True),
        ("+.fixed.md", True),
        ("14.fixed.rst", True),
    ],
)
def test_the_rule_finds_an_offender(name: str, is_misnamed: bool) -> None:
    assert misnamed([name]) == ([name] if is_misnamed else [])

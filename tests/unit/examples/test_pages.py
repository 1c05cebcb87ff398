"""The pages of the examples: they show what the programs print, and the pictures are what is drawn of them."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.pictures import FOLDER, IN_MEMORY, ON_SPARK

FOLDERS = sorted(path.parent for path in FOLDER.glob("*/pipeline.py"))
#: Programs that run in memory, and print the same every time.
PROGRAMS = [name for name in IN_MEMORY if (FOLDER / name).is_dir()]
#: Packages that a folder may import: what is installed with the SDK for its users, and Python's own.
PUBLIC = {"dataflow", *sys.stdlib_module_names}


def shown(name: str) -> str:
    """What the page of an example says that it prints."""
    page = (FOLDER / name / "README.md").read_text("utf-8")
    (text,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(text)


def pattern(text: str) -> str:
    """A text in which three dots stand for anything within a line."""
    return ".*".join(map(re.escape, text.split("...")))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_shows_what_the_program_prints(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module(f"examples.{name}.__main__").main([])

    printed = capsys.readouterr().out
    assert re.fullmatch(pattern(shown(name)), printed), printed


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_picture_is_what_is_drawn(name: str, tmp_path: Path) -> None:
    draw, place = IN_MEMORY[name]
    draw(tmp_path / "drawn.svg")

    assert (tmp_path / "drawn.svg").read_text("utf-8") == (FOLDER / place).read_text("utf-8"), (
        "draw it again: python -m examples.pictures"
    )


def test_every_folder_has_a_page_and_a_picture() -> None:
    pictures = {name: place for name, (_, place) in {**IN_MEMORY, **ON_SPARK}.items()}

    for folder in FOLDERS:
        page = (folder / "README.md").read_text("utf-8")
        assert f"({Path(pictures[folder.name]).name})" in page, folder
        assert f"({folder.name}/README.md)" in (FOLDER / "README.md").read_text("utf-8")


def imported(path: Path) -> Iterator[str]:
    """The packages that a module imports by their names, and not from its own folder."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def test_a_folder_can_be_copied() -> None:
    """Nothing of this repository is imported but the SDK."""
    assert len(FOLDERS) >= 5
    found = {str(path): set(imported(path)) for folder in FOLDERS for path in folder.glob("*.py")}
    assert {path: names - PUBLIC for path, names in found.items() if names - PUBLIC} == {}

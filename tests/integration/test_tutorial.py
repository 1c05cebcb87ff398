"""The tutorial, from its first word to its last: what it says to write is written, to run is run, to see is seen.

With the SDK installed as a wheel, in an empty folder, where nothing of the repository can be imported.

A block of a page with a name beside its language is a file; one of ``sh`` is run, and a block of ``text`` that follows
is all that it prints, where ``...`` is any lines; one of ``console`` is an example, and not compared.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
CHAPTERS = ("first-answers", "event-time", "history", "a-stream", "watch-correct-change")
_END = "::end of block::"

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@attrs.frozen
class Block:
    """A fenced block of a page."""

    language: str
    name: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = re.findall(
        r"^```(\w+)(?: (\S+))?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return [Block(*each) for each in found]


class Shell:
    """One bash, as somebody has it open while reading; so what runs in its background goes on between blocks."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def run(self, commands: str) -> tuple[int, str]:
        """The exit status of the last of some commands, and what all of them print."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{commands}\necho; echo {_END} $?\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(_END):
                return int(line.split()[-1]), "".join(printed).removesuffix("\n")
            # What bash says of a process that was killed, and where it says so, is not the tutorial's.
            if not re.match(r"bash: line \d+: +\d+ Killed ", line):
                printed.append(line)
        raise AssertionError(f"bash ended in {commands!r}, after {''.join(printed)!r}")

    def close(self) -> None:
        """End it with all that it has started."""
        self.run("kill -9 $(jobs -p) 2> /dev/null; wait")
        self._bash.communicate()


@pytest.fixture
def shell(installed: Path, store_dsn: str, tmp_path: Path) -> Iterator[Shell]:
    """In an empty folder."""
    ours = {"PYTHONPATH", "PYTHONHASHSEED"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"PATH": f"{installed}:{os.environ['PATH']}", "DATAFLOW_STORE": store_dsn}
    opened = Shell(tmp_path, environment)
    yield opened
    opened.close()


def _pattern(expected: str) -> str:
    lines = [
        r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in expected.splitlines()
    ]
    return "".join(lines)


@pytest.mark.nightly
def test_what_the_tutorial_shows_is_printed(shell: Shell, tmp_path: Path) -> None:
    for chapter in CHAPTERS:
        page = blocks(TUTORIAL / f"{chapter}.md")
        for number, block in enumerate(page):
            if block.name == "install":
                continue
            if block.name:
                (tmp_path / block.name).write_text(block.text)
            elif block.language == "sh":
                status, printed = shell.run(block.text)
                where = f"{chapter}, block {number + 1}: {block.text}printed {printed}"
                assert status == 0, where
                after = page[number + 1] if number + 1 < len(page) else None
                if after is not None and after.language == "text" and not after.name:
                    assert re.fullmatch(_pattern(after.text), printed), where


@pytest.mark.nightly
def test_what_the_tutorial_runs_is_the_wheel(shell: Shell, installed: Path) -> None:
    status, printed = shell.run("python -c 'import dataflow, runners; print(runners.__file__)'")
    assert status == 0
    assert Path(printed.strip()).is_relative_to(installed.parent)


def test_every_chapter_is_run() -> None:
    assert {page.stem for page in TUTORIAL.glob("*.md")} == {"README", *CHAPTERS}

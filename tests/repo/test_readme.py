"""The pages tell the truth: their programs print what is written there, their links lead somewhere."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.backfill_then_live import BackfillThenLiveRunner
from runners.batch import BackfillRunner, BatchRunner
from runners.direct import DirectRunner
from runners.streaming import StreamingRunner

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "examples", "tests") for path in (ROOT / folder).rglob("*.md")),
]


#: Pages whose programs look for bugs with very many examples: as long as those of all other pages together.
LAWS = {"bugs-that-laws-find"}


def fences(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each block of a page, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def programs() -> Iterator[Any]:
    """Every Python block of every page is a program; the text block that follows is what it prints."""
    for page in PAGES:
        blocks = fences(page)
        for number, (language, program) in enumerate(blocks, 1):
            if language == "python":
                after, text = blocks[number] if number < len(blocks) else ("", "")
                shown = text if after == "text" else ""
                marks = [] if page.parent == ROOT else [pytest.mark.slow]
                if page.stem in LAWS:
                    marks.append(pytest.mark.nightly)
                where = f"{page.relative_to(ROOT)}, block {number}"
                yield pytest.param(program, shown, id=where, marks=marks)


def links(page: Path) -> Iterator[str]:
    """Targets of the page's links outside fenced code, without those to other hosts."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target.partition("#")[0]


#: Runs the programs of its input, each in a process that is forked when everything is imported: to import it takes
#: longer than most of them.
FORKING = """
import json, os, sys
import dataflow.runner
dataflow.runner._runner_class("direct")
for line in sys.stdin:
    program, *outputs = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, path in enumerate([os.devnull, *outputs]):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
exec(compile(program, "job.py", "exec"))
"""


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Started in a folder of its own, since programs write files, with the examples that some of them read."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "examples").symlink_to(ROOT / "examples")
    with subprocess.Popen(
        [sys.executable, "-c", FORKING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        # Threads of numpy would be a reason to warn of the fork.
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    ) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize(("program", "shown"), list(programs()))
def test_programs_print_exactly_what_is_shown(
    program: str, shown: str, forking: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert forking.stdin is not None
    assert forking.stdout is not None
    out, err = tmp_path / "out", tmp_path / "err"

    print(json.dumps([program, str(out), str(err)]), file=forking.stdin, flush=True)
    exit_code = int(forking.stdout.readline())

    assert err.read_text("utf-8") == ""
    assert out.read_text("utf-8") == shown
    assert exit_code == 0


def test_relative_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in links(page)
        if target and not (page.parent / target).exists()
    ]

    assert broken == []


#: Runners by the names that pages give them: programs that are not run have options of these.
RUNNERS: dict[str, type] = {
    "direct": DirectRunner,
    "batch": BatchRunner,
    "streaming": StreamingRunner,
    "backfill": BackfillRunner,
    "backfill-then-live": BackfillThenLiveRunner,
}


def unknown_options(program: str) -> list[str]:
    """Keyword arguments that the runner which a program makes, or names for its pipeline, does not have."""
    unknown = []
    by_class = {kind.__name__: kind for kind in RUNNERS.values()}
    for call in ast.walk(ast.parse(program)):
        if not isinstance(call, ast.Call):
            continue
        named = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        given = {each.arg: each.value for each in call.keywords}
        runner = by_class.get(named)
        if named == "Pipeline":
            name = call.args[0] if call.args else given.pop("runner", ast.Constant("direct"))
            runner = RUNNERS.get(ast.literal_eval(name)) if isinstance(name, ast.Constant) else None
        if runner is not None:
            options = inspect.signature(runner).parameters
            unknown += [f"{named}({each}=)" for each in given if each and each not in options]
    return unknown


def programs_with_options(page: Path) -> Iterator[str]:
    """The programs of a page, and the runners and pipelines that it names."""
    yield from (text for language, text in fences(page) if language in ("py", "python"))
    yield from re.findall(r"`((?:df\.Pipeline|\w+Runner)\([^`.]*\))`", page.read_text("utf-8"))


def test_options_of_runners_are_there() -> None:
    unknown = [
        f"{page.relative_to(ROOT)}: {option}"
        for page in PAGES
        for program in programs_with_options(page)
        for option in unknown_options(program)
    ]

    assert unknown == []


def test_an_option_that_is_not_there_is_found() -> None:
    assert unknown_options("p = df.Pipeline('batch', job='a', workers=2)") == ["Pipeline(workers=)"]
    assert unknown_options("StreamingRunner(job='a', spill_bytes=2)") == [
        "StreamingRunner(spill_bytes=)"
    ]


def test_every_decision_is_in_the_index() -> None:
    directory = ROOT / "docs/adr"
    index = (directory / "README.md").read_text("utf-8")
    pages = {path.name for path in directory.glob("[0-9]*.md")} - {"0000-template.md"}

    assert pages
    assert {name for name in pages if f"]({name})" not in index} == set()

"""The harness of the benchmarks: their commands can be made again, and a run in this thread comes to its end."""

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import dataflow as df
from benchmarks import harness, stream_scale
from benchmarks.harness import Runs
from benchmarks.one_worker import run_to_end
from benchmarks.pages import MACHINE
from benchmarks.stores import Server
from benchmarks.task import Task
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.worker_options import WorkerOptions

ROOT = Path(__file__).parents[2]
#: Programs with a command line: those that have a parser.
PROGRAMS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if '__name__ == "__main__"' in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_the_parser_of_the_harness(name: str) -> None:
    text = (ROOT / "benchmarks" / f"{name}.py").read_text("utf-8")

    assert "harness.parser(__doc__" in text
    assert "ArgumentParser(" not in text
    assert f"python -m benchmarks.{name}" in text


def test_programs_import_nothing_of_each_other() -> None:
    """What two of them need has a module of its own."""
    for name in PROGRAMS:
        text = (ROOT / "benchmarks" / f"{name}.py").read_text("utf-8")
        imported = re.findall(
            r"^from benchmarks\.(\w+) import|^from benchmarks import (.*)$", text, re.MULTILINE
        )
        names = {each for pair in imported for words in pair for each in words.split(", ")}
        assert not names & set(PROGRAMS), name


def test_the_recorded_command_makes_the_same_runs_again() -> None:
    """Of benchmarks.stream_scale; tests/benchmarks/test_tables.py has that of benchmarks.bench."""
    parser, begin = stream_scale.parser(), "python -m benchmarks.stream_scale "
    line = "--case LATENCY KEYS --reps 2 --caches-mb 4 -1 --bound-ms 10.5"
    given = parser.parse_args(line.split(" "))

    shown = stream_scale.command(given)

    assert shown.startswith(begin)
    assert given == parser.parse_args(shown.removeprefix(begin).split())


def test_text_is_one_value_of_an_option() -> None:
    assert harness.command("x", {"warm_up": 5, "case": ["B1", "B2"], "name": "abc"}) == (
        "python -m x --warm-up 5 --case B1 B2 --name abc"
    )


def test_a_run_that_is_not_good_is_a_failure_and_the_machine_is_no_run() -> None:
    results = [
        {"case": MACHINE},
        {"case": "B1", "check": "ok"},
        {"case": "B1", "check": "WRONG: 3"},
    ]

    assert harness.failures(results) == 1


class _Databases(Server):
    """Databases that are only counted."""

    names: list[str] = []

    @property
    def pid(self) -> int:
        return 1 << 30

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        self.names.append(name)
        try:
            yield f"dsn of {name}"
        finally:
            self.names.remove(name)


@pytest.fixture
def server(tmp_path: Path) -> _Databases:
    return _Databases("", tmp_path)


def task() -> Task:
    return Task(case="B1", size=1, out="")


def test_each_run_has_a_folder_and_a_database_and_both_go(server: _Databases) -> None:
    runs = Runs(server, 60.0)
    seen = []
    for _ in range(2):
        with suppress(ZeroDivisionError), runs.prepared(task()) as prepared:
            assert Path(prepared.out).is_dir()
            seen.append(prepared)
            raise ZeroDivisionError
        assert not Path(prepared.out).exists()
        assert server.names == []

    assert seen[0].out != seen[1].out
    assert [each.store for each in seen] == ["dsn of run_1", "dsn of run_2"]
    with runs.prepared(task(), needs_store=False) as prepared:
        assert prepared.store == task().store
        assert server.names == []


@pytest.mark.slow
def test_a_run_that_leaves_no_report_names_the_reason(
    server: _Databases, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 600\n")
    endless.chmod(0o755)
    with Runs(server, 60.0).prepared(task(), needs_store=False) as prepared:
        _, trouble = Runs(server, 60.0).measured(prepared, sys.executable, "no_such_module_here")
        assert trouble == "FAILED with status 1"
        _, trouble = Runs(server, 0.1).measured(prepared, str(endless), "no_such_module_here")
        assert trouble is not None
        assert trouble.startswith("TIMEOUT")
    assert "no_such_module_here" in capfd.readouterr().out


def test_a_stream_in_this_thread_comes_to_its_end() -> None:
    rows = [("a", 1), ("b", 2), ("a", 3)]
    seen: list[int] = []
    p = df.Pipeline()
    p | df.Create(rows) | df.CombinePerKey(sum)

    took = run_to_end(
        MemoryStore(),
        None,
        p,
        WorkerOptions(),
        watched=lambda master: seen.append(master.statistics().records_read),
    )

    assert seen[-1] == len(rows)
    assert took.worker_s > 0
    assert took.postgres_s == 0


def test_every_program_can_be_imported() -> None:
    for name in PROGRAMS:
        assert importlib.import_module(f"benchmarks.{name}").main

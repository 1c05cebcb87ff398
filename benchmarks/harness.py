"""The harness of the benchmarks: their command lines, their runs as processes of their own, and their outcome.

A program has a purpose and its cases.  How options are named, where results go, what a run has (a folder, and a
database where it needs one), how it is watched, and when a command has failed, is here.  `benchmarks.stores` has the
servers, `benchmarks.recording` the files of results, and `benchmarks.one_worker` runs of a stream in this process.
"""

import argparse
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from benchmarks import pages, tables
from benchmarks.processes import Usage, run
from benchmarks.stores import Server
from benchmarks.tables import Result
from benchmarks.task import Task

ROOT = Path(__file__).parents[1]
_LOG_TAIL_LINES = 12


def parser(doc: str | None, *, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser that describes its program by the first line of the module's docstring.

    Args:
        doc: the docstring.
        epilog: follows the options in the help, with its lines as they are.
    """
    return argparse.ArgumentParser(
        description=(doc or "").partition("\n")[0],
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_store_options(found: argparse.ArgumentParser, *, rounds: int) -> None:
    """Add the options of programs that measure in a Postgres, and several times."""
    found.add_argument("--dsn", help="a Postgres; by default one of its own, stopped afterwards")
    found.add_argument("--rounds", type=int, default=rounds, help="the best of so many")


def cache_folder() -> Path:
    """Where data and environments are kept by default."""
    return platformdirs.user_cache_path("dataflow-sdk", appauthor=False) / "benchmarks"


def add_recording_options(found: argparse.ArgumentParser, *, timeout_s: float, page: str) -> None:
    """Add the options of programs that record their runs.

    Args:
        found: the parser.
        timeout_s: how many seconds a run may take by default.
        page: the name of the page that has the tables.
    """
    add = found.add_argument
    add("--reps", type=int, default=1, help="how often each run is made")
    add("--timeout", type=float, default=timeout_s, help="seconds that one run may take")
    add("--cache", type=Path, default=cache_folder(), help="where data and environments are kept")
    add("--results", type=Path, help="where to write the runs; default: in the cache, by the time")
    add("--write-docs", action="store_true", help=f"and put the tables into {page}")


def command(module: str, options: Mapping[str, object]) -> str:
    """The command that makes the same runs again; ``options`` by their names, each a value or several."""
    words = [f"python -m {module}"]
    for name, value in options.items():
        many = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        words.append(f"--{name.replace('_', '-')} {' '.join(map(str, many))}")
    return " ".join(words)


def failures(results: Iterable[Result]) -> int:
    """How many runs failed or gave a wrong answer, which is the exit status of a command."""
    return sum(not tables.is_good(each) for each in results if each["case"] != pages.MACHINE)


class Runs:
    """Makes runs: each a process of its own, with a folder and a new database.

    Args:
        server: has the databases.
        timeout_s: how many seconds a run may take.
    """

    def __init__(self, server: Server, timeout_s: float) -> None:
        self._server, self._timeout_s = server, timeout_s
        self._numbers = itertools.count(1)

    @contextmanager
    def prepared(self, task: Task, *, needs_store: bool = True) -> Iterator[Task]:
        """A task with its folder and the DSN of its database; both go afterwards."""
        out = Path(tempfile.mkdtemp(prefix="dataflow-run-"))
        try:
            if not needs_store:
                yield task._replace(out=str(out))
                return
            with self._server.database(f"run_{next(self._numbers)}") as dsn:
                yield task._replace(out=str(out), store=dsn)
        finally:
            shutil.rmtree(out, ignore_errors=True)

    def measured(self, task: Task, python: str, module: str) -> tuple[Usage, str | None]:
        """Run a module with a prepared task; what it used, and why it left no report, if it did not.

        Args:
            task: as `prepared` gave it.
            python: the interpreter.
            module: reads the task from its argument.
        """
        usage = run(
            [python, "-m", module, task.to_argument()],
            log=Path(task.out, "log"),
            cwd=ROOT,
            timeout_s=self._timeout_s,
            servers=[self._server.pid] if task.store else [],
        )
        return usage, self._trouble_of(task, usage)

    def _trouble_of(self, task: Task, usage: Usage) -> str | None:
        """Why a run left no report, with the end of its log printed; None if there is a report."""
        if usage.is_timeout:
            return f"TIMEOUT after {self._timeout_s:.0f} s"
        if usage.returncode or not task.report_path.exists():
            tail = Path(task.out, "log").read_text("utf-8", "replace").splitlines()
            print("\n".join(["", *tail[-_LOG_TAIL_LINES:]]), flush=True)
            return f"FAILED with status {usage.returncode}"
        return None

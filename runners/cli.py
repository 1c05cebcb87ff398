"""The command line ``dataflow``: look at jobs in a store, and send signals to them.

Answers go to stdout, errors to stderr.  Exit status: 0; 2 when what was asked for cannot be done; 130 when interrupted.

**Invariant:** nothing that it prints contains the password of a connection string, wherever on the line it was given.
Nothing is unpickled: what late records contained is told by `StoreResult.late_records`, in the user's own program.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn

from dataflow.errors import DataflowError
from runners.errors import StoreError
from runners.millwheel.store.port import JobSummary, Store
from runners.registry import STORE_VARIABLE, open_store, store_dsn
from windowing.timestamps import format_timestamp

_EXAMPLES = """\
examples:
  dataflow jobs
  dataflow signal scores flush
  dataflow late scores --json | head
"""
_STORE_HELP = (
    f"a Postgres; by default ${STORE_VARIABLE}, where a password is better kept than on a command line, "
    "else the one that comes with this package"
)
#: A password in a URI, or as a keyword.
_SECRETS = re.compile(
    r"(://[^/@:\s]*:)(?!password@).*(?=@)|(\bpassword\s*=\s*)('.*'|[^\s&]+)", re.IGNORECASE
)
#: A person is waiting, and most often the server is simply not there.
_CONNECT_TIMEOUT_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        dsn = store_dsn(asked.store)
        with closing(open_store(dsn, connect_timeout_s=_CONNECT_TIMEOUT_S)) as store:
            asked.do(store, asked)
        sys.stdout.flush()
    except DataflowError as error:
        print(_without_secrets(str(error)), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read has seen enough; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def send_signal(store: Store, asked: argparse.Namespace) -> None:
    """Send a signal to a job, and say its number."""
    _find(store, asked.job)
    number = store.send_signal(asked.job, asked.name)
    print(f"signal {number} of job {asked.job}: {asked.name}")


def show_jobs(store: Store, _: argparse.Namespace) -> None:
    """Print a line for each job."""
    jobs = store.read_jobs()
    if not jobs:
        print("no jobs")
        return
    _print_table(
        ("job", "mode", "state", "watermark", "ranges open", "listens to"),
        (
            (
                job.job,
                job.mode,
                "finished" if job.is_finished else "unfinished",
                "-" if job.watermark_us is None else format_timestamp(job.watermark_us),
                f"{job.open_ranges} of {job.ranges}",
                ", ".join(sorted(job.signals)) or "-",
            )
            for job in jobs
        ),
    )


def show_late(store: Store, asked: argparse.Namespace) -> None:
    """Print what a job has dropped as too late, and how much of it each transform has."""
    _find(store, asked.job)
    rows = [_late_row(record) for record in store.read_late(asked.job)]
    if asked.json:
        for row in rows:
            print(json.dumps(row))
        return
    if not rows:
        print(f"no late records in job {asked.job}")
        return
    _print_table([name.replace("_", " ") for name in rows[0]], (row.values() for row in rows))
    print()
    _print_table(("transform", "late records"), store.read_late_counts(asked.job).items())


def show_dead(store: Store, asked: argparse.Namespace) -> None:
    """Print the records that user code could not take, and why."""
    _find(store, asked.job)
    letters = store.read_dead_letters(asked.job)
    if asked.json:
        for letter in letters:
            print(json.dumps(_dead_row(letter)))
        return
    if not letters:
        print(f"no dead letters in job {asked.job}")
        return
    rows = [_dead_row(letter) for letter in letters]
    for row in rows:
        del row["traceback"]
        row["error"] = row["error"].partition("\n")[0]
    _print_table(rows[0], (row.values() for row in rows))


def _dead_row(letter: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "stage": letter["stage"],
        "time": format_timestamp(letter["timestamp_us"]),
        "tries": letter["tries"],
        "error": letter["error"],
        "traceback": letter["traceback"],
    }


def _late_row(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "transform": record["transform"],
        "key": record["key"],
        "window_start": format_timestamp(record["window_start_us"]),
        "window_end": format_timestamp(record["window_end_us"]),
        "watermark": format_timestamp(record["watermark_us"]),
        "count": record["count"],
    }


def _find(store: Store, name: str) -> JobSummary:
    """The job of that name.

    Raises:
        StoreError: there is none.
    """
    jobs = {job.job: job for job in store.read_jobs()}
    if name not in jobs:
        raise StoreError(
            f"there is no job {name!r} in this store",
            detail=f"its jobs are: {', '.join(jobs)}" if jobs else "it has no jobs at all",
            hint=f"run the job once, or choose its store with --store or ${STORE_VARIABLE}",
        )
    return jobs[name]


def _print_table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Columns of text, two blanks apart; on one line each, so that other programs can read them."""
    lines = [[_shown(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _shown(cell: object) -> str:
    """A value on one line; what a terminal would obey is escaped."""
    text = str(cell)
    return text if text.isprintable() else ascii(text)


def _without_secrets(text: str) -> str:
    return _SECRETS.sub(lambda found: f"{found[1] or found[2]}***", text)


class _Parser(argparse.ArgumentParser):
    """One that repeats what it does not understand without its passwords."""

    def error(self, message: str) -> NoReturn:
        super().error(_without_secrets(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dataflow",
        description="Look at the jobs in a store, and send signals to them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    signal = _verb(
        verbs,
        "signal",
        "have every open window of a streaming job hear a signal",
        "Its triggers listen with df.AfterSignal(NAME). A signal is about what the job has read by then; "
        "each window hears it once, whatever is killed. A job that nobody runs now hears it when it goes on.",
        "dataflow signal scores flush",
    )
    signal.add_argument("job", metavar="JOB", help="as given to the runner")
    signal.add_argument("name", metavar="NAME", help="of the signal")
    signal.set_defaults(do=send_signal)
    jobs = _verb(
        verbs,
        "jobs",
        "list the jobs in a store",
        "The watermark is the lowest that a part of the job has committed. "
        "A job is unfinished as long as it may go on, whether it runs now or not.",
        "dataflow jobs --store postgresql://me@db.example.org/flights",
    )
    jobs.set_defaults(do=show_jobs)
    late = _verb(
        verbs,
        "late",
        "show the records that a job dropped because their window was gone",
        "What they contained is told by late_records() of the result, in Python.",
        "dataflow late scores --json | head",
    )
    late.add_argument("job", metavar="JOB", help="as given to the runner")
    late.add_argument("--json", action="store_true", help="a JSON object on each line, no counts")
    late.set_defaults(do=show_late)
    dead = _verb(
        verbs,
        "dead",
        "show the records that user code could not take, however often it was tried",
        "What they contained is told by dead_letters() of the result, in Python.",
        "dataflow dead scores --json | jq -r .traceback",
    )
    dead.add_argument("job", metavar="JOB", help="as given to the runner")
    dead.add_argument(
        "--json", action="store_true", help="a JSON object on each line, with the traceback"
    )
    dead.set_defaults(do=show_dead)
    return parser


def _verb(verbs: Any, name: str, what: str, more: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. {more}",
        epilog=f"example: {example}",
    )
    parser.add_argument("--store", metavar="DSN", help=_STORE_HELP)
    return parser

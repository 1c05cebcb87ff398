"""The command ``dataflow check``: in which format jobs are stored, and whether this version can go on with them.

It looks at numbers alone: no state of a job is read, and nothing is changed.
It also names who keeps the store from freeing what jobs overwrite and delete, and sinks that have failed for long.
Of one job it says whether it is fresh, or whether its driver is alive.
"""

import argparse
from collections.abc import Callable, Sequence

from dataflow.errors import DataflowError
from runners.cli.fresh import check_alive, check_fresh
from runners.cli.text import print_line, print_table
from runners.cli.waiting import print_waiting
from runners.millwheel.store.port import JobSummary, Store
from runners.observability.why.store_health import OLD_SNAPSHOT_S, findings_of
from runners.stored.framing import current_format
from runners.system_clock import SystemClock
from windowing.timestamps import to_duration_us


def check(store: Store, asked: argparse.Namespace) -> None:
    """Check all jobs, or whether one is fresh, or alive.

    Args:
        store: whose jobs are checked.
        asked: the parsed command line, with ``job``, ``alive``, ``fresh_within_us`` and ``strict``.

    Raises:
        DataflowError: the check fails, or an option is given that takes a job.
    """
    is_of_freshness = asked.fresh_within_us is not None or asked.strict
    if asked.alive and (asked.job is None or is_of_freshness):
        raise DataflowError(
            "whether its driver is alive is asked of one job, and of nothing else",
            hint="dataflow check JOB --alive",
        )
    if asked.alive:
        check_alive(store, asked.job, SystemClock())
        return
    if asked.job is not None:
        check_fresh(store, asked.job, asked.fresh_within_us, SystemClock(), is_strict=asked.strict)
        return
    if is_of_freshness:
        raise DataflowError(
            "whether something is fresh, or its store is well, is asked of one job",
            hint="dataflow check JOB --fresh-within 5s; or dataflow check, of all jobs",
        )
    check_formats(store)


def check_formats(store: Store) -> None:
    """Print a line for each job, and what running it with this version would do.

    And a line for each old snapshot, and for each lane of a sink that has failed for long.

    Args:
        store: whose jobs are listed.

    Raises:
        DataflowError: a job that is unfinished could not go on, or a sink of one has failed for long.
    """
    jobs = store.read_jobs()
    if not jobs:
        print("no jobs")
        return
    writes = current_format().number
    reads = " and ".join(map(str, sorted(current_format().readable)))
    print(f"this version of dataflow-model writes format {writes}, and reads {reads}")
    print_table(
        ("job", "mode", "state", "driver", "format", "with this version"),
        (
            (
                job.job,
                job.mode,
                "finished" if job.is_finished else "unfinished",
                job.driver or "-",
                str(job.stored_format) if job.stored_format else "none",
                outcome(job),
            )
            for job in jobs
        ),
    )
    _print_snapshots(store)
    failing = print_waiting(store, [job.job for job in jobs if not job.is_finished])
    _refuse_if_any(jobs)
    if failing:
        raise DataflowError(
            f"sinks of {len(failing)} of {len(jobs)} jobs have failed for five minutes or longer",
            detail=", ".join(failing),
            hint="see to it that they can be reached, and take the rows; dataflow sinks JOB shows what waits, and "
            "nothing of it is lost",
        )


def outcome(job: JobSummary) -> str:
    """The outcome of running a job with this version of the package."""
    current = current_format()
    if job.stored_format == current.number:
        return "goes on"
    if job.stored_format in current.readable:
        return (
            f"goes on, and is in format {current.number} from then on: no older version can run it"
        )
    if job.stored_format > current.number:
        return "is refused: it needs a later version"
    return "is refused: it needs the version that wrote it, or fresh=True to start over"


def _print_snapshots(store: Store) -> None:
    for each in findings_of(store.old_snapshots(OLD_SNAPSHOT_S), (), ()):
        print_line(each.text)


def _refuse_if_any(jobs: Sequence[JobSummary]) -> None:
    readable = current_format().readable
    refused = [job.job for job in jobs if not job.is_finished and job.stored_format not in readable]
    if refused:
        raise DataflowError(
            f"this version of dataflow-model cannot go on with {len(refused)} of {len(jobs)} jobs",
            detail=", ".join(refused),
            hint="let the version that wrote them finish or drain them; or start over, with fresh=True",
        )


def _length_us(text: str) -> int:
    try:
        length_us = to_duration_us(text)
    except DataflowError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if length_us <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; for example 5s or 2m")
    return length_us


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    parser = add(
        "check",
        "show the stored format of each job, whether this version can go on with it, and old snapshots; or whether "
        "one job is fresh, or alive",
        "Nothing is changed. Before an upgrade, run it with the new version: its exit status is 2 if a job that is "
        "unfinished could not go on. A session that has held a snapshot of the database for a minute or more is named: "
        "until it ends nothing is freed that jobs overwrite or delete. Of one job the exit status is 0 if its results "
        "are not further behind the clock than its pipeline declares (fresh_within=) or --fresh-within says, and 2 "
        "with one line that says why if they are, or if nobody knows. What is wrong with its store has a line of its "
        "own: long transactions, replication slots that nobody reads, tables with many dead rows, and autovacuum that "
        "is off. With --alive the exit status is 2 only if nobody runs the job, or its driver reports nothing: for "
        "probes that restart it, which makes nothing fresher.",
        "dataflow check scores",
    )
    parser.add_argument("job", metavar="JOB", nargs="?", help="name of a job that has to be fresh")
    parser.add_argument(
        "--fresh-within",
        dest="fresh_within_us",
        metavar="TIME",
        type=_length_us,
        help="how far its event time may be behind the clock, such as 5s; by default as its pipeline declares",
    )
    parser.add_argument(
        "--alive",
        action="store_true",
        help="whether its driver is there and reports, however fresh the job is",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail also if something is wrong with the store of the job",
    )
    parser.set_defaults(do=check)

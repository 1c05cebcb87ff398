"""The command ``dataflow check``: in which format jobs are stored, and whether this version can go on with them.

It looks at numbers alone: no state of a job is read, and nothing is changed.
It also names who keeps the store from freeing what jobs overwrite and delete, and sinks that have failed for long.
"""

import argparse
from collections.abc import Sequence

from dataflow import times
from dataflow.errors import DataflowError
from runners.cli.text import print_line, print_table
from runners.cli.waiting import print_waiting
from runners.millwheel.store.port import JobSummary, Store
from runners.stored.framing import current_format

#: Snapshots that are younger do no harm.
OLD_SNAPSHOT_S = 60.0


def check_formats(store: Store, _: argparse.Namespace) -> None:
    """Print a line for each job, and what running it with this version would do.

    And a line for each old snapshot, and for each lane of a sink that has failed for long.

    Args:
        store: whose jobs are listed.
        _: the parsed command line, not needed.

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
    for each in store.old_snapshots(OLD_SNAPSHOT_S):
        known = [each.application, each.user and f"user {each.user}", each.state]
        print_line(
            f"{each.holder} ({', '.join(filter(None, known))}) has held a snapshot for "
            f"{times.in_words(round(each.age_s) * 1_000_000)}: tables grow until it ends, because nothing that is "
            f"overwritten or deleted is freed"
        )


def _refuse_if_any(jobs: Sequence[JobSummary]) -> None:
    readable = current_format().readable
    refused = [job.job for job in jobs if not job.is_finished and job.stored_format not in readable]
    if refused:
        raise DataflowError(
            f"this version of dataflow-model cannot go on with {len(refused)} of {len(jobs)} jobs",
            detail=", ".join(refused),
            hint="let the version that wrote them finish or drain them; or start over, with fresh=True",
        )

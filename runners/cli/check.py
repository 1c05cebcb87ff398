"""The command ``dataflow check``: in which format jobs are stored, and whether this version can go on with them.

It looks at numbers alone: no state of a job is read, and nothing is changed.
"""

import argparse
from collections.abc import Sequence

from dataflow.errors import DataflowError
from runners.cli.text import print_table
from runners.millwheel.store.port import JobSummary, Store
from runners.stored.framing import current_format


def check_formats(store: Store, _: argparse.Namespace) -> None:
    """Print a line for each job, and what running it with this version would do.

    Args:
        store: whose jobs are listed.
        _: the parsed command line, not needed.

    Raises:
        DataflowError: a job that is unfinished could not go on.
    """
    jobs = store.read_jobs()
    if not jobs:
        print("no jobs")
        return
    writes = current_format().number
    reads = " and ".join(map(str, sorted(current_format().readable)))
    print(f"this version of dataflow-sdk writes format {writes}, and reads {reads}")
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
    _refuse_if_any(jobs)


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


def _refuse_if_any(jobs: Sequence[JobSummary]) -> None:
    readable = current_format().readable
    refused = [job.job for job in jobs if not job.is_finished and job.stored_format not in readable]
    if refused:
        raise DataflowError(
            f"this version of dataflow-sdk cannot go on with {len(refused)} of {len(jobs)} jobs",
            detail=", ".join(refused),
            hint="let the version that wrote them finish or drain them; or start over, with fresh=True",
        )

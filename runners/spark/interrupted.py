"""What an interruption says of a job that is in a store, on every runner: what stays of it, and how to go on."""

import shlex
from contextlib import AbstractContextManager

from dataflow.interruption import if_interrupted


def stays_in_store(job: str) -> AbstractContextManager[None]:
    """Have an interruption meanwhile say that the job's commits stay.

    Args:
        job: its name.
    """
    return if_interrupted(
        f"what job {job!r} has committed stays; run it again to go on, or delete it: "
        f"dataflow forget {shlex.quote(job)} --yes"
    )

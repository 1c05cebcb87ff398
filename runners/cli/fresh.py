"""Whether a job is fresh, for probes: how far what it has emitted is behind the clock, against how far it may be.

A job that is finished is fresh; one that nobody runs, or whose driver is silent, is not, however far it is.
"""

import attrs

from dataflow.errors import DataflowError
from runners.cli.text import find_job, print_line
from runners.core.ground.clock import Clock
from runners.millwheel.store.port import Store
from runners.observability.evidence.snapshot import latest_output_us
from runners.observability.why.evidence import Evidence, JobState
from runners.observability.why.explain import Question, explain
from runners.observability.why.from_store import evidence_from_store
from runners.observability.why.states import is_old
from runners.observability.why.words import length
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


@attrs.frozen(kw_only=True)
class Freshness:
    """How fresh a job is.

    Attributes:
        is_fresh: whether it is as fresh as it has to be.
        text: what its lag is, on one line.
    """

    is_fresh: bool
    text: str


def freshness_of(evidence: Evidence, within_us: int) -> Freshness:
    """How fresh a job is.

    Args:
        evidence: of the job.
        within_us: how far behind the clock its results may be, in microseconds.
    """
    job = evidence.job
    if evidence.state in (JobState.FINISHED, JobState.DRAINED):
        return Freshness(is_fresh=True, text=f"job {job} is {evidence.state.value}")
    if evidence.state is JobState.NOT_RUNNING:
        return Freshness(is_fresh=False, text=f"job {job} is not running")
    if is_old(evidence) or not evidence.stages:
        return Freshness(is_fresh=False, text=f"it is not known how fresh job {job} is")
    fed = {sender for each in evidence.stages.values() for sender in each.senders}
    output_us, name = min(
        (latest_output_us(evidence.stages, name), name)
        for name in evidence.stages
        if name not in fed
    )
    if output_us >= MAX_TIMESTAMP_US:
        return Freshness(
            is_fresh=True, text=f"{name!r} of job {job} has come to the end of its input"
        )
    if output_us <= MIN_TIMESTAMP_US:
        return Freshness(is_fresh=False, text=f"{name!r} of job {job} has not come anywhere yet")
    lag_us = max(0, evidence.now_us - output_us)
    text = f"{name!r} of job {job} is {length(lag_us)} behind the clock"
    return Freshness(is_fresh=lag_us <= within_us, text=text)


def check_fresh(store: Store, job: str, within_us: int, clock: Clock) -> None:
    """Print that a job is fresh.

    Args:
        store: that has the job.
        job: its name.
        within_us: how far behind the clock its results may be, in microseconds.
        clock: that of this machine.

    Raises:
        DataflowError: it is not, on one line with the reason.
    """
    find_job(store, job)
    evidence = evidence_from_store(store, job, clock)
    found = freshness_of(evidence, within_us)
    if not found.is_fresh:
        reason = "; ".join(explain(evidence, Question()).sentence.splitlines())
        raise DataflowError(f"not fresh: {found.text}, and may be {length(within_us)}: {reason}")
    print_line(f"fresh: {found.text}")

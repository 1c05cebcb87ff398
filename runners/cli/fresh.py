"""Whether a job is fresh, and whether its driver is alive, for probes.

Fresh: how far what it has emitted is behind the clock, against how far it may be, which is declared in its pipeline
(``fresh_within=``), or given.
A job that is finished is fresh; one that nobody runs, or whose driver is silent, is not, however far it is.
Alive: whether its driver is there and reports.  A probe that ends processes is to ask this alone: nothing becomes
fresher by it.
"""

from collections.abc import Sequence

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


@attrs.frozen(kw_only=True)
class Objective:
    """How far behind the clock something may be.

    Attributes:
        name: of the transform that declares it, or of the stage.
        stage: whose output watermark counts.
        within_us: how far, in microseconds.
    """

    name: str
    stage: str
    within_us: int


def declared_objectives(evidence: Evidence) -> list[Objective]:
    """What the pipeline of a job declares.

    Args:
        evidence: of the job.
    """
    return [
        Objective(name=each.transform, stage=each.stage, within_us=each.within_us)
        for each in evidence.objectives
    ]


def asked_objectives(evidence: Evidence, within_us: int) -> list[Objective]:
    """One objective for all that a job emits last.

    Args:
        evidence: of the job.
        within_us: how far behind the clock it may be, in microseconds.
    """
    fed = {sender for each in evidence.stages.values() for sender in each.senders}
    last = [name for name in evidence.stages if name not in fed]
    return [Objective(name=name, stage=name, within_us=within_us) for name in last]


def freshness_of(evidence: Evidence, objectives: Sequence[Objective]) -> Freshness:
    """How fresh a job is: the objective that it misses by most, or meets by least.

    Args:
        evidence: of the job.
        objectives: that it has to meet.
    """
    job = evidence.job
    if evidence.state in (JobState.FINISHED, JobState.DRAINED):
        return Freshness(is_fresh=True, text=f"job {job} is {evidence.state.value}")
    if evidence.state is JobState.NOT_RUNNING:
        return Freshness(is_fresh=False, text=f"job {job} is not running")
    if is_old(evidence) or not evidence.stages or not objectives:
        return Freshness(is_fresh=False, text=f"it is not known how fresh job {job} is")
    _, _, found = min(
        (
            (each.within_us - _behind_us(evidence, each), each.name, _of_objective(evidence, each))
            for each in objectives
        ),
        key=lambda found: found[:2],
    )
    stuck = [
        each
        for each in evidence.sinks
        if (each.failing_for_us or 0) > max(objective.within_us for objective in objectives)
    ]
    if found.is_fresh and stuck:
        failing = length(stuck[0].failing_for_us or 0)
        text = f"{stuck[0].waiting:,} rows of job {job} wait for {stuck[0].name}, which has failed for {failing}"
        return Freshness(is_fresh=False, text=text)
    return found


def _behind_us(evidence: Evidence, objective: Objective) -> int:
    output_us = latest_output_us(evidence.stages, objective.stage)
    return 0 if output_us >= MAX_TIMESTAMP_US else max(0, evidence.now_us - output_us)


def _of_objective(evidence: Evidence, objective: Objective) -> Freshness:
    name, job = objective.name, evidence.job
    output_us = latest_output_us(evidence.stages, objective.stage)
    if output_us >= MAX_TIMESTAMP_US:
        return Freshness(
            is_fresh=True, text=f"{name!r} of job {job} has come to the end of its input"
        )
    if output_us <= MIN_TIMESTAMP_US:
        return Freshness(is_fresh=False, text=f"{name!r} of job {job} has not come anywhere yet")
    lag_us = _behind_us(evidence, objective)
    may = length(objective.within_us)
    text = f"{name!r} of job {job} is {length(lag_us)} behind the clock, and may be {may}"
    return Freshness(is_fresh=lag_us <= objective.within_us, text=text)


def check_fresh(
    store: Store, job: str, within_us: int | None, clock: Clock, *, is_strict: bool = False
) -> None:
    """Print that a job is fresh, and what is wrong with its store.

    Args:
        store: that has the job.
        job: its name.
        within_us: how far behind the clock its results may be, in microseconds; None: as its pipeline declares.
        clock: that of this machine.
        is_strict: whether what is wrong with the store is an error too.

    Raises:
        DataflowError: it is not, on one line with the reason; or its pipeline declares nothing.
    """
    find_job(store, job)
    evidence = evidence_from_store(store, job, clock)
    objectives = (
        declared_objectives(evidence)
        if within_us is None
        else asked_objectives(evidence, within_us)
    )
    is_known = evidence.state is JobState.RUNNING and evidence.as_of_us is not None
    if within_us is None and not objectives and is_known:
        raise DataflowError(
            f"the pipeline of job {job} declares nothing of its freshness",
            hint='declare it, with df.WriteToPostgres(..., fresh_within="5s") or df.FreshWithin("5s"); or say it '
            f"here: dataflow check {job} --fresh-within 5s",
        )
    found = freshness_of(evidence, objectives)
    for finding in evidence.store:
        print_line(f"store, {finding.kind.value}: {finding.text}")
    if not found.is_fresh:
        reason = "; ".join(explain(evidence, Question()).sentence.splitlines())
        raise DataflowError(f"not fresh: {found.text}: {reason}")
    if is_strict and evidence.store:
        raise DataflowError(
            f"something is wrong with the store of job {job}: {evidence.store[0].text}"
        )
    print_line(f"fresh: {found.text}")


def check_alive(store: Store, job: str, clock: Clock) -> None:
    """Print that the driver of a job is alive, or not needed any more.

    Args:
        store: that has the job.
        job: its name.
        clock: that of this machine.

    Raises:
        DataflowError: nobody runs the job, or its driver has the job and reports nothing.
    """
    find_job(store, job)
    evidence = evidence_from_store(store, job, clock)
    if evidence.state is JobState.NOT_RUNNING:
        raise DataflowError(f"not alive: job {job} is not running")
    if is_old(evidence):
        silent = (
            "nothing yet"
            if evidence.as_of_us is None
            else f"nothing for {length(evidence.now_us - evidence.as_of_us)}"
        )
        raise DataflowError(f"not alive: the driver of job {job} has reported {silent}")
    print_line(f"alive: job {job} is {evidence.state.value}")

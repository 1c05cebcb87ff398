"""How the series of metrics are read of a readout: small functions that the table of metrics is made with."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dataflow.metric_updates import MetricKind, MetricOf
from runners.observability.evidence.snapshot import (
    JobSnapshot,
    RangeEvidence,
    StageEvidence,
    WorkerEvidence,
)
from runners.observability.metrics.metric_spec import Sample, Value
from runners.observability.metrics.readout import PARTS, JobReadout, StoreReadout
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

Reading = Callable[[StoreReadout], Iterator[Sample]]


def seconds(us: int) -> float:
    """Microseconds as seconds."""
    return us / 1_000_000


def of_store(value: Callable[[StoreReadout], float | None]) -> Reading:
    """One series of the store while it is up, without labels.

    Args:
        value: None: there is no series.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        known = value(found) if found.is_up else None
        if known is not None:
            yield (), known

    return read


def always(value: Callable[[StoreReadout], float]) -> Reading:
    """One series, also where the store is not up.

    Args:
        value: of a readout.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        yield (), value(found)

    return read


def of_job(value: Callable[[JobReadout], Value | None]) -> Reading:
    """A series for each job.

    Args:
        value: None: there is no series.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            known = value(job)
            if known is not None:
                yield (job.job,), known

    return read


def of_snapshot(value: Callable[[JobSnapshot], Value | None]) -> Reading:
    """A series for each job whose driver has left something.

    Args:
        value: None: there is no series.
    """
    return of_job(lambda job: None if job.snapshot is None else value(job.snapshot))


def of_count(name: str, scale: float = 1.0) -> Reading:
    """A counter of the driver.

    Args:
        name: in `JobSnapshot.counts`.
        scale: that it is multiplied by.
    """

    def value(snapshot: JobSnapshot) -> float | None:
        count = snapshot.counts.get(name)
        return None if count is None else count * scale

    return of_snapshot(value)


def of_stage(value: Callable[[StageEvidence, int], float | None]) -> Reading:
    """A series for each stage.

    Args:
        value: of a stage, and the time by the clock of the store in microseconds; None: there is no series.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            stages = {} if job.snapshot is None else job.snapshot.stages
            for name, stage in stages.items():
                known = value(stage, job.now_us)
                if known is not None:
                    yield (job.job, name), known

    return read


def of_ranges(value: Callable[[list[RangeEvidence], StageEvidence], float | None]) -> Reading:
    """A series for each stage, of its ranges.

    Args:
        value: of the ranges of a stage; None: there is no series.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            for name, stage in ({} if job.snapshot is None else job.snapshot.stages).items():
                known = value(ranges_of(job, name), stage)
                if known is not None:
                    yield (job.job, name), known

    return read


def ranges_of(job: JobReadout, stage: str) -> list[RangeEvidence]:
    """The ranges of a stage; none where its driver has left nothing.

    Args:
        job: the job.
        stage: its name.
    """
    snapshot = job.snapshot
    return [each for each in (snapshot.ranges.values() if snapshot else ()) if each.stage == stage]


def by_state(
    states: Iterable[str], state: Callable[[RangeEvidence], str], *, of_sources: bool
) -> Reading:
    """For each stage, how many of its ranges are in each state.

    Args:
        states: all that there are.
        state: of a range.
        of_sources: whether stages are those that begin with a read, or the others.
    """
    names = list(states)

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            for name, stage in ({} if job.snapshot is None else job.snapshot.stages).items():
                if stage.is_source == of_sources:
                    counts = Counter(map(state, ranges_of(job, name)))
                    yield from (((job.job, name, each), counts[each]) for each in names)

    return read


def of_worker(value: Callable[[WorkerEvidence], Value | None]) -> Reading:
    """A series for each worker that is there, by its slot.

    Args:
        value: None: there is no series.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            for worker in () if job.snapshot is None else job.snapshot.workers:
                known = None if worker.worker is None else value(worker)
                if known is not None:
                    yield (job.job, str(worker.slot)), known

    return read


def worker_times(found: StoreReadout) -> Iterator[Sample]:
    """Where the time of each worker goes."""
    for job in found.jobs:
        for worker in () if job.snapshot is None else job.snapshot.workers:
            if worker.worker is not None:
                times = {
                    "busy": worker.busy_us, "blocked": worker.blocked_us, "idle": worker.idle_us
                }  # fmt: skip
                for state, us in times.items():
                    yield (job.job, str(worker.slot), state), seconds(us)


def of_rows(
    rows: Callable[[JobReadout], Iterable[Mapping[str, Any]]],
    label: str,
    value: Callable[[Mapping[str, Any]], float | None],
) -> Reading:
    """A series for each row of a statement.

    Args:
        rows: of a job.
        label: the column that tells them apart.
        value: of a row; None: there is no series.
    """

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            for row in rows(job):
                known = value(row)
                if known is not None:
                    yield (job.job, row[label]), known

    return read


def of_tables(column: str) -> Reading:
    """A series for each table of the store.

    Args:
        column: of ``tables.sql``.
    """
    return lambda found: (((row["table"],), float(row[column])) for row in found.tables)


def of_user(kind: MetricKind, value: Callable[[Any], Value]) -> Reading:
    """A series for each metric of user code.

    Args:
        kind: of the metrics.
        value: of what was counted.
    """

    def labels(job: JobReadout, key: MetricOf) -> tuple[str, ...]:
        return job.job, key.step, key.metric.namespace, key.metric.name

    def read(found: StoreReadout) -> Iterator[Sample]:
        for job in found.jobs:
            for key, counted in job.user.items():
                if key.metric.kind is kind:
                    yield labels(job, key), value(counted)

    return read


def job_states(found: StoreReadout) -> Iterator[Sample]:
    """How many jobs there are in each state."""
    return (((state,), float(count)) for state, count in found.states.items())


def unread_parts(found: StoreReadout) -> Iterator[Sample]:
    """Whether each part of a readout could not be read."""
    if found.is_up:
        yield from (((part,), float(part in found.unread)) for part in PARTS)


def event_time(us: int) -> float | None:
    """An instant of event time; None: nothing has come yet, or everything has."""
    return None if us <= MIN_TIMESTAMP_US or us >= MAX_TIMESTAMP_US else seconds(us)


def lag(from_us: int, to_us: int) -> float:
    """How far an instant is behind another, in seconds; infinite where nothing has come yet.

    Args:
        from_us: the one behind, in microseconds.
        to_us: the other one.
    """
    if from_us <= MIN_TIMESTAMP_US:
        return float("inf") if to_us > MIN_TIMESTAMP_US else 0.0
    return seconds(max(0, to_us - from_us))


def own_lag(stage: StageEvidence, now_us: int) -> float:
    """How far a stage is behind its input; a source behind the clock.

    Args:
        stage: the stage.
        now_us: the time by the clock of the store, in microseconds.
    """
    input_us = now_us if stage.input_us is None else min(stage.input_us, now_us)
    return lag(stage.output_us, input_us)


def inherited_lag(stage: StageEvidence, now_us: int) -> float:
    """How far the input of a stage is behind the clock.

    Args:
        stage: the stage.
        now_us: the time by the clock of the store, in microseconds.
    """
    return 0.0 if stage.input_us is None else lag(stage.input_us, now_us)


def unfired(ranges: list[RangeEvidence], stage: StageEvidence) -> float | None:
    """How far a grouping has not fired yet, although its input has come so far.

    Args:
        ranges: of the stage.
        stage: the stage.
    """
    known = [each.processed_us for each in ranges if each.processed_us is not None]
    if stage.input_us is None or not known:
        return None
    return lag(max(min(known), MIN_TIMESTAMP_US + 1), min(stage.input_us, MAX_TIMESTAMP_US))


def skew(ranges: list[RangeEvidence], stage: StageEvidence) -> float | None:
    """How many records the busiest range of a grouping takes in, by the mean of all of them.

    Args:
        ranges: of the stage.
        stage: the stage.
    """
    rates = [each.records_per_s for each in ranges if each.records_per_s is not None]
    if stage.is_source or not any(rates):
        return None
    return max(rates) / (sum(rates) / len(rates))


def split_state(found: RangeEvidence) -> str:
    """Active, idle, or finished."""
    if found.is_ended or (found.poll is not None and found.poll.is_finished):
        return "finished"
    return "idle" if found.is_idle else "active"


def polled(ranges: list[RangeEvidence], stage: StageEvidence) -> float | None:
    """When the split was polled that was polled longest ago.

    Args:
        ranges: of the stage.
        stage: the stage.
    """
    polls = [
        each.poll.polled_us for each in ranges if each.poll and split_state(each) != "finished"
    ]
    return seconds(min(polls)) if polls and stage.is_source else None


def last_record(ranges: list[RangeEvidence], stage: StageEvidence) -> float | None:
    """When any split last had a record.

    Args:
        ranges: of the stage.
        stage: the stage.
    """
    known = [each.poll.record_us for each in ranges if each.poll and each.poll.record_us]
    return seconds(max(known)) if known and stage.is_source else None


def backlog(ranges: list[RangeEvidence], stage: StageEvidence) -> float | None:
    """How many records wait in a source, as far as its splits know.

    Args:
        ranges: of the stage.
        stage: the stage.
    """
    known = [
        each.poll.backlog_records
        for each in ranges
        if each.poll and each.poll.backlog_records is not None
    ]
    return float(sum(known)) if known and stage.is_source else None


def in_step(worker: WorkerEvidence) -> float | None:
    """For how long a worker has been in one step when its process last sent a heartbeat."""
    if worker.heartbeat_us is None:
        return None
    doing = worker.doing
    return 0.0 if doing is None else seconds(max(0, worker.heartbeat_us - doing.since_us))


def in_commit(worker: WorkerEvidence) -> float | None:
    """For how long a worker has waited for one commit when its process last sent a heartbeat."""
    if worker.heartbeat_us is None:
        return None
    since_us = worker.committing_us or worker.heartbeat_us
    return seconds(max(0, worker.heartbeat_us - since_us))


def instant(us: int | None) -> float | None:
    """Microseconds since 1970 as seconds; None stays."""
    return None if us is None else seconds(us)

"""Readout: what one look at a store has found, for all metrics; a few statements, whatever the number of jobs.

Bounded: of unfinished jobs the first ones by name, and of each the first ones of what its user code has counted.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import attrs

from dataflow.metric_updates import MetricOf, MetricValues
from runners.errors import StoredFormatError
from runners.millwheel.store.postgres.reader import FoundRows, ReadOnlyStore, Statement
from runners.observability.evidence.snapshot import JobSnapshot
from runners.stored.metrics import metrics_of

#: Of more unfinished jobs the first ones by name are read.
JOBS_MAX = 100
#: Of more metrics of user code in one job the first ones by transform, namespace and name are read.
USER_METRICS_MAX = 500

_SQL = files(__package__) / "queries"
_NAMES = ("job_counts", "jobs", "productions", "sinks", "tables", "sessions")
#: What a readout is made of, as it is named where it cannot be read.
PARTS = (*_NAMES, "snapshot", "user_metrics")


@attrs.frozen(kw_only=True)
class JobReadout:
    """An unfinished job.

    Attributes:
        now_us: the time, by the clock of the store.
        is_driven: whether a driver has the job.
        written_us: when the driver has last written what it knows; None: never, or it is lost.
        snapshot: what it knew then; None: not known.
        productions: rows of ``productions.sql``.
        sinks: rows of ``sinks.sql``.
        user: what its user code has counted.
        user_left_out: how many metrics of user code are left out.
    """

    job: str
    now_us: int
    is_driven: bool
    written_us: int | None = None
    snapshot: JobSnapshot | None = None
    productions: Sequence[Mapping[str, Any]] = ()
    sinks: Sequence[Mapping[str, Any]] = ()
    user: MetricValues = attrs.field(factory=dict)
    user_left_out: int = 0


@attrs.frozen(kw_only=True)
class StoreReadout:
    """A store.

    Attributes:
        is_up: whether it has answered in time.
        took_s: how long that took, in seconds.
        states: how many jobs there are in each state.
        jobs: those that are unfinished.
        tables: rows of ``tables.sql``.
        oldest_s: for how long the oldest transaction lasts, in seconds; None: not known.
        unread: parts that could not be read.
    """

    is_up: bool
    took_s: float = 0.0
    states: Mapping[str, int] = attrs.field(factory=dict)
    jobs: Sequence[JobReadout] = ()
    tables: Sequence[Mapping[str, Any]] = ()
    oldest_s: float | None = None
    unread: frozenset[str] = frozenset()


def read_out(store: ReadOnlyStore) -> StoreReadout:
    """Look at a store.

    Args:
        store: with the tables of this version.

    Raises:
        StoreError: it cannot be read at all.
    """
    found = store.read(
        {
            name: Statement(
                text=(_SQL / f"{name}.sql").read_text("utf-8"), parameters={"limit": JOBS_MAX}
            )
            for name in _NAMES
        }
    )
    unread = {name for name, each in found.items() if each.rows is None}
    rows = found["jobs"].rows or []
    counted = store.read(
        {str(row["job_id"]): _counted_by(int(row["job_id"])) for row in rows if row["job_id"]}
    )
    jobs = [_job(row, found, counted[str(row["job_id"])], unread) for row in rows]
    sessions = found["sessions"].rows
    return StoreReadout(
        is_up=True,
        states=dict((found["job_counts"].rows or [{}])[0]),
        jobs=jobs,
        tables=found["tables"].rows or (),
        oldest_s=sessions[0]["oldest_s"] if sessions else None,
        unread=frozenset(unread),
    )


def _counted_by(job_id: int) -> Statement:
    # Each job has its own table; the parent has no column for the job.
    return Statement(
        text=f"SELECT payload FROM dataflow.metrics_{job_id} ORDER BY metrics_id",  # noqa: S608 - an integer
        parameters={},
    )


def _job(
    row: Mapping[str, Any], found: Mapping[str, FoundRows], counted: FoundRows, unread: set[str]
) -> JobReadout:
    job, snapshot = row["job"], None
    if row["document"] is not None:
        try:
            snapshot = JobSnapshot.read(row["document"].encode())
        except StoredFormatError:
            unread.add("snapshot")
    user = _user(counted, unread)
    kept = sorted(user, key=lambda key: (key.step, key.metric))[:USER_METRICS_MAX]
    return JobReadout(
        job=job,
        now_us=row["now"],
        is_driven=row["is_driven"],
        written_us=row["written_at"],
        snapshot=snapshot,
        productions=[each for each in found["productions"].rows or () if each["job"] == job],
        sinks=[each for each in found["sinks"].rows or () if each["job"] == job],
        user={key: user[key] for key in kept},
        user_left_out=len(user) - len(kept),
    )


def _user(counted: FoundRows, unread: set[str]) -> dict[MetricOf, Any]:
    if counted.rows is None:
        unread.add("user_metrics")
        return {}
    try:
        return dict(metrics_of([bytes(each["payload"]) for each in counted.rows]))
    except StoredFormatError:
        unread.add("user_metrics")
        return {}

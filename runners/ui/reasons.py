"""The one place where the page asks why: evidence of what it has read, and the answer of `runners.observability.why`.

What the driver has written is the evidence; without it nothing is guessed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from runners.errors import StoredFormatError
from runners.millwheel.store.port import OldSnapshot, ReplicationSlot, VacuumedTable
from runners.millwheel.store.postgres.reader import FoundRows
from runners.observability.evidence.snapshot import JobSnapshot
from runners.observability.why.evidence import (
    ChangeSeen,
    Due,
    Evidence,
    JobState,
    Pending,
    SinkWait,
    TroubleSeen,
)
from runners.observability.why.explain import Question, explain
from runners.observability.why.explanation import HolderKind, WhyExplanation
from runners.observability.why.store_health import findings_of

#: What an explanation is made of.
NEEDS = (
    "jobs",
    "snapshot",
    "channels",
    "due",
    "sinks",
    "troubles",
    "kept_counts",
    "events",
    "snapshot_holders",
    "slots",
    "vacuum",
)


@attrs.frozen(kw_only=True)
class Known:
    """What is known of a job.

    Attributes:
        snapshot: what its driver knew; None: it has left nothing that can be read.
        age_us: how old that is, by the clock of the store.
        evidence: of all that was read.
    """

    snapshot: JobSnapshot | None
    age_us: int | None
    evidence: Evidence


def known_of(job: Mapping[str, Any], found: Mapping[str, FoundRows]) -> Known:
    """What reads of a job have found.

    Args:
        job: its row of ``jobs.sql``.
        found: by the names in `NEEDS`.
    """
    unknown = [f"{name}: {rows.reason}" for name, rows in found.items() if rows.rows is None]
    snapshot, age_us, reason = _snapshot(found["snapshot"])
    if reason:
        unknown.append(reason)
    counts = found["kept_counts"].rows or ()
    evidence = Evidence(
        job=job["job"],
        # All by the driver's clock, with how old it is by the store's: clocks of machines differ.
        now_us=job["now"] if snapshot is None else snapshot.taken_us + (age_us or 0),
        mode=job["mode"],
        state=_state(job),
        driver=None if snapshot is None else snapshot.driver,
        as_of_us=None if snapshot is None else snapshot.taken_us,
        stages={} if snapshot is None else snapshot.stages,
        ranges={} if snapshot is None else snapshot.ranges,
        workers=() if snapshot is None else snapshot.workers,
        pending=[_pending(row) for row in found["channels"].rows or ()],
        due=_due(found["due"], snapshot),
        late={row["source"]: row["count"] for row in counts if row["kind"] == "late"},
        dead={row["source"]: row["count"] for row in counts if row["kind"] == "dead"},
        sinks=[_sink(row, job["now"]) for row in found["sinks"].rows or () if row["waiting"]],
        troubles=[_trouble(row) for row in found["troubles"].rows or ()],
        objectives=() if snapshot is None else snapshot.objectives,
        changes=[_change(row, job["now"]) for row in found["events"].rows or ()],
        store=findings_of(
            [_holder(row) for row in found["snapshot_holders"].rows or ()],
            [_slot(row) for row in found["slots"].rows or ()],
            [_table(row) for row in found["vacuum"].rows or ()],
        ),
        unknown=unknown,
    )
    return Known(snapshot=snapshot, age_us=age_us, evidence=evidence)


def explanation_of(known: Known, transform: str | None = None) -> WhyExplanation:
    """Why a job is where it is.

    Args:
        known: of the job.
        transform: that it is asked of; None: the last stage that waits for something.

    Raises:
        UnknownTransformError: there is no such transform.
    """
    return explain(known.evidence, Question(transform=transform))


def chain_stages(explanation: WhyExplanation) -> Sequence[str]:
    """The stages of a chain, from the one that waits to the one that holds.

    Args:
        explanation: the answer.
    """
    names = []
    for holder in explanation.chain:
        name = holder.name
        if holder.kind is not HolderKind.STAGE:
            name = str(holder.details.get("range") or holder.name)
            name = name.partition("->")[0].strip().rpartition("[")[0] or name
        names.append(name)
    return list(dict.fromkeys(names))


def _snapshot(found: FoundRows) -> tuple[JobSnapshot | None, int | None, str]:
    if not found.rows:
        return None, None, "" if found.rows is None else "its driver has left no snapshot"
    [row] = found.rows
    try:
        read = JobSnapshot.read(row["document"].encode())
    except StoredFormatError as error:
        return None, None, str(error)
    return read, max(0, row["now"] - row["written_at"]), ""


def _state(job: Mapping[str, Any]) -> JobState:
    if job["finished_at"] is not None:
        return JobState.DRAINED if job["is_drained"] else JobState.FINISHED
    # A batch leaves no trace of who runs it.
    is_run = job["is_driven"] or job["mode"] == "batch"
    return JobState.RUNNING if is_run else JobState.NOT_RUNNING


def _pending(row: Mapping[str, Any]) -> Pending:
    return Pending(
        sender=f"{row['sender']}[{row['sender_index']}]",
        receiver=f"{row['receiver']}[{row['receiver_index']}]",
        count=row["pending"],
        hold_us=row["holds_watermark_at"],
        age_us=row["now"] - row["oldest"],
    )


def _due(found: FoundRows, snapshot: JobSnapshot | None) -> Mapping[str, Due]:
    """When the first timer of a stage is due; how many are overdue is not counted for a page."""
    stages = {} if snapshot is None else snapshot.stages
    rows = {row["computation"]: row["first"] for row in found.rows or ()}
    return {name: Due(next_us=rows.get(name)) for name in stages if name in rows}


def _sink(row: Mapping[str, Any], now_us: int) -> SinkWait:
    return SinkWait(
        name=row["sink"] or row["outbox"],
        waiting=row["waiting"],
        failing_for_us=None if row["failing_since"] is None else now_us - row["failing_since"],
        reason=row["reason"],
    )


def _trouble(row: Mapping[str, Any]) -> TroubleSeen:
    return TroubleSeen(
        kind=row["kind"],
        place=row["place"],
        headline=row["headline"],
        count=row["count"],
        at_us=row["last_at"],
    )


def _change(row: Mapping[str, Any], now_us: int) -> ChangeSeen:
    return ChangeSeen(
        at_us=min(now_us, row["at"]), kind=row["kind"], subject=row["subject"], reason=row["reason"]
    )


def _holder(row: Mapping[str, Any]) -> OldSnapshot:
    return OldSnapshot(
        holder=row["holder"],
        application=row["application"],
        user=row["role"],
        state=row["state"],
        age_s=row["age_s"],
    )


def _slot(row: Mapping[str, Any]) -> ReplicationSlot:
    return ReplicationSlot(
        name=row["slot_name"],
        is_active=row["active"],
        wal_status=row["wal_status"],
        kept_bytes=row["kept_bytes"],
        keeps_rows=row["keeps_rows"],
    )


def _table(row: Mapping[str, Any]) -> VacuumedTable:
    return VacuumedTable(
        name=row["name"],
        size_bytes=row["bytes"],
        live_rows=row["live_rows"],
        dead_rows=row["dead_rows"],
        vacuum_after=row["vacuum_after"],
        is_autovacuumed=row["is_autovacuumed"],
        vacuumed_age_s=row["vacuumed_age_s"],
        is_being_vacuumed=row["is_being_vacuumed"],
    )

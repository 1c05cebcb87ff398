"""What is wrong with the store of a job, and no fault of the job: who keeps rows from being freed, and what grows."""

from collections.abc import Iterator, Sequence

from runners.millwheel.store.port import OldSnapshot, ReplicationSlot, Store, VacuumedTable
from runners.observability.why.evidence import StoreFinding, StoreFindingKind
from runners.observability.why.words import length, number

_US_PER_S = 1_000_000
#: A session that has held a snapshot for less does no harm.
OLD_SNAPSHOT_S = 60.0
#: Of its log a slot may keep so much for a reader that is away for a while.
KEPT_BYTES = 1 << 30
#: A table with fewer dead rows is small, whatever part of it they are.
DEAD_ROWS = 10_000
#: A vacuum that was due so long ago does not come.
VACUUM_DUE_S = 300.0


def store_findings(store: Store, job: str) -> list[StoreFinding]:
    """What is wrong with a store, for a job.

    Args:
        store: that has the job.
        job: its name.

    Raises:
        StoreError: it cannot be read.
    """
    return findings_of(
        store.old_snapshots(OLD_SNAPSHOT_S), store.replication_slots(), store.vacuumed_tables(job)
    )


def findings_of(
    holders: Sequence[OldSnapshot],
    slots: Sequence[ReplicationSlot],
    tables: Sequence[VacuumedTable],
) -> list[StoreFinding]:
    """What is wrong, by what the database says of itself.

    Args:
        holders: who has had a snapshot for long, the oldest first.
        slots: of replication.
        tables: of a job, and of all jobs together.
    """
    return [*map(_of_holder, holders), *_of_slots(slots), *_of_tables(tables)]


def _of_holder(holder: OldSnapshot) -> StoreFinding:
    known = [holder.application, holder.user and f"user {holder.user}", holder.state]
    text = (
        f"{holder.holder} ({', '.join(filter(None, known))}) has held a snapshot for "
        f"{length(round(holder.age_s) * _US_PER_S)}: tables grow until it ends, because nothing that is overwritten or "
        "deleted is freed"
    )
    return StoreFinding(kind=StoreFindingKind.TRANSACTION, text=text)


def _of_slots(slots: Sequence[ReplicationSlot]) -> Iterator[StoreFinding]:
    for slot in slots:
        kept = f"{slot.kept_bytes / (1 << 20):,.0f} MB of the log"
        if slot.wal_status == "lost":
            text = (
                f"replication slot {slot.name} is lost: what its reader has not read yet is gone from the log; "
                "drop it, and have its reader begin anew"
            )
        elif not slot.is_active and (slot.kept_bytes >= KEPT_BYTES or slot.keeps_rows):
            rows = " and all rows that were overwritten or deleted since" if slot.keeps_rows else ""
            text = f"nobody reads replication slot {slot.name}, which keeps {kept}{rows}: drop it if nobody will"
        elif slot.kept_bytes >= KEPT_BYTES:
            text = f"the reader of replication slot {slot.name} is {kept} behind, and the disk has to keep them"
        else:
            continue
        yield StoreFinding(kind=StoreFindingKind.SLOT, text=text)


def _of_tables(tables: Sequence[VacuumedTable]) -> Iterator[StoreFinding]:
    off = [each.name for each in tables if not each.is_autovacuumed]
    if off:
        which = "all tables" if len(off) == len(tables) else ", ".join(sorted({*off}))
        text = (
            f"autovacuum is off for {which} of the job: nothing is freed until somebody vacuums; "
            "set autovacuum and track_counts to on, or reset autovacuum_enabled of the table"
        )
        yield StoreFinding(kind=StoreFindingKind.AUTOVACUUM, text=text)
    for each in tables:
        is_due = each.dead_rows >= max(DEAD_ROWS, 2 * each.vacuum_after)
        if not is_due or each.dead_rows <= each.live_rows or not each.is_autovacuumed:
            continue
        age_s = each.vacuumed_age_s
        where = f"{each.name} has {number(each.dead_rows, 'dead row')} beside {each.live_rows:,} that live, in "
        where += f"{each.size_bytes / (1 << 20):,.0f} MB"
        if each.is_being_vacuumed:
            continue
        if age_s is not None and age_s < VACUUM_DUE_S:
            text = (
                f"{where}, and was vacuumed {length(round(age_s) * _US_PER_S)} ago: "
                "something keeps these rows, such as a session with an old snapshot"
            )
        else:
            last = "never" if age_s is None else f"{length(round(age_s) * _US_PER_S)} ago"
            text = (
                f"{where}, and autovacuum was there {last}: it does not keep up; give it more workers, or a higher "
                "autovacuum_vacuum_cost_limit"
            )
        yield StoreFinding(kind=StoreFindingKind.BLOAT, text=text)

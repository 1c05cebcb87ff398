"""What is known of the server, and its sessions that keep it from freeing what was overwritten or deleted."""

from collections.abc import Sequence

from runners.millwheel.store.port import (
    BlockedSession,
    OldSnapshot,
    ReplicationSlot,
    VacuumedTable,
)
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES


class SnapshotVerbs(JobReads):
    """The verbs of the port that name them, and those that wait for others."""

    def blocked_sessions(self) -> Sequence[BlockedSession]:
        """Who waits for whose locks in this database."""
        rows = self._transact(
            lambda opened: opened.execute(QUERIES["blocked_sessions"]).fetchall(),
            is_one_statement=True,
        )
        return [
            BlockedSession(session=session, holder=holder, query=query, age_s=age_s)
            for session, holder, query, age_s in rows
        ]

    def replication_slots(self) -> Sequence[ReplicationSlot]:
        """All of the server, also of other databases: its log is one."""
        rows = self._transact(
            lambda opened: opened.execute(QUERIES["replication_slots"]).fetchall(),
            is_one_statement=True,
        )
        return [
            ReplicationSlot(
                name=name,
                is_active=is_active,
                wal_status=wal_status,
                kept_bytes=kept_bytes,
                keeps_rows=keeps_rows,
            )
            for name, is_active, wal_status, kept_bytes, keeps_rows in rows
        ]

    def vacuumed_tables(self, job: str) -> Sequence[VacuumedTable]:
        """By the statistics of the server, which are up to some seconds old."""
        rows = self._transact(
            lambda opened: opened.execute(QUERIES["vacuum_status"], {"job": job}).fetchall(),
            is_one_statement=True,
        )
        return [
            VacuumedTable(
                name=name,
                size_bytes=size_bytes,
                live_rows=live_rows,
                dead_rows=dead_rows,
                vacuum_after=vacuum_after,
                is_autovacuumed=is_autovacuumed,
                vacuumed_age_s=age_s,
                is_being_vacuumed=is_now,
            )
            for name, size_bytes, live_rows, dead_rows, vacuum_after, is_autovacuumed, age_s, is_now in rows
        ]

    def version(self) -> str:
        """The name and version of the server."""
        row = self._transact(
            lambda opened: opened.execute(QUERIES["server_version"]).fetchone(),
            is_one_statement=True,
        )
        return f"PostgreSQL {row[0]}" if row else "PostgreSQL"

    def old_snapshots(self, older_than_s: float) -> Sequence[OldSnapshot]:
        """What this role may see of them: of other roles' sessions only if it has `pg_read_all_stats`."""
        parameters = {"older_than_s": older_than_s}
        rows = self._transact(
            lambda opened: opened.execute(QUERIES["old_snapshots"], parameters).fetchall(),
            is_one_statement=True,
        )
        return [
            OldSnapshot(holder=holder, application=application, user=user, state=state, age_s=age_s)
            for holder, application, user, state, age_s in rows
        ]

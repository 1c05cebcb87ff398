"""Rows that jobs keep for people: late records and dead letters, counts of rows of all kinds, and deleting them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from runners.core.ground.lineage import LineageEntry, LineageKind
from runners.millwheel.model.events import EVENTS_MAX
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.guards import STATISTICS, escape_text
from runners.millwheel.store.port import PRUNED, KeptKind, PurgedKind, StoredLineage
from runners.millwheel.store.postgres import takeover
from runners.millwheel.store.postgres.arrays import ByteaArray, Int4Array, Int8Array
from runners.millwheel.store.postgres.catalog import to_signed
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES, job_queries
from runners.stored.lineage import elements_of, origin_of

#: Rows that one transaction deletes: so few that others wait only briefly, and no log grows by much.
_PURGED_AT_ONCE = 10_000
_EVERY_NUMBER = (1 << 63) - 1


class KeptRowVerbs(JobReads):
    """The verbs of the port that read and delete them."""

    def read_late(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's late records, oldest first."""
        return self._read_own("read_late", job)

    def read_dead_letters(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's dead letters, oldest first."""
        return self._read_own("read_dead_letters", job)

    def read_late_counts(self, job: str) -> Mapping[str, int]:
        """How many records came too late, by transform."""
        rows = self._read_own("read_late_counts", job)
        return {row["transform"]: row["count"] for row in rows}

    def read_metrics(self, job: str) -> Sequence[bytes]:
        """What user code has counted."""
        return [row["payload"] for row in self._read_own("read_metrics", job)]

    def fold_metrics(self, job: str, fold: Callable[[Sequence[bytes]], bytes]) -> None:
        """Replace what is of no range by one row, in one transaction."""

        def work(opened: Connection[Any]) -> None:
            found = opened.execute(QUERIES["keep_job"], {"name": job}).fetchone()
            if found is None:
                return
            queries = job_queries(found[0])
            opened.execute(QUERIES["allow_scans"])
            rows = opened.execute(queries["take_metrics"], binary=True).fetchall()
            if rows:
                payload = fold([payload for _, payload in sorted(rows)])
                opened.execute(
                    queries["append_metrics"],
                    {"range_ids": Int4Array.of([None]), "payloads": ByteaArray.of([payload])},
                )

        self._transact(work)

    def statistics(self, job: str) -> Mapping[str, int]:
        """Row counts of the job by kind; all zero for a job that does not exist."""
        for counts in self._read_own("statistics", job):
            return counts
        return dict.fromkeys(STATISTICS, 0)

    def read_lineage(
        self, job: str, kind: LineageKind, transform: str, key_hash: int
    ) -> Sequence[StoredLineage]:
        """The entries of the lineage of a job about one key, oldest first."""
        parameters = {
            "kind": kind.value,
            "transform": escape_text(transform),
            "key_hash": to_signed(key_hash),
        }
        rows = self._on_own("read_lineage", job, parameters)
        return [_stored_lineage(kind, key_hash, row) for row in rows]

    def purge(
        self, job: str, kind: PurgedKind, *, older_than_s: float = 0.0, up_to: int | None = None
    ) -> int:
        """Delete late records, dead letters or lineage, some thousands in a transaction; returns how many rows."""
        parameters = {
            "older_than_s": older_than_s,
            "up_to": _EVERY_NUMBER if up_to is None else up_to,
            "rows": _PURGED_AT_ONCE,
        }
        purged = 0
        while True:
            rows = self._on_own(f"purge_{kind}", job, parameters)
            count = int(rows[0][0]) if rows else 0
            purged += count
            if count < _PURGED_AT_ONCE:
                return purged

    def begin_replay(self, job: str, kind: KeptKind) -> int | None:
        """The number of the last row that the replay is about; None if there is none."""
        rows = self._on_own(f"begin_replay_{kind}", job, {})
        return int(rows[0][0]) if rows else None

    def end_replay(self, job: str, kind: KeptKind) -> None:
        """Note that the replay is done."""
        parameters = {"name": job, "kind": kind}
        self._transact(lambda opened: opened.execute(QUERIES["end_replay"], parameters).rowcount)

    def prune(
        self,
        job: str,
        *,
        older_than_s: float,
        retired: Collection[RangeId] = (),
        signals_up_to: int = 0,
    ) -> Mapping[str, int]:
        """Delete what the job has left behind, in one transaction."""
        ids = self._load(job)
        if ids is None:
            return dict.fromkeys(PRUNED, 0)
        numbers = [ids.ranges[each].number for each in retired if each in ids.ranges]

        def work(opened: Connection[Any]) -> Mapping[str, int]:
            found = opened.execute(QUERIES["keep_job"], {"name": job}).fetchone()
            if found is None:
                return dict.fromkeys(PRUNED, 0)
            parameters = {
                "job_id": found[0],
                "older_than_s": older_than_s,
                "range_ids": Int4Array.of(numbers),
                "signals_up_to": signals_up_to,
                "events_max": EVENTS_MAX,
            }
            counts = {
                "ranges": _delete_retired(opened, found[0], parameters),
                "owners": _forget_owners(opened, parameters),
            }
            for kind in PRUNED[2:]:
                (deleted,) = opened.execute(QUERIES[f"forget_{kind}"], parameters)
                counts[kind] = deleted[0]
            return counts

        return self._transact(work)

    def _read_own(self, query: str, job: str) -> Sequence[Mapping[str, Any]]:
        """Rows from tables of the job; none if there is no such job."""

        def work(opened: Connection[Any]) -> Sequence[Mapping[str, Any]]:
            number = self._find_job(opened, job)
            if number is None:
                return []
            opened.execute(QUERIES["allow_scans"])
            cursor = opened.cursor(row_factory=dict_row, binary=True)
            return cursor.execute(job_queries(number)[query], {"job_id": number}).fetchall()

        return self._transact(work)

    def _on_own(
        self, query: str, job: str, parameters: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        """Run a statement on tables of the job and return its rows; none if there is no such job."""

        def work(opened: Connection[Any]) -> Sequence[tuple[Any, ...]]:
            found = opened.execute(QUERIES["keep_job"], {"name": job}).fetchone()
            if found is None:
                return []
            statement = job_queries(found[0])[query]
            return opened.execute(statement, {"job_id": found[0], **parameters}).fetchall()

        return self._transact(work)


def _stored_lineage(kind: LineageKind, key_hash: int, row: Sequence[Any]) -> StoredLineage:
    number, version, transform, key, start_us, end_us, sign, count, index, timing, *rest = row
    accumulation, watermark_us, now_us, reason, origin, elements = rest
    entry = LineageEntry(
        kind=kind,
        transform=transform,
        key=key,
        key_hash=key_hash,
        window_start_us=start_us,
        window_end_us=end_us,
        sign=sign,
        count=count,
        index=index,
        timing=timing,
        accumulation=accumulation,
        watermark_us=watermark_us,
        now_us=now_us,
        reason=reason,
        origin=origin_of(origin),
        elements=elements_of(elements),
    )
    return StoredLineage(number, version, entry)


def _delete_retired(opened: Connection[Any], number: int, parameters: Mapping[str, Any]) -> int:
    """Delete ranges that were merged into others, with all that is theirs; returns how many."""
    queries = job_queries(number)
    rows = opened.execute(queries["find_retired_ranges"], parameters).fetchall()
    if not rows:
        return 0
    numbers = [range_number for (range_number,) in rows]
    takeover.lock_fences(opened, numbers)
    range_ids = {"range_ids": Int4Array.of(numbers)}
    for name in ("deliveries", "acknowledgements", "journal", "record_ids"):
        opened.execute(queries[f"delete_{name}_of"], range_ids)
    opened.execute(QUERIES["delete_fences_of"], range_ids)
    opened.execute(QUERIES["delete_ranges"], range_ids)
    return len(numbers)


def _forget_owners(opened: Connection[Any], parameters: Mapping[str, Any]) -> int:
    """Delete former owners of ranges, and note up to which token they are forgotten; returns how many."""
    rows = opened.execute(QUERIES["forget_owners"], parameters).fetchall()
    last = dict[int, int]()
    for range_number, token in rows:
        last[range_number] = max(token, last.get(range_number, token))
    if last:
        noted = {"range_ids": Int4Array.of([*last]), "tokens": Int8Array.of([*last.values()])}
        opened.execute(QUERIES["note_forgotten"], noted)
    return len(rows)

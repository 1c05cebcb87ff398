"""Going over to a new version of a job, in one transaction.

All fences are locked before anything is read: what was in flight has landed or never will, no range is taken over, and
none is created.  The tokens of what stays move, so that the workers of the former version are fenced; when they ask for
ranges later, the version refuses them (takeover.py).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from runners.millwheel.store import events
from runners.millwheel.store.guards import check_names, check_update, is_carried_out, unknown_job
from runners.millwheel.store.port import JobRow, JobUpdate, StateCounts
from runners.millwheel.store.postgres.arrays import Int4Array, TextArray
from runners.millwheel.store.postgres.catalog import (
    JobIds,
    add_tables,
    describe_computations,
    empty_tables,
    insert_ranges,
    read_job,
)
from runners.millwheel.store.postgres.evidence import insert_event
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.lanes import delete_lanes
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.takeover import lock_fences, move_tokens

#: The tables of the job from which the rows of a computation are deleted with it.
_DELETED = (
    "delete_cells_of",
    "delete_timers_of",
    "delete_journal_of",
    "delete_productions_of",
    "delete_deliveries_of",
    "delete_acknowledgements_of",
    "delete_record_ids_of",
)


class UpdateVerbs(JobReads):
    """The verbs of the port that are about new versions."""

    def update_job(self, update: JobUpdate) -> JobRow:
        """Go over to a new version of the job."""
        check_names(update.spec)
        ids = self._load(update.spec.job)
        if ids is None:
            raise unknown_job(update.spec.job)
        row = self._transact(lambda opened: _update(opened, update), locks=list(ids.by_number))
        self._ids.pop(update.spec.job, None)
        return row

    def count_state(self, job: str) -> StateCounts:
        """How much state the job has."""

        def work(opened: Connection[Any]) -> StateCounts:
            # No other transaction can reset the job before this one ends, so its tables are there.
            kept = opened.execute(QUERIES["keep_job"], {"name": job}).fetchone()
            found = read_job(opened, job)
            return _count(opened, found[1]) if kept and found else StateCounts()

        return self._transact(work)


def _count(connection: Connection[Any], ids: JobIds) -> StateCounts:
    names = {number: name for name, number in ids.computations.items()}
    connection.execute(QUERIES["allow_scans"])

    def counted(query: str) -> dict[str, int]:
        rows = connection.execute(ids.queries[query])
        return {names[number]: count for number, count in rows if number in names}

    in_flight: Counter[tuple[str, str]] = Counter()
    for sender, receiver, count in connection.execute(ids.queries["count_productions"]):
        # Where the fences are not locked, a range may have been created since.
        if sender in ids.by_number and receiver in ids.by_number:
            edge = ids.by_number[sender].computation, ids.by_number[receiver].computation
            in_flight[edge] += count
    cells = Counter(counted("count_cells"))
    cells.update(counted("count_journal"))
    return StateCounts(cells=dict(cells), timers=counted("count_timers"), in_flight=dict(in_flight))


def _lock_all(connection: Connection[Any], job: str) -> tuple[JobRow, JobIds]:
    locked: set[int] = set()
    while True:
        found = read_job(connection, job)
        if found is None:
            raise unknown_job(job)
        # A key range is created under the fence of another, and a split under the lock of the catalog, so there are no
        # more when all are locked.
        if locked == found[1].by_number.keys():
            return found
        locked = set(lock_fences(connection, list(found[1].by_number)))


def _update(connection: Connection[Any], update: JobUpdate) -> JobRow:
    connection.execute(QUERIES["lock_catalog"])
    spec, kept = update.spec, update.kept
    row, ids = _lock_all(connection, spec.job)
    if is_carried_out(update, row):
        return row
    check_update(update, row, _count(connection, ids))
    staying = [each for each, range_id in ids.by_number.items() if range_id.computation in kept]
    move_tokens(connection, staying, None)
    _drop(connection, ids, [name for name in ids.computations if name not in kept])
    parameters = {
        "computation_ids": Int4Array.of([ids.computations[name] for name in kept]),
        "names": TextArray.of(list(kept.values())),
    }
    # One after the other, two computations could have the same name for a moment.
    connection.execute(QUERIES["unname_computations"], parameters)
    connection.execute(QUERIES["rename_computations"], parameters)
    born = [each for each in spec.ranges if each.range_id.computation not in kept.values()]
    insert_ranges(connection, ids.number, born)
    describe_computations(connection, ids.number, spec)
    add_tables(connection, ids.number, spec)
    empty_tables(connection, ids.number, update)
    for table in update.emptied:
        delete_lanes(connection, ids.number, spec.job, table.name)
    connection.execute(
        QUERIES["update_job"],
        {
            "job_id": ids.number,
            "fingerprint": spec.fingerprint,
            "signals": sorted(spec.signals),
            "stored_format": spec.stored_format,
        },
    )
    insert_event(connection, spec.job, events.updated(update, row))
    found = read_job(connection, spec.job)
    assert found is not None
    return found[0]


def _drop(connection: Connection[Any], ids: JobIds, names: Sequence[str]) -> None:
    gone = {
        "computation_ids": Int4Array.of([ids.computations[name] for name in names]),
        "range_ids": Int4Array.of(
            [each for each, range_id in ids.by_number.items() if range_id.computation in names]
        ),
    }
    for query in _DELETED:
        connection.execute(ids.queries[query], gone)
    connection.execute(QUERIES["delete_fences_of"], gone)
    connection.execute(QUERIES["delete_computations"], gone)

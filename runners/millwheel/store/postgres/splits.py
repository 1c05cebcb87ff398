"""Splits of a job that come and go, and their last polls, on their way through the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection

from dataflow.source import Backlog
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.guards import check_splits_change, unknown_job
from runners.millwheel.store.port import RangeRow, SplitsChange
from runners.millwheel.store.postgres.arrays import (
    BoolArray,
    ByteaArray,
    Int4Array,
    Int8Array,
    TextArray,
)
from runners.millwheel.store.postgres.catalog import read_job
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES


class SplitVerbs(JobReads):
    """The verbs of the port that are about splits of sources."""

    def change_splits(self, change: SplitsChange) -> Sequence[RangeRow]:
        """Note which splits a source has got and lost."""
        rows = self._transact(lambda opened: _change(opened, change))
        # The numbers of the new ranges are read when somebody names them.
        self._ids.pop(change.job, None)
        return rows

    def note_polls(self, job: str, polls: Mapping[RangeId, SplitPoll]) -> None:
        """Keep the last polls of the job's splits."""
        self._transact(lambda opened: _note(opened, job, polls), is_one_statement=True)

    def read_polls(self, job: str) -> Mapping[RangeId, SplitPoll]:
        """The last polls of the job's splits."""
        return self._transact(lambda opened: _read(opened, job), is_one_statement=True)


def _change(connection: Connection[Any], change: SplitsChange) -> Sequence[RangeRow]:
    # An update and a reset wait for this, and this for them; and so does another driver, and the end of the job.
    connection.execute(QUERIES["lock_catalog"])
    locked = connection.execute(QUERIES["lock_job"], {"name": change.job}).fetchone()
    found = read_job(connection, change.job)
    if locked is None or found is None:
        raise unknown_job(change.job)
    row, ids = found
    check_splits_change(
        change, version=row.version, is_finished=row.is_finished, computations=ids.computations
    )
    removed = Int4Array.of([ids.range(each).number for each in change.removed])
    connection.execute(QUERIES["note_removed"], {"range_ids": removed})
    if RangeId(change.computation, change.known) not in row.ranges:
        parameters = {
            "computation_id": ids.computations[change.computation],
            "known": change.known,
            "splits": ByteaArray.of(change.added),
            "watermark_us": change.watermark_us,
        }
        connection.execute(QUERIES["add_splits"], parameters)
    after = read_job(connection, change.job)
    assert after is not None
    return [
        each
        for range_id, each in sorted(after[0].ranges.items())
        if range_id.computation == change.computation and range_id.index >= change.known
    ]


def _note(connection: Connection[Any], job: str, polls: Mapping[RangeId, SplitPoll]) -> None:
    backlogs = [each.backlog or Backlog() for each in polls.values()]
    parameters = {
        "name": job,
        "computations": TextArray.of([each.computation for each in polls]),
        "range_indexes": Int4Array.of([each.index for each in polls]),
        "polled_us": Int8Array.of([each.polled_us for each in polls.values()]),
        "record_us": Int8Array.of([each.record_us for each in polls.values()]),
        "backlog_records": Int8Array.of([each.records for each in backlogs]),
        "backlog_bytes": Int8Array.of([each.size_bytes for each in backlogs]),
        "backlog_age_us": Int8Array.of([each.age_us for each in backlogs]),
        "idle_since_us": Int8Array.of([each.idle_since_us for each in polls.values()]),
        "are_finished": BoolArray.of([each.is_finished for each in polls.values()]),
    }
    connection.execute(QUERIES["note_polls"], parameters)


def _read(connection: Connection[Any], job: str) -> Mapping[RangeId, SplitPoll]:
    rows = connection.execute(QUERIES["read_polls"], {"name": job})
    return {
        RangeId(computation, index): SplitPoll(
            polled_us=polled_us,
            record_us=record_us,
            backlog=None
            if records is None and size_bytes is None and age_us is None
            else Backlog(records=records, size_bytes=size_bytes, age_us=age_us),
            idle_since_us=idle_since_us,
            is_finished=bool(is_finished),
        )
        for (
            computation,
            index,
            polled_us,
            record_us,
            records,
            size_bytes,
            age_us,
            idle_since_us,
            is_finished,
        ) in rows
    }

"""Ids of records in the database, which a worker reads beside its commits.

The answers are for the owner of the range, whose commits alone change them; for any other worker they are of no use, as
the commit that follows is fenced.  So nothing is locked, and a job that was reset meanwhile has no ids.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.postgres.arrays import ByteaArray
from runners.millwheel.store.postgres.job_reads import JobReads


class RecordIdVerbs(JobReads):
    """The verbs of the port that are about ids of records."""

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        """Find which of these record ids the range has."""
        parameters = {"record_ids": ByteaArray.of(digests)}
        rows = self._read_of_range("known_record_ids", job, range_id, parameters)
        return {digest for (digest,) in rows}

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """The range's record ids after one of them, in order."""
        parameters = {"after": after, "count": count}
        return [
            (digest, timestamp_us)
            for digest, timestamp_us in self._read_of_range(
                "read_record_ids", job, range_id, parameters
            )
        ]

    def _read_of_range(
        self, query: str, job: str, range_id: RangeId, parameters: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        rows = self._read_of(
            query,
            job,
            [range_id],
            lambda ids: {**parameters, "range_id": ids.range(range_id).number},
        )
        return rows or []

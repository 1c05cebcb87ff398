"""What jobs keep for people: late records, dead letters, and how much there is of everything."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from runners.millwheel.store.guards import STATISTICS
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES, job_queries


class KeptRowVerbs(JobReads):
    """The verbs of the port that read them."""

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

    def statistics(self, job: str) -> Mapping[str, int]:
        """Row counts of the job by kind; all zero for a job that does not exist."""
        for counts in self._read_own("statistics", job):
            return counts
        return dict.fromkeys(STATISTICS, 0)

    def _read_own(self, query: str, job: str) -> Sequence[Mapping[str, Any]]:
        """Rows from tables of the job; none if there is no such job."""

        def work(opened: Connection[Any]) -> Sequence[Mapping[str, Any]]:
            found = opened.execute(QUERIES["keep_job"], {"name": job}).fetchone()
            if found is None:
                return []
            opened.execute(QUERIES["allow_scans"])
            cursor = opened.cursor(row_factory=dict_row, binary=True)
            return cursor.execute(job_queries(found[0])[query], {"job_id": found[0]}).fetchall()

        return self._transact(work)

"""Reads of a job's own tables beside its commits, by the owner of a range, or a former owner that does not know.

Nothing is locked: a job may be reset meanwhile, and its tables be gone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.errors import UndefinedTable

from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.postgres.catalog import JobIds
from runners.millwheel.store.postgres.queries import QUERIES

_T = TypeVar("_T")


class JobReads(ABC):
    """The part of the store, which has the connection, that verbs which read need."""

    _ids: dict[str, JobIds]
    # Whether a transaction is open in which nothing may be written, and so no row be locked.
    _is_reading = False

    def _find_job(self, opened: Connection[Any], job: str) -> int | None:
        """The job's number, in a transaction; its tables are there until that ends, if it may lock anything."""
        query = QUERIES["find_job" if self._is_reading else "keep_job"]
        found = opened.execute(query, {"name": job}).fetchone()
        return None if found is None else int(found[0])

    @abstractmethod
    def _transact(
        self,
        work: Callable[[Connection[Any]], _T],
        locks: Sequence[int] = (),
        *,
        is_one_statement: bool = False,
    ) -> _T:
        """Run an idempotent transaction."""

    @abstractmethod
    def _load(self, job: str) -> JobIds | None:
        """Read the job's numbers again."""

    def _read_of(
        self,
        query: str,
        job: str,
        range_ids: Iterable[RangeId],
        parameters: Callable[[JobIds], Mapping[str, Any]],
    ) -> Sequence[tuple[Any, ...]] | None:
        """The rows; None if there is no such job, or one of the ranges is not in it."""
        wanted, ids = set(range_ids), self._ids.get(job)
        if ids is None or not wanted <= ids.ranges.keys():
            ids = self._load(job)
        if ids is None or not wanted <= ids.ranges.keys():
            return None
        statement, packed = ids.queries[query], parameters(ids)

        def work(opened: Connection[Any]) -> Sequence[tuple[Any, ...]]:
            return opened.cursor(binary=True).execute(statement, packed).fetchall()

        try:
            return self._transact(work, is_one_statement=True)
        except StoreError as error:
            if not isinstance(error.__cause__, UndefinedTable):
                raise
            self._ids.pop(job, None)
            return None

"""Errors that runners and stores raise.  Message: the fact; then detail; then what to do.

All of them survive pickling, because they cross process boundaries.
"""

from dataflow.errors import DataflowError


class StoreError(DataflowError):
    """The store refused or failed an operation that certainly changed nothing."""


class StoreUnreachableError(StoreError):
    """No connection to the store could be made."""


class StoreRestartedError(StoreError):
    """The store was restarted or restored, or another server has taken its place, and may not have all it had."""


class LostCommitsError(StoreError):
    """The store has lost commits that it had acknowledged, so it is at an earlier moment of the job."""


class FencedError(StoreError):
    """A newer attempt owns the range, or a newer run the job; this one wrote nothing and never will."""


class UnsuitableStoreError(StoreError):
    """The store cannot keep the guarantees (a read replica, fsync off) or has a schema from the future."""


class StoredFormatError(DataflowError):
    """What is stored, or was sent, is in a format that this version of the package does not read."""


class JobMismatchError(StoreError):
    """The job's name is taken by a different pipeline."""


class UpdateRefusedError(DataflowError):
    """A new version of a job would lose state without permission, or there is nothing to update."""


class JobRunningError(StoreError):
    """The job is being run by another driver."""


class TableMismatchError(StoreError):
    """A result table exists with other columns or another key."""


class TableOwnedError(StoreError):
    """A result table has rows of another job, or of an unknown one, and the pipeline does not declare it as shared."""


class TableMissingError(StoreError):
    """A result table of a job is not there any more."""


class WorkerStoppedError(DataflowError):
    """A worker must not go on: another owns its ranges, or its last commit is unknown."""


class JobFailedError(DataflowError):
    """A running job gave up; the message carries the first cause."""


class CodeMissingError(DataflowError):
    """Spark's workers lack a module: one of the user's, or of this package."""


class UnrepeatableError(DataflowError):
    """What was run again emits something else than before, or would: other records, or failures on other ones."""


class BackfillError(DataflowError):
    """A backfill of a job that has gone live, or a stream where the backfill has not come to its end."""


class SignalError(DataflowError):
    """A signal that no window would receive: no trigger listens to it, or the job has ended or runs in batch."""


class RequestError(DataflowError):
    """A request that would not or could not be carried out: the job has ended, runs in batch, or refuses."""


class EmbeddedServiceError(DataflowError):
    """An embedded service (Java, Postgres) is missing or did not start."""


class UnknownTransformError(DataflowError):
    """There is no transform or table of that name in the job."""


class JobUnknownError(StoreError):
    """The store has no job of that name."""

"""Errors that runners and stores raise.  Message: the fact; then detail; then what to do.

All of them survive pickling, because they cross process boundaries.
"""

from dataflow.errors import DataflowError


class StoreError(DataflowError):
    """The store refused or failed an operation that certainly changed nothing."""


class StoreUnreachableError(StoreError):
    """No connection to the store could be made."""


class UnsuitableStoreError(StoreError):
    """The store cannot keep the guarantees (a read replica, fsync off) or has a schema from the future."""


class JobMismatchError(StoreError):
    """The job's name is taken by a different pipeline."""


class JobRunningError(StoreError):
    """The job is being run by another driver."""


class TableMismatchError(StoreError):
    """A result table exists with other columns or another key."""


class JobFailedError(DataflowError):
    """A running job gave up; the message carries the first cause."""


class SignalError(DataflowError):
    """A signal that nobody would hear: no trigger listens to it, or the job has ended or runs in batch."""


class EmbeddedServiceError(DataflowError):
    """An embedded service (Java, Postgres) is missing or did not start."""

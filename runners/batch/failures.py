"""Failures as values: how an error inside a Spark task reaches the driver as the error it is.

A task that raises is run again by Spark, several times, and what the driver gets in the end is a
Java stack. So a task returns its error as a `Failure`, which travels with the data: it goes to
every target downstream, and a task that receives one stops before it commits.  Nothing is computed
from a part of the input only.

What may go away by itself (the store, files, memory, a mood of user code) is raised, for Spark to
try again, until its last attempt.
"""

from typing import NoReturn

from pyspark.accumulators import Accumulator, AccumulatorParam

from dataflow.errors import DataflowError, TransformError
from runners.errors import StoreError, StoreRestartedError, UnrepeatableError
from runners.stored.errors import decode_error, encode_error
from windowing.errors import what_was_raised

#: Worth another attempt; everything else is the same the next time.
_TRANSIENT = (StoreError, OSError, MemoryError, UnrepeatableError)


#: An error on its way to the driver, as bytes (`runners.stored.errors`).
Failure = bytes

#: How the driver is notified of a failure before the job has ended; what counts is the failure in
#: the data.
FailureAccumulator = Accumulator[list[Failure]]


class FailuresParam(AccumulatorParam[list[Failure]]):
    """Lists, concatenated."""

    def zero(self, value: list[Failure]) -> list[Failure]:
        """An empty list."""
        return []

    def addInPlace(self, value1: list[Failure], value2: list[Failure]) -> list[Failure]:  # noqa: N802 - Spark's name
        """Both lists, concatenated.

        Args:
            value1: changed in place.
            value2: of another task.
        """
        value1 += value2
        return value1


def is_transient(error: Exception) -> bool:
    """Whether another attempt may succeed."""
    # What this run knows may be lost, so a new run has to read it again.
    return isinstance(error, _TRANSIENT) and not isinstance(error, StoreRestartedError)


def failure_of(error: Exception, where: str) -> Failure:
    """The failure that carries an error.

    Args:
        error: that ended the task.
        where: the transform at which the stage starts, and what follows it.
    """
    return encode_error(error if isinstance(error, DataflowError) else _described(error, where))


def raise_failure(failure: Failure) -> NoReturn:
    """Raise on the driver what was raised in the task."""
    raise decode_error(failure)


def _described(error: Exception, where: str) -> DataflowError:
    described = TransformError(
        f"{where}, or what follows it, raised {what_was_raised(error)}",
        detail="outside of any element; the traceback has the line",
        hint="correct the code there and run the same job again: what is finished is kept",
    )
    # So that the traceback is that of the user's own error.
    described.__cause__ = error
    return described

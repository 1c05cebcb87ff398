"""Errors that users see.  Each is one fact, then detail, then what to do; all survive pickling."""

from windowing.errors import DataflowError, TimeError, WindowError

__all__ = [
    "ArrivalOrderWarning",
    "DataLossWarning",
    "DataflowError",
    "DuplicateLabelError",
    "InputError",
    "KeyEncodingError",
    "PipelineError",
    "RequestFailedError",
    "SinkError",
    "SinkFencedError",
    "SinkRefusedError",
    "TableRowError",
    "TimeError",
    "TooManyFailuresError",
    "TransformError",
    "WindowError",
]


class PipelineError(DataflowError):
    """The pipeline cannot be built or run as written; raised before any work starts where that is possible."""


class DuplicateLabelError(PipelineError):
    """Two transforms in one scope carry the same explicit label."""


class TransformError(DataflowError):
    """User code inside a transform raised; names the transform, the file and line, and the element."""


class RequestFailedError(Exception):
    """A request to another system has failed for good: `RequestResponse` and `Enrichment` raise it for an element."""


class TooManyFailuresError(TransformError):
    """A transform has failed on more of its elements than the threshold of its `with_exception_handling` allows.

    It ends the run, whether or not failing records are kept otherwise.
    """


class KeyEncodingError(DataflowError):
    """A key has no deterministic encoding, so it cannot be grouped or routed."""


class InputError(DataflowError):
    """An input is missing or malformed."""


class TableNotOpenedError(InputError):
    """A table is not there, or is not reached; in the second case the error of the client is its cause."""


class TableFileError(InputError):
    """Files of a version of a table cannot be read, though the table answers."""


class SinkError(DataflowError):
    """A sink does not have what was written to it, or cannot be written to."""


class SinkFencedError(SinkError):
    """Another writer has taken the lane of a sink over; nothing was written."""


class SinkRefusedError(SinkError):
    """A sink takes no such rows, however often they are sent; nothing was written, and the rows stay in the outbox."""


class TableRowError(DataflowError):
    """A row does not fit the table that it was written to; nothing was written."""


class ArrivalOrderWarning(DataflowError, UserWarning):  # noqa: N818 - it is a warning
    """Warns of a stateful DoFn whose output depends on the order of arrival, without having declared that it may.

    Shown by Python's `warnings`, and filtered there, as `DataLossWarning`.
    """


class TableConflictError(TableRowError):
    """Two results that can be retracted have the same key in a table, which has room for one; nothing was written."""


class DataLossWarning(DataflowError, UserWarning):  # noqa: N818 - it is a warning
    """A pipeline could lose data as it is written; see `dataflow.strategy_checks` for when.

    Shown by Python's `warnings`, and filtered there: ``warnings.simplefilter("ignore", df.DataLossWarning)`` silences
    it, and ``"error"`` makes it an error like any other.
    """

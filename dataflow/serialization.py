"""Functions as bytes: the only module that imports cloudpickle.

User code is turned into bytes once, when a pipeline starts; records on the hot path use `pickle` alone.
"""

import pickle
from typing import Any

import cloudpickle

from dataflow.errors import PipelineError

#: Out-of-band buffers and cheap framing; the newest protocol that every supported Python reads.
PICKLE_PROTOCOL = 5


def dumps_code(value: Any, what: str) -> bytes:
    """Bytes of ``value``, which may contain functions and classes that exist only here.

    Args:
        value: anything.
        what: how to name it in the error, e.g. "transform 'parse' (job.py:12)".

    Raises:
        PipelineError: something in ``value`` cannot be pickled.
    """
    try:
        blob: bytes = cloudpickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        raise PipelineError(
            f"{what} cannot be sent to workers",
            detail=f"pickling failed: {error}",
            hint="a function must not close over open files, locks, sockets or connections; "
            "open them in DoFn.setup, which runs on the worker",
        ) from error
    return blob


def loads_code(blob: bytes) -> Any:
    """The inverse of `dumps_code`.  Only for bytes from an authenticated peer or our own store."""
    return cloudpickle.loads(blob)


def dumps(value: Any) -> bytes:
    """Bytes of plain data (records, state): no functions.

    Raises:
        PipelineError: something in ``value`` is no plain data.
    """
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PipelineError(
            f"a value cannot be sent or stored: {error}",
            detail=f"in {type(value).__name__}; records, keys and state are pickled, and name their classes",
            hint="use plain data; define classes of records at the top level of the script or of a module, under the "
            "name that they have",
        ) from error


def loads(blob: bytes) -> Any:
    """The inverse of `dumps`.  Only for bytes from an authenticated peer or our own store."""
    return pickle.loads(blob)  # noqa: S301 - peers are authenticated (DESIGN section 7)

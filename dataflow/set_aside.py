"""SetAside: a record that a reader leaves out, with its place in the input and why.

A line that is malformed, or has no event time, need not stop everything behind it: the reader goes on, and reports what
it has left out.  The runner decides what becomes of that: a dead letter, in the commit of its neighbours, or the error
that ends the run.
"""

from typing import Any

import attrs

from dataflow.errors import InputError

#: So many bytes of a record are kept, at most; the place in the input is where to find the rest.
RAW_BYTES_MAX = 1 << 16


@attrs.frozen(kw_only=True)
class Origin:
    """Where a record is in a file.

    Attributes:
        path: the file.
        line: the number of its first line, from 1.
        start_bytes, end_bytes: where it begins, and where it ends with its line end.
        raw: these bytes, or the first 64 KiB of them.
    """

    path: str
    line: int
    start_bytes: int
    end_bytes: int
    raw: bytes

    def __str__(self) -> str:
        return f"line {self.line}, bytes {self.start_bytes} to {self.end_bytes}"


@attrs.frozen(kw_only=True)
class SetAside:
    """A record that a reader has read and does not hand over.

    Attributes:
        error: why, where it is, and what to do: what ends the run if there are no dead letters.
        cause: what user code raised, if it did.
        origin: where it is, if that is a file.
        element: the record, if it could be read.
        timestamp_us: its event time, if it has one.
        is_always_kept: it is a dead letter whether or not the runner keeps them otherwise, as it would harm others.
        sign: -1 if it retracts a record (`dataflow.source.SourceBatch.signs`), which was set aside as well.
    """

    error: InputError
    cause: BaseException | None = None
    origin: Origin | None = None
    element: Any = None
    timestamp_us: int | None = None
    is_always_kept: bool = False
    sign: int = +1

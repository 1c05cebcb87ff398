"""Frames of run files, and other bytes in temporary files of a batch or in its shuffle.

A temporary file is read only by the process that has written it, and a shuffle only by processes that run the same
plan.  They have the same format as a store, so that there is one format for everything.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from dataflow.serialization import dumps, loads
from runners.stored.framing import (
    check_number,
    current_format,
    frame,
    opened,
    unframed,
    wrong_kind,
)
from windowing.window import Window

PACKED, PARTS, KEPT = "packed", "parts", "kept"
#: What is shipped to a key range in a backfill: partials, and how far event time has come.
SENT, REACHED = "sent", "reached"
#: The head of a frame of a run file: the number of the format, the bytes of its window's pickle, the number of its
#: records, the bytes of its content, and the window's bounds.
RUN_HEAD = struct.Struct("<BQQQqq")


class RunHead(NamedTuple):
    """The head of a frame of a run file.

    Attributes:
        window_bytes: the size of the pickle of a window of a user's class, which comes next; 0: ``window`` is complete.
    """

    window: Window
    window_bytes: int
    records: int
    content_bytes: int


class PartBlob(NamedTuple):
    """The data for one part of a target: partials as bytes, made of so many records."""

    part: int
    records: int
    blob: bytes


def encode_run_frame(window: Window, records: int, content: bytes) -> bytes:
    """A frame of a run file.

    Args:
        window: of the content.
        records: how many the content has.
        content: the bytes.

    Raises:
        PipelineError: the window is of a user's class, and not plain data.
    """
    # A user's class may have more in it than bounds.
    pickled = b"" if type(window) is Window else dumps(window)
    sizes = len(pickled), records, len(content)
    head = RUN_HEAD.pack(current_format().number, *sizes, window[0], window[1])
    return b"".join((head, pickled, content))


def decode_run_head(block: bytes, at: int) -> RunHead:
    """The head of a frame in a block.

    Args:
        block: bytes of the file.
        at: the index at which the frame begins.

    Raises:
        StoredFormatError: it is of a format that is not read.
    """
    number, window_bytes, records, content_bytes, start_us, end_us = RUN_HEAD.unpack_from(block, at)
    if number != current_format().number:
        check_number(number, "a run file")
    return RunHead(Window(start_us, end_us), window_bytes, records, content_bytes)


def encode_own(value: Any) -> bytes:
    """A user's value by itself: the content of a frame of a run file.

    Raises:
        PipelineError: it is not plain data.
    """
    return dumps(value)


def decode_own(blob: bytes) -> Any:
    """The inverse of `encode_own`."""
    return loads(blob)


def encode_packed(target: int, blob: bytes) -> bytes:
    """The data for a target, on its way through a file.

    Args:
        target: its number.
        blob: the data.
    """
    return frame(PACKED, target, blob)


def decode_packed(blob: bytes) -> tuple[int, bytes]:
    """The inverse of `encode_packed`."""
    target, content = unframed(PACKED, blob)
    return target, content


def encode_parts(parts: Sequence[PartBlob]) -> bytes:
    """The data for the parts of a target."""
    return frame(PARTS, parts)


def decode_parts(blob: bytes) -> list[PartBlob]:
    """The inverse of `encode_parts`."""
    (parts,) = unframed(PARTS, blob)
    return [PartBlob(*each) for each in parts]


def encode_kept(kept: Sequence[tuple[str, int, int, int, bytes]]) -> bytes:
    """The data sent to a part: computation and index of each sender, its number, number of records, and partials."""
    return frame(KEPT, kept)


def decode_kept(blob: bytes) -> list[list[Any]]:
    """The inverse of `encode_kept`."""
    (kept,) = unframed(KEPT, blob)
    found: list[list[Any]] = kept
    return found


def encode_sent(sender: tuple[str, int], number: int, blob: bytes) -> bytes:
    """Partials from one range to another, of a backfill.

    Args:
        sender: its computation and index.
        number: among all that an attempt at the sender ships.
        blob: the data for the parts of the receiver.
    """
    return frame(SENT, *sender, number, blob)


def encode_reached(sender: tuple[str, int], watermark_us: int, *, is_finished: bool) -> bytes:
    """How far event time has come in a range, of a backfill.

    Args:
        sender: its computation and index.
        watermark_us: its output watermark, in microseconds.
        is_finished: whether nothing will ever come from there.
    """
    return frame(REACHED, *sender, watermark_us, is_finished)


def decode_shipped(blob: bytes) -> tuple[str, list[Any]]:
    """The kind of what one range ships to another in a backfill, and its fields.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    kind, fields = opened(blob)
    if kind not in (SENT, REACHED):
        raise wrong_kind(kind, SENT)
    return kind, fields

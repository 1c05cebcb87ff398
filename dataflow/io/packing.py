"""Packing: compressed files of records, unpacked while they are read.

A packed file is one split, and a position in it is a byte offset of what was packed: whoever goes on from there unpacks
again what is before it.  One that is damaged, or ends before its end, is an error where that is found.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa

from dataflow.errors import InputError, PipelineError

#: The compressions that are read, by the ends of names.
_CODECS = {".gz": "gzip", ".zst": "zstd"}
#: ... and others, with the program that unpacks them.
_NOT_READ = {".bz2": "bzip2 -dk", ".xz": "xz -dk", ".zip": "unzip"}
#: The values of a read's ``compression``.
COMPRESSIONS = ("auto", "none", *_CODECS.values())
#: Bytes that are passed over in one go.
_STEP_BYTES = 1 << 20


def check_compression(name: str, compression: str) -> None:
    """Check the argument of a read.

    Args:
        name: of the read, for messages.
        compression: as the user gave it.

    Raises:
        PipelineError: it is none of `COMPRESSIONS`.
    """
    if compression not in COMPRESSIONS:
        raise PipelineError(
            f"{name} was given compression={compression!r}",
            hint=f"give one of {', '.join(map(repr, COMPRESSIONS))}; 'auto' goes by the names of files",
        )


def is_packed(path: str, compression: str) -> bool:
    """Whether a file is compressed, in a way that is read or another.

    Args:
        path: of the file, whose end counts for ``auto``.
        compression: one of `COMPRESSIONS`.
    """
    if compression == "auto":
        return path.endswith((*_CODECS, *_NOT_READ))
    return compression != "none"


def codec_of(path: str, compression: str) -> str | None:
    """How a file is packed; None: not at all.

    Args:
        path: of the file, whose end counts for ``auto``.
        compression: one of `COMPRESSIONS`.

    Raises:
        InputError: by its name it is packed in a way that is not read.
    """
    if compression != "auto":
        return None if compression == "none" else compression
    for end, program in _NOT_READ.items():
        if path.endswith(end):
            raise InputError(
                f"{path!r} is compressed in a way that is not read",
                detail="gzip (.gz) and Zstandard (.zst) are",
                hint=f"unpack it before: {program}; if only its name says so, give compression='none'",
            )
    return next((codec for end, codec in _CODECS.items() if path.endswith(end)), None)


class Unpacked:
    """A reader of the unpacked bytes of a file, from front to back.

    Args:
        file: the packed bytes, from their start.
        path: for messages.
        codec: ``gzip`` or ``zstd``; a file may have several members, or frames.
    """

    def __init__(self, file: BinaryIO, path: str, codec: str) -> None:
        self._file, self._path, self._codec = file, path, codec
        self._stream: Any = None

    def read(self, size: int) -> bytes:
        """So many bytes, and fewer only at the end.

        Args:
            size: how many bytes, at most.

        Raises:
            InputError: the file is damaged, incomplete, or not packed in this way.
        """
        try:
            if self._stream is None:
                if not self._file.read(1):
                    # For Arrow it would be one that packs nothing.
                    raise self._refusal("the file is empty")
                self._file.seek(0)
                self._stream = pa.CompressedInputStream(self._file, self._codec)
            return bytes(self._stream.read(size))
        except (OSError, pa.ArrowInvalid) as error:
            raise self._refusal(str(error)) from None

    def seek(self, start: int) -> None:
        """Pass over so many bytes from the start; to be called once, before anything is read.

        Args:
            start: a byte offset of what was packed.

        Raises:
            InputError: there are fewer bytes, or the file cannot be unpacked.
        """
        while start > 0:
            passed = len(self.read(min(start, _STEP_BYTES)))
            if not passed:
                raise InputError(
                    f"{self._path} became shorter while it was read",
                    detail=f"{start} bytes that had been read are missing",
                    hint="do not change files while they are read",
                )
            start -= passed

    def _refusal(self, why: str) -> InputError:
        return InputError(
            f"{self._path} cannot be unpacked as {self._codec}",
            detail=why,
            hint="the file is damaged or not complete, or packed in another way; write it again, or say with "
            "compression= how it is packed",
        )

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
        self._file.close()

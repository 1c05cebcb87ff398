"""Input of a Spark task that is either whole or an error.

Spark's Java process writes the input of a Python task to a socket, with a mark at its end.  Where it cannot write on
(the rest of a shuffle is on an executor that was lost, a file is damaged, the process itself is killed) it closes the
socket, and PySpark's own readers take that for the end of the input, too.  Then a task that commits does so on a part
of its input, and only afterwards does Spark run it again.
"""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, TypeVar

from pyspark import RDD
from pyspark.serializers import BatchedSerializer, CPickleSerializer, SpecialLengths

_T = TypeVar("_T")
_LENGTH = struct.Struct("!i")


class BrokenInputError(OSError):
    """The input of a task has ended before its end; Spark knows why, and runs the task again."""


class WholeStream(CPickleSerializer):
    """Reads what Spark's Java process writes to a task: frames of a length and a pickle, and the mark behind the last.

    Raises:
        BrokenInputError: by what `load_stream` returns, if the stream ends without the mark.
    """

    def load_stream(self, stream: BinaryIO) -> Iterator[Any]:
        """The objects of the stream.

        Args:
            stream: from the Java process.
        """
        while (length := _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]) >= 0:
            yield self.loads(_exactly(stream, length))  # type: ignore[no-untyped-call]
        if length != SpecialLengths.END_OF_DATA_SECTION:
            raise BrokenInputError(f"the input of the task has a mark that nobody sets: {length}")


def whole(shuffled: RDD[_T]) -> RDD[_T]:
    """An RDD whose tasks raise `BrokenInputError` where only a part of their input arrives.

    Args:
        shuffled: right behind a shuffle; is changed.
    """
    reader = BatchedSerializer(WholeStream())  # type: ignore[no-untyped-call]
    # The tasks of what is built on this RDD read with it.
    shuffled._jrdd_deserializer = reader  # noqa: SLF001 - PySpark has no argument for it
    return shuffled


def _exactly(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise BrokenInputError("the input of the task has broken off")
    return found

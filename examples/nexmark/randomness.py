"""Random columns that depend on a seed and the numbers of the records alone: no state, so any record is made alone.

The numbers are those of SplitMix64 (Steele, Lea and Flood, 2014), used as a hash of a counter.
"""

from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
_Bits = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
#: Texts are pieces of this many letters, which are the same for every seed.
_POOL_SIZE = 1 << 16
#: One letter of so many is the special one.
_SPECIAL_OF = 13


def mixed(bits: _Bits) -> _Bits:
    """The finalizer of SplitMix64: every bit depends on all."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class Chance:
    """Random columns of some records.

    Args:
        seed: another one gives other columns.
        numbers: of the records.
    """

    def __init__(self, seed: int, numbers: Int64s) -> None:
        start = mixed(np.array([seed * _GOLDEN & _MASK], np.uint64))
        self._bits = mixed(numbers.astype(np.uint64) * np.uint64(_GOLDEN) + start)

    def bits(self, draw: int) -> _Bits:
        """64 bits for each record.

        Args:
            draw: distinguishes what is drawn for a record.
        """
        return mixed(self._bits + np.uint64((draw + 1) * _GOLDEN & _MASK))

    def below(self, draw: int, bound: int | Int64s) -> Int64s:
        """An integer from 0 up to, and not including, the bound, for each record.

        Args:
            draw: as in `bits`.
            bound: positive; of all records, or of each.
        """
        found: Int64s = (self.bits(draw) % np.asarray(bound).astype(np.uint64)).astype(np.int64)
        return found

    def unit(self, draw: int) -> NDArray[np.float64]:
        """A number from 0 up to, and not including, 1, for each record.

        Args:
            draw: as in `bits`.
        """
        return (self.bits(draw) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def texts(self, draw: int, shortest: int, longest: int, special: str = "") -> pa.Array:
        """A text of letters for each record.

        Args:
            draw: as in `bits`; the next number is used, too.
            shortest: how many letters it has at least.
            longest: how many at most.
            special: is among the letters now and then.
        """
        lengths = shortest + self.below(draw, longest - shortest + 1)
        pool = _pool(special)
        starts = self.below(draw + 1, len(pool) - longest)
        return _pieces(pool, starts, lengths)

    def chosen(self, draw: int, values: tuple[str, ...]) -> pa.Array:
        """One of some texts for each record.

        Args:
            draw: as in `bits`.
            values: the texts.
        """
        return pa.array(values).take(pa.array(self.below(draw, len(values))))


@cache
def _pool(special: str) -> NDArray[np.uint8]:
    chance = Chance(0, np.arange(_POOL_SIZE))
    letters = (ord("a") + chance.below(0, 26)).astype(np.uint8)
    if special:
        letters[chance.below(1, _SPECIAL_OF) == 0] = ord(special)
    return letters


def _pieces(pool: NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> pa.Array:
    ends = np.cumsum(lengths)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    at = np.arange(offsets[-1]) + np.repeat(starts - (ends - lengths), lengths)
    letters = pool[at]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)

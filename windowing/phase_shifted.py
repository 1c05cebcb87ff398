"""PhaseShiftedWindows: fixed windows that begin at a different instant for each key.  Dataflow Model, section 1.2.

It is separate from `FixedWindows` because it reads the key of an element, which aligned windows never do.

The shift comes from a hash of its own, different from the one that decides which key range owns a key:
otherwise the windows of one range would still end together.  Keys that are equal in Python have the same shift, in
every process and version, as state in a store depends on it.
"""

from collections.abc import Sequence
from datetime import date, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import attrs

from windowing.errors import TimeError, WindowError
from windowing.fixed import FixedWindows
from windowing.timestamps import DurationLike, clamp_timestamp_us, to_duration_us, to_timestamp_us
from windowing.window import Window
from windowing.window_fn import WindowFn

#: The number of keys whose shifts are cached in each process.
_KEYS_MAX = 1 << 16
_HASH_BITS = 64
#: Keys of these types are canonical without conversion.
_PLAIN_TYPES = frozenset((str, int, bytes, type(None)))


@attrs.frozen(init=False)
class PhaseShiftedWindows(WindowFn):
    """Fixed windows, shifted for each key by a part of ``size`` that depends on the key alone.

    All keys of aligned windows end at the same instant; these windows spread that work evenly over time.
    Elements have to be the ``(key, value)`` pairs that are grouped afterwards, with the same keys.

    Args:
        size: length of a window; positive.

    Raises:
        WindowError: ``size`` is not positive; later, an element is not a pair or its key has no stable hash.
        TimeError: ``size`` is not a duration.
    """

    size_us: int

    def __init__(self, size: DurationLike) -> None:
        FixedWindows(size)  # raises where the size is not valid, in the same words
        self.__attrs_init__(to_duration_us(size))

    def shift_us(self, key: Any) -> int:
        """The start of a key's windows, in microseconds after 1970-01-01T00:00:00 UTC, modulo the size."""
        return _hash_of(key) * self.size_us >> _HASH_BITS

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The one window of the element's key around the event time."""
        start_us = timestamp_us - (timestamp_us - self.shift_us(_key_of(value))) % self.size_us
        return (self._window(start_us),)

    def assign_bundle(
        self,
        timestamps_us: Sequence[int],
        values: Sequence[Any],
    ) -> Sequence[Sequence[Window]]:
        """Assign windows to the elements of a bundle; elements in the same window share one object."""
        size_us, shift_us = self.size_us, self.shift_us
        starts_us = [
            t - (t - shift_us(_key_of(value))) % size_us
            for t, value in zip(timestamps_us, values, strict=True)
        ]
        shared = {start_us: (self._window(start_us),) for start_us in set(starts_us)}
        return [shared[start_us] for start_us in starts_us]

    def _window(self, start_us: int) -> Window:
        return Window(clamp_timestamp_us(start_us), clamp_timestamp_us(start_us + self.size_us))


def _key_of(element: Any) -> Any:
    if not isinstance(element, tuple) or len(element) != 2:
        raise WindowError(
            "phase-shifted windows need (key, value) pairs",
            detail=f"an element is {element!r}",
            hint="make pairs before the WindowInto, e.g. df.Map(lambda x: (key_of(x), x))",
        )
    return element[0]


def _hash_of(key: Any) -> int:
    # By the canonical value: the two readings of an hour that comes twice are equal, but not the same instant.
    return _remembered_hash(key if type(key) in _PLAIN_TYPES else _canonical(key))


@lru_cache(_KEYS_MAX)
def _remembered_hash(canonical: Any) -> int:
    text = ascii(canonical)  # not repr, which escapes other characters in other Pythons
    return int.from_bytes(
        blake2b(text.encode(), digest_size=_HASH_BITS // 8, person=b"phase").digest(), "big"
    )


def _canonical(key: Any) -> object:
    """A value whose text is the same for equal keys, for keys of the types that can be grouped by."""
    kind = type(key)
    if kind is tuple:
        if _PLAIN_TYPES.issuperset(map(type, key)):
            return key
        return tuple(map(_canonical, key))
    if kind is bool or (kind is float and key.is_integer()):
        return int(key)
    if isinstance(key, datetime):
        try:
            return "datetime", to_timestamp_us(key)
        except TimeError:
            raise _refusal(key) from None
    if isinstance(key, date):
        return "date", key.toordinal()
    if kind is float or kind in _PLAIN_TYPES:
        return key
    raise _refusal(key)


def _refusal(key: Any) -> WindowError:
    return WindowError(
        f"phase-shifted windows cannot shift by the key {key!r}",
        detail=f"there is no stable hash of a {type(key).__module__}.{type(key).__qualname__}",
        hint="use a key of numbers, text, bytes, dates, aware datetimes, or tuples of these",
    )

"""Columns of keys and windows as fields; what is not plain is appended to the users' own values."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from windowing.window import Window, windows_of

#: Keys of exactly these types are plain; so are tuples of these, all of the same length.
_PLAIN = frozenset((str, int, float, bytes))
_WINDOW = frozenset((Window,))
#: Stands for a column that is among the users' own values.
_OWN = None
#: Keys that are not tuples.
_SINGLE = 0


def keys_column(keys: Sequence[Any], own: list[Any], *, is_plain: bool) -> list[Any] | None:
    """Keys as a field: None if they are appended to the users' own values.

    Args:
        keys: the keys.
        own: users' values are appended to it.
        is_plain: whether plain keys may be written as plain fields; False if they have turned out not to fit there.
    """
    kinds = set(map(type, keys))
    if is_plain:
        if kinds <= _PLAIN:
            return [_SINGLE, keys]
        if kinds == {tuple} and set(map(type, chain.from_iterable(keys))) <= _PLAIN:
            sizes = set(map(len, keys))
            if len(sizes) == 1 and (size := sizes.pop()):
                return [size, *zip(*keys, strict=True)]
    own.append(list(keys))
    return _OWN


def keys_of(column: list[Any] | None, own: "Own") -> list[Any]:
    """The inverse of `keys_column`.

    Args:
        column: the field.
        own: users' values, from which the keys are taken if the field is None.
    """
    if column is _OWN:
        found: list[Any] = own.next()
        return found
    if column[0] == _SINGLE:
        keys: list[Any] = column[1]
        return keys
    return list(zip(*column[1:], strict=True))


def windows_column(windows: Sequence[Window], own: list[Any]) -> list[Any] | None:
    """Windows as a field: their bounds; None if they are of a user's class, and appended to the users' own values.

    If most windows differ, the bounds of each window in order; otherwise those of the different windows, and for each
    window the number of its bounds.

    Args:
        windows: the windows.
        own: users' values are appended to it.
    """
    if not set(map(type, windows)) <= _WINDOW:
        own.append(list(windows))
        return _OWN
    distinct = dict.fromkeys(windows)
    if 2 * len(distinct) > len(windows):
        return [list(chain.from_iterable(windows)), _OWN]
    bounds = list(chain.from_iterable(distinct))
    if len(distinct) == 1:
        return [bounds, len(windows)]
    numbers = dict(zip(distinct, range(len(distinct)), strict=True))
    return [bounds, [numbers[window] for window in windows]]


def windows_from(column: list[Any] | None, own: "Own") -> list[Window]:
    """The inverse of `windows_column`.

    Args:
        column: the field.
        own: users' values, from which the windows are taken if the field is None.
    """
    if column is _OWN:
        found: list[Window] = own.next()
        return found
    bounds, numbers = column
    distinct = list(windows_of(bounds[::2], bounds[1::2]))
    if numbers is None:
        return distinct
    if type(numbers) is int:
        return distinct * numbers
    return [distinct[number] for number in numbers]


class Own:
    """The users' own values of a frame, taken in the order in which they were appended."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = iter(values)

    def next(self) -> Any:
        """The next value."""
        return next(self._values)

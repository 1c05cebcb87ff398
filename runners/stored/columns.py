"""Columns of keys and windows as fields; what is not plain is appended to the users' own values."""

import pickle
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import chain, repeat
from operator import countOf
from typing import Any

from dataflow.serialization import EXTENSION_CODE, PICKLE_PROTOCOL, dumps, loads, tagged
from dataflow.value_tags import TUPLES
from windowing.window import Window, windows_of

#: Keys of exactly these types are plain; so are tuples of these, all of the same length.
_PLAIN = frozenset((str, int, float, bytes))
#: Values of exactly these types are pickled in the same way everywhere.
_ATOMS = frozenset((str, int, float, bytes, bool, type(None)))
_BOUNDS = len(("start", "end"))
#: Faster than the class, which calls it.
_new_window = tuple.__new__
#: The users' own values of a frame: takes the next one, in the order in which they were appended.
Own = Callable[[], Any]
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
    if is_plain:
        if keys and countOf(map(type, keys), type(keys[0])) == len(keys):
            kinds = {type(keys[0])}
        else:
            kinds = set(map(type, keys))
        if kinds <= _PLAIN:
            return [_SINGLE, keys]
        if kinds == {tuple} and set(map(type, chain.from_iterable(keys))) <= _PLAIN:
            sizes = set(map(len, keys))
            if len(sizes) == 1 and (size := sizes.pop()):
                return [size, *zip(*keys, strict=True)]
    own.append(list(keys))
    return _OWN


def keys_of(column: list[Any] | None, own: Own) -> list[Any]:
    """The inverse of `keys_column`.

    Args:
        column: the field.
        own: users' values, from which the keys are taken if the field is None.
    """
    if column is _OWN:
        found: list[Any] = own()
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
    count = len(windows)
    # Counting is faster than a set of them, here and for keys; subclasses do not count.
    if countOf(map(type, windows), Window) != count:
        own.append(list(windows))
        return _OWN
    if count > 1 and windows.count(windows[0]) == count:
        return [list(windows[0]), count]
    distinct = dict.fromkeys(windows)
    if 2 * len(distinct) > count:
        return [list(chain.from_iterable(windows)), _OWN]
    bounds = list(chain.from_iterable(distinct))
    numbers = dict(zip(distinct, range(len(distinct)), strict=True))
    return [bounds, [numbers[window] for window in windows]]


def windows_from(column: list[Any] | None, own: Own) -> list[Window]:
    """The inverse of `windows_column`.

    Args:
        column: the field.
        own: users' values, from which the windows are taken if the field is None.
    """
    if column is _OWN:
        found: list[Window] = own()
        return found
    bounds, numbers = column
    if len(bounds) == _BOUNDS and type(numbers) is not list:
        return [_new_window(Window, bounds)] * (numbers or 1)
    distinct = list(windows_of(bounds[::2], bounds[1::2]))
    if numbers is None:
        return distinct
    if type(numbers) is int:
        return distinct * numbers
    return [distinct[number] for number in numbers]


def own_blob(own: list[Any]) -> bytes:
    """Users' own values as a field of a frame.

    Raises:
        PipelineError: one of them is not plain data.
    """
    if not own:
        return b""
    for value in own:
        if type(value) not in _ATOMS:
            return dumps(own)
    # The same bytes, in half the time where there are few of them.
    return pickle.dumps(own, PICKLE_PROTOCOL)


def own_of(blob: bytes) -> Own:
    """The inverse of `own_blob`."""
    return iter(loads(blob) if blob else ()).__next__


class Hidden:
    """Stands for a value of the user's own that is not unpickled."""

    def __repr__(self) -> str:
        return "a value of the user's own"

    def ignore(self, *_: Any) -> None:
        """Do nothing: what would change the value is not of interest."""

    def __call__(self, *_: Any) -> "Hidden":
        """What it would have made is hidden too."""
        return self

    # What pickles call on values that they have made.
    __setstate__ = append = extend = add = __setitem__ = ignore


#: The only one.
HIDDEN = Hidden()
#: The tags of the states of triggers, all of which are classes of this package that are tuples.
_TRIGGER_TAGS = frozenset(
    tag for tag, kind in TUPLES.items() if kind.__module__.startswith("triggers.")
)
#: Those of composites may be plain tuples of the states of their parts.
_TRIGGER_STATES = frozenset([tuple, *(TUPLES[tag] for tag in _TRIGGER_TAGS)])


def hidden_own_of(blob: bytes) -> Own:
    """Like `own_of`, with `HIDDEN` in place of each value but the states of triggers of this package.

    No class or function of anybody else's is looked up, so no code of the user's runs.
    """
    if not blob:
        return lambda: HIDDEN
    try:
        values = _TriggerStates(BytesIO(blob)).load()
    except Exception:  # noqa: BLE001 - whatever it is, it is not a state of a trigger
        return lambda: HIDDEN
    return chain(map(_seen_of, values), repeat(HIDDEN)).__next__


class _Unread:
    def __new__(cls, *_: Any, **__: Any) -> Any:
        return HIDDEN


# The one in Python, as the other keeps what an extension code stands for, for all who read in this process.
class _TriggerStates(pickle._Unpickler):  # noqa: SLF001 - the comment above
    """Reads values that are tags of states of triggers and plain data, and nothing else."""

    append: Callable[[Any], None]

    def get_extension(self, code: int) -> None:
        """Push what an extension code stands for; values with tags have one."""
        self.append(_state_of if code == EXTENSION_CODE else _Unread)

    def find_class(self, module: str, name: str) -> Any:
        """What a name in a pickle stands for."""
        del module, name
        return _Unread


def _state_of(tag: str, *fields: Any) -> Any:
    return tagged(tag, *fields) if tag in _TRIGGER_TAGS else HIDDEN


def _seen_of(value: Any) -> Any:
    return value if type(value) in _TRIGGER_STATES and not _hides(value) else HIDDEN


def _hides(value: Any) -> bool:
    return value is HIDDEN or (isinstance(value, tuple) and any(map(_hides, value)))

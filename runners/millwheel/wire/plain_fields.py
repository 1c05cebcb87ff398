"""Plain fields of messages: numbers, texts, booleans, bytes, nil, and lists of these, by what a class declares.

What is read is checked against the same declarations, and only their classes are made of it.

An instance is the list of its fields in their order; a mapping, the list of its pairs; a set, a sorted list; a range of
key hashes, its first and its last one, as the end of the last range has 65 bits.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import GenericAlias, NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs
import msgspec

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange

#: Makes plain fields of a value, or a value of plain fields.
Convert = Callable[[Any], Any]


@attrs.frozen
class FieldLayout:
    """How the values of a type are written and read.

    Attributes:
        write: a value as plain fields.
        wire: the type of these fields, where each list is a tuple.
        read: the inverse of ``write``, of fields that are of that type; `value_of` checks that they are.
        shape: what is written, for comparing with other versions.
    """

    write: Convert
    wire: Any
    read: Convert
    shape: object

    def value_of(self, fields: Any) -> Any:
        """A value of its plain fields, whatever these are.

        Raises:
            ValueError: they are those of no such value.
            TypeError: as above.
        """
        # All at once: reports have hundreds of key hashes.
        return self.read(msgspec.convert(fields, self.wire, builtin_types=(bytes,)))


def layout_of(kind: Any) -> FieldLayout:
    """The layout of a type: a plain one, an attrs class or named tuple, a tuple, set or mapping of such, or None.

    Raises:
        TypeError: it is none of these.
    """
    found = _PLAIN.get(kind)
    if found is not None:
        return found
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _tuple(arguments)
    if origin is frozenset:
        return _set(layout_of(arguments[0]))
    if origin is Mapping:
        return _mapping(*map(layout_of, arguments))
    if origin is UnionType and NoneType in arguments and len(arguments) == len(("value", None)):
        return _optional(layout_of(next(each for each in arguments if each is not NoneType)))
    if attrs.has(kind):
        return _instance(kind, [(field.name, field.alias) for field in attrs.fields(kind)])
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _instance(kind, [(name, name) for name in kind._fields])
    raise TypeError(f"no layout for {kind!r}")


def _plain(wire: Any, shape: str) -> FieldLayout:
    return FieldLayout(_same, wire, _same, shape)


def _same(value: Any) -> Any:
    return value


def _without_surrogates(text: str) -> str:
    # A reason may quote whatever user code says; MessagePack has no lone surrogates.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _of_each(read: Convert) -> Convert:
    """Read a tuple of fields as a tuple; what is plain is itself."""
    return _same if read is _same else lambda fields: tuple(map(read, fields))


def _in_turn(reads: Sequence[Convert]) -> Convert:
    """Read a tuple of fields, each of its own type, as a tuple."""
    if all(read is _same for read in reads):
        return _same
    return lambda fields: tuple([read(field) for read, field in zip(reads, fields, strict=True)])


def _tuple(kinds: tuple[Any, ...]) -> FieldLayout:
    if kinds[-1] is Ellipsis:
        each = layout_of(kinds[0])
        write = each.write
        return FieldLayout(
            list if write is _same else lambda values: list(map(write, values)),
            _tuple_of(each.wire, ...),
            _of_each(each.read),
            [each.shape],
        )
    layouts = [layout_of(kind) for kind in kinds]
    return FieldLayout(
        lambda values: [at.write(value) for at, value in zip(layouts, values, strict=True)],
        _tuple_of(*[each.wire for each in layouts]),
        _in_turn([each.read for each in layouts]),
        tuple(each.shape for each in layouts),
    )


def _tuple_of(*wires: Any) -> Any:
    """The type of a tuple of fields of these types; an ellipsis: as in ``tuple[int, ...]``."""
    return GenericAlias(tuple, wires)


def _set(each: FieldLayout) -> FieldLayout:
    # Sorted, so that the same message is the same bytes.
    write, read = each.write, each.read
    return FieldLayout(
        lambda values: list(map(write, sorted(values))),
        _tuple_of(each.wire, ...),
        lambda fields: frozenset(map(read, fields)),
        ("set", each.shape),
    )


def _mapping(keys: FieldLayout, values: FieldLayout) -> FieldLayout:
    write_key, write, read_key, read = keys.write, values.write, keys.read, values.read

    def read_plain(fields: Any) -> Any:
        return {read_key(key): each for key, each in fields}

    def read_all(fields: Any) -> Any:
        return {read_key(key): read(each) for key, each in fields}

    return FieldLayout(
        lambda value: [(write_key(key), write(each)) for key, each in value.items()],
        _tuple_of(_tuple_of(keys.wire, values.wire), ...),
        read_plain if read is _same else read_all,
        ("mapping", keys.shape, values.shape),
    )


def _optional(each: FieldLayout) -> FieldLayout:
    write, read = each.write, each.read
    return FieldLayout(
        lambda value: None if value is None else write(value),
        each.wire | None,
        lambda field: None if field is None else read(field),
        ("optional", each.shape),
    )


# Each report names the same ranges several times; a range has its hash with it.
_known_range = lru_cache(maxsize=10_000)(RangeId)


def _instance(kind: type, names: list[tuple[str, str]]) -> FieldLayout:
    if kind is RangeId:
        # The most frequent value in messages, so it is converted without the loop.
        return FieldLayout(
            lambda each: (each.computation, each.index),
            tuple[str, int],
            lambda fields: _known_range(*fields),
            "range",
        )
    if kind is KeyRange:
        return FieldLayout(
            lambda keys: (keys.low, keys.high - 1),
            tuple[int, int],
            lambda fields: KeyRange(fields[0], fields[1] + 1),
            ("first and last", ("int", "int")),
        )
    hints = get_type_hints(kind)
    layouts = [layout_of(hints[name]) for name, _ in names]
    writes = [(name, each.write) for (name, _), each in zip(names, layouts, strict=True)]
    in_turn, aliases = _in_turn([each.read for each in layouts]), [alias for _, alias in names]
    has_names_only = attrs.has(kind) and any(field.kw_only for field in attrs.fields(kind))

    def write_fields(value: Any) -> list[Any]:
        return [write(getattr(value, name)) for name, write in writes]

    def read_names(fields: Any) -> Any:
        return kind(**dict(zip(aliases, in_turn(fields), strict=True)))

    def read_positions(fields: Any) -> Any:
        return kind(*in_turn(fields))

    shape = [(name, each.shape) for (name, _), each in zip(names, layouts, strict=True)]
    return FieldLayout(
        write_fields,
        _tuple_of(*[each.wire for each in layouts]),
        read_names if has_names_only else read_positions,
        (kind.__name__, shape),
    )


_PLAIN: dict[Any, FieldLayout] = {
    int: _plain(int, "int"),
    bool: _plain(bool, "bool"),
    bytes: _plain(bytes, "bytes"),
    float: _plain(float | int, "float"),
    str: FieldLayout(_without_surrogates, str, _same, "str"),
}

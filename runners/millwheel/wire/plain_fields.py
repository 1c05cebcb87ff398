"""Plain fields of messages: numbers, texts, booleans, bytes, nil, and lists of these, by what a class declares.

What is read is checked against the same declarations, and only their classes are made of it.

An instance is the list of its fields in their order; a mapping, the list of its pairs; a set, a sorted list; a range of
key hashes, its first and its last one, as the end of the last range has 65 bits.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange

#: Makes plain fields of a value, or a value of plain fields.
Convert = Callable[[Any], Any]


@attrs.frozen
class Layout:
    """How the values of a type are written and read.

    Attributes:
        write: a value as plain fields.
        read: the inverse; raises TypeError or ValueError for anything else.
        shape: what is written, for comparing with other versions.
    """

    write: Convert
    read: Convert
    shape: object


def layout_of(kind: Any) -> Layout:
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


def _exactly(*kinds: type) -> Layout:
    def read(field: Any) -> Any:
        if type(field) not in kinds:
            raise TypeError(f"{field!r:.100} is not of the type {kinds[0].__name__}")
        return field

    return Layout(_same, read, kinds[0].__name__)


def _same(value: Any) -> Any:
    return value


def _without_surrogates(text: str) -> str:
    # A reason may quote whatever user code says; MessagePack has no lone surrogates.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _list(fields: Any, length: int | None = None) -> list[Any]:
    if type(fields) is not list or length not in (None, len(fields)):
        raise TypeError(f"{fields!r:.100} is not a list of {length or 'any'} fields")
    return fields


def _tuple(kinds: tuple[Any, ...]) -> Layout:
    if kinds[-1] is Ellipsis:
        each = layout_of(kinds[0])
        if kinds[0] is int:
            return Layout(list, _tuple_of_ints, [each.shape])
        write, read = each.write, each.read
        return Layout(
            lambda values: list(map(write, values)),
            lambda fields: tuple(map(read, _list(fields))),
            [each.shape],
        )
    layouts = [layout_of(kind) for kind in kinds]
    return Layout(
        lambda values: [at.write(value) for at, value in zip(layouts, values, strict=True)],
        lambda fields: tuple(
            at.read(field) for at, field in zip(layouts, _list(fields), strict=True)
        ),
        tuple(each.shape for each in layouts),
    )


def _tuple_of_ints(fields: Any) -> tuple[int, ...]:
    # Reports have hundreds of key hashes: looked at together, not one by one.
    if not set(map(type, _list(fields))) <= {int}:
        raise TypeError(f"{fields!r:.100} is not a list of integers")
    return tuple(fields)


def _range_id(fields: Any) -> RangeId:
    computation, index = _list(fields)
    if type(computation) is not str or type(index) is not int:
        raise TypeError(f"{fields!r:.100} is not the name of a computation and an index")
    return _known_range(computation, index)


# Each report names the same ranges several times; a range has its hash with it.
_known_range = lru_cache(maxsize=10_000)(RangeId)


def _set(each: Layout) -> Layout:
    # Sorted, so that the same message is the same bytes.
    write, read = each.write, each.read
    return Layout(
        lambda values: list(map(write, sorted(values))),
        lambda fields: frozenset(map(read, _list(fields))),
        ("set", each.shape),
    )


def _mapping(keys: Layout, values: Layout) -> Layout:
    write_key, write, read_key, read = keys.write, values.write, keys.read, values.read
    return Layout(
        lambda value: [(write_key(key), write(each)) for key, each in value.items()],
        # Unpacking raises where a field is not a pair.
        lambda fields: {read_key(key): read(each) for key, each in _list(fields)},
        ("mapping", keys.shape, values.shape),
    )


def _optional(each: Layout) -> Layout:
    write, read = each.write, each.read
    return Layout(
        lambda value: None if value is None else write(value),
        lambda field: None if field is None else read(field),
        ("optional", each.shape),
    )


def _instance(kind: type, names: list[tuple[str, str]]) -> Layout:
    if kind is RangeId:
        # The most frequent value in messages, so it is converted without the loop.
        return Layout(lambda each: (each.computation, each.index), _range_id, "range")
    if kind is KeyRange:
        bounds = layout_of(tuple[int, int])
        return Layout(
            lambda keys: (keys.low, keys.high - 1),
            lambda fields: KeyRange(bounds.read(fields)[0], fields[1] + 1),
            ("first and last", bounds.shape),
        )
    hints = get_type_hints(kind)
    layouts = [layout_of(hints[name]) for name, _ in names]
    writes = [(name, each.write) for (name, _), each in zip(names, layouts, strict=True)]
    reads = [(alias, each.read) for (_, alias), each in zip(names, layouts, strict=True)]

    def write_fields(value: Any) -> list[Any]:
        return [write(getattr(value, name)) for name, write in writes]

    def read_fields(fields: Any) -> Any:
        found = zip(reads, _list(fields, len(reads)), strict=True)
        return kind(**{alias: read(field) for (alias, read), field in found})

    def read_positions(fields: Any) -> Any:
        found = zip(read_each, _list(fields, len(read_each)), strict=True)
        return kind(*[read(field) for read, field in found])

    read_each = [read for _, read in reads]
    has_names_only = attrs.has(kind) and any(field.kw_only for field in attrs.fields(kind))

    shape = [(name, each.shape) for (name, _), each in zip(names, layouts, strict=True)]
    return Layout(
        write_fields, read_fields if has_names_only else read_positions, (kind.__name__, shape)
    )


_PLAIN: dict[Any, Layout] = {
    int: _exactly(int),
    bool: _exactly(bool),
    bytes: _exactly(bytes),
    float: _exactly(float, int),
    str: Layout(_without_surrogates, _exactly(str).read, "str"),
}

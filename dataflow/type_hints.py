"""Type hints as values: taken apart, put together, and shown in messages.

What is not known is `typing.Any`: a parameter without an annotation, an annotation that cannot be resolved, a type
variable that nothing decides.
"""

from __future__ import annotations

import sys
import types
import typing
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Collection,
    Container,
    Generator,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableSequence,
    MutableSet,
    Reversible,
    Sequence,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

#: Containers with one parameter, the type of what is iterated.
_OF_ITEMS: frozenset[Any] = frozenset(
    {
        *(list, set, frozenset, deque, Iterable, Iterator, Collection, Container, Reversible),
        *(Sequence, MutableSequence, AbstractSet, MutableSet, KeysView, ValuesView),
        *(AsyncIterable, AsyncIterator),
    }
)
#: Those whose first parameter it is.
_GENERATORS = (Generator, AsyncGenerator)
_WRAPPERS = ("Annotated", "Required", "NotRequired", "ReadOnly", "Final", "ClassVar")
#: A union of more types says nothing that a message could show.
_MEMBERS_MAX = 8
#: Of a list or a dict with more entries in it, or of more elements, the types are not collected.
_ENTRIES_MAX, ELEMENTS_MAX = 100, 10_000


def plain(hint: Any) -> Any:
    """A hint without what makes no difference to values; Any where nothing is known.

    Args:
        hint: `Annotated`, `NewType` and aliases are what stands inside them, a type variable is its bound.
    """
    if (
        hint is Any or type(hint) is type
    ):  # most are; the others are looked at in one way after the other
        return Any if hint is object else hint
    if hint is None:
        return types.NoneType
    if isinstance(hint, TypeVar):
        return union_of(hint.__constraints__) if hint.__constraints__ else plain_bound(hint)
    if isinstance(hint, NewType):
        return plain(hint.__supertype__)
    origin = get_origin(hint)
    name = getattr(origin if origin is not None else hint, "_name", None) or getattr(
        origin, "__name__", ""
    )
    if hasattr(hint, "__metadata__") or (name in _WRAPPERS and get_args(hint)):
        return plain(get_args(hint)[0])
    if name in {"TypeGuard", "TypeIs"}:
        return bool
    if name == "LiteralString":
        return str
    if type(hint).__name__ == "TypeAliasType":
        return plain(hint.__value__)
    if origin is not None:
        return hint if get_args(hint) else origin
    return hint if isinstance(hint, type) and hint is not object else Any


def plain_bound(variable: TypeVar) -> Any:
    """The bound of a type variable; Any if it has none."""
    return Any if variable.__bound__ is None else plain(variable.__bound__)


def is_hint(given: object) -> bool:
    """Whether something is a type, as an annotation has it; a text is none."""
    is_class = isinstance(given, type | TypeVar | NewType) or given in (None, Any)
    return is_class or get_origin(given) is not None or type(given).__name__ == "TypeAliasType"


def is_union(hint: Any) -> bool:
    """Whether it is a union, written either way."""
    return get_origin(hint) in (Union, types.UnionType)


def members_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; the only one of another hint."""
    hint = plain(hint)
    return tuple(map(plain, get_args(hint))) if is_union(hint) else (hint,)


def union_of(hints: Iterable[Any]) -> Any:
    """One hint for values of any of some; Any if one of them is, or if they are very many.

    Args:
        hints: of none, it is Any.
    """
    found = list(dict.fromkeys(each for hint in hints for each in members_of(hint)))
    if not found or len(found) > _MEMBERS_MAX or any(each is Any for each in found):
        return Any
    return Union[tuple(found)]  # noqa: UP007 - of a tuple


def pair_type(key: Any, value: Any) -> Any:
    """The type of ``(key, value)`` pairs.

    Args:
        key: the type of keys.
        value: the type of values.
    """
    return types.GenericAlias(tuple, (key, value))


def class_of(hint: Any) -> type | None:
    """The class of all values of a hint; None if nothing is known of it.

    Args:
        hint: plain, and no union.
    """
    if isinstance(hint, type) and hasattr(hint, "__required_keys__"):
        return dict  # a TypedDict, whose values are plain dicts
    found = get_origin(hint) or hint
    return found if isinstance(found, type) else None


def fields_of(hint: Any) -> tuple[Any, ...] | None:
    """The types of the parts of a tuple of one length, also of a named tuple; None of anything else.

    Args:
        hint: a hint.
    """
    hint = plain(hint)
    if get_origin(hint) is tuple:
        args = get_args(hint)
        return None if Ellipsis in args or any(map(_is_unpacked, args)) else args
    names = getattr(hint, "_fields", None)
    if isinstance(hint, type) and issubclass(hint, tuple) and names is not None:
        hints = resolved(hint)
        return tuple(hints.get(name, Any) for name in names)
    return None


def entries_of(hint: Any) -> tuple[Any, Any] | None:
    """The types of the keys and values of a mapping; None if they are not known."""
    hint = plain(hint)
    origin, args = get_origin(hint), get_args(hint)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return (args[0], args[1]) if is_mapping and len(args) == 2 else None


def item_of(hint: Any) -> Any:
    """The type of what a value gives when it is iterated, also asynchronously; Any if it is not known.

    Args:
        hint: a hint.
    """
    hint = plain(hint)
    if is_union(hint):
        return union_of(item_of(each) for each in members_of(hint))
    origin, args = get_origin(hint), get_args(hint)
    if origin in _OF_ITEMS or origin in _GENERATORS:
        return args[0]
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return args[0]
    fields = fields_of(hint)
    if fields is not None:
        return union_of(fields)
    if isinstance(hint, type) and issubclass(hint, str):
        return str
    entries = entries_of(hint)
    return Any if entries is None else entries[0]


def solved(pattern: Any, given: Any) -> dict[Any, Any]:
    """The type variables of a hint, as the type of what stands in its place decides them.

    Args:
        pattern: a hint, such as ``tuple[K, V]``.
        given: the type of the values.
    """
    if isinstance(pattern, TypeVar):
        return {} if plain(given) is Any else {pattern: given}
    if not _is_open(pattern):
        return {}
    if is_union(pattern):
        return _solved_union(pattern, given)
    fields, parts = fields_of(pattern), fields_of(given)
    if fields is not None:
        are_alike = parts is not None and len(parts) == len(fields)
        return _merged(zip(fields, parts or (), strict=True)) if are_alike else {}
    entries, known = entries_of(pattern), entries_of(given)
    if entries is not None:
        return _merged(zip(entries, known, strict=True)) if known is not None else {}
    item = item_of(pattern)
    return {} if item is Any else solved(item, item_of(given))


def _solved_union(pattern: Any, given: Any) -> dict[Any, Any]:
    open_ones = [each for each in get_args(pattern) if _is_open(each)]
    if len(open_ones) != 1:
        return {}
    closed = [plain(each) for each in get_args(pattern) if not _is_open(each)]
    return solved(open_ones[0], union_of(each for each in members_of(given) if each not in closed))


def _is_open(hint: Any) -> bool:
    return isinstance(hint, TypeVar) or bool(getattr(hint, "__parameters__", ()))


def _merged(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for pattern, given in pairs:
        for variable, hint in solved(pattern, given).items():
            found[variable] = union_of([found[variable], hint]) if variable in found else hint
    return found


def is_complete(hint: Any) -> bool:
    """Whether nothing in a hint is unknown."""
    hint = plain(hint)
    args = () if get_origin(hint) is Literal else get_args(hint)
    return hint is not Any and all(is_complete(each) for each in args if each is not Ellipsis)


def substituted(hint: Any, found: Mapping[Any, Any]) -> Any:
    """A hint with types in the places of its type variables; Any in those of others.

    Args:
        hint: a hint.
        found: the types, as `solved` gives them.
    """
    if isinstance(hint, TypeVar):
        return found.get(hint, Any)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    if not all(isinstance(each, TypeVar) for each in variables):
        return Any
    return hint[tuple(found.get(each, Any) for each in variables)]


def bounded(hint: Any) -> Any:
    """A hint with the bounds of its type variables in their places.

    Args:
        hint: a hint.
    """
    if isinstance(hint, type):
        return hint
    variables = (hint,) if isinstance(hint, TypeVar) else getattr(hint, "__parameters__", ())
    return substituted(hint, {each: plain(each) for each in variables if isinstance(each, TypeVar)})


def resolved(target: Any) -> dict[str, Any]:
    """The annotations of a function or class, by name; Any for those that cannot be resolved.

    Args:
        target: what has annotations.
    """
    if getattr(target, "__no_type_check__", False):
        return {}
    try:
        return get_type_hints(target)
    except Exception:  # noqa: BLE001 - names that are there for type checkers alone; whatever evaluating them raises
        return {name: _evaluated(each, target) for name, each in _annotations(target).items()}


def _annotations(target: Any) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = target.__annotations__
    except Exception:  # noqa: BLE001 - from Python 3.14 on they are evaluated here
        return {}
    return found


def _evaluated(annotation: Any, target: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    names = getattr(target, "__globals__", None)
    if names is None:
        names = vars(sys.modules.get(getattr(target, "__module__", ""), typing))

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        return get_type_hints(holder, names)["it"]
    except Exception:  # noqa: BLE001 - as above
        return Any


def parameters_of(cls: type, base: Any) -> tuple[Any, ...]:
    """The types that a class gives to the parameters of a generic base; none if it gives none.

    ``class Split(DoFn[str, int])``, also through classes in between.

    Args:
        cls: the class.
        base: the generic class.
    """
    for each in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(each) or each
        if origin is base:
            return get_args(each)
        if isinstance(origin, type) and issubclass(origin, base):
            inner = parameters_of(origin, base)
            found = dict(zip(getattr(origin, "__parameters__", ()), get_args(each), strict=False))
            if inner:
                return tuple(_replaced(hint, found) for hint in inner)
    return ()


def _replaced(hint: Any, found: Mapping[Any, Any]) -> Any:
    """Put types in the places of some type variables, as `substituted`, and leave the others."""
    variables = (hint,) if isinstance(hint, TypeVar) else getattr(hint, "__parameters__", ())
    return substituted(hint, {**{each: each for each in variables}, **found})


def type_of(value: Any, depth: int = 3) -> Any:
    """The type of a value, with those of its parts where it is a tuple, or a list or dict that is not large.

    Args:
        value: any.
        depth: how far down parts are looked at.
    """
    kind = type(value)
    if kind is tuple and 0 < len(value) <= _MEMBERS_MAX and depth:
        parts = tuple(type_of(each, depth - 1) for each in value)
        return types.GenericAlias(tuple, parts)
    if kind in (list, set, frozenset) and 0 < len(value) <= _ENTRIES_MAX and depth:
        item = union_of(type_of(each, depth - 1) for each in value)
        return kind if item is Any else types.GenericAlias(kind, (item,))
    if kind is dict and 0 < len(value) <= _ENTRIES_MAX and depth:
        keys = union_of(type_of(each, depth - 1) for each in value)
        values = union_of(type_of(each, depth - 1) for each in value.values())
        return types.GenericAlias(dict, (keys, values))
    return kind


def text_of(hint: Any) -> str:
    """A hint as people write it."""
    if hint is types.NoneType or hint is None:
        return "None"
    origin, args = get_origin(hint), get_args(hint)
    if origin is None or not args:
        return hint.__qualname__ if isinstance(hint, type) else repr(hint).replace("typing.", "")
    if is_union(hint):
        return " | ".join(map(text_of, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    inner = ", ".join("..." if each is Ellipsis else _argument_text(each) for each in args)
    return f"{getattr(origin, '__qualname__', repr(origin))}[{inner}]"


def _argument_text(hint: Any) -> str:
    return f"[{', '.join(map(text_of, hint))}]" if isinstance(hint, list) else text_of(hint)


def _is_unpacked(hint: Any) -> bool:
    return getattr(hint, "__unpacked__", False) or getattr(
        hint, "__typing_is_unpacked_typevartuple__", False
    )

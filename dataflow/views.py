"""Views: the contents of a window of a side input, as user code sees them.

A *side input* is a collection that is given to user code beside each element.  Its elements in one window are a `View`;
an element on its way to user code is with the views that belong to it (`WithViews`).  A `ViewArgument` stands among the
arguments of a transform for a view, which is put in its place when the code is called.

The elements are a list, or `LargeContents`, which are not all in memory; user code sees these as an iterable, as a
sequence, or as a mapping that is like the dict, and looks each key up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from enum import Enum
from typing import Any, overload

import attrs

from dataflow.errors import TransformError


class ViewForm(Enum):
    """How user code sees a view that need not be in memory as a whole."""

    ITERABLE = "iterable"
    SEQUENCE = "sequence"
    DICT = "dict"
    MULTI_MAP = "multi-map"


class LargeContents(ABC):
    """The elements of a view that are read when they are used; as a value, the list of them."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """The elements, in an order that means nothing; a part of them is in memory at a time."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LargeContents | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class LargeSequence(LargeContents):
    """Elements of which each can be read by its place."""

    @abstractmethod
    def between(self, start: int, stop: int) -> Iterator[Any]:
        """The elements from one place to before another; a part of them is in memory at a time.

        Args:
            start: the first place, at least 0.
            stop: one past the last, at most the length.
        """


class LargePairs(LargeContents):
    """Pairs of key and value, of which those of a key can be looked up."""

    @abstractmethod
    def values_of(self, key: Any) -> tuple[Any, ...] | None:
        """The values of a key; None: there is none.

        Args:
            key: can be hashed.
        """

    @abstractmethod
    def by_key(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """The keys, each with its values, in an order that means nothing."""

    @property
    @abstractmethod
    def key_count(self) -> int:
        """How many keys there are."""


class ViewSequence(Sequence[Any]):
    """A view as a sequence, whose elements are read where they are not in memory; as a value, the list.

    It is one whether the view is large or small, so what user code may do with it does not depend on that: it is
    indexed, iterated and compared like a list, and added to lists, which makes a list; it cannot be changed, and is no
    `list`.

    Args:
        contents: the elements.
    """

    __slots__ = ("_contents",)

    def __init__(self, contents: Sequence[Any] | LargeSequence) -> None:
        self._contents = contents

    def __len__(self) -> int:
        return len(self._contents)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._contents)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        contents = self._contents
        if not isinstance(contents, LargeSequence):
            return list(contents[index]) if isinstance(index, slice) else contents[index]
        places = range(len(contents))[index]
        if isinstance(places, int):
            return next(contents.between(places, places + 1))
        if not places:
            return []
        first, last = min(places[0], places[-1]), max(places[0], places[-1])
        return [*contents.between(first, last + 1)][:: places.step]

    def __contains__(self, value: object) -> bool:
        if isinstance(self._contents, LargeSequence):
            return any(value is each or value == each for each in self._contents)
        return value in self._contents

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ViewSequence):
            return self._contents is other._contents or _are_equal(self, other)
        return _are_equal(self, other) if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def copy(self) -> list[Any]:
        """All of it, as a list."""
        return list(self)

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other] if isinstance(other, list | ViewSequence) else NotImplemented

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _are_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(a is b or a == b for a, b in pairs)


class LargeMapping(Mapping[Any, Any]):
    """A view as a mapping, whose keys are looked up; as a value, the dict.

    Args:
        pairs: of the view.
        made_of: makes of the values of a key what the key has.
    """

    __slots__ = ("_made_of", "_pairs")

    def __init__(self, pairs: LargePairs, made_of: Callable[[tuple[Any, ...]], Any]) -> None:
        self._pairs, self._made_of = pairs, made_of

    def __getitem__(self, key: Any) -> Any:
        found = self._pairs.values_of(key)
        if found is None:
            raise KeyError(key)
        return self._made_of(found)

    def __contains__(self, key: object) -> bool:
        return self._pairs.values_of(key) is not None

    def __len__(self) -> int:
        return self._pairs.key_count

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._pairs.by_key())

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values, in an order that means nothing; a part of them is in memory at a time."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """The values, in the order of the keys."""
        return _Values(self)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """What `items` iterates."""
        return ((key, self._made_of(values)) for key, values in self._pairs.by_key())

    def copy(self) -> dict[Any, Any]:
        """All of it, as a dict."""
        return dict(self.pairs())

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return self.copy() | dict(other)

    def __ror__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return dict(other) | self.copy()

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)


class _Items(ItemsView[Any, Any]):
    _mapping: LargeMapping

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.pairs()


class _Values(ValuesView[Any]):
    _mapping: LargeMapping

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.pairs())


class View:
    """All elements of a side input in one window.

    Args:
        contents: the elements; not to be changed.
    """

    __slots__ = ("_seen", "contents")

    def __init__(self, contents: Sequence[Any] | LargeContents) -> None:
        self.contents = contents
        self._seen: tuple[Any, ...] = ()

    def seen(self, see: Callable[[Any], Any]) -> Any:
        """The view as user code sees it; made once.

        Args:
            see: makes it of the elements; the same for all calls.
        """
        if not self._seen:
            self._seen = (see(self.contents),)
        return self._seen[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self.contents == other.contents

    def __hash__(self) -> int:
        raise TypeError("a View is no key")

    def __repr__(self) -> str:
        return f"View of {len(self.contents)}"


@attrs.frozen
class ViewPart:
    """Some of the elements of a view, on their way to where it is put together.

    Attributes:
        values: the elements.
        count: how many elements the view has; None: a `ViewEnd` says it, and the elements belong to the pane whose
            number they have, and to later ones of a window that accumulates.
    """

    values: list[Any]
    count: int | None = None


@attrs.frozen
class SignedViewPart(ViewPart):
    """Some of the elements of a view of which elements may be retracted: those that come, and those that go.

    Attributes:
        signs: of each element +1, or -1 where it is retracted.
    """

    signs: list[int] = attrs.field(factory=list)


@attrs.frozen
class ViewEnd:
    """The end of a pane of a side input whose first elements have gone before it.

    Attributes:
        count: how many have gone before it, those that are retracted among them.
        values: the other elements.
    """

    count: int
    values: list[Any] = attrs.field(factory=list)


class WithViews:
    """An element, and the views of the side inputs that belong to it; looks like the element in messages.

    Args:
        element: the element.
        views: in the order of the side inputs.
    """

    __slots__ = ("element", "views")

    def __init__(self, element: Any, views: tuple[View, ...]) -> None:
        self.element, self.views = element, views

    def __eq__(self, other: object) -> bool:
        is_same = isinstance(other, WithViews) and self.element == other.element
        return is_same and self.views == other.views  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        raise TypeError("an element with its views is no key")

    def __repr__(self) -> str:
        return repr(self.element)


def as_list(contents: Sequence[Any] | LargeContents, what: str) -> Sequence[Any]:
    """The elements, in an order that means nothing.

    Args:
        contents: the elements.
        what: names the side input in an error.
    """
    del what
    if isinstance(contents, LargeContents) and not isinstance(contents, LargeSequence):
        # Of a pipeline that saw it otherwise, before it was updated.
        contents = list(contents)
    return ViewSequence(contents)


def as_iterable(contents: Sequence[Any] | LargeContents, what: str) -> Iterable[Any]:
    """The elements, to iterate any number of times, in an order that means nothing.

    Args:
        contents: the elements.
        what: names the side input in an error.
    """
    del what
    return contents if isinstance(contents, LargeContents | list) else list(contents)


def as_dict(contents: Sequence[Any] | LargePairs, what: str) -> Mapping[Any, Any]:
    """The values of pairs by their keys.

    Args:
        contents: the pairs.
        what: names the side input in an error.

    Raises:
        TransformError: an element is not a pair, or a key is there twice.
    """
    if isinstance(contents, LargePairs):
        if len(contents) == contents.key_count:
            return LargeMapping(contents, _only)
        # A key has several values, of which the loop finds two.
        contents = list(contents)
    found: dict[Any, Any] = {}
    for key, value in _pairs(contents, what):
        if key in found:
            raise TransformError(
                f"{what} has two values for the key {key!r}",
                detail=f"{found[key]!r} and {value!r}"[:200],
                hint="combine them to one first, e.g. with df.CombinePerKey(...), whose panes retract each other if "
                "there are several; or see all, with df.AsMultiMap",
            )
        found[key] = value
    return found


def _only(values: tuple[Any, ...]) -> Any:
    return values[0]


def as_multi_map(contents: Sequence[Any] | LargePairs, what: str) -> Mapping[Any, list[Any]]:
    """The lists of values of pairs by their keys.

    Args:
        contents: the pairs.
        what: names the side input in an error.

    Raises:
        TransformError: an element is not a pair.
    """
    if isinstance(contents, LargePairs):
        return LargeMapping(contents, list)
    found: dict[Any, list[Any]] = {}
    for key, value in _pairs(contents, what):
        found.setdefault(key, []).append(value)
    return found


def _pairs(contents: Sequence[Any], what: str) -> Sequence[Any]:
    for each in contents:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise TransformError(
                f"{what} has an element that is not a pair of key and value",
                detail=f"element: {each!r}"[:200],
                hint="make pairs of them, e.g. with df.WithKeys(...); or see all elements, with df.AsList",
            )
    return contents


@attrs.frozen
class AsOne:
    """The only element; where there is none, the default, if there is one.

    Attributes:
        default: a tuple of it; empty: there is none.
    """

    default: tuple[Any, ...] = ()

    def __call__(self, contents: Sequence[Any], what: str) -> Any:
        """The element.

        Args:
            contents: the elements.
            what: names the side input in an error.

        Raises:
            TransformError: there are several, or there is none and no default.
        """
        if len(contents) == 1:
            return contents[0]
        if contents:
            raise TransformError(
                f"{what} has {len(contents)} elements, and not one",
                detail=f"two of them: {contents[0]!r}, {contents[1]!r}"[:200],
                hint="combine them to one first, e.g. with df.CombineGlobally(...); or see all, with df.AsList",
            )
        if self.default:
            return self.default[0]
        raise TransformError(
            f"{what} is empty, and has no default",
            detail="in the window that belongs to the element there is nothing",
            hint="say what it is then, e.g. df.AsSingleton(pcollection, 0), with None as any other value",
        )


@attrs.frozen
class ViewArgument:
    """Stands for a view among the arguments of a transform.

    Attributes:
        number: of the side input, among those of the transform.
        see: makes of the elements what user code sees.
        name: of the class that the user wrote.
    """

    number: int
    see: Callable[[Any, str], Any]
    name: str

    def seen(self, views: Sequence[View], what: str) -> Any:
        """The view that belongs to an element.

        Args:
            views: those of the element, in the order of the side inputs.
            what: names the transform in an error.

        Raises:
            TransformError: its elements cannot be seen so.
        """
        where = f"side input {self.number + 1} of {what}, an {self.name},"
        return views[self.number].seen(lambda contents: self.see(contents, where))

    def __repr__(self) -> str:
        return f"{self.name}(...)"

"""Views: the contents of a window of a side input, as user code sees them.

A *side input* is a collection that is given to user code beside each element.  Its elements in one window are a `View`;
an element on its way to user code is with the views that belong to it (`WithViews`).  A `ViewArgument` stands among the
arguments of a transform for a view, which is put in its place when the code is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.errors import TransformError


class View:
    """All elements of a side input in one window.

    Args:
        contents: the elements; not to be changed.
    """

    __slots__ = ("_seen", "contents")

    def __init__(self, contents: Sequence[Any]) -> None:
        self.contents = contents
        self._seen: tuple[Any, ...] = ()

    def seen(self, see: Callable[[Sequence[Any]], Any]) -> Any:
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


def as_list(contents: Sequence[Any], what: str) -> list[Any]:
    """The elements, in an order that means nothing.

    Args:
        contents: the elements.
        what: names the side input in an error.
    """
    del what
    return contents if isinstance(contents, list) else list(contents)


def as_dict(contents: Sequence[Any], what: str) -> dict[Any, Any]:
    """The values of pairs by their keys.

    Args:
        contents: the pairs.
        what: names the side input in an error.

    Raises:
        TransformError: an element is not a pair, or a key is there twice.
    """
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


def as_multi_map(contents: Sequence[Any], what: str) -> dict[Any, list[Any]]:
    """The lists of values of pairs by their keys.

    Args:
        contents: the pairs.
        what: names the side input in an error.

    Raises:
        TransformError: an element is not a pair.
    """
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
    see: Callable[[Sequence[Any], str], Any]
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

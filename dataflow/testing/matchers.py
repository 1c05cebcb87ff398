"""Matchers: conditions that `assert_that` checks on the elements of a collection.

A matcher looks at what was *emitted*; narrow it to a window or to some panes by wrapping it, as often as you like:
``in_window((0, 60), in_on_time_pane(contains_in_any_order([("red", 5)])))``.
The names are those of Beam's PAssert.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.signed_sum import FoldError, shown
from dataflow.testing.fold import Combine, Folding, KeyOf
from dataflow.transforms.changelog import Change
from windowing.pane import PaneTiming
from windowing.timestamps import TimestampLike, to_timestamp_us
from windowing.window import Window

_SHOWN_MAX = 20


@attrs.frozen
class Found:
    """The elements that a matcher looks at.

    Attributes:
        where: how it was narrowed down so far, in words.
    """

    changes: Sequence[Change[Any]]
    folding: Folding
    where: tuple[str, ...] = ()

    def narrowed(self, where: str, changes: Iterable[Change[Any]]) -> "Found":
        """A part of these elements.

        Args:
            where: which part it is, for messages.
            changes: the elements that belong to it.
        """
        return Found(list(changes), self.folding, (*self.where, where))

    @property
    def emitted(self) -> list[Change[Any]]:
        """The elements that were emitted, whether retracted later or not."""
        return [change for change in self.changes if change.sign > 0]


class Matcher(ABC):
    """A condition on elements."""

    @abstractmethod
    def complaint(self, found: Found) -> str | None:
        """What is wrong, in lines of text; None if nothing is."""


def contains_in_any_order(elements: Iterable[Any]) -> Matcher:
    """Exactly these elements, each as often as it is given."""
    return _Contains(list(elements))


def equal_to(elements: Iterable[Any]) -> Matcher:
    """Exactly these elements, in any order: Beam's name of `contains_in_any_order`."""
    return contains_in_any_order(elements)


def is_not_empty() -> Matcher:
    """At least one element."""
    return satisfies(_are_some)


def is_empty() -> Matcher:
    """No element at all."""
    return _Contains([])


def satisfies(function: Callable[[list[Any]], object]) -> Matcher:
    """``function`` raises no AssertionError for the list of the elements, nor returns anything false but None.

    It is given all of them at once, in any order, and also an empty list.
    """
    return _Satisfies(function)


def in_window(window: Window | tuple[TimestampLike, TimestampLike], matcher: Matcher) -> Matcher:
    """Look at one window only.

    Args:
        window: a `Window`, or the instants of its start and its end: aware datetimes, texts, or seconds since 1970.
        matcher: what to ask of it.

    Raises:
        PipelineError: the window does not end after its start.
    """
    bounds = (
        tuple(window) if isinstance(window, Window) else tuple(to_timestamp_us(t) for t in window)
    )
    if len(bounds) != 2 or bounds[0] >= bounds[1]:
        raise PipelineError(f"in_window needs a window that ends after its start, not {window!r}")
    given = Window(*bounds)
    return _Narrowed(f"in window {given}", lambda change: change.window[:2] == given, matcher)


def in_early_panes(matcher: Matcher) -> Matcher:
    """Look only at panes from before the watermark reached the end of their window."""
    return _timing(PaneTiming.EARLY, "in early panes", matcher)


def in_on_time_pane(matcher: Matcher) -> Matcher:
    """Look only at the pane that a window emits as the watermark reaches its end."""
    return _timing(PaneTiming.ON_TIME, "in the on-time pane", matcher)


def in_late_panes(matcher: Matcher) -> Matcher:
    """Look only at panes from after the on-time moment."""
    return _timing(PaneTiming.LATE, "in late panes", matcher)


def in_final_pane(matcher: Matcher) -> Matcher:
    """Look only at the panes that are marked as the last of their window (`PaneInfo.is_last`)."""
    return _Narrowed("in the final pane", lambda change: change.pane.is_last, matcher)


def in_pane(index: int, matcher: Matcher) -> Matcher:
    """Look only at the firing with this number.

    Args:
        index: counted from 0 in each key and window.
        matcher: what to ask of it.
    """
    return _Narrowed(f"in pane {index}", lambda change: change.pane.index == index, matcher)


def retracted(matcher: Matcher) -> Matcher:
    """Look at what was retracted, instead of at what was emitted."""
    return _Retracted(matcher)


def in_final_fold(
    matcher: Matcher, *, key_of: KeyOf | None = None, combine: Combine | None = None
) -> Matcher:
    """Look at the final fold of all the panes, whenever they were emitted.

    * Accumulating: the last pane of each key and window.
    * Accumulating and retracting: what was emitted and not retracted.
    * Discarding: everything, or one ``(key, value)`` per key and window where ``combine`` makes one value of many.

    Where windows merge, a window that went into a larger one does not count by itself.

    Args:
        matcher: what to ask of it.
        key_of: from an element to its key, where elements are not ``(key, value)`` pairs.
        combine: from a list of values to one, such as ``sum``.
    """
    return _InFinalFold(matcher, key_of, combine)


@attrs.frozen
class _Contains(Matcher):
    expected: list[Any]

    def complaint(self, found: Found) -> str | None:
        unexpected = found.emitted
        by_hash: dict[int | None, list[int]] = {}
        for index, change in enumerate(unexpected):
            by_hash.setdefault(_hash(change.value), []).append(index)
        missing, matched = [], set()
        for value in self.expected:
            candidates = by_hash.get(_hash(value), [])
            place = next((i for i in candidates if unexpected[i].value == value), None)
            if place is None:
                missing.append(value)
            else:
                candidates.remove(place)
                matched.add(place)
        left = [change for index, change in enumerate(unexpected) if index not in matched]
        if not missing and not left:
            return None
        return "\n".join(
            [
                *_listed("missing", list(map(repr, missing))),
                *_listed("unexpected", list(map(shown, left))),
            ]
        )


@attrs.frozen
class _Satisfies(Matcher):
    function: Callable[[list[Any]], object]

    def complaint(self, found: Found) -> str | None:
        name = getattr(self.function, "__name__", repr(self.function))
        try:
            answer = self.function([change.value for change in found.emitted])
        except AssertionError as error:
            outcome = f"{name} raised AssertionError: {error}"
        else:
            if answer is None or answer:
                return None
            outcome = f"{name} returned {answer!r}"
        return "\n".join(
            [f"  {outcome}", *_listed("elements", list(map(shown, found.emitted)), at_least=1)]
        )


@attrs.frozen
class _Narrowed(Matcher):
    where: str
    keep: Callable[[Change[Any]], object]
    matcher: Matcher

    def complaint(self, found: Found) -> str | None:
        changes = [change for change in found.changes if self.keep(change)]
        return _asked(self.matcher, found.narrowed(self.where, changes))


@attrs.frozen
class _Retracted(Matcher):
    matcher: Matcher

    def complaint(self, found: Found) -> str | None:
        changes = [attrs.evolve(each, sign=+1) for each in found.changes if each.sign < 0]
        return _asked(self.matcher, found.narrowed("retracted", changes))


@attrs.frozen
class _InFinalFold(Matcher):
    matcher: Matcher
    key_of: KeyOf | None
    combine: Combine | None

    def complaint(self, found: Found) -> str | None:
        folding = attrs.evolve(found.folding, key_of=self.key_of, combine=self.combine)
        try:
            changes = folding.fold(found.changes)
        except FoldError as error:
            return f"  {error}"
        return _asked(self.matcher, found.narrowed("in the final fold", changes))


def _are_some(elements: list[Any]) -> None:
    if not elements:
        raise AssertionError("there is none")


def _timing(timing: PaneTiming, where: str, matcher: Matcher) -> Matcher:
    return _Narrowed(where, lambda change: change.pane.timing is timing, matcher)


def _asked(matcher: Matcher, found: Found) -> str | None:
    complaint = matcher.complaint(found)
    # The innermost matcher describes where it looked, all in one line.
    if complaint is None or isinstance(matcher, _Narrowed | _Retracted | _InFinalFold):
        return complaint
    return f"  {', '.join(found.where)}\n{complaint}"


def _hash(value: Any) -> int | None:
    try:
        return hash(value)
    except TypeError:
        return None


def _listed(title: str, lines: Sequence[str], *, at_least: int = 0) -> list[str]:
    if not lines:
        return [f"  {title}: none"] if at_least else []
    more = [f"    ... and {len(lines) - _SHOWN_MAX} more"] if len(lines) > _SHOWN_MAX else []
    return [f"  {title}:", *(f"    {line}" for line in lines[:_SHOWN_MAX]), *more]

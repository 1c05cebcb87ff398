"""Awaited: what a trigger waits for in one window, as a tree that people and programs can read.

A leaf is one condition, with what there is of it and what it takes; a node combines its parts.  A trigger gives the
tree of its own state (`Trigger.awaited`), so that what is shown cannot differ from what is done.

**Laws** (`tests/property/test_awaited.py`)

* The root is met exactly if the trigger should fire now.
* A node is met exactly as its kind says of its parts.
* A leaf that waits for an instant, and is not met, is met at that instant, and not before.
"""

from enum import StrEnum

import attrs

from triggers.clocks import Clocks
from windowing.timestamps import format_timestamp
from windowing.window import Window


class AwaitedKind(StrEnum):
    """What a leaf waits for, or how a node combines its parts."""

    #: The watermark, until an instant.
    WATERMARK = "watermark"
    #: The processing time, until an instant; without one: for the first record, which sets it.
    CLOCK = "clock"
    #: A number of records.
    RECORDS = "records"
    #: A number of bytes.
    BYTES = "bytes"
    #: Values that match a number of predicates, one after the other.
    VALUES = "values"
    #: A signal.
    SIGNAL = "signal"
    #: Nothing: it never fires.
    NEVER = "never"
    #: What a trigger of the user's knows.
    OWN = "own"
    #: Any of the parts.
    ANY = "any"
    #: All of the parts.
    ALL = "all"
    #: The parts one after the other: the one whose turn it is.
    EACH = "each"
    #: The only part, again and again.
    REPEATEDLY = "repeatedly"
    #: Those of the parts whose phase it is: before, at and after the end of the window.
    PHASES = "phases"


class Turn(StrEnum):
    """Whether a part counts now."""

    NOW = "now"
    #: It has fired, or its phase is over.
    OVER = "over"
    #: Its turn has not come.
    LATER = "later"


@attrs.frozen(kw_only=True)
class Awaited:
    """A leaf or node of the tree.

    Attributes:
        kind: what it waits for, or how it combines its parts.
        is_met: whether it is enough, for its part; true of what is over, and false of what comes later.
        turn: whether it counts now.
        name: of a signal, of the phase of a part, or a trigger of the user's as text; empty: it has none.
        until_us: the instant that is waited for, in microseconds since 1970.
        have, need: how many there are, and how many it takes.
        parts: of a node.
    """

    kind: AwaitedKind
    is_met: bool
    turn: Turn = Turn.NOW
    name: str = ""
    until_us: int | None = None
    have: int | None = None
    need: int | None = None
    parts: tuple["Awaited", ...] = ()

    def over(self) -> "Awaited":
        """A copy, as a part that counts no more: it has fired, or its phase is over."""
        return attrs.evolve(self, turn=Turn.OVER, is_met=True)

    def later(self) -> "Awaited":
        """A copy, as a part whose turn has not come."""
        return attrs.evolve(self, turn=Turn.LATER, is_met=False)

    def named(self, name: str) -> "Awaited":
        """A copy, as the part of that name.

        Args:
            name: what its node calls it.
        """
        return attrs.evolve(self, name=f"{name} {self.name}".strip())

    def open_leaves(self) -> "list[Awaited]":
        """The leaves that count now and are not met, in the order of the tree."""
        if self.turn is not Turn.NOW or self.is_met:
            return []
        if not self.parts:
            return [self]
        return [leaf for part in self.parts for leaf in part.open_leaves()]

    def met_leaves(self) -> "list[Awaited]":
        """The leaves that count now and are met, in the order of the tree."""
        if self.turn is not Turn.NOW or not self.is_met:
            return []
        if not self.parts:
            return [self]
        return [leaf for part in self.parts for leaf in part.met_leaves()]

    def __str__(self) -> str:
        """What a leaf has come to, in words."""
        if self.kind is AwaitedKind.SIGNAL:
            return f"signal {self.name}"
        if self.until_us is not None:
            clock = "watermark" if self.kind is AwaitedKind.WATERMARK else "clock"
            return f"the {clock} has reached {format_timestamp(self.until_us)}"
        if self.need is not None:
            return f"{self.have} of {self.need} {self.kind}"
        return self.name or str(self.kind)


#: Why a window fires that waits for nothing but its end.
END_REACHED = "the watermark has reached the end of the window"


def reasons(awaited: Awaited, window: Window) -> str:
    """The leaves because of which a trigger fires, in words.

    Args:
        awaited: what it waits for; is met.
        window: the window.
    """
    leaves = awaited.met_leaves()
    texts = [
        END_REACHED
        if leaf.kind is AwaitedKind.WATERMARK and leaf.until_us == window.end_us
        else str(leaf)
        for leaf in leaves
    ]
    return ", ".join(dict.fromkeys(texts))


def end_awaited(window: Window, clocks: Clocks) -> Awaited:
    """The end of a window, as a leaf.

    Args:
        window: the window.
        clocks: the clocks.
    """
    is_met = clocks.watermark_us >= window.end_us
    return Awaited(kind=AwaitedKind.WATERMARK, is_met=is_met, until_us=window.end_us)

"""Entries: what is kept of open windows, or has changed there, as values; `runners.stored.journal` has their bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import CellId, TimerId
from runners.core.partials.partial import Partial
from windowing.window import Window


class Changes(NamedTuple):
    """Cells with their new state, None if deleted; and timers with their new instant, None if cleared.

    Instants are in microseconds.
    """

    cells: list[tuple[CellId, Any]]
    timers: list[tuple[TimerId, int | None]]


@attrs.frozen
class Whole:
    """All partials that are buffered, except for those in further entries of the same commit."""

    parts: Sequence[PartialColumns] = ()


@attrs.frozen
class Released:
    """Windows of which nothing is buffered any more, because they are in cells."""

    windows: Sequence[Window]


#: One of these three, or partials that were added.
Entry = Changes | Whole | Released | Sequence[Partial]


class Noted(NamedTuple):
    """A change of what an owner of windows keeps beside cells; an engine that makes state durable stores the entry.

    Attributes:
        owner: of the windows.
        entry: partials that were added, or windows that were released; None: windows have fired, and earlier entries
            may go.
        received: the bytes that the partials came as, if they are all that came in these.
    """

    owner: Any
    entry: Released | Sequence[Partial] | None
    received: bytes | None = None

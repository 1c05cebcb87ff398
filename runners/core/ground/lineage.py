"""Lineage: what panes were made of, and rows of tables of panes, as values that an engine keeps.

An entry is of one of these kinds:

* *input*: elements of a key and window that reached a grouping, and where they came from: a batch of a split, or a
  pane of another grouping;
* *pane*: a window has fired, or what it had emitted was retracted: which pane, why, and where the clocks were;
* *output*: a stateful DoFn has emitted something for a key and window: because of what, and where the clocks were;
* *row*: an element has become a row of a table or sink, or a row was retracted.

A *late* entry is of elements that are in no pane, because their window had expired; an *expired* one says that a window
has, so that what was in it is in no pane after that: another window of the key may cover it later.

Each says what it is made of, so a row is explained from its end to its beginning (`runners.observability.lineage`).

An origin travels with the pane of an element (`TracedPane`), which transforms pass on to what they emit.  To stateful
DoFns and side inputs, which keep elements as they are, it travels in a form that is stored (`CarriedPane`).
"""

from collections.abc import Callable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple, Self

import attrs

from dataflow.errors import PipelineError
from runners.core.ground.element_text import shown
from windowing.pane import PaneInfo
from windowing.window import Window

#: Characters of a position or a split that are kept; a source may have long ones.
_PLACE_CHARACTERS_MAX = 200


class Lineage(Enum):
    """How much of the lineage of panes a run records."""

    #: How many records, of which splits and positions.
    PANES = "panes"
    #: The records too, as text.
    RECORDS = "records"


def checked_lineage(given: str | None) -> Lineage | None:
    """How much lineage a user wants recorded.

    Args:
        given: "panes" or "records"; None: nothing.

    Raises:
        PipelineError: it is something else.
    """
    if given is None or given in {each.value for each in Lineage}:
        return None if given is None else Lineage(given)
    raise PipelineError(
        f"lineage={given!r} is not known",
        hint="say lineage='panes' for which panes and positions a row comes from, or lineage='records' for the "
        "records too",
    )


class LineageKind(Enum):
    """What an entry is about."""

    INPUT = "input"
    LATE = "late"
    EXPIRED = "expired"
    PANE = "pane"
    OUTPUT = "output"
    ROW = "row"


class SplitOrigin(NamedTuple):
    """A batch that was read from a split.

    Attributes:
        transform: the label of the read.
        split: the split, as text.
        position: behind the batch, as text.
    """

    transform: str
    split: str
    position: str

    @classmethod
    def of(cls, transform: str, split: Any, position: Any) -> "SplitOrigin":
        """The origin of a batch.

        Args:
            transform: the label of the read.
            split: as its source has it.
            position: behind the batch.
        """
        return cls(transform, _place(split), _place(position))


class PaneOrigin(NamedTuple):
    """A pane of a grouping, or an output of a stateful DoFn.

    Attributes:
        transform: the label of the grouping or DoFn.
        key: as text.
        key_hash: of the key.
        window_start_us: of the window, in microseconds.
        window_end_us: of the window, in microseconds.
        pane_index: of the pane, among those of the key and window; of an output, a number made of what it is.
    """

    transform: str
    key: str
    key_hash: int
    window_start_us: int
    window_end_us: int
    pane_index: int


class ViewedOrigin(NamedTuple):
    """An element, and the views of side inputs that it was emitted with.

    Attributes:
        element: where it comes from; None: not known.
        views: the panes that are the views, in the order of the side inputs; None: a view of which no pane had come, or
            none is known.
    """

    element: "Origin | None"
    views: tuple["Origin | None", ...]


Origin = SplitOrigin | PaneOrigin | ViewedOrigin

_KINDS: dict[str, type] = {"split": SplitOrigin, "pane": PaneOrigin}


def origin_fields(origin: Origin | None) -> tuple[Any, ...]:
    """An origin as plain values; the inverse of `origin_of_fields`.

    Args:
        origin: of an element; None: not known.
    """
    if origin is None:
        return ()
    if isinstance(origin, ViewedOrigin):
        return "viewed", origin_fields(origin.element), tuple(map(origin_fields, origin.views))
    return ("split" if isinstance(origin, SplitOrigin) else "pane"), *origin


def origin_of_fields(fields: Sequence[Any]) -> Origin | None:
    """The origin with these fields; they may be lists, as JSON has them."""
    if not fields:
        return None
    kind, *values = fields
    if kind == "viewed":
        element, views = values
        return ViewedOrigin(origin_of_fields(element), tuple(map(origin_of_fields, views)))
    origin: Origin = _KINDS[kind](*values)
    return origin


class FiringCause(NamedTuple):
    """Why a window fired.

    Attributes:
        reason: which part of its trigger, or its expiry.
        pending: how many records had come since it last fired.
    """

    reason: str
    pending: int


class Expiry(NamedTuple):
    """A window whose state was deleted, as it had expired.

    Attributes:
        before: how many values had been emitted until then in the same step.
        key: of the window.
        window: the window.
    """

    before: int
    key: Any
    window: Window


@attrs.frozen(kw_only=True)
class RecordedCall:
    """What a stateful DoFn was called with, and which of the values of a step it has emitted then.

    Attributes:
        begin: the index of its first output.
        end: one past the index of its last output.
        key: of the call.
        window: of the call.
        reason: the call.
        element: that it was given; None: the call was for a timer or the end of the window.
        timestamp_us: of the element, in microseconds.
        pane: of the element.
        sign: of the element.
    """

    begin: int
    end: int
    key: Any
    window: Window
    reason: str
    element: Any = None
    timestamp_us: int = 0
    pane: PaneInfo | None = None
    sign: int = +1


@attrs.frozen(eq=False, repr=False)
class TracedPane(PaneInfo):
    """A pane with the origin of its elements.

    Whatever user code does with it is as without lineage: it is equal to the pane, shown as the pane, and a copy of it,
    or what is stored of it, is the pane.

    Attributes:
        origin: of the elements.
    """

    origin: Origin | None = attrs.field(kw_only=True)

    @classmethod
    def of(cls, pane: PaneInfo, origin: Origin | None) -> Self:
        """A pane with an origin.

        Args:
            pane: the pane.
            origin: of its elements.
        """
        return cls(*fields_of_pane(pane), origin=origin)

    @property
    def plain(self) -> PaneInfo:
        """The pane alone."""
        return PaneInfo(*fields_of_pane(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PaneInfo):
            return NotImplemented
        return fields_of_pane(self) == fields_of_pane(other)

    def __hash__(self) -> int:
        return hash(self.plain)

    def __repr__(self) -> str:
        return repr(self.plain)

    def __reduce__(self) -> tuple[Any, ...]:
        return PaneInfo, fields_of_pane(self)


class CarriedPane(TracedPane):
    """A traced pane on its way through state: what is stored of it has the origin (`runners.stored.value_tags`).

    Never given to user code, whose elements would be stored otherwise than without lineage.
    """

    @classmethod
    def of_fields(cls, pane: PaneInfo, origin: Sequence[Any]) -> "CarriedPane":
        """The pane with an origin as plain values.

        Args:
            pane: the pane.
            origin: as `origin_fields` has it.
        """
        return cls(*fields_of_pane(pane), origin=origin_of_fields(origin))

    @property
    def stored(self) -> tuple[PaneInfo, tuple[Any, ...]]:
        """The pane, and the origin as plain values."""
        return self.plain, origin_fields(self.origin)


#: The fields of a pane, without the origin that it may have.
fields_of_pane: Callable[[PaneInfo], tuple[Any, ...]] = attrgetter(
    *(field.name for field in attrs.fields(PaneInfo))
)


def plain_pane(pane: PaneInfo) -> PaneInfo:
    """A pane without the origin that was carried with it.

    Args:
        pane: of an element that was kept.
    """
    return pane.plain if type(pane) is CarriedPane else pane


def origin_of(pane: PaneInfo) -> Origin | None:
    """The origin of elements with a pane; None: it is not known.

    Args:
        pane: of the elements.
    """
    return pane.origin if isinstance(pane, TracedPane) else None


@attrs.frozen(kw_only=True)
class LineageEntry:
    """One entry.

    Attributes:
        kind: what it is about.
        transform: the label of the grouping or stateful DoFn; of a row, the name of the table, or the label of what
            writes to a sink.
        key: as text; of a row, those of the columns that identify it (`row_key`).
        key_hash: of the key.
        window_start_us, window_end_us: of the window, in microseconds.
        sign: +1 for what was emitted, -1 for what was retracted.
        count: how many elements; of a pane, how many had come since the one before.
        index: of the pane, among those of the key and window; of an output, a number made of what it is.
        timing: of the pane: early, on_time or late; else nothing.
        accumulation: of a pane, the `AccumulationMode` of its grouping; else nothing.
        watermark_us: the input watermark of the stage when it happened, in microseconds.
        now_us: the processing time then, in microseconds.
        reason: why a window fired, or a DoFn was called; of what goes to a sink, its lane.
        origin: what it was made of; None: not known.
        elements: the elements of an input, or the result of a pane, as text; only of `Lineage.RECORDS`.
    """

    kind: LineageKind
    transform: str
    key: str
    key_hash: int
    window_start_us: int
    window_end_us: int
    sign: int = +1
    count: int = 1
    index: int = 0
    timing: str = ""
    accumulation: str = ""
    watermark_us: int
    now_us: int
    reason: str = ""
    origin: Origin | None = None
    elements: Sequence[str] = ()

    @property
    def as_origin(self) -> PaneOrigin:
        """The pane that it is about, as an origin."""
        return PaneOrigin(
            self.transform,
            self.key,
            self.key_hash,
            self.window_start_us,
            self.window_end_us,
            self.index,
        )


def _place(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= _PLACE_CHARACTERS_MAX else f"{text[: _PLACE_CHARACTERS_MAX - 3]}..."

"""Explains a row of a result table by its lineage: which pane it is, why that fired, and what it was made of.

Begins with the entries about the row, and goes from each origin to the entries about that, down to splits of sources.
Knows no store: `Find` does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from dataflow.errors import PipelineError
from runners.core.ground.lineage import (
    LineageEntry,
    LineageKind,
    Origin,
    PaneOrigin,
    SplitOrigin,
    ViewedOrigin,
)
from runners.core.tables.row_keys import asked_keys
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, format_timestamp

#: No entry has a higher number.
_NUMBER_MAX = (1 << 63) - 1
#: How many groupings behind the last one are explained.
_DEPTH_MAX = 8
#: How many panes, or elements, of one pane's input are shown as text.
_SHOWN_MAX = 10


@attrs.frozen
class Recorded:
    """An entry as it was recorded.

    Attributes:
        number: grows from one commit to those that have seen it.
        version: of the job when it was recorded.
        entry: the entry.
    """

    number: int
    version: int
    entry: LineageEntry


#: Returns the entries of a kind about a transform and the hash of a key, oldest first.
Find = Callable[[LineageKind, str, int], Sequence[Recorded]]


@attrs.frozen(kw_only=True)
class PaneInput:
    """What one origin has given to a pane.

    Attributes:
        origin: a split, with the last position that is in it, or a pane; None: it is not known.
        emitted: how many elements.
        retracted: how many elements it has retracted.
        elements: as text, where the job records them; one that was retracted begins with a minus.
        pane: the pane that is the origin; None: it is none, or is not recorded any more.
        views: the views of side inputs that it was made with.
    """

    origin: Origin | None
    emitted: int
    retracted: int
    elements: Sequence[str]
    pane: "PaneStory | None" = None
    views: "Sequence[ViewUsed]" = ()


@attrs.frozen(kw_only=True)
class ViewUsed:
    """A view of a side input that an element was emitted with.

    Attributes:
        origin: the pane that it is; None: no pane had come, or none is known.
        pane: the pane; None: it is not recorded any more.
    """

    origin: Origin | None
    pane: "PaneStory | None"


@attrs.frozen(kw_only=True)
class PaneStory:
    """A pane, or an output of a stateful DoFn.

    Attributes:
        pane: its entry.
        inputs: what it was made of; records that were on their way when it fired may be among them.  Of an output, all
            that the DoFn had been given for the key and window; what of it its code has used nobody but the code knows.
        late: how many of them came too late, and are not in it.
        replaced: the pane of the same key and window before it; None: it is the first.
    """

    pane: Recorded
    inputs: Sequence[PaneInput]
    late: int = 0
    replaced: Recorded | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return _plain_pane(self)


@attrs.frozen(kw_only=True)
class RowExplanation:
    """Where a row of a table comes from.

    Attributes:
        table: its name; of what was written to a sink, the label of the transform that writes.
        key: what identifies the row, as a JSON array.
        row: the last entry about it; a sign of -1: it was retracted, and is not there any more.
        pane: the pane that it is; None: it comes from no grouping, or one of which nothing is recorded.
        before: earlier entries about the same key, the newest first.
        views: the views of side inputs that it was made with, behind the last grouping.
    """

    table: str
    key: str
    row: Recorded
    pane: PaneStory | None
    before: Sequence[Recorded]
    views: Sequence[ViewUsed] = ()

    def __str__(self) -> str:
        return "\n".join(_row_lines(self))

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "table": self.table,
            "key": self.key,
            "row": _plain(self.row),
            "pane": None if self.pane is None else _plain_pane(self.pane),
            "views": _plain_views(self.views),
            "before": [_plain(each) for each in self.before],
        }


def explain_row(find: Find, table: str, given: str) -> RowExplanation | None:
    """Explain the row of a table with a key; None: nothing is recorded of it.

    Args:
        find: returns entries.
        table: the name of the table.
        given: the key, as a user writes it (`runners.core.tables.row_keys.asked_keys`).
    """
    for key in asked_keys(given):
        found = find(LineageKind.ROW, table, key.hash)
        if found:
            *before, row = found
            return RowExplanation(
                table=table,
                key=key.text,
                row=row,
                pane=_pane(find, row.entry.origin, row.number, _DEPTH_MAX),
                before=before[::-1],
                views=_views(find, row.entry.origin, row.number, _DEPTH_MAX),
            )
    return None


def explain_pane(find: Find, origin: PaneOrigin) -> PaneStory | None:
    """Explain the last pane, or output, with an origin; None: nothing is recorded of it.

    Args:
        find: returns entries.
        origin: the pane.
    """
    return _pane(find, origin, _NUMBER_MAX, _DEPTH_MAX)


def not_recorded(table: str, given: str) -> PipelineError:
    """The error for a row of which nothing is recorded.

    Args:
        table: the name of the table.
        given: the key, as the user has written it.
    """
    return PipelineError(
        f"nothing is recorded of a row of table {table!r} with the key {given!r}",
        detail="either there never was one, or no job recorded lineage when it was written",
        hint="run the pipeline with lineage='panes' or lineage='records'; a key is the values of the key's columns "
        "with commas between them, in the order of the table's key, or a JSON array of them; of a sink, the label of "
        "its write and what decides on the lane, such as the key of a message",
    )


def _views(find: Find, origin: Origin | None, before: int, depth: int) -> list[ViewUsed]:
    """The views that an element was emitted with, as they were when an entry was recorded."""
    views = origin.views if isinstance(origin, ViewedOrigin) else ()
    return [ViewUsed(origin=each, pane=_pane(find, each, before, depth - 1)) for each in views]


def _element_of(origin: Origin | None) -> Origin | None:
    """Where an element comes from, whatever it was emitted beside."""
    return origin.element if isinstance(origin, ViewedOrigin) else origin


def _pane(find: Find, of: Origin | None, before: int, depth: int) -> PaneStory | None:
    """The last pane, or output, with this origin that was recorded up to an entry."""
    origin = _element_of(of)
    if not isinstance(origin, PaneOrigin) or not depth:
        return None
    emitted = [
        each
        for kind in (LineageKind.PANE, LineageKind.OUTPUT)
        for each in find(kind, origin.transform, origin.key_hash)
        if each.number <= before and _window(each.entry) == _window(origin)
    ]
    panes = [
        each for each in emitted if each.entry.sign > 0 or each.entry.kind is LineageKind.OUTPUT
    ]
    at = max((n for n, each in enumerate(panes) if each.entry.as_origin == origin), default=None)
    if at is None:
        return None
    pane = panes[at]
    expired, *both = (
        [
            each
            for each in find(kind, origin.transform, origin.key_hash)
            if each.number <= pane.number
        ]
        for kind in (LineageKind.EXPIRED, LineageKind.INPUT, LineageKind.LATE)
    )
    given, late = (
        [
            each
            for each in several
            if _is_within(each.entry, pane.entry) and not _is_gone(each, expired)
        ]
        for several in both
    )
    is_pane = pane.entry.kind is LineageKind.PANE
    return PaneStory(
        pane=pane,
        inputs=list(_inputs(find, given, depth)),
        late=sum(each.entry.count for each in late),
        replaced=panes[at - 1] if is_pane and at and pane.entry.index else None,
    )


def _inputs(find: Find, given: Sequence[Recorded], depth: int) -> Iterator[PaneInput]:
    groups: dict[object, list[Recorded]] = {}
    for each in given:
        groups.setdefault(_source(find, each), []).append(each)
    for entries in groups.values():
        last, signs = entries[-1], [each.entry.sign * each.entry.count for each in entries]
        origin = last.entry.origin
        yield PaneInput(
            origin=_element_of(origin),
            emitted=sum(count for count in signs if count > 0),
            retracted=-sum(count for count in signs if count < 0),
            elements=[
                element if each.entry.sign > 0 else f"-{element}"
                for each in entries
                for element in each.entry.elements
            ],
            pane=_pane(find, origin, last.number, depth - 1),
            views=_views(find, origin, last.number, depth),
        )


def _source(find: Find, given: Recorded) -> object:
    """What is equal for elements that are shown together: of a split, all batches; of outputs, the same one."""
    origin = given.entry.origin
    views = origin.views if isinstance(origin, ViewedOrigin) else ()
    element = _element_of(origin)
    if isinstance(element, SplitOrigin):
        return element[:2], views
    if not isinstance(element, PaneOrigin):
        return element, views
    outputs = find(LineageKind.OUTPUT, element.transform, element.key_hash)
    # Equal ones have one number.
    numbers = [
        each.number
        for each in outputs
        if each.number <= given.number and each.entry.as_origin == element
    ]
    return element, views, max(numbers, default=None)


def _window(of: LineageEntry | PaneOrigin) -> tuple[int, int]:
    return of.window_start_us, of.window_end_us


def _is_gone(element: Recorded, expired: Sequence[Recorded]) -> bool:
    """Whether the window that an element was in has expired since."""
    return any(
        element.number < each.number and _is_within(element.entry, each.entry) for each in expired
    )


def _is_within(entry: LineageEntry, pane: LineageEntry) -> bool:
    """Whether the window of an element is the pane's, or has merged into it."""
    return (
        pane.window_start_us <= entry.window_start_us and entry.window_end_us <= pane.window_end_us
    )


def _row_lines(explained: RowExplanation) -> Iterator[str]:
    row = explained.row.entry
    name = f"{explained.table} {explained.key}"
    if explained.pane is None:
        yield f"{name} comes from {_origin_text(_element_of(row.origin))}"
    elif row.sign < 0:
        yield f"{name} is not there any more: it was retracted; it was {_pane_text(explained.pane.pane)}"
    else:
        yield f"{name} is {_pane_text(explained.pane.pane)}"
    if explained.pane is not None:
        yield from _indented(_pane_lines(explained.pane))
    yield from _indented(_view_lines(explained.views))
    if row.reason:
        yield (
            f"  it left by {row.reason} of the relay of its sink; the number of its batch is not known, as it is kept "
            "only until the sink has the batch"
        )
    if explained.before:
        yield f"  {len(explained.before)} earlier: " + ", ".join(
            f"{_sign(each.entry)} pane {each.entry.index} {each.entry.timing}".strip()
            for each in explained.before[:_SHOWN_MAX]
        )


def _pane_lines(story: PaneStory) -> Iterator[str]:
    pane = story.pane.entry
    is_output = pane.kind is LineageKind.OUTPUT
    if is_output:
        yield f"emitted because {pane.reason}"
    else:
        yield f"fired because {pane.reason or 'the grouping emits a change'}"
    yield (
        f"the watermark was at {format_timestamp(pane.watermark_us)}, the clock at "
        f"{_clock(pane.now_us)}; version {story.pane.version} of the job"
    )
    for element in pane.elements:
        yield f"result: {element}"
    if story.replaced is not None:
        yield f"replaced {_pane_text(story.replaced)}, which fired because {story.replaced.entry.reason}"
    emitted = sum(each.emitted for each in story.inputs)
    retracted = sum(each.retracted for each in story.inputs)
    since = f", {pane.count} since the pane before" if pane.count and pane.index else ""
    less = f", less {retracted} retracted" if retracted else ""
    less += f", less {story.late} that came too late" if story.late else ""
    if is_output:
        yield f"had been given {emitted} elements{less} of this key; which of them its code has used is not known:"
    else:
        yield f"made of {emitted} elements{less}{since}:"
    if not story.inputs:
        yield "  none is recorded: they came before the job recorded lineage, or longer ago than that is kept"
    for each in story.inputs[:_SHOWN_MAX]:
        yield from _indented(_input_lines(each))
    if len(story.inputs) > _SHOWN_MAX:
        yield f"  and {len(story.inputs) - _SHOWN_MAX} origins more"


def _input_lines(given: PaneInput) -> Iterator[str]:
    count = str(given.emitted - given.retracted)
    yield f"{count} from {_origin_text(given.origin)}"
    yield from _indented(given.elements[:_SHOWN_MAX])
    if len(given.elements) > _SHOWN_MAX:
        yield f"  and {len(given.elements) - _SHOWN_MAX} more"
    if given.pane is not None:
        yield from _indented(_pane_lines(given.pane))
    yield from _indented(_view_lines(given.views))


def _view_lines(views: Sequence[ViewUsed]) -> Iterator[str]:
    for view in views:
        if view.origin is None:
            yield "with an empty view, or one of which nothing is recorded"
            continue
        yield f"with the view that was {_origin_text(view.origin)}"
        if view.pane is not None:
            yield from _indented(_pane_lines(view.pane))


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _pane_text(recorded: Recorded) -> str:
    pane = recorded.entry
    timing = f" ({pane.timing})" if pane.timing else ""
    if pane.kind is LineageKind.OUTPUT:
        return f"an output of {pane.transform}, key {pane.key}, window {_window_text(pane)}"
    return f"pane {pane.index}{timing} of {pane.transform}, key {pane.key}, window {_window_text(pane)}"


def _origin_text(origin: Origin | None) -> str:
    if origin is None:
        return "an unknown origin: it was emitted by finish_bundle, or kept before the job recorded lineage"
    if isinstance(origin, SplitOrigin):
        return f"split {origin.split} of {origin.transform}, up to position {origin.position}"
    if isinstance(origin, ViewedOrigin):
        return _origin_text(origin.element)
    return f"pane {origin.pane_index} of {origin.transform}, key {origin.key}, window {_window_text(origin)}"


def _window_text(of: LineageEntry | PaneOrigin) -> str:
    if of.window_start_us <= MIN_TIMESTAMP_US and of.window_end_us >= MAX_TIMESTAMP_US:
        return "global"
    return f"{format_timestamp(of.window_start_us)} to {format_timestamp(of.window_end_us)}"


def _clock(now_us: int) -> str:
    if now_us <= MIN_TIMESTAMP_US or now_us >= MAX_TIMESTAMP_US:
        return "no time"
    return format_timestamp(now_us)


def _sign(entry: LineageEntry) -> str:
    return "+" if entry.sign > 0 else "-"


def _plain(recorded: Recorded) -> dict[str, Any]:
    entry = recorded.entry
    plain = attrs.asdict(entry, recurse=False)
    plain["kind"] = entry.kind.value
    plain["elements"] = list(entry.elements)
    plain["origin"] = _plain_origin(entry.origin)
    for name in ("window_start_us", "window_end_us", "watermark_us", "now_us"):
        plain[name.removesuffix("_us")] = format_timestamp(plain.pop(name))
    return {"number": recorded.number, "version": recorded.version, **plain}


def _plain_pane(story: PaneStory) -> dict[str, Any]:
    return {
        **_plain(story.pane),
        "late": story.late,
        "replaced": None if story.replaced is None else _plain(story.replaced),
        "inputs": [
            {
                "origin": _plain_origin(each.origin),
                "emitted": each.emitted,
                "retracted": each.retracted,
                "elements": list(each.elements),
                "pane": None if each.pane is None else _plain_pane(each.pane),
                "views": _plain_views(each.views),
            }
            for each in story.inputs
        ],
    }


def _plain_views(views: Sequence[ViewUsed]) -> list[dict[str, Any]]:
    return [
        {
            "origin": _plain_origin(each.origin),
            "pane": None if each.pane is None else _plain_pane(each.pane),
        }
        for each in views
    ]


def _plain_origin(origin: Origin | None) -> dict[str, Any] | None:
    """Where an element comes from; its views are beside it."""
    element = _element_of(origin)
    return None if element is None else element._asdict()

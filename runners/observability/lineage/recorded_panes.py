"""The panes of a key as a picture, of a run that recorded its lineage: what the paper's figures show, of any job.

Records are points where their elements were recorded (``lineage="records"``).  Where a run has no processing time, as
one in memory over a file, things are in the order in which they happened.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import attrs

from dataflow.coders import encode_key, hash_key
from dataflow.errors import PipelineError
from runners.core.ground.lineage import LineageEntry, LineageKind
from runners.observability.drawing.pane_plot import (
    Axis,
    PanePlot,
    PlottedPane,
    PlottedPoint,
    TimePath,
)
from runners.observability.lineage.explained_rows import Find, Recorded
from triggers.accumulation import AccumulationMode
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
    to_datetime,
    to_timestamp_us,
)

#: How far apart ticks may be, in seconds.
_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
)
_DAY_S = 86_400
_TICKS_MAX, _TICKS_ACROSS_MAX = 9, 7
#: Characters of a result that fit on a picture.
_RESULT_CHARACTERS_MAX = 14


@attrs.frozen(kw_only=True)
class _Seen:
    """A record, as it was recorded."""

    text: str
    event_us: int
    arrival_us: int
    watermark_us: int


def plot_key(
    find: Find, transforms: Iterable[str], key: Any, *, transform: str | None = None
) -> PanePlot:
    """The picture of a key, of the one grouping that has it.

    Args:
        find: returns entries.
        transforms: the labels of the groupings of the job.
        key: as elements have it.
        transform: the label of the grouping; None: it is looked for.

    Raises:
        PipelineError: nothing is recorded of the key, or several groupings have it.
        KeyEncodingError: it cannot be a key.
    """
    key_hash = hash_key(encode_key(key))
    wanted = transforms if transform is None else [transform]
    plots = {label: plot_panes(find, label, key_hash) for label in wanted}
    found = {label: plot for label, plot in plots.items() if plot is not None}
    if not found:
        raise nothing_to_plot(transform, repr(key))
    if len(found) > 1:
        raise PipelineError(
            f"several groupings have the key {key!r}: {', '.join(sorted(found))}",
            hint="name one: transform='...', or --transform of the command",
        )
    return next(iter(found.values()))


def plot_panes(find: Find, transform: str, key_hash: int) -> PanePlot | None:
    """The picture of a key of a grouping; None: nothing is recorded of it.

    Args:
        find: returns entries.
        transform: the label of the grouping.
        key_hash: of the key.
    """
    given = list(find(LineageKind.INPUT, transform, key_hash))
    fired = list(find(LineageKind.PANE, transform, key_hash))
    everything = sorted([*given, *fired], key=lambda each: each.number)
    if not everything:
        return None
    clock = _Clock(everything)
    seen = [
        each
        for recorded in given
        if recorded.entry.sign > 0
        for each in _seen(recorded.entry, clock.at_us(recorded))
    ]
    panes = list(_panes(fired, given, clock))
    across = _event_axis(everything, seen)
    up = clock.axis([each.at for each in panes])
    watermark = _watermark(everything, clock, across, up)
    name = everything[0].entry.key
    return PanePlot(
        title=f"{transform}, key {name}",
        description=_description(seen, panes),
        points=[
            PlottedPoint(
                text=each.text,
                event_time=to_datetime(each.event_us),
                arrival=to_datetime(each.arrival_us),
                is_late=each.event_us < each.watermark_us,
            )
            for each in seen
        ],
        panes=panes,
        watermarks=[watermark] if watermark else [],
        event_time=across,
        processing_time=up,
        shows_late=any(each.event_us < each.watermark_us for each in seen),
        sum_name="result",
    )


def nothing_to_plot(transform: str | None, key: str) -> PipelineError:
    """The error for a key of which nothing is recorded.

    Args:
        transform: the label of the grouping; None: any was looked at.
        key: as the user has written it.
    """
    where = "any grouping" if transform is None else f"{transform!r}"
    return PipelineError(
        f"nothing is recorded of the key {key} in {where}",
        detail="either no element with it has come, or the job did not record lineage when it came",
        hint="run the pipeline with lineage='records'; a key is written as in Python: 'red', 7, ('a', 1)",
    )


class _Clock:
    """Processing time of entries; where there is none, a second for each of them.

    Args:
        everything: all entries, in their order.
    """

    def __init__(self, everything: Sequence[Recorded]) -> None:
        times_us = [each.entry.now_us for each in everything]
        self._has_time = all(MIN_TIMESTAMP_US < at_us < MAX_TIMESTAMP_US for at_us in times_us)
        places = dict(zip((each.number for each in everything), count(1), strict=False))
        self._at_us = {
            each.number: each.entry.now_us
            if self._has_time
            else places[each.number] * US_PER_SECOND
            for each in everything
        }

    def at_us(self, recorded: Recorded) -> int:
        """When an entry was recorded, in microseconds."""
        return self._at_us[recorded.number]

    def axis(self, shown: Sequence[datetime]) -> Axis:
        """The axis that shows all entries, and these instants."""
        times_us = [*self._at_us.values(), *map(to_timestamp_us, shown)]
        if self._has_time:
            return _axis("Processing time", min(times_us), max(times_us))
        axis = _axis("Order of processing", 0, max(times_us))
        return attrs.evolve(axis, form=" ")


def _seen(entry: LineageEntry, arrival_us: int) -> Iterator[_Seen]:
    for element in entry.elements:
        stamp, _, text = element.partition(" ")
        event_us = to_timestamp_us(datetime.fromisoformat(stamp))
        yield _Seen(
            text=_unquoted(text),
            event_us=event_us,
            arrival_us=arrival_us,
            watermark_us=entry.watermark_us,
        )


def _panes(
    fired: Sequence[Recorded], given: Sequence[Recorded], clock: _Clock
) -> Iterator[PlottedPane]:
    retracted: list[str] = []
    last_us: dict[tuple[int, int], int] = {}
    for each in fired:
        entry, at_us = each.entry, clock.at_us(each)
        if entry.sign < 0:
            retracted.append(_result(entry))
            continue
        window = entry.window_start_us, entry.window_end_us
        since_us = _first_us(entry, given, clock, at_us)
        if entry.accumulation == AccumulationMode.DISCARDING.value:
            since_us = last_us.get(window, since_us)
        last_us[window] = at_us
        yield PlottedPane(
            text=_result(entry),
            start=to_datetime(entry.window_start_us),
            end=to_datetime(entry.window_end_us),
            since=to_datetime(since_us),
            at=to_datetime(at_us),
            retracted=tuple(retracted),
        )
        retracted.clear()


def _first_us(pane: LineageEntry, given: Sequence[Recorded], clock: _Clock, at_us: int) -> int:
    """When the first of the pane's elements came."""
    arrivals_us = [
        clock.at_us(each)
        for each in given
        if pane.window_start_us <= each.entry.window_start_us
        and each.entry.window_end_us <= pane.window_end_us
    ]
    return min([*arrivals_us, at_us])


def _result(entry: LineageEntry) -> str:
    text = _unquoted(entry.elements[0]) if entry.elements else f"pane {entry.index}"
    return text if len(text) <= _RESULT_CHARACTERS_MAX else f"{text[: _RESULT_CHARACTERS_MAX - 1]}…"


def _unquoted(text: str) -> str:
    """The text of a value, without what Python writes around texts and decimal numbers."""
    plain = re.sub(r"Decimal\('([^']*)'\)", r"\1", text)
    is_quoted = len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\""
    return plain[1:-1] if is_quoted else plain


def _event_axis(everything: Sequence[Recorded], seen: Sequence[_Seen]) -> Axis:
    """The axis that shows all records, and the windows that have both ends."""
    times_us = [each.event_us for each in seen]
    for each in everything:
        bounds_us = each.entry.window_start_us, each.entry.window_end_us
        times_us += [at for at in bounds_us if MIN_TIMESTAMP_US < at < MAX_TIMESTAMP_US]
    times_us = times_us or [0]
    return _axis("Event time", min(times_us), max(times_us), _TICKS_ACROSS_MAX)


def _watermark(everything: Sequence[Recorded], clock: _Clock, across: Axis, up: Axis) -> TimePath:
    """Where the watermark was whenever something was recorded, as far as the picture shows it."""
    path: list[tuple[datetime, datetime]] = []
    latest_us = MIN_TIMESTAMP_US
    for each in everything:
        latest_us = max(latest_us, each.entry.watermark_us)
        event_time = min(max(to_datetime(latest_us), across.begin), across.end)
        point = event_time, min(to_datetime(clock.at_us(each)), up.end)
        if not path or path[-1] != point:
            path.append(point)
    return path if len(path) > 1 else []


def _axis(name: str, first_us: int, last_us: int, ticks_max: int = _TICKS_MAX) -> Axis:
    """An axis of whole steps around two instants, with about so many ticks."""
    wanted_s = max(1.0, (last_us - first_us) / US_PER_SECOND) / (ticks_max - 1)
    step_s = next((step for step in _STEPS_S if step >= wanted_s), 0)
    if not step_s:
        step_s = _DAY_S * (int(wanted_s // _DAY_S) + 1)
    step_us = step_s * US_PER_SECOND
    begin_us = max(first_us // step_us * step_us, MIN_TIMESTAMP_US)
    end_us = min(-(-(last_us + 1) // step_us) * step_us, MAX_TIMESTAMP_US)
    form = "%H:%M:%S" if step_s < 60 else "%H:%M" if step_s < _DAY_S else "%d %b"
    return Axis(
        name=name,
        begin=to_datetime(begin_us),
        end=to_datetime(end_us),
        step=timedelta(seconds=step_s),
        form=form,
    )


def _description(seen: Sequence[_Seen], panes: Sequence[PlottedPane]) -> str:
    words = [f"{len(seen)} records."]
    for pane in panes:
        less = "".join(f", {text} is retracted" for text in pane.retracted)
        words.append(f"{pane.at:%H:%M:%S}: {pane.text} is emitted{less}.")
    return " ".join(words)

"""Panes for the figures, made of what a pipeline emitted: each with the sums that it retracted."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import attrs

import dataflow as df
from examples.paper_figures.points import BEGIN, END, POINTS


@attrs.frozen(kw_only=True)
class Pane:
    """One firing: a rectangle of event time and processing time, and its sum.

    ``retracted``: the sums that this firing retracts.  ``since``: when the first of its points arrived, or, where the
    window is all of event time, when it could have.
    """

    value: int
    start: datetime
    end: datetime
    since: datetime
    at: datetime
    retracted: tuple[int, ...] = ()


def panes_of(changes: Iterable[df.Change[tuple[str, int]]], *, is_discarding: bool) -> list[Pane]:
    """The firings, in their order; a firing emits its retractions first."""
    panes: list[Pane] = []
    retracted: list[int] = []
    for change in changes:
        _, value = change.value
        if change.sign < 0:
            retracted.append(value)
            continue
        start, end = change.window.start, change.window.end
        before = [pane.at for pane in panes if is_discarding and pane.start == start]
        panes.append(
            Pane(
                value=value,
                start=start,
                end=end,
                since=before[-1] if before else _first_arrival(start, end),
                at=shown_at(change),
                retracted=tuple(retracted),
            )
        )
        retracted.clear()
    return panes


def numbers(panes: Sequence[Pane]) -> list[int]:
    """The numbers alone, with signs: -7, -10, 25."""
    return [number for pane in panes for number in (*(-v for v in pane.retracted), pane.value)]


def show(change: df.Change[tuple[str, int]]) -> None:
    """Print when a sum was emitted or retracted: ``12:07:37 -10``."""
    print(f"{shown_at(change):%H:%M:%S} {change.sign * change.value[1]:+}")


def shown_at(change: df.Change[tuple[str, int]]) -> datetime:
    """When it was emitted.

    A batch engine is outside time until its input has ended: it is shown at `END`, when all points are there.
    """
    now = change.processing_time
    return now if BEGIN <= now <= END else END


def _first_arrival(start: datetime, end: datetime) -> datetime:
    if start == datetime.min.replace(tzinfo=UTC):
        return BEGIN
    return min(point.arrival for point in POINTS if start <= point.event_time < end)

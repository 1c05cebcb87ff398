"""Draws the panes of a key as the Dataflow Model paper does: event time across, processing time up.

A pane is a rectangle: the window across, and upwards to the moment when it was emitted.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import attrs

from runners.observability.drawing.labels import Occupied, PixelBox
from runners.observability.drawing.style import CSS
from runners.observability.drawing.svg import XY, SvgDrawing

# Pixels of the picture, with y downwards.
_WIDTH, _HEIGHT = 800.0, 592.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 768.0, 76.0, 462.0
_LEFT_OF_SECONDS, _RIGHT_OF_SECONDS = 112.0, 752.0
#: Characters of a tick that has no seconds.
_TICK_CHARACTERS = 5
_POINT_RADIUS, _NAMED_POINT_RADIUS = 11.0, 5.0
# How wide a digit is in the widest of the fonts that the style sheet names.
_DIGIT, _RETRACTED_DIGIT, _GAP, _LABEL_HEIGHT = 12.5, 10.5, 9.0, 20.0
# A label outside its pane is better than one on a point, and worse than one on the side of a pane.
_OUTSIDE = 100.0
#: Characters of a point's text that fit into its circle, and beside it.
_POINT_CHARACTERS_MAX, _NAME_CHARACTERS_MAX = 3, 14
_NAME_CHARACTER, _NAME_HEIGHT = 8.0, 16.0
#: A name that would cover more than lines is left out.
_COVERED_MAX = 300.0

#: Event time, processing time.
TimePath = Sequence[tuple[datetime, datetime]]


@attrs.frozen(kw_only=True)
class PlottedPoint:
    """A record: its text, when it happened, and when the pipeline saw it."""

    text: str
    event_time: datetime
    arrival: datetime
    is_late: bool = False


@attrs.frozen(kw_only=True)
class PlottedPane:
    """One firing.

    Attributes:
        text: its result.
        start, end: of its window.
        since: when the first of its records arrived, or could have.
        at: when it was emitted.
        retracted: the texts of the results that it retracts.
    """

    text: str
    start: datetime
    end: datetime
    since: datetime
    at: datetime
    retracted: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Axis:
    """What the picture shows of one kind of time.

    Attributes:
        name: of the axis.
        begin, end: of it.
        step: between two ticks.
        form: of the text of a tick, as for `datetime.strftime`.
    """

    name: str
    begin: datetime
    end: datetime
    step: timedelta
    form: str = "%H:%M"

    def ticks(self) -> Iterator[datetime]:
        """The instants that have a tick."""
        at = self.begin
        while at <= self.end:
            yield at
            at += self.step

    @property
    def has_long_ticks(self) -> bool:
        """Whether the texts of its ticks have seconds, or are as long."""
        return len(f"{self.begin:{self.form}}") > _TICK_CHARACTERS

    def share(self, at: datetime) -> float:
        """Where an instant is, between 0 and 1 if it is shown."""
        return (at - self.begin) / (self.end - self.begin)


@attrs.frozen(kw_only=True)
class PanePlot:
    """All that one picture shows.

    Attributes:
        title: above it.
        description: what there is to see, for those who cannot see it.
        points: the records, in the order of their arrival.
        panes: the firings, in their order.
        watermarks: paths of the watermark.
        ideal: the watermark of a pipeline that sees each record as it happens; None: it is not shown.
        event_time, processing_time: the axes.
        shows_late: whether late records look different.
        sum_name: what the legend calls the result of a pane.
    """

    title: str
    description: str
    points: Sequence[PlottedPoint]
    panes: Sequence[PlottedPane]
    watermarks: Sequence[TimePath] = ()
    ideal: TimePath | None = None
    event_time: Axis
    processing_time: Axis
    shows_late: bool = False
    sum_name: str = "sum"

    def to_svg(self) -> str:
        """The picture as SVG."""
        drawing = SvgDrawing(
            _WIDTH, _HEIGHT, title=self.title, description=self.description, style=CSS
        )
        drawing.rect("card", 0.5, 0.5, _WIDTH - 1, _HEIGHT - 1, corner=8)
        drawing.text("title", (self._left, 40), self.title)
        self._draw_axes(drawing)
        for pane in reversed(self.panes):
            box = self._box(pane)
            css = "pane withdrawn" if self._is_withdrawn(pane) else "pane"
            drawing.rect(css, box.left, box.top, box.right - box.left, box.bottom - box.top)
            drawing.path("said", [(box.left, box.top), (box.right, box.top)])
        for line in self._watermark_lines():
            drawing.path(*line)
        self._draw_points(drawing)
        self._draw_labels(drawing)
        self._draw_legend(drawing)
        return drawing.to_svg()

    def save(self, path: str) -> None:
        """Write the picture to a file.

        Args:
            path: of the file, which usually ends in ``.svg``; what is there is replaced.

        Raises:
            OSError: it cannot be written.
        """
        Path(path).write_text(self.to_svg(), encoding="utf-8", newline="\n")

    def _repr_svg_(self) -> str:
        return self.to_svg()

    @property
    def _left(self) -> float:
        """Where the axis of event time begins: behind the ticks of the other one."""
        return _LEFT_OF_SECONDS if self.processing_time.has_long_ticks else _LEFT

    @property
    def _right(self) -> float:
        """Where it ends: so that its last tick is on the picture."""
        return _RIGHT_OF_SECONDS if self.event_time.has_long_ticks else _RIGHT

    def _x(self, event_time: datetime) -> float:
        shown = min(max(event_time, self.event_time.begin), self.event_time.end)
        return self._left + (self._right - self._left) * self.event_time.share(shown)

    def _y(self, now: datetime) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * self.processing_time.share(now)

    def _box(self, pane: PlottedPane) -> PixelBox:
        return PixelBox(
            self._x(pane.start), self._y(pane.at), self._x(pane.end), self._y(pane.since)
        )

    def _is_withdrawn(self, pane: PlottedPane) -> bool:
        later = self.panes[self.panes.index(pane) + 1 :]
        return any(
            pane.text in other.retracted and other.start <= pane.start and pane.end <= other.end
            for other in later
        )

    def _draw_axes(self, drawing: SvgDrawing) -> None:
        across, up = self.event_time, self.processing_time
        for event_time in across.ticks():
            x = self._x(event_time)
            drawing.path("grid", [(x, _TOP), (x, _BOTTOM)])
            drawing.text("tick middle", (x, _BOTTOM + 20), f"{event_time:{across.form}}")
        for now in up.ticks():
            y = self._y(now)
            drawing.path("grid", [(self._left, y), (self._right, y)])
            drawing.text("tick end", (self._left - 10, y + 5), f"{now:{up.form}}")
        drawing.path("axis", [(self._left, _TOP), (self._left, _BOTTOM), (self._right, _BOTTOM)])
        drawing.text(
            "axis-name middle", ((self._left + self._right) / 2, _BOTTOM + 44), across.name
        )
        drawing.text("axis-name middle", (26, (_TOP + _BOTTOM) / 2), up.name, turned=True)

    def _watermark_lines(self) -> Iterator[tuple[str, list[XY]]]:
        paths = [("actual", path) for path in self.watermarks]
        if self.ideal is not None:
            paths.insert(0, ("ideal", self.ideal))
        for css, path in paths:
            yield css, [(self._x(event_time), self._y(now)) for event_time, now in path]

    def _draw_points(self, drawing: SvgDrawing) -> None:
        for point in self.points:
            centre = self._x(point.event_time), self._y(point.arrival)
            late = " late" if self.shows_late and point.is_late else ""
            if _fits(point):
                drawing.circle(f"point{late}", centre, _POINT_RADIUS)
                drawing.text("value middle", (centre[0], centre[1] + 5), point.text)
            else:
                drawing.circle(f"point{late}", centre, _NAMED_POINT_RADIUS)

    def _draw_labels(self, drawing: SvgDrawing) -> None:
        """The results, and then the names of points beside them, where there is room."""
        taken = self._taken()
        for pane in self.panes:
            width = _DIGIT * len(pane.text)
            width += sum(_RETRACTED_DIGIT * len(text) + _GAP for text in pane.retracted)
            place = taken.place(_candidates(self._box(pane), width))
            x, y = place.left, place.bottom - 3
            for text in pane.retracted:
                _draw_retracted(drawing, (x, y), text)
                x += _RETRACTED_DIGIT * len(text) + _GAP
            drawing.text("sum middle", ((x + place.right) / 2, y), pane.text)
        for point in self.points:
            if not _fits(point):
                name = _shortened(point.text)
                places = self._beside(point, _NAME_CHARACTER * len(name))
                costs = taken.costs(places)
                if places and min(costs) <= _COVERED_MAX:
                    best = places[costs.index(min(costs))]
                    taken.add(best, 4.0)
                    middle = (best.left + best.right) / 2, best.bottom - 3
                    drawing.text("tick middle", middle, name)

    def _beside(self, point: PlottedPoint, width: float) -> list[PixelBox]:
        """Where the name of a point can be: right and left of it, above and below, inside the picture."""
        x, y = self._x(point.event_time), self._y(point.arrival)
        aside = _NAMED_POINT_RADIUS + 4 + width / 2
        away = _NAMED_POINT_RADIUS + 3 + _NAME_HEIGHT / 2
        centres = [(x + aside, y), (x - aside, y), (x, y - away), (x, y + away)]
        boxes = [PixelBox.around(centre, width, _NAME_HEIGHT) for centre in centres]
        return [each for each in boxes if self._left < each.left and each.right < _WIDTH - 4]

    def _taken(self) -> Occupied:
        """What no label should cover."""
        taken = Occupied()
        for point in self.points:
            centre = self._x(point.event_time), self._y(point.arrival)
            side = 2 * (_POINT_RADIUS if _fits(point) else _NAMED_POINT_RADIUS) + 2
            taken.add(PixelBox.around(centre, side, side), 5.0)
        for css, line in self._watermark_lines():
            taken.add_path(line, 1.0 if css == "actual" else 0.3)
        for pane in self.panes:
            box = self._box(pane)
            taken.add_path([(box.left, box.top), (box.right, box.top)], 2.0)
            for x in (box.left, box.right):
                taken.add_path([(x, box.top), (x, box.bottom)], 0.3)
        return taken

    def _draw_legend(self, drawing: SvgDrawing) -> None:
        has_retractions = any(pane.retracted for pane in self.panes)
        rows = (
            (
                ("point", "input", True),
                ("point late", "late input", self.shows_late),
                ("pane", f"pane and its {self.sum_name}", bool(self.panes)),
                ("pane withdrawn", "pane retracted later", has_retractions),
            ),
            (
                ("ideal", "ideal watermark", self.ideal is not None),
                ("actual", "actual watermark", bool(self.watermarks)),
                ("taken-back", f"{self.sum_name} retracted", has_retractions),
            ),
        )
        for number, row in enumerate(rows):
            x, y = self._left, _BOTTOM + 80 + 27 * number
            for css, text, is_there in row:
                if is_there:
                    _draw_sample(drawing, css, (x, y))
                    drawing.text("legend", (x + 34, y + 5), text)
                    x += 34 + 8 * len(text) + 22


def _fits(point: PlottedPoint) -> bool:
    """Whether its text fits into its circle."""
    return len(point.text) <= _POINT_CHARACTERS_MAX


def _shortened(text: str) -> str:
    return text if len(text) <= _NAME_CHARACTERS_MAX else f"{text[: _NAME_CHARACTERS_MAX - 1]}…"


def _draw_retracted(drawing: SvgDrawing, at: XY, text: str) -> None:
    """Struck through by a line of our own: what ``text-decoration`` looks like depends on the program that shows it."""
    x, y = at
    width = _RETRACTED_DIGIT * len(text)
    drawing.text("sum taken-back middle", (x + width / 2, y), text)
    drawing.path("strike", [(x - 2, y - 6), (x + width + 2, y - 6)])


def _candidates(pane: PixelBox, width: float) -> list[tuple[PixelBox, float]]:
    """Below the upper edge, from the middle outwards, then further down; above the edge if it must be."""
    middle = (pane.left + pane.right) / 2
    room = max((pane.right - pane.left - width) / 2 - 6, 0)
    heights = [(pane.top + down + _LABEL_HEIGHT / 2, 0.0) for down in (5, 12, 20, 28)]
    heights.append((pane.top - 4 - _LABEL_HEIGHT / 2, _OUTSIDE))
    return [
        (PixelBox.around((middle + share * room, height), width, _LABEL_HEIGHT), penalty)
        for height, penalty in heights
        for share in (0, -0.25, 0.25, -0.5, 0.5, -0.75, 0.75, -1, 1)
    ]


def _draw_sample(drawing: SvgDrawing, css: str, at: XY) -> None:
    x, y = at
    if css.startswith("pane"):
        drawing.rect(css, x + 1, y - 8, 24, 16)
        drawing.path("said", [(x + 1, y - 8), (x + 25, y - 8)])
    elif css == "taken-back":
        _draw_retracted(drawing, (x + 8, y + 6), "7")
    elif css.startswith("point"):
        drawing.circle(css, (x + 13, y), 8)
    else:
        drawing.path(css, [(x, y), (x + 26, y)])

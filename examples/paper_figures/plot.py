"""Draws a figure as the paper does: event time across, processing time up.

A pane is a rectangle: the window across, and upwards to the moment when it was emitted.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from examples.paper_figures.figures import EVENT_BEGIN, EVENT_END, Engine, Figure
from examples.paper_figures.labels import Box, Taken
from examples.paper_figures.panes import Pane
from examples.paper_figures.points import BEGIN, END, MINUTE, POINTS, is_late
from examples.paper_figures.style import CSS
from examples.paper_figures.svg import XY, Drawing

# Pixels of the picture, with y downwards.
_WIDTH, _HEIGHT = 800.0, 592.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 768.0, 76.0, 462.0
_POINT_RADIUS = 11.0
# How wide a digit is in the widest of the fonts that the style sheet names.
_DIGIT, _RETRACTED_DIGIT, _GAP, _LABEL_HEIGHT = 12.5, 10.5, 9.0, 20.0
# A label outside its pane is better than one on a point, and worse than one on the side of a pane.
_OUTSIDE = 100.0


def draw(figure: Figure, panes: Sequence[Pane]) -> str:
    """The figure as SVG."""
    title = f"Figure {figure.number}: {figure.caption}"
    drawing = Drawing(_WIDTH, _HEIGHT, title=title, description=describe(panes), style=CSS)
    drawing.rect("card", 0.5, 0.5, _WIDTH - 1, _HEIGHT - 1, corner=8)
    drawing.text("title", (_LEFT, 40), title)
    _draw_axes(drawing)
    for pane in reversed(panes):
        box = _box(pane)
        css = "pane withdrawn" if _is_withdrawn(pane, panes) else "pane"
        drawing.rect(css, box.left, box.top, box.right - box.left, box.bottom - box.top)
        drawing.path("said", [(box.left, box.top), (box.right, box.top)])
    for line in _watermark_lines(figure):
        drawing.path(*line)
    _draw_points(drawing, figure)
    _draw_sums(drawing, figure, panes)
    _draw_legend(drawing, figure, panes)
    return drawing.to_svg()


def describe(panes: Sequence[Pane]) -> str:
    """Describe in words which panes were emitted when."""
    points = ", ".join(
        f"{p.value} of {p.event_time:%H:%M:%S} at {p.arrival:%H:%M:%S}" for p in POINTS
    )
    words = [f"Points arrive: {points}."]
    for pane in panes:
        retracted = "".join(f", {value} is retracted" for value in pane.retracted)
        words.append(f"{pane.at:%H:%M:%S}: {pane.value} is said{retracted}.")
    return " ".join(words)


def _x(event_time: datetime) -> float:
    shown = min(max(event_time, EVENT_BEGIN), EVENT_END)
    return _LEFT + (_RIGHT - _LEFT) * ((shown - EVENT_BEGIN) / (EVENT_END - EVENT_BEGIN))


def _y(now: datetime) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * ((now - BEGIN) / (END - BEGIN))


def _box(pane: Pane) -> Box:
    return Box(_x(pane.start), _y(pane.at), _x(pane.end), _y(pane.since))


def _minutes(begin: datetime, end: datetime) -> Iterator[datetime]:
    while begin <= end:
        yield begin
        begin += MINUTE


def _draw_axes(drawing: Drawing) -> None:
    for event_time in _minutes(EVENT_BEGIN, EVENT_END):
        x = _x(event_time)
        drawing.path("grid", [(x, _TOP), (x, _BOTTOM)])
        drawing.text("tick middle", (x, _BOTTOM + 20), f"{event_time:%H:%M}")
    for now in _minutes(BEGIN, END):
        y = _y(now)
        drawing.path("grid", [(_LEFT, y), (_RIGHT, y)])
        drawing.text("tick end", (_LEFT - 10, y + 5), f"{now:%H:%M}")
    drawing.path("axis", [(_LEFT, _TOP), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)])
    drawing.text("axis-name middle", ((_LEFT + _RIGHT) / 2, _BOTTOM + 44), "Event time")
    drawing.text("axis-name middle", (26, (_TOP + _BOTTOM) / 2), "Processing time", turned=True)


def _is_withdrawn(pane: Pane, panes: Sequence[Pane]) -> bool:
    later = panes[panes.index(pane) + 1 :]
    return any(
        pane.value in other.retracted and other.start <= pane.start and pane.end <= other.end
        for other in later
    )


def _watermark_lines(figure: Figure) -> Iterator[tuple[str, list[XY]]]:
    paths = figure.watermarks()
    if paths:
        yield "ideal", [(_x(BEGIN), _y(BEGIN)), (_x(END), _y(END))]
    for path in paths:
        yield "actual", [(_x(event_time), _y(now)) for event_time, now in path]


def _draw_points(drawing: Drawing, figure: Figure) -> None:
    for point in POINTS:
        centre = _x(point.event_time), _y(point.arrival)
        late = " late" if _is_shown_late(figure) and is_late(point) else ""
        drawing.circle(f"point{late}", centre, _POINT_RADIUS)
        drawing.text("value middle", (centre[0], centre[1] + 5), str(point.value))


def _is_shown_late(figure: Figure) -> bool:
    return figure.shows_watermark and figure.engine is Engine.STREAMING


def _draw_sums(drawing: Drawing, figure: Figure, panes: Sequence[Pane]) -> None:
    taken = Taken()
    for point in POINTS:
        side = 2 * _POINT_RADIUS + 2
        taken.add(Box.around((_x(point.event_time), _y(point.arrival)), side, side), 5.0)
    for css, line in _watermark_lines(figure):
        taken.add_path(line, 1.0 if css == "actual" else 0.3)
    for pane in panes:
        box = _box(pane)
        taken.add_path([(box.left, box.top), (box.right, box.top)], 2.0)
        for x in (box.left, box.right):
            taken.add_path([(x, box.top), (x, box.bottom)], 0.3)
    for pane in panes:
        back = [str(value) for value in pane.retracted]
        width = _DIGIT * len(str(pane.value))
        width += sum(_RETRACTED_DIGIT * len(text) + _GAP for text in back)
        place = taken.place(_candidates(_box(pane), width))
        x, y = place.left, place.bottom - 3
        for text in back:
            _draw_retracted(drawing, (x, y), text)
            x += _RETRACTED_DIGIT * len(text) + _GAP
        drawing.text("sum middle", ((x + place.right) / 2, y), str(pane.value))


def _draw_retracted(drawing: Drawing, at: XY, text: str) -> None:
    """Struck through by a line of our own: what ``text-decoration`` looks like depends on the program that shows it."""
    x, y = at
    width = _RETRACTED_DIGIT * len(text)
    drawing.text("sum taken-back middle", (x + width / 2, y), text)
    drawing.path("strike", [(x - 2, y - 6), (x + width + 2, y - 6)])


def _candidates(pane: Box, width: float) -> list[tuple[Box, float]]:
    """Below the upper edge, from the middle outwards, then further down; above the edge if it must be."""
    middle = (pane.left + pane.right) / 2
    room = max((pane.right - pane.left - width) / 2 - 6, 0)
    heights = [(pane.top + down + _LABEL_HEIGHT / 2, 0.0) for down in (5, 12, 20, 28)]
    heights.append((pane.top - 4 - _LABEL_HEIGHT / 2, _OUTSIDE))
    return [
        (Box.around((middle + share * room, height), width, _LABEL_HEIGHT), penalty)
        for height, penalty in heights
        for share in (0, -0.25, 0.25, -0.5, 0.5, -0.75, 0.75, -1, 1)
    ]


def _draw_legend(drawing: Drawing, figure: Figure, panes: Sequence[Pane]) -> None:
    has_retractions = any(pane.retracted for pane in panes)
    rows = (
        (
            ("point", "input", True),
            ("point late", "late input", _is_shown_late(figure)),
            ("pane", "pane and its sum", bool(panes)),
            ("pane withdrawn", "pane retracted later", has_retractions),
        ),
        (
            ("ideal", "ideal watermark", figure.shows_watermark),
            ("actual", "actual watermark", figure.shows_watermark),
            ("taken-back", "sum retracted", has_retractions),
        ),
    )
    for number, row in enumerate(rows):
        x, y = _LEFT, _BOTTOM + 80 + 27 * number
        for css, text, is_there in row:
            if is_there:
                _draw_sample(drawing, css, (x, y))
                drawing.text("legend", (x + 34, y + 5), text)
                x += 34 + 8 * len(text) + 22


def _draw_sample(drawing: Drawing, css: str, at: XY) -> None:
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

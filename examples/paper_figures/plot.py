"""Draws a figure as the paper does."""

from collections.abc import Sequence

from examples.paper_figures.figures import EVENT_BEGIN, EVENT_END, Engine, Figure
from examples.paper_figures.panes import Pane
from examples.paper_figures.points import BEGIN, END, MINUTE, POINTS, is_late
from runners.observability.drawing.pane_plot import Axis, PanePlot, PlottedPane, PlottedPoint


def draw(figure: Figure, panes: Sequence[Pane]) -> str:
    """The figure as SVG."""
    watermarks = figure.watermarks()
    return PanePlot(
        title=f"Figure {figure.number}: {figure.caption}",
        description=describe(panes),
        points=[
            PlottedPoint(
                text=str(point.value),
                event_time=point.event_time,
                arrival=point.arrival,
                is_late=is_late(point),
            )
            for point in POINTS
        ],
        panes=[
            PlottedPane(
                text=str(pane.value),
                start=pane.start,
                end=pane.end,
                since=pane.since,
                at=pane.at,
                retracted=tuple(map(str, pane.retracted)),
            )
            for pane in panes
        ],
        watermarks=watermarks,
        ideal=((BEGIN, BEGIN), (END, END)) if watermarks else None,
        event_time=Axis(name="Event time", begin=EVENT_BEGIN, end=EVENT_END, step=MINUTE),
        processing_time=Axis(name="Processing time", begin=BEGIN, end=END, step=MINUTE),
        shows_late=figure.shows_watermark and figure.engine is Engine.STREAMING,
    ).to_svg()


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

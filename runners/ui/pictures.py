"""Pictures as SVG: the graph of a job, event time against processing time, and the time line of a key.

Everything about colour is in the style sheet: what the page's policy allows are attributes and classes, no styles.
"""

import math
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

import attrs

from dataflow.layers import layers_of
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_datetime

_NODE_WIDTH, _NODE_HEIGHT, _COLUMN_GAP, _ROW_GAP = 190, 62, 70, 22
_CHART_WIDTH, _CHART_HEIGHT, _LEFT, _BOTTOM = 860, 300, 150, 44
_SPAN_HEIGHT = 48
#: More points than this a line does not need.
_POINTS = 240
_US_PER_S = 1_000_000


@attrs.frozen(kw_only=True)
class GraphBox:
    """A box of the graph.

    Attributes:
        notes: the lines below its name.
        tone: of its state.
        is_in_chain: whether it is on the way to what holds event time back.
        href: where it leads.
    """

    name: str
    notes: Sequence[str]
    tone: str
    is_in_chain: bool
    href: str


@attrs.frozen(kw_only=True)
class GraphArrow:
    """An arrow of the graph.

    Attributes:
        start, end: places of boxes.
        records_per_s: what goes along it; None: not known.
        tone: of the age of what is on its way.
        note: read aloud, and shown when pointed at.
    """

    start: int
    end: int
    records_per_s: float | None
    tone: str
    is_in_chain: bool
    note: str


def graph(title: str, nodes: Sequence[GraphBox], edges: Sequence[GraphArrow]) -> str:
    """Boxes from left to right, and arrows as wide as what goes along them.

    Args:
        title: read aloud in its place.
        nodes: the boxes, each behind those that lead to it.
        edges: the arrows.
    """
    layers = layers_of(len(nodes), [(edge.start, edge.end) for edge in edges])
    tallest = max(map(len, layers), default=1)
    places = {}
    for column, layer in enumerate(layers):
        top = (tallest - len(layer)) * (_NODE_HEIGHT + _ROW_GAP) / 2
        for row, box in enumerate(layer):
            places[box] = (
                column * (_NODE_WIDTH + _COLUMN_GAP) + 2,
                top + row * (_NODE_HEIGHT + _ROW_GAP) + 2,
            )
    width = max(len(layers) * (_NODE_WIDTH + _COLUMN_GAP) - _COLUMN_GAP, _NODE_WIDTH) + 4
    svg = _svg(title, width, tallest * (_NODE_HEIGHT + _ROW_GAP) - _ROW_GAP + 4, "graph")
    for edge in edges:
        _draw_edge(svg, edge, places)
    for at, node in enumerate(nodes):
        _draw_node(svg, node, *places[at])
    return tostring(svg, encoding="unicode")


def _draw_edge(svg: Element, edge: GraphArrow, places: Mapping[int, tuple[float, float]]) -> None:
    (x1, y1), (x2, y2) = places[edge.start], places[edge.end]
    x1, y1, y2 = x1 + _NODE_WIDTH, y1 + _NODE_HEIGHT / 2, y2 + _NODE_HEIGHT / 2
    rate = edge.records_per_s or 0.0
    line_px = 1.5 + min(5.0, math.log10(1 + rate))
    bend = _COLUMN_GAP / 2
    group = SubElement(
        svg, "g", {"class": f"edge {edge.tone}{' held' if edge.is_in_chain else ''}"}
    )
    SubElement(group, "title").text = edge.note
    tip_px = 10 if edge.is_in_chain else 8
    SubElement(
        group,
        "path",
        {
            "d": f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2 - tip_px:g} {y2:g}",
            "stroke-width": f"{max(line_px, 4.0 if edge.is_in_chain else 0):.2f}",
            "class": "line",
        },
    )
    SubElement(
        group,
        "path",
        {
            "d": f"M{x2 - tip_px:g} {y2 - 6:g}L{x2:g} {y2:g}L{x2 - tip_px:g} {y2 + 6:g}Z",
            "class": "tip",
        },
    )


def _draw_node(svg: Element, node: GraphBox, x: float, y: float) -> None:
    link = SubElement(svg, "a", {"href": node.href})
    group = SubElement(
        link, "g", {"class": f"node {node.tone}{' held' if node.is_in_chain else ''}"}
    )
    SubElement(group, "title").text = f"{node.name}: {'; '.join(node.notes)}"
    box = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{_NODE_WIDTH}", "height": f"{_NODE_HEIGHT}"}
    SubElement(group, "rect", {**box, "rx": "6", "class": "box"})
    SubElement(group, "rect", {**box, "width": "5", "rx": "2", "class": "bar"})
    lines = [("name", node.name), *(("note", note) for note in node.notes)]
    for number, (kind, text) in enumerate(lines[:3]):
        line = SubElement(
            group, "text", {"x": f"{x + 14:g}", "y": f"{y + 18 + 17 * number:g}", "class": kind}
        )
        line.text = text if len(text) <= 27 else f"{text[:26]}…"


@attrs.frozen(kw_only=True)
class Line:
    """A line of the chart.

    Attributes:
        points: processing time and event time, in microseconds since 1970.
    """

    name: str
    points: Sequence[tuple[int, int]]


def event_time_chart(title: str, lines: Sequence[Line]) -> str:
    """Event time upwards, processing time to the right, and the diagonal on which both are the same.

    Args:
        title: read aloud in its place.
        lines: one for each stage.
    """
    svg = _svg(title, _CHART_WIDTH, _CHART_HEIGHT, "chart")
    points = [
        (at, event)
        for line in lines
        for at, event in line.points
        if MIN_TIMESTAMP_US < event < MAX_TIMESTAMP_US
    ]
    if not points:
        _text(svg, _CHART_WIDTH / 2, _CHART_HEIGHT / 2, "no samples yet", "label", "middle")
        return tostring(svg, encoding="unicode")
    low_x, high_x = _bounds([at for at, _ in points], 10 * _US_PER_S)
    low_y, high_y = _bounds([event for _, event in points], 10 * _US_PER_S)
    # The diagonal belongs into the picture where the jobs are near it.
    if (
        low_y - 4 * (high_y - low_y + 60 * _US_PER_S)
        < high_x
        < high_y + 4 * (high_y - low_y + 60 * _US_PER_S)
    ):
        low_y, high_y = min(low_y, low_x), max(high_y, high_x)
    area = _Area(low_x, high_x, low_y, high_y)
    _axes(svg, area)
    for number, line in enumerate(lines):
        shown = [
            (at, event)
            for at, event in _thinned(line.points)
            if MIN_TIMESTAMP_US < event < MAX_TIMESTAMP_US
        ]
        if shown:
            way = "L".join(f"{area.x(at):.1f} {area.y(event):.1f}" for at, event in shown)
            group = SubElement(svg, "g", {"class": f"series s{number % 6}"})
            SubElement(group, "title").text = f"{line.name}: {_clock(shown[-1][1])}"
            SubElement(group, "path", {"d": f"M{way}"})
            x, y = area.x(shown[-1][0]), area.y(shown[-1][1])
            SubElement(group, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3"})
    return tostring(svg, encoding="unicode")


@attrs.frozen
class _Area:
    """What the chart shows, in microseconds since 1970."""

    low_x: int
    high_x: int
    low_y: int
    high_y: int

    def x(self, at_us: int) -> float:
        width = _CHART_WIDTH - _LEFT - 16
        return _LEFT + width * (at_us - self.low_x) / (self.high_x - self.low_x)

    def y(self, event_us: int) -> float:
        height = _CHART_HEIGHT - _BOTTOM - 12
        return 12 + height * (1 - (event_us - self.low_y) / (self.high_y - self.low_y))


def _axes(svg: Element, area: _Area) -> None:
    for event in _ticks(area.low_y, area.high_y, 5):
        y = f"{area.y(event):.1f}"
        SubElement(svg, "path", {"d": f"M{_LEFT} {y}H{_CHART_WIDTH - 16}", "class": "grid"})
        _text(svg, _LEFT - 8, area.y(event) + 4, _clock(event), "label", "end")
    for at in _ticks(area.low_x, area.high_x, 6):
        x = f"{area.x(at):.1f}"
        SubElement(svg, "path", {"d": f"M{x} 12V{_CHART_HEIGHT - _BOTTOM}", "class": "grid"})
        _text(
            svg,
            area.x(at),
            _CHART_HEIGHT - _BOTTOM + 16,
            f"{to_datetime(at):%H:%M:%S}",
            "label",
            "middle",
        )
    _text(
        svg,
        _CHART_WIDTH / 2 + _LEFT / 2,
        _CHART_HEIGHT - 6,
        "processing time (UTC)",
        "label",
        "middle",
    )
    _text(svg, 4, 10, "event time (UTC)", "label", "start")
    first, last = max(area.low_x, area.low_y), min(area.high_x, area.high_y)
    if first < last:
        way = f"M{area.x(first):.1f} {area.y(first):.1f}L{area.x(last):.1f} {area.y(last):.1f}"
        group = SubElement(svg, "g", {"class": "ideal"})
        SubElement(group, "title").text = "event time is the clock: no lag"
        SubElement(group, "path", {"d": way})


@attrs.frozen(kw_only=True)
class Span:
    """What is on the time line of a key.

    Attributes:
        row: the row that it is in, with others.
        end_us: None: a moment.
        kind: classes of the style sheet: window, emitted, timer, late, record, pane, and minus of what was retracted.
        text: beside the mark of a moment.
    """

    row: str
    label: str
    start_us: int
    end_us: int | None
    kind: str
    text: str = ""


def time_line(title: str, spans: Sequence[Span], now_us: int | None) -> str:
    """Windows over event time, a row each: records, panes and retractions where the watermark was, timers.

    Args:
        title: read aloud in its place.
        spans: what is on it.
        now_us: up to where event time has come, in microseconds since 1970; None: not known.
    """
    ends = [each for span in spans for each in (span.start_us, span.end_us) if each is not None]
    ends = [each for each in ends if MIN_TIMESTAMP_US < each < MAX_TIMESTAMP_US]
    if now_us is not None and MIN_TIMESTAMP_US < now_us < MAX_TIMESTAMP_US:
        ends.append(now_us)
    rows = {name: row for row, name in enumerate(dict.fromkeys(span.row for span in spans))}
    height = _SPAN_HEIGHT * len(rows) + _BOTTOM + 8
    svg = _svg(title, _CHART_WIDTH, height, "timeline")
    low, high = _bounds(ends or [0], _US_PER_S)
    width = _CHART_WIDTH - _LEFT - 16

    def x(at_us: int) -> float:
        return _LEFT + width * min(1.0, max(0.0, (at_us - low) / (high - low)))

    for at in _ticks(low, high, 5):
        SubElement(svg, "path", {"d": f"M{x(at):.1f} 4V{height - 36}", "class": "grid"})
        _text(svg, x(at), height - 22, _clock(at), "label", "middle")
    _text(svg, _LEFT + width / 2, height - 5, "event time (UTC)", "label", "middle")
    for name, row in rows.items():
        y = 8 + _SPAN_HEIGHT * row
        label = name if len(name) <= 22 else f"…{name[-21:]}"
        _text(svg, 4, y + 22, label, "label", "start")
        mine = [span for span in spans if span.row == name]
        for span in dict.fromkeys(each for each in mine if each.end_us is not None):
            _draw_bar(svg, span, x(span.start_us), x(span.end_us or 0), y)
        _draw_moments(svg, [(x(each.start_us), each) for each in mine if each.end_us is None], y)
    if now_us is not None and low <= now_us <= high:
        group = SubElement(svg, "g", {"class": "ideal"})
        SubElement(group, "title").text = "watermark"
        SubElement(group, "path", {"d": f"M{x(now_us):.1f} 0V{height - 36}"})
    return tostring(svg, encoding="unicode")


def _draw_bar(svg: Element, span: Span, left: float, right: float, y: float) -> None:
    group = SubElement(svg, "g", {"class": f"span {span.kind}"})
    SubElement(group, "title").text = span.label
    box = {"x": f"{left:.1f}", "y": f"{y + 12:g}", "height": "18", "rx": "3"}
    SubElement(group, "rect", {**box, "width": f"{max(4.0, right - left):.1f}"})


def _draw_moments(svg: Element, moments: Sequence[tuple[float, Span]], y: float) -> None:
    """Draw marks: panes above the bar, retractions below it; of one watermark side by side, in their order."""
    next_px = {False: -1.0, True: -1.0}
    for left, span in moments:
        group = SubElement(svg, "g", {"class": f"span {span.kind}"})
        SubElement(group, "title").text = span.label
        if "record" in span.kind:
            SubElement(group, "circle", {"cx": f"{left:.1f}", "cy": f"{y + 21:g}", "r": "4"})
            continue
        if "pane" not in span.kind:
            SubElement(group, "path", {"d": f"M{left:.1f} {y + 8:g}V{y + 34:g}"})
            continue
        is_minus = "minus" in span.kind
        place = min(max(left, next_px[is_minus]), _CHART_WIDTH - 40.0)
        text = span.text if len(span.text) <= 9 else f"{span.text[:8]}…"
        next_px[is_minus] = place + 16 + 8 * len(text)
        top = y + (31 if is_minus else 0)
        SubElement(group, "path", {"d": f"M{place:.1f} {top:g}l5 5l-5 5l-5 -5Z"})
        _text(group, place + 7, top + 9, text, "label", "start")


def _svg(title: str, width: float, height: float, kind: str) -> Element:
    svg = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img" if kind != "graph" else "group",
            "class": kind,
            "viewBox": f"0 0 {width:g} {height:g}",
            "width": f"{width:g}",
            "height": f"{height:g}",
            "aria-label": title,
        },
    )
    SubElement(svg, "title").text = title
    return svg


def _text(svg: Element, x: float, y: float, text: str, kind: str, anchor: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind, "text-anchor": anchor}
    SubElement(svg, "text", place).text = text


def _bounds(values: Sequence[int], least_us: int) -> tuple[int, int]:
    low, high = min(values), max(values)
    missing = max(0, least_us - (high - low))
    return low - missing // 2, high + missing - missing // 2


def _ticks(low: int, high: int, most: int) -> list[int]:
    """Round moments between two."""
    span_s = (high - low) / _US_PER_S
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    step_s = next((step for step in steps if span_s / step <= most), 0) or (
        86_400 * math.ceil(span_s / 86_400 / most)
    )
    step_us = step_s * _US_PER_S
    return list(range(-(-low // step_us) * step_us, high + 1, step_us))


def _thinned(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    step = max(1, len(points) // _POINTS)
    return [*points[:-1:step], *points[-1:]]


def _clock(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%d %H:%M:%S}"

"""Drawing: boxes and arrows as text, as Mermaid and as SVG; for pipelines, of which it knows nothing.

The boxes are in an order in which each comes behind those that lead to it.  In an SVG each stands one row below the
lowest of these; its bytes are the same for the same drawing, and it is legible on light and on dark pages.
"""

from collections.abc import Sequence
from enum import Enum
from html import escape
from xml.etree.ElementTree import Element, SubElement, tostring

import attrs

from dataflow.layers import layers_of

_CHARACTER_WIDTH, _LINE_HEIGHT, _PADDING, _GAP = 7.5, 17, 12, 40
#: Of a box with its two lines.
_HEIGHT = 2 * _LINE_HEIGHT + _PADDING
_STYLE = (
    ".box{fill:#f6f8fa;stroke:#57606a}.arrow{fill:none;stroke:#57606a}.name{font:600 12px sans-serif;fill:#1f2328}"
    ".note{font:11px sans-serif;fill:#57606a}.tip{fill:#57606a}"
    "@media(prefers-color-scheme:dark){.box{fill:#161b22;stroke:#8b949e}.arrow{stroke:#8b949e}.name{fill:#e6edf3}"
    ".note,.tip{fill:#8b949e}}"
)


class BoxShape(Enum):
    """The shape of a box."""

    #: Where elements come from.
    START = "start"
    STEP = "step"
    #: Where elements of a key meet.
    MEETING = "meeting"
    #: Where rows go.
    TABLE = "table"


@attrs.frozen
class Box:
    """A box.

    Attributes:
        name: on its first line.
        note: below; may be empty.
    """

    name: str
    note: str
    shape: BoxShape


@attrs.frozen
class Arrow:
    """An arrow from a box to another, by their places in the list of boxes.

    Attributes:
        label: beside it; may be empty.
    """

    start: int
    end: int
    label: str = ""


@attrs.frozen
class Drawing:
    """Boxes, and arrows between them."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]

    def to_text(self) -> str:
        """A line for each box: its name, its note, and the boxes that lead to it."""
        names = [box.name for box in self.boxes]
        notes = [box.note for box in self.boxes]
        widths = [max(map(len, column), default=0) for column in (names, notes)]
        lines = []
        for place, box in enumerate(self.boxes):
            before = [
                self.boxes[arrow.start].name + (f" ({arrow.label})" if arrow.label else "")
                for arrow in self.arrows
                if arrow.end == place
            ]
            line = f"{box.name:{widths[0]}}  {box.note:{widths[1]}}"
            lines.append((line + (f"  <- {', '.join(before)}" if before else "")).rstrip())
        return "\n".join(lines)

    def to_mermaid(self) -> str:
        """A Mermaid flowchart, which many tools that show Markdown draw."""
        lines = ["flowchart TD"]
        for place, box in enumerate(self.boxes):
            text = _in_mermaid("\n".join(filter(None, (box.name, box.note))))
            before, behind = _MERMAID_SHAPES[box.shape]
            lines.append(f'  n{place}{before}"{text}"{behind}')
        for arrow in self.arrows:
            label = f'|"{_in_mermaid(arrow.label)}"|' if arrow.label else ""
            lines.append(f"  n{arrow.start} -->{label} n{arrow.end}")
        return "\n".join(lines)

    def to_svg(self, title: str) -> str:
        """A picture as the text of an SVG element.

        Args:
            title: read aloud in its place.
        """
        places = self._places()
        width = (
            max(
                (x + _width(box) for (x, _), box in zip(places, self.boxes, strict=True)), default=0
            )
            + 1
        )
        height = (
            max(
                (y + _HEIGHT for (_, y), box in zip(places, self.boxes, strict=True)),
                default=0,
            )
            + 1
        )
        svg = Element(
            "svg",
            _attributes(xmlns="http://www.w3.org/2000/svg", role="img", width=width, height=height),
        )
        svg.set("viewBox", f"-1 -1 {width + 1:g} {height + 1:g}")
        SubElement(svg, "title").text = title
        SubElement(svg, "style").text = _STYLE
        for arrow in self.arrows:
            self._draw_arrow(svg, arrow, places)
        for (x, y), box in zip(places, self.boxes, strict=True):
            round_px = {BoxShape.START: _HEIGHT / 2, BoxShape.TABLE: 0}.get(box.shape, 4)
            SubElement(
                svg,
                "rect",
                _attributes(x=x, y=y, width=_width(box), height=_HEIGHT, rx=round_px)
                | {"class": "box", "stroke-width": "2" if box.shape is BoxShape.MEETING else "1"},
            )
            for number, (kind, text) in enumerate((("name", box.name), ("note", box.note))):
                line = SubElement(
                    svg,
                    "text",
                    _attributes(x=x + _width(box) / 2, y=y + _PADDING + 8 + number * _LINE_HEIGHT)
                    | {"class": kind, "text-anchor": "middle"},
                )
                line.text = text
        return tostring(svg, encoding="unicode")

    def _places(self) -> list[tuple[float, float]]:
        """The upper left corner of each box."""
        places = [(0.0, 0.0)] * len(self.boxes)
        arrows = [(arrow.start, arrow.end) for arrow in self.arrows]
        for row, layer in enumerate(layers_of(len(self.boxes), arrows)):
            x = 0.0
            for each in layer:
                places[each] = x, float(row * (_HEIGHT + _GAP))
                x += _width(self.boxes[each]) + _GAP / 2
        return places

    def _draw_arrow(
        self, svg: Element, arrow: Arrow, places: Sequence[tuple[float, float]]
    ) -> None:
        (x1, y1), (x2, y2) = places[arrow.start], places[arrow.end]
        x1 += _width(self.boxes[arrow.start]) / 2
        y1 += _HEIGHT
        x2 += _width(self.boxes[arrow.end]) / 2
        bend = _GAP / 2
        way = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2 - 6:g}"
        SubElement(svg, "path", {"class": "arrow", "d": way})
        tip = f"M{x2 - 4:g} {y2 - 7:g}L{x2 + 4:g} {y2 - 7:g}L{x2:g} {y2:g}Z"
        SubElement(svg, "path", {"class": "tip", "d": tip})
        if arrow.label:
            place = _attributes(x=(x1 + x2) / 2 + 6, y=(y1 + y2) / 2 + 4)
            SubElement(svg, "text", place | {"class": "note"}).text = arrow.label


_MERMAID_SHAPES = {
    BoxShape.START: ("([", "])"),
    BoxShape.STEP: ("[", "]"),
    BoxShape.MEETING: ("{{", "}}"),
    BoxShape.TABLE: ("[(", ")]"),
}


def html_table(title: str, facts: Sequence[tuple[str, object]]) -> str:
    """A small table for notebooks.

    Args:
        title: above it.
        facts: names and values, a row each.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts
    )
    return f"<table><caption style='text-align:left'>{escape(title)}</caption>{rows}</table>"


def _in_mermaid(text: str) -> str:
    """A text between quotes, in which Mermaid knows the entities of HTML and of its own."""
    return escape(text).replace("#", "#35;").replace("&#35;x27;", "#39;").replace("\n", "<br/>")


def _attributes(**values: float | str) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()
    }


def _width(box: Box) -> float:
    return _CHARACTER_WIDTH * max(len(box.name), len(box.note)) + 2 * _PADDING

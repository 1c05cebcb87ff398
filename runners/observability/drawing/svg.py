"""A small writer of SVG: shapes and text with classes; the same calls give the same bytes.

Coordinates are pixels of the picture, with y downwards.  Colours are not given here but by the style sheet, by class.
Deliberately absent: everything that the figures do not need.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

XY = tuple[float, float]


class SvgDrawing:
    """One picture.

    Args:
        width: in pixels; the picture scales with the page.
        height: in pixels.
        title: what it is, for those who cannot see it.
        description: what there is to see.
        style: CSS.
    """

    def __init__(
        self, width: float, height: float, *, title: str, description: str, style: str
    ) -> None:
        self._root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {number(width)} {number(height)}",
                "width": number(width),
                "height": number(height),
                "role": "img",
            },
        )
        for tag, text in (("title", title), ("desc", description), ("style", style)):
            ET.SubElement(self._root, tag).text = text

    def rect(
        self, css: str, x: float, y: float, width: float, height: float, *, corner: float = 0
    ) -> None:
        """Add a rectangle.

        Args:
            css: its class.
            x: of its left side.
            y: of its upper side.
            width: in pixels.
            height: in pixels.
            corner: the radius of its corners.
        """
        rounded = {"rx": number(corner)} if corner else {}
        self._add("rect", css, {**_numbers(x=x, y=y, width=width, height=height), **rounded})

    def circle(self, css: str, centre: XY, radius: float) -> None:
        """Add a circle.

        Args:
            css: its class.
            centre: its middle.
            radius: in pixels.
        """
        self._add("circle", css, _numbers(cx=centre[0], cy=centre[1], r=radius))

    def path(self, css: str, points: Sequence[XY]) -> None:
        """Add straight lines from point to point.

        Args:
            css: their class.
            points: in order.
        """
        steps = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._add("polyline", css, {"points": steps})

    def text(self, css: str, at: XY, text: str, *, turned: bool = False) -> None:
        """One line of text; ``at`` is on its baseline.

        Args:
            css: its class; the style sheet decides how it is anchored.
            at: start, middle or end of the baseline.
            text: the text of the line.
            turned: reads from below to above.
        """
        attributes = _numbers(x=at[0], y=at[1])
        if turned:
            attributes["transform"] = f"rotate(-90 {number(at[0])} {number(at[1])})"
        self._add("text", css, attributes).text = text

    def to_svg(self) -> str:
        """The whole file."""
        lines = [ET.tostring(child, encoding="unicode") for child in self._root]
        whole = ET.tostring(self._root, encoding="unicode", short_empty_elements=False)
        opening = whole[: whole.index(">") + 1]
        return "\n".join([opening, *lines, "</svg>", ""])

    def _add(self, tag: str, css: str, attributes: dict[str, str]) -> ET.Element:
        return ET.SubElement(self._root, tag, {"class": css, **attributes})


def number(value: float) -> str:
    """At most one decimal, so that no platform's last digit gets into a file: ``12.3``, ``7``, never ``-0``."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def _numbers(**values: float) -> dict[str, str]:
    return {name: number(value) for name, value in values.items()}

"""The drawing of the paper's figures: no label covers anything, and all of it is inside the picture."""

import itertools
from xml.etree import ElementTree as ET

import pytest

from examples.paper_figures.figures import FIGURES, Figure
from examples.paper_figures.plot import describe
from runners.observability.drawing.labels import PixelBox
from runners.observability.drawing.style import CSS
from tests.overlaps import overlap
from tests.paper_drawings import drawn, panes

SVG = "{http://www.w3.org/2000/svg}"


def texts(root: ET.Element, css: str) -> list[tuple[PixelBox, str]]:
    """The texts of a class that are drawn into the plot, with the room they take."""
    size = {"taken-back": 10.5}.get(css, 12.5)
    found = []
    for element in root.iter(f"{SVG}text"):
        classes = element.get("class", "").split()
        if "sum" in classes and (css == "taken-back") == ("taken-back" in classes):
            x, y, text = (
                float(element.get("x", "")),
                float(element.get("y", "")),
                element.text or "",
            )
            found.append((PixelBox.around((x, y - 7), size * len(text) - 4, 14), text))
    return [(box, text) for box, text in found if box.bottom < 462]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_no_sum_covers_a_point_or_another_sum(figure: Figure) -> None:
    root = ET.fromstring(drawn(figure))
    sums = [box for css in ("now", "taken-back") for box, _ in texts(root, css)]
    points = [
        PixelBox.around((float(each.get("cx", "")), float(each.get("cy", ""))), 20, 20)
        for each in root.iter(f"{SVG}circle")
    ]

    for one, other in [*itertools.combinations(sums, 2), *itertools.product(sums, points)]:
        assert overlap(one, other, clearance=2) == 0


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_every_sum_and_every_retraction_is_drawn(figure: Figure) -> None:
    of_figure = panes(figure)
    root = ET.fromstring(drawn(figure))

    assert [text for _, text in texts(root, "now")] == [str(pane.value) for pane in of_figure]
    assert [text for _, text in texts(root, "taken-back")] == [
        str(value) for pane in of_figure for value in pane.retracted
    ]
    assert (root.findtext(f"{SVG}desc") or "") == describe(of_figure)


@pytest.mark.slow
def test_late_point_stands_out_where_there_is_a_watermark_to_be_behind() -> None:
    late = {}
    for figure in FIGURES:
        root = ET.fromstring(drawn(figure))
        circles = [each.get("class") for each in root.iter(f"{SVG}circle")]
        # The ten points, and then the legend.
        late[figure.number] = [
            place for place, css in enumerate(circles[:10]) if css == "point late"
        ]

    assert late == {each: [7] if each in (5, 12, 13, 14) else [] for each in range(5, 15)}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_everything_is_inside_the_picture(figure: Figure) -> None:
    root = ET.fromstring(drawn(figure))
    _, _, width, height = map(float, root.get("viewBox", "").split())

    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
        assert w > 0
        assert h > 0
    for line in root.iter(f"{SVG}polyline"):
        for point in line.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


@pytest.mark.slow
def test_every_class_that_is_drawn_has_a_style_in_light_and_in_dark() -> None:
    light, dark = CSS.split("@media (prefers-color-scheme:dark)")
    used = {
        name
        for figure in FIGURES
        for element in ET.fromstring(drawn(figure)).iter()
        for name in element.get("class", "").split()
    }
    without_colour = {"middle", "end", "title", "value", "withdrawn"}

    assert {name for name in used if f".{name}" not in light} == set()
    assert {name for name in used - without_colour if f".{name}" not in dark} == set()

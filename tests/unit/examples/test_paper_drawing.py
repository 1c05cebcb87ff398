"""The drawing of the paper's figures: what is written is read again, and no label covers anything."""

import itertools
import math
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.paper_figures.figures import FIGURES, Figure
from examples.paper_figures.labels import Box, Taken
from examples.paper_figures.plot import describe
from examples.paper_figures.style import CSS
from examples.paper_figures.svg import Drawing, number
from tests.paper_drawings import drawn, panes

SVG = "{http://www.w3.org/2000/svg}"
COORDINATES = st.floats(-1_000, 1_000)
SIZES = st.floats(0.5, 200)
BOXES = st.builds(
    lambda x, y, width, height: Box.around((x, y), width, height),
    COORDINATES,
    COORDINATES,
    SIZES,
    SIZES,
)
WORDS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co")))


def empty() -> Drawing:
    return Drawing(10, 10, title="", description="", style="")


@given(title=WORDS, label=WORDS, css=WORDS)
def test_any_text_is_read_again_as_it_was_written(title: str, label: str, css: str) -> None:
    drawing = Drawing(10, 10, title=title, description="<&>", style="a>b{}")
    drawing.text(css, (1, 2), label)

    root = ET.fromstring(drawing.to_svg())

    assert [(child.tag, child.text or "") for child in root] == [
        (f"{SVG}title", title),
        (f"{SVG}desc", "<&>"),
        (f"{SVG}style", "a>b{}"),
        (f"{SVG}text", label),
    ]
    assert root[3].get("class") == css


@given(value=st.floats(-1e6, 1e6))
def test_numbers_are_short_and_near(value: float) -> None:
    text = number(value)

    assert re.fullmatch(r"-?\d+(\.[1-9])?", text)
    assert text != "-0"
    assert math.isclose(float(text), value, abs_tol=0.0501)


def test_shapes_are_where_they_were_put() -> None:
    drawing = empty()
    drawing.rect("r", 1, 2, 3, 4.25, corner=5)
    drawing.circle("c", (6, 7), 8)
    drawing.path("p", [(1, 2), (3, 4)])
    drawing.text("t", (9, 10), "up", turned=True)

    lines = drawing.to_svg().splitlines()

    assert lines[4:-1] == [
        '<rect class="r" x="1" y="2" width="3" height="4.2" rx="5" />',
        '<circle class="c" cx="6" cy="7" r="8" />',
        '<polyline class="p" points="1,2 3,4" />',
        '<text class="t" x="9" y="10" transform="rotate(-90 9 10)">up</text>',
    ]


@given(one=BOXES, other=BOXES)
def test_overlap_is_mutual_and_only_of_what_is_near(one: Box, other: Box) -> None:
    is_apart = (
        one.right + 2 < other.left
        or other.right + 2 < one.left
        or one.bottom + 2 < other.top
        or other.bottom + 2 < one.top
    )

    assert one.overlap(other) == other.overlap(one)
    assert (one.overlap(other) == 0) or not is_apart
    assert one.overlap(one) > 0


@given(
    taken=st.lists(st.tuples(BOXES, st.floats(0, 5)), max_size=8),
    candidates=st.lists(st.tuples(BOXES, st.floats(0, 100)), min_size=1, max_size=8),
)
def test_a_label_goes_to_the_cheapest_place(
    taken: list[tuple[Box, float]], candidates: list[tuple[Box, float]]
) -> None:
    picture = Taken()
    for box, weight in taken:
        picture.add(box, weight)
    costs = [penalty + picture.cost(box) for box, penalty in candidates]

    place = picture.place(candidates)

    chosen = [cost for cost, (box, _) in zip(costs, candidates, strict=True) if box == place]
    assert min(chosen) == pytest.approx(min(costs), abs=0.001)
    assert picture.cost(place) > 0  # the next label keeps away from it


# The figures themselves.


def texts(root: ET.Element, css: str) -> list[tuple[Box, str]]:
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
            found.append((Box.around((x, y - 7), size * len(text) - 4, 14), text))
    return [(box, text) for box, text in found if box.bottom < 462]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_no_sum_covers_a_point_or_another_sum(figure: Figure) -> None:
    root = ET.fromstring(drawn(figure))
    sums = [box for css in ("now", "taken-back") for box, _ in texts(root, css)]
    points = [
        Box.around((float(each.get("cx", "")), float(each.get("cy", ""))), 20, 20)
        for each in root.iter(f"{SVG}circle")
    ]

    for one, other in [*itertools.combinations(sums, 2), *itertools.product(sums, points)]:
        assert one.overlap(other) == 0


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

"""The writer of SVG and the placing of labels: what is written is read again, and a label goes where it hurts least."""

import itertools
import math
import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.observability.drawing.labels import Occupied, PixelBox
from runners.observability.drawing.pane_plot import Axis, PanePlot, PlottedPoint
from runners.observability.drawing.svg import SvgDrawing, number
from tests.overlaps import overlap

SVG = "{http://www.w3.org/2000/svg}"
COORDINATES = st.floats(-1_000, 1_000)
SIZES = st.floats(0.5, 200)
BOXES = st.builds(
    lambda x, y, width, height: PixelBox.around((x, y), width, height),
    COORDINATES,
    COORDINATES,
    SIZES,
    SIZES,
)
WORDS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co")))


def empty() -> SvgDrawing:
    return SvgDrawing(10, 10, title="", description="", style="")


@given(title=WORDS, label=WORDS, css=WORDS)
def test_any_text_is_read_again_as_it_was_written(title: str, label: str, css: str) -> None:
    drawing = SvgDrawing(10, 10, title=title, description="<&>", style="a>b{}")
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


@given(
    taken=st.lists(st.tuples(BOXES, st.floats(0, 5)), max_size=8), boxes=st.lists(BOXES, max_size=8)
)
def test_a_place_costs_what_it_covers_of_what_is_near(
    taken: list[tuple[PixelBox, float]], boxes: list[PixelBox]
) -> None:
    picture = Occupied()
    for box, weight in taken:
        picture.add(box, weight)

    assert picture.costs(boxes) == [
        pytest.approx(sum(weight * overlap(box, other, clearance=2) for other, weight in taken))
        for box in boxes
    ]


@given(
    taken=st.lists(st.tuples(BOXES, st.floats(0, 5)), max_size=8),
    candidates=st.lists(st.tuples(BOXES, st.floats(0, 100)), min_size=1, max_size=8),
)
def test_a_label_goes_to_the_first_of_the_cheapest_places(
    taken: list[tuple[PixelBox, float]], candidates: list[tuple[PixelBox, float]]
) -> None:
    picture = Occupied()
    for box, weight in taken:
        picture.add(box, weight)
    covered = picture.costs([box for box, _ in candidates])
    costs = [round(bad + cost, 3) for cost, (_, bad) in zip(covered, candidates, strict=True)]

    place = picture.place(candidates)

    assert place is candidates[costs.index(min(costs))][0]
    assert picture.costs([place]) > [covered[costs.index(min(costs))]], "the next one keeps away"


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
#: Crowded: a name is as wide as ten of them.
MINUTES = st.integers(0, 12).map(lambda minutes: NOON + timedelta(minutes=minutes))
POINTS = st.lists(
    st.builds(
        lambda text, event_time, arrival: PlottedPoint(
            text=text, event_time=event_time, arrival=arrival
        ),
        st.sampled_from(["7", "lamps", "u14: 10.50", "a name that is longer than a picture"]),
        MINUTES,
        MINUTES,
    ),
    max_size=20,
)


@given(points=POINTS)
def test_a_name_is_beside_its_point_where_nothing_is(points: list[PlottedPoint]) -> None:
    """A text that fits is in the circle; names are inside the picture, and touch points and names at most."""
    axis = Axis(name="", begin=NOON, end=NOON + timedelta(hours=1), step=timedelta(minutes=10))
    plot = PanePlot(
        title="", description="", points=points, panes=[], event_time=axis, processing_time=axis
    )

    root = ET.fromstring(plot.to_svg())

    def at(element: ET.Element) -> tuple[float, float]:
        return float(element.get("x", "")), float(element.get("y", ""))

    inside = [each for each in root.iter(f"{SVG}text") if each.get("class") == "value middle"]
    assert [each.text for each in inside] == [p.text for p in points if len(p.text) <= 3]
    circles = [
        PixelBox.around((float(each.get("cx", "")), float(each.get("cy", ""))), size, size)
        for each in root.iter(f"{SVG}circle")
        for size in [1.6 * float(each.get("r", ""))]
    ]
    names = [
        PixelBox.around((x, y - 5), 8.0 * len(each.text or ""), 12)
        for each in root.iter(f"{SVG}text")
        for x, y in [at(each)]
        if each.get("class") == "tick middle" and y < 480
    ]
    assert len(names) <= sum(len(p.text) > 3 for p in points)
    assert all(0 < name.left and name.right < 800 for name in names)
    for one, other in [*itertools.combinations(names, 2), *itertools.product(names, circles)]:
        assert overlap(one, other, clearance=2) < 75


def test_a_name_that_has_room_is_there() -> None:
    axis = Axis(name="", begin=NOON, end=NOON + timedelta(hours=1), step=timedelta(minutes=10))
    point = PlottedPoint(
        text="eighteen characters", event_time=axis.begin + axis.step, arrival=axis.end - axis.step
    )
    plot = PanePlot(
        title="", description="", points=[point], panes=[], event_time=axis, processing_time=axis
    )

    assert ">eighteen char…</text>" in plot.to_svg()

"""Pipelines as text, Mermaid and SVG, and what notebooks show."""

from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.drawing import Arrow, Box, BoxShape, Drawing, html_table


def build() -> df.Pipeline:
    p = df.Pipeline()
    numbers = p | "numbers" >> df.Create([df.TimestampedValue(("a", 1), 1)])
    small, big = numbers | "by <size>" >> df.Map(
        lambda pair: pair if pair[1] < 2 else df.TaggedOutput("big", pair)
    ).with_outputs("big")
    both = (small, big) | "both" >> df.Flatten()
    sums = both | "minutes" >> df.WindowInto(df.FixedWindows(60)) | "sums" >> df.CombinePerKey(sum)
    rows = sums | "rows" >> df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
    rows | "write" >> df.WriteToPostgres("sums", columns={"key": str, "sum": int}, key="key")
    return p


TEXT = """\
numbers/Read(MemorySource)  Read
by <size>                   ParDo                                               <- numbers/Read(MemorySource)
both                        Flatten                                             <- by <size>, by <size> (big)
minutes                     FixedWindows(60 s), discarding  <- both
sums                        Group                                               <- minutes
rows                        ParDo                                               <- sums
write                       table sums                                          <- rows"""


@pytest.fixture
def pipeline() -> df.Pipeline:
    return build()


def test_a_graph_is_text(pipeline: df.Pipeline) -> None:
    lines = [line.split() for line in str(pipeline.graph()).splitlines()]
    expected = [line.split() for line in TEXT.splitlines()]
    window_fn = repr(df.FixedWindows(60))
    expected[3] = f"minutes {window_fn}, discarding <- both".split()
    assert lines == expected
    arrows = {line.find("<-") for line in str(pipeline.graph()).splitlines()[1:]}
    assert len(arrows) == 1


def test_a_graph_is_a_mermaid_flowchart(pipeline: df.Pipeline) -> None:
    lines = pipeline.graph().to_mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n0(["numbers/Read(MemorySource)<br/>Read"])' in lines
    assert '  n1["by &lt;size&gt;<br/>ParDo"]' in lines
    assert '  n4{{"sums<br/>Group"}}' in lines
    assert '  n6[("write<br/>table sums")]' in lines
    assert [line for line in lines if "-->" in line] == [
        "  n0 --> n1",
        "  n1 --> n2",
        '  n1 -->|"big"| n2',
        "  n2 --> n3",
        "  n3 --> n4",
        "  n4 --> n5",
        "  n5 --> n6",
    ]


def test_a_graph_is_a_picture(pipeline: df.Pipeline) -> None:
    graph = pipeline.graph()
    svg = fromstring(graph.to_svg())
    texts = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {node.label for node in graph.transforms} <= {*texts}
    assert "big" in texts
    assert graph.to_svg() == build().graph().to_svg() == pipeline._repr_html_()


texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), max_size=20)


@given(
    st.lists(st.builds(Box, name=texts, note=texts, shape=st.sampled_from(BoxShape)), max_size=8),
    st.data(),
)
def test_boxes_never_overlap_and_arrows_lead_down(boxes: list[Box], data: st.DataObject) -> None:
    arrows = [
        Arrow(start, end, data.draw(texts))
        for end in range(1, len(boxes))
        for start in data.draw(st.sets(st.integers(0, end - 1)))
    ]
    svg = fromstring(Drawing(boxes, arrows).to_svg("title"))
    rects = [
        tuple(float(each.get(name, "")) for name in ("x", "y", "width", "height"))
        for each in svg.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(rects) == len(boxes)
    for number, (x, y, width, height) in enumerate(rects):
        for x2, y2, width2, height2 in rects[:number]:
            assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    for arrow in arrows:
        assert rects[arrow.start][1] < rects[arrow.end][1]
    found = [each.text or "" for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {box.name for box in boxes} <= {*found}
    assert len(Drawing(boxes, arrows).to_text().split("\n")) == max(1, len(boxes))


def test_notebooks_show_collections_and_results(pipeline: df.Pipeline) -> None:
    numbers = pipeline | "more" >> df.Create([1])
    shown = numbers._repr_html_()
    assert "more/Read(MemorySource)" in shown
    assert "GlobalWindows" in shown
    result = pipeline.run()
    html = result._repr_html_()  # type: ignore[attr-defined] # for notebooks alone
    fromstring(html)
    assert "finished" in html
    assert "rows of sums" in html


def test_what_is_html_is_escaped() -> None:
    assert "<b>" not in html_table("<b>", [("<b>", "<b>")])

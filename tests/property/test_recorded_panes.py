"""The picture of a recorded run shows what the run has done: its records, its panes, and what they retract."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given

import dataflow as df
from examples.paper_figures.figures import FIGURES
from examples.paper_figures.panes import Pane
from examples.paper_figures.points import POINTS
from runners.direct import DirectRunner
from runners.observability.drawing.pane_plot import PanePlot
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import Arrivals, Record, Windowing
from tests.oracle.laws import microseconds, window_fn
from tests.strategies import streams, windowings

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
STREAMING = [each for each in FIGURES if each.number in (12, 13, 14)]


def plotted(pane: Pane) -> tuple[Any, ...]:
    return str(pane.value), pane.start, pane.end, pane.at, tuple(map(str, pane.retracted))


@pytest.mark.parametrize("figure", STREAMING, ids=lambda figure: str(figure.number))
def test_the_figures_of_the_paper_are_drawn_of_a_recorded_run(figure: Any) -> None:
    """With the panes and points that the figure itself is drawn of."""
    points = figure.engine.pipeline()[1]
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        figure.build(p | points) | df.Map(lambda pair: None)
    result: Any = p.result
    plot: PanePlot = result.plot("key")

    shown = [(each.text, each.start, each.end, each.at, each.retracted) for each in plot.panes]
    assert shown == [plotted(each) for each in figure.run()]
    assert [(each.text, each.event_time) for each in plot.points] == [
        (str(point.value), point.event_time) for point in POINTS
    ]
    assert [each.text for each in plot.points if each.is_late] == ["9"]
    assert plot.watermarks


def is_in_a_window(record: Record, windowing: Windowing) -> bool:
    """Sliding windows may leave pauses; what comes then is in no pane."""
    since_us = record.timestamp_us - windowing.offset_us
    return not windowing.period_us or since_us % windowing.period_us < windowing.size_us


@given(arrivals=streams(), windowing=windowings())
@example(
    arrivals=[Arrivals((Record("a", 1, 7),), -4)],
    windowing=Windowing("sliding", 7, 0, 0, period_us=10),
)
def test_every_run_can_be_drawn(arrivals: list[Arrivals], windowing: Windowing) -> None:
    """All of it inside the picture, whatever the windows are, without any processing time too."""
    script = [
        Batch(
            [(record.key, record.value) for record in arrival.records],
            [record.timestamp_us for record in arrival.records],
            arrival.watermark_us,
        )
        for arrival in arrivals
    ]
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        (
            p
            | df.Read(ScriptedSource(script))
            | df.WindowInto(
                window_fn(windowing),
                allowed_lateness=microseconds(windowing.lateness_us),
                accumulation_mode=df.AccumulationMode.DISCARDING,
            )
            | df.CombinePerKey(sum)
            | df.Map(lambda pair: None)
        )
    result: Any = p.result
    records = [record for arrival in arrivals for record in arrival.records]
    for key in {each.key for each in records if is_in_a_window(each, windowing)}:
        plot: PanePlot = result.plot(key)
        root = ET.fromstring(plot.to_svg())
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for line in root.iter("{http://www.w3.org/2000/svg}polyline"):
            for point in line.get("points", "").split():
                x, y = map(float, point.split(","))
                assert 0 <= x <= width
                assert 0 <= y <= height
    with pytest.raises(df.PipelineError, match="nothing is recorded of the key"):
        result.plot("no such key")


def test_a_key_of_two_groupings_needs_the_name_of_one(tmp_path: Path) -> None:
    """And the picture is a file."""
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        sums = p | df.Create([("a", 1), ("a", 2)]) | "sum" >> df.CombinePerKey(sum)
        sums | "largest" >> df.CombinePerKey(max) | df.Map(lambda pair: None)
    result: Any = p.result
    with pytest.raises(df.PipelineError, match="several groupings have the key 'a': largest, sum"):
        result.plot("a")
    result.plot("a", transform="sum").save(str(tmp_path / "a.svg"))
    assert "sum, key 'a'" in (tmp_path / "a.svg").read_text()

"""The paper's figures: the points and the watermark agree with its text, and so does what the pipelines emit."""

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import dataflow as df
from dataflow.testing import TestStream
from examples.paper_figures import MINUTE, ten_points
from examples.paper_figures.__main__ import main
from examples.paper_figures.figures import FIGURES, Figure
from examples.paper_figures.panes import Pane, numbers, panes_of
from examples.paper_figures.points import (
    BEGIN,
    END,
    POINTS,
    SECOND,
    is_late,
    watermark_at,
)
from tests.paper_drawings import drawn

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/paper-figures.md"
BY_NUMBER = {figure.number: figure for figure in FIGURES}
RUN = [figure for figure in FIGURES if figure.build]
SESSION_OF_THE_5_ENDS, SESSION_OF_THE_8_ENDS = timedelta(seconds=90), timedelta(seconds=325)
NOON = POINTS[0].event_time - timedelta(seconds=30)


def clock(instant: datetime) -> str:
    return f"{instant:%M:%S}"


def fired_at(figure: Figure) -> list[tuple[str, list[int]]]:
    """What is emitted when, a moment at a time."""
    moments = itertools.groupby(figure.run(), key=lambda pane: pane.at)
    return [(clock(at), numbers(list(panes))) for at, panes in moments]


# The points and the watermark, by the text of section 2.4.


def test_only_the_9_is_late() -> None:
    assert [point.value for point in POINTS if is_late(point)] == [9]


def test_nothing_arrives_before_it_happens() -> None:
    assert all(point.event_time < point.arrival for point in POINTS)
    assert [point.arrival for point in POINTS] == sorted(point.arrival for point in POINTS)


def test_watermark_never_goes_back_and_never_overtakes_the_ideal_one() -> None:
    seconds = [BEGIN + number * SECOND for number in range(241)]
    path = [watermark_at(now) for now in seconds]

    assert path == sorted(path)
    assert all(event_time <= now for event_time, now in zip(path, seconds, strict=True))
    with pytest.raises(ValueError, match="ends before"):
        watermark_at(END + SECOND)


def test_watermark_passes_the_session_of_the_8_between_the_8_and_the_9() -> None:
    eight, nine = POINTS[5], POINTS[7]
    assert (eight.value, nine.value) == (8, 9)
    assert watermark_at(eight.arrival) < NOON + SESSION_OF_THE_8_ENDS
    # Before the minute is full: it is the watermark that makes the session fire, not the clock.
    assert watermark_at(BEGIN + 3 * MINUTE) > NOON + SESSION_OF_THE_8_ENDS
    assert nine.arrival > BEGIN + 3 * MINUTE


def test_the_5_is_emitted_by_the_clock() -> None:
    assert watermark_at(BEGIN + MINUTE) < NOON + SESSION_OF_THE_5_ENDS


# What the pipelines emit.


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (6, [("09:00", [51])]),
        (7, [("06:00", [12]), ("07:00", [22]), ("08:00", [33]), ("09:00", [51])]),
        (8, [("06:00", [12]), ("07:00", [10]), ("08:00", [11]), ("09:00", [18])]),
        (
            9,
            [("05:40", [12]), ("06:25", [7]), ("07:05", [11]), ("08:20", [12]), ("08:50", [9])],
        ),
        (10, [("09:00", [14, 22, 3, 12])]),
        (11, [("06:00", [5, 7]), ("07:00", [14, 3]), ("08:00", [22, 3]), ("09:00", [14, 12])]),
        (
            12,
            [("06:20", [5]), ("07:24", [22]), ("07:47", [3]), ("08:20", [14]), ("08:59", [12])],
        ),
        (
            13,
            [
                ("06:00", [5, 7]),
                ("07:00", [14, 3]),
                ("07:24", [22]),
                ("08:00", [3]),
                ("08:20", [14]),
                ("08:59", [12]),
            ],
        ),
        (
            14,
            [
                ("06:00", [5, 7]),
                ("07:00", [10]),
                ("07:37", [-7, -10, 25]),
                ("08:00", [3]),
                ("08:20", [-5, -25, 39]),
                ("09:00", [-3, 12]),
            ],
        ),
    ],
)
def test_figure_has_the_values_of_the_paper(
    number: int, expected: list[tuple[str, list[int]]]
) -> None:
    assert fired_at(BY_NUMBER[number]) == expected


def test_a_window_fires_as_soon_as_the_watermark_has_passed_it() -> None:
    on_time = [pane for pane in BY_NUMBER[12].run() if pane.value != 14]

    for pane in on_time:
        assert watermark_at(pane.at - SECOND) < pane.end <= watermark_at(pane.at)


@pytest.mark.parametrize("figure", RUN, ids=lambda figure: str(figure.number))
def test_every_engine_and_mode_comes_to_51_in_the_end(figure: Figure) -> None:
    panes = figure.run()
    if figure.is_discarding or figure.number == 14:
        assert sum(numbers(panes)) == 51
    else:
        assert sum({pane.start: pane.value for pane in panes}.values()) == 51


def test_fixed_windows_have_the_same_last_answers_on_every_engine() -> None:
    answers = [
        {pane.start: pane.value for pane in BY_NUMBER[number].run()} for number in (10, 11, 12, 13)
    ]

    assert all(answer == answers[0] for answer in answers)


def run(points: df.PTransform[df.Pipeline, df.PCollection[object]], *steps: object) -> list[Pane]:
    changes: list[df.Change[tuple[str, int]]] = []
    with df.Pipeline() as p:
        collection = p | points
        for step in (*steps, df.ToChangelog(), df.Map(changes.append)):
            collection = collection | step  # type: ignore[operator]
    return panes_of(changes, is_discarding=False)


def test_a_stream_whose_watermark_waits_for_the_end_is_classic_batch() -> None:
    stream = TestStream()
    for point in POINTS:
        stream = stream.advance_processing_time_to(point.arrival)
        stream = stream.add_elements([df.TimestampedValue(("key", point.value), point.event_time)])
    stream = stream.advance_processing_time_to(END).advance_watermark_to_infinity()

    assert run(stream, df.CombinePerKey(sum)) == BY_NUMBER[6].run()


@pytest.mark.parametrize(
    ("number", "window_fn", "mode"),
    [
        (13, df.FixedWindows(2 * MINUTE), df.AccumulationMode.ACCUMULATING),
        (14, df.Sessions(MINUTE), df.AccumulationMode.ACCUMULATING_AND_RETRACTING),
    ],
)
def test_the_trigger_as_the_paper_spells_it_emits_the_same(
    number: int, window_fn: df.WindowFn, mode: df.AccumulationMode
) -> None:
    sequence_of = df.AfterEach(
        df.OrFinally(df.Repeatedly(df.AtPeriod(MINUTE)), df.AfterWatermark()),
        df.Repeatedly(df.AfterWatermark()),
    )
    window_into = df.WindowInto(
        window_fn,
        trigger=sequence_of,
        accumulation_mode=mode,
        on_time_behavior=df.FiringBehavior.FIRE_IF_NON_EMPTY,
        allowed_lateness=10 * MINUTE,
    )

    assert run(ten_points(), window_into, df.CombinePerKey(sum)) == BY_NUMBER[number].run()


@pytest.mark.parametrize("figure", RUN, ids=lambda figure: str(figure.number))
def test_a_pane_covers_exactly_the_points_in_its_sum(figure: Figure) -> None:
    for pane in figure.run():
        covered = [
            point.value
            for point in POINTS
            if pane.start <= point.event_time < pane.end and pane.since <= point.arrival <= pane.at
        ]
        if pane.since in [point.arrival for point in POINTS] and figure.is_discarding:
            covered = covered[1:]  # what arrived with the pane before is in that one
        assert sum(covered) == pane.value


# The files and the pages.


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_committed_figure_is_what_is_drawn_now(figure: Figure) -> None:
    committed = (ROOT / "docs/figures" / figure.file_name).read_bytes()
    again = "draw it again: .venv/bin/python -m examples.paper_figures"

    assert drawn(figure).encode() == committed, again


def test_no_other_figures_are_committed() -> None:
    names = {path.name for path in (ROOT / "docs/figures").glob("figure_*.svg")}

    assert names == {figure.file_name for figure in FIGURES}


def test_command_draws_what_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "new"), "14", "9"]) == 0

    drawn = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in drawn] == ["figure_09.svg", "figure_14.svg"]
    assert all(
        path.read_bytes() == (ROOT / "docs/figures" / path.name).read_bytes() for path in drawn
    )
    assert "figure_14.svg: 5 7 10 -7 -10 25 3 -5 -25 39 -3 12" in capsys.readouterr().out


def test_command_names_a_figure_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["4"])

    assert "there is no figure 4" in capsys.readouterr().err


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_page_shows_the_figure_and_its_pipeline(figure: Figure) -> None:
    assert f"](figures/{figure.file_name})" in section_of(figure)
    if figure.build:
        assert written_on_the_page(figure) == written_in(figure.build)


def test_readme_shows_figure_14() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")

    assert f"](docs/figures/{BY_NUMBER[14].file_name})" in readme


def section_of(figure: Figure) -> str:
    title = f"## Figure {figure.number}: {figure.caption}\n"
    return PAGE.read_text("utf-8").split(title)[1].split("\n## ")[0]


def written_on_the_page(figure: Figure) -> list[str]:
    """The transforms between the ten points and the changelog."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", section_of(figure), re.MULTILINE | re.DOTALL)
    return transforms(program)[2:-2]


def written_in(build: Callable[..., object]) -> list[str]:
    return transforms(textwrap.dedent(inspect.getsource(build)))[1:]


def transforms(program: str) -> list[str]:
    """The parts of the longest chain ``a | b | c`` of a program."""
    chains = [parts(node) for node in ast.walk(ast.parse(program)) if isinstance(node, ast.BinOp)]
    return [ast.unparse(part) for part in max(chains, key=len)]


def parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*parts(node.left), *parts(node.right)]
    return [node]

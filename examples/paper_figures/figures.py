"""The figures: what each runs, on which engine, and with which watermark."""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import attrs

import dataflow as df
from examples.paper_figures import pipelines
from examples.paper_figures.panes import Pane, panes_of
from examples.paper_figures.pipelines import Numbers
from examples.paper_figures.points import (
    BEGIN,
    END,
    MINUTE,
    NOON,
    WATERMARK,
    ten_points,
    ten_points_at_rest,
)

#: Event time, processing time.
Path = tuple[tuple[datetime, datetime], ...]

#: What the pictures show of event time: the last session ends at 12:08:45.
EVENT_BEGIN, EVENT_END = NOON, NOON + 9 * MINUTE


class Engine(Enum):
    """What the pipeline runs on."""

    BATCH = "batch"
    MICRO_BATCH = "micro-batch"
    STREAMING = "streaming"

    def pipeline(self) -> tuple[df.Pipeline, Any]:
        """An empty pipeline, and the transform that gives it the ten points."""
        if self is Engine.BATCH:
            return df.Pipeline(), ten_points_at_rest()
        if self is Engine.MICRO_BATCH:
            return df.Pipeline(micro_batch=MINUTE), ten_points()
        return df.Pipeline(), ten_points()


@attrs.frozen(kw_only=True)
class Figure:
    """One figure of the paper; ``caption`` is the paper's own."""

    number: int
    caption: str
    build: Callable[[Numbers], Numbers] | None = None
    engine: Engine = Engine.STREAMING
    is_discarding: bool = False
    shows_watermark: bool = True

    @property
    def file_name(self) -> str:
        """``figure_05.svg``."""
        return f"figure_{self.number:02}.svg"

    def run(self) -> list[Pane]:
        """Run the pipeline; returns the panes that it emitted."""
        if self.build is None:
            return []
        changes: list[df.Change[tuple[str, int]]] = []
        pipeline, points = self.engine.pipeline()
        with pipeline as p:
            self.build(p | points) | df.ToChangelog() | df.Map(changes.append)
        return panes_of(changes, is_discarding=self.is_discarding)

    def watermarks(self) -> list[Path]:
        """The actual watermark: one path, or one for each micro-batch."""
        if not self.shows_watermark:
            return []
        if self.engine is Engine.STREAMING:
            return [tuple((event_time, now) for now, event_time in WATERMARK)]
        whole = END - BEGIN
        return _jumps(whole if self.engine is Engine.BATCH else MINUTE)


FIGURES = (
    Figure(number=5, caption="Example inputs"),
    Figure(
        number=6,
        caption="Classic batch execution",
        build=pipelines.figure_06,
        engine=Engine.BATCH,
    ),
    Figure(
        number=7,
        caption="GlobalWindows, AtPeriod, Accumulating",
        build=pipelines.figure_07,
        shows_watermark=False,
    ),
    Figure(
        number=8,
        caption="GlobalWindows, AtPeriod, Discarding",
        build=pipelines.figure_08,
        is_discarding=True,
        shows_watermark=False,
    ),
    Figure(
        number=9,
        caption="GlobalWindows, AtCount, Discarding",
        build=pipelines.figure_09,
        is_discarding=True,
        shows_watermark=False,
    ),
    Figure(
        number=10,
        caption="FixedWindows, Batch",
        build=pipelines.figure_10,
        engine=Engine.BATCH,
    ),
    Figure(
        number=11,
        caption="FixedWindows, Micro-Batch",
        build=pipelines.figure_11,
        engine=Engine.MICRO_BATCH,
    ),
    Figure(number=12, caption="FixedWindows, Streaming", build=pipelines.figure_12),
    Figure(number=13, caption="FixedWindows, Streaming, Partial", build=pipelines.figure_13),
    Figure(number=14, caption="Sessions, Retracting", build=pipelines.figure_14),
)


def _jumps(every: timedelta) -> list[Path]:
    """For each batch: at the beginning of time until its input is complete, then at the end of time."""
    paths: list[Path] = []
    now = BEGIN
    while now < END:
        paths.append(
            ((EVENT_BEGIN, now), (EVENT_BEGIN, now + every), (EVENT_END, now + every)),
        )
        now += every
    return paths

"""ToChangelog: what a collection says and takes back, as ordinary elements.

Dataflow Model, section 2.3 (retractions), seen from outside.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import attrs

from dataflow.graph import MAIN, Changelog
from dataflow.pcollection import PCollection
from dataflow.ptransform import PTransform
from windowing.pane import PaneInfo
from windowing.timestamps import to_datetime
from windowing.window import Window

T = TypeVar("T")


@attrs.frozen
class Change(Generic[T]):
    """An element that was said or taken back.

    ``sign``: +1 says the value, -1 takes it back; a retraction has the window and the pane of what it takes back.
    ``timestamp_us``: its event time.
    ``processing_time_us``: what time it was when it was said or taken back: the clock on the wall in streaming, the
    clock of the input in the direct runner, and in batch one of the ends of time.
    """

    value: T
    sign: int
    timestamp_us: int
    window: Window
    pane: PaneInfo
    processing_time_us: int

    @property
    def timestamp(self) -> datetime:
        """Its event time, in UTC."""
        return to_datetime(self.timestamp_us)

    @property
    def processing_time(self) -> datetime:
        """When it was said or taken back, in UTC."""
        return to_datetime(self.processing_time_us)


class ToChangelog(PTransform[PCollection[Any], PCollection[Change[Any]]]):
    """Each element, also each retraction, as a `Change` that is never taken back itself.

    So what retracts can be written to a table without a key, one row for each thing said or taken back.
    Windows and event times stay as they are.
    """

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Change[Any]]:
        """Add the primitive."""
        return pcoll.pipeline.add_operation(Changelog(), [pcoll], pcoll.node.strategy)[MAIN]

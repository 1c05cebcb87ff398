"""ToChangelog: the emissions and retractions of a collection, as ordinary elements.

Dataflow Model, section 2.3 (retractions), seen from outside.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import attrs

from dataflow.graph import MAIN, Changelog
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from windowing.pane import PaneInfo
from windowing.timestamps import to_datetime
from windowing.window import Window

T = TypeVar("T")


@attrs.frozen
class Change(Generic[T]):
    """An element that was emitted or retracted.

    Attributes:
        value: the element.
        sign: +1 for an emission, -1 for a retraction, which has the window and the pane of what it retracts.
        timestamp_us: its event time.
        window: the window that it is in.
        pane: the firing that it comes from.
        processing_time_us: what time it was when it was emitted or retracted: the clock on the wall in streaming, the
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
        """When it was emitted or retracted, in UTC."""
        return to_datetime(self.processing_time_us)


class ToChangelog(PTransform[PCollection[Any], PCollection[Change[Any]]]):
    """Each element, also each retraction, as a `Change` that is never retracted itself.

    So what retracts can be written to a table without a key, one row for each emission or retraction.
    Windows and event times stay as they are.
    """

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Change[Any]]:
        """Add the primitive."""
        return pcoll.pipeline.add_operation(Changelog(), [pcoll], pcoll.node.strategy)[MAIN]

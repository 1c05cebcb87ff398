"""FreshWithin: declares how far behind the clock a collection may be."""

from __future__ import annotations

from typing import Any

from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.type_vars import T
from windowing.timestamps import DurationLike


class FreshWithin(PTransform[Any, Any]):
    """Declares a freshness objective: how far behind the clock the event time of a collection may be in a stream.

    Elements pass through unchanged, and nothing is done about them: ``dataflow check JOB`` fails while the objective is
    not met, and ``dataflow why``, ``dataflow top`` and the page of the job show it.  Writes to a table or a `Sink` have
    the same as an option, ``fresh_within=``.

    What counts is the output watermark of the stage that the collection is made in, so a source without records that
    does not say that it is idle is not fresh, however little there is to do; and a job with a sink that has failed for
    longer than that is not fresh either.

    Args:
        within: how far: seconds, a timedelta, or a text such as ``"5s"``.

    Raises:
        PipelineError: when applied: it is no length of time, or not above zero.
    """

    def __init__(self, within: DurationLike) -> None:
        self._within = within

    def default_label(self) -> str:
        """``FreshWithin(within)``."""
        return f"FreshWithin({self._within})"

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Declare it of the collection, which stays as it is."""
        pcoll.pipeline.declare_fresh(pcoll, self._within)
        return pcoll

"""Write: elements into a sink outside the store, exactly once."""

from __future__ import annotations

from typing import Any

from dataflow.errors import PipelineError
from dataflow.graph import WriteTable
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.sink import LANE, SIGN, Sink, outbox_of
from windowing.timestamps import DurationLike


class Write(PTransform[PCollection[Any], None]):
    """Write elements, also retractions of elements, to a `Sink`.

    Elements wait in an outbox, in the commits that emit them, and go to the sink in the order in which they were
    emitted; so after a retry, a failure or a restart the sink has each exactly once.  In streaming they go while the
    job runs, in batch when all input has been processed, in the direct runner after each bundle.

    Args:
        sink: where to.
        fresh_within: how far behind the clock its input may be in a stream, as for `FreshWithin`: seconds, a timedelta,
            or a text such as ``"5s"``; None: nothing is declared.

    Raises:
        PipelineError: the input retracts, and the sink takes no retractions; or the sink has no lane, or columns with
            reserved names; or ``fresh_within`` is no length of time.
    """

    def __init__(self, sink: Sink[Any], *, fresh_within: DurationLike | None = None) -> None:
        if not isinstance(sink, Sink):
            raise PipelineError(
                f"Write was given {sink!r}, which is no sink",
                hint="give it an instance of a subclass of df.Sink",
            )
        if sink.lanes < 1:
            raise PipelineError(f"{sink!r} has {sink.lanes} lanes", hint="give it at least one")
        if reserved := {LANE, SIGN} & set(sink.columns or ()):
            raise PipelineError(
                f"{sink!r} has columns with reserved names: {sorted(reserved)}",
                hint="give the columns other names",
            )
        self._sink, self._fresh_within = sink, fresh_within

    def default_label(self) -> str:
        """``Write(class of the sink)``; its text may have an address, which the next run would not have."""
        return f"Write({type(self._sink).__name__})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Add the primitive.

        Raises:
            PipelineError: the input retracts, and the sink takes no retractions; or ``fresh_within`` is no length of
                time.
        """
        pipeline = pcoll.pipeline
        if self._fresh_within is not None:
            pipeline.declare_fresh(pcoll, self._fresh_within)
        if pcoll.node.retracted_by and not self._sink.takes_retractions:
            raise PipelineError(
                f"{pipeline.here()} takes no retractions, but its input retracts results",
                detail=f"{pcoll.node.retracted_by} accumulates and retracts",
                hint="have the sink take them, or write df.ToChangelog(), whose elements are never retracted",
            )
        outbox = outbox_of(f"dataflow_outbox.{pipeline.path.replace('.', '_')}", self._sink)
        pipeline.add_operation(
            WriteTable(outbox, self._sink), [pcoll], pcoll.node.strategy, tags=()
        )

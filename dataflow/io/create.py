"""Create and Read: where a pipeline starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, Generic, overload

from dataflow.do_fn import TimestampedValue
from dataflow.errors import PipelineError
from dataflow.graph import MAIN
from dataflow.graph import Read as ReadOperation
from dataflow.io.arrival import ArrivalTime, ArrivalTimeSource
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD, MaxAhead
from dataflow.io.memory import MemorySource, listed_elements
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.record_ids import RecordIds
from dataflow.serialization import dumps_code
from dataflow.source import Source, check_discovery
from dataflow.type_vars import K, T, V
from triggers.accumulation import AccumulationMode
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import DurationLike

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline


class Read(OneOutput["Pipeline", T], Generic[T]):
    """The elements of a `Source`, in the global window.

    Args:
        source: defines what is read, and when it happened.
        event_time: `ARRIVAL_TIME`, for elements that happen when they are read, whatever event time the source gives.
        record_ids: how elements are known that the source hands over more than once; without it all count.
        max_ahead: how far the source's watermark may be ahead of the clock where it is read (a day; `timedelta`, text,
            or seconds).  One that is further ahead has followed a wrong record: it is not believed, and elements that
            are this far ahead become dead letters, whether or not the runner keeps these otherwise.  None: it is
            believed.  It is of no account in batch, which needs no watermark, and for sources of files, which look at
            each record themselves.

    Raises:
        PipelineError: ``source`` is no source, or takes no fence where it opens a split; one of the others is
            something else; the source is to be asked for new splits, and cannot be (`Source.discover`); or it retracts
            records (`Source.emits_retractions`) and is given ``record_ids`` or ``event_time``: a retraction has the id
            of its record, and arrives later.
    """

    def __init__(
        self,
        source: Source[T],
        *,
        event_time: ArrivalTime | None = None,
        record_ids: RecordIds | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
    ) -> None:
        if not isinstance(source, Source):
            raise PipelineError(f"Read needs a Source, not {source!r}")
        if record_ids is not None and not isinstance(record_ids, RecordIds):
            raise PipelineError(
                f"Read cannot deduplicate records by {record_ids!r}",
                hint="give df.RecordIds(of=..., slack=...)",
            )
        self._record_ids = record_ids
        ahead = MaxAhead.of("Read", max_ahead)
        self._max_ahead_us = None if ahead is None else ahead.limit_us
        self._name = type(source).__name__
        self._source = source
        _check_open(source)
        check_discovery(source)
        if source.emits_retractions:
            _check_retractions(self._name, event_time=event_time, record_ids=record_ids)
        if event_time is not None:
            if not isinstance(event_time, ArrivalTime):
                raise PipelineError(
                    f"Read cannot take event times from {event_time!r}",
                    hint="a source has the event times of its elements; this argument takes only "
                    "df.ARRIVAL_TIME, or none; "
                    "df.WithTimestamps stamps elements by a function",
                )
            self._source = ArrivalTimeSource(source, event_time)

    def default_label(self) -> str:
        """``Read(SourceClass)``."""
        return f"Read({self._name})"

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Add the primitive.

        Raises:
            PipelineError: it is applied to a PCollection; or the source cannot be sent to workers.
        """
        applied_to: object = pcoll
        if isinstance(applied_to, PCollection):
            raise PipelineError(
                f"{applied_to.pipeline.here()} begins a pipeline, and is applied to a PCollection",
                hint="apply it to the pipeline: p | df.Create(...); the elements of several PCollections together are "
                "(a, b) | df.Flatten()",
            )
        ahead_us = None if self._source.has_trusted_watermark else self._max_ahead_us
        operation = ReadOperation(self._source, self._record_ids, ahead_us)
        dumps_code(operation, pcoll.here())
        if not self._source.emits_retractions:
            return pcoll.add_operation(operation, [], WindowingStrategy())[MAIN]
        strategy = WindowingStrategy(accumulation_mode=AccumulationMode.ACCUMULATING_AND_RETRACTING)
        return pcoll.add_operation(operation, [], strategy, retracted_by=pcoll.here())[MAIN]


def _check_open(source: Source) -> None:
    """Refuse a source whose `Source.open` cannot be called as it is called."""
    try:
        signature(source.open).bind(None, None, fence=0)
    except TypeError as error:
        raise PipelineError(
            f"{type(source).__name__}.open cannot be called with a split, a position and a fence",
            detail=str(error),
            hint="define it as open(self, split, position, *, fence); most sources need not look at the fence",
        ) from None


def _check_retractions(
    name: str, *, event_time: ArrivalTime | None, record_ids: RecordIds | None
) -> None:
    """Refuse what a source that retracts records cannot be read with."""
    if record_ids is not None:
        raise PipelineError(
            f"Read cannot deduplicate the records of {name}, which retracts records",
            detail="a retraction has the id of its record, and would be dropped as a copy of it",
            hint="leave record_ids out: a position of the source is read once in any case",
        )
    if event_time is not None:
        raise PipelineError(
            f"Read cannot give the records of {name} the time of their arrival, as it retracts records",
            detail="a retraction arrives later than its record, and would land in another window",
            hint="leave event_time out; or have the changes as elements, df.ToChangelog(), and give these a time by "
            "df.WithTimestamps",
        )


class Create(PTransform["Pipeline", PCollection[T]], Generic[T]):
    """The given values.

    A `TimestampedValue` sets its event time; other values are at the beginning of time.
    Of a dict they are its items, pairs of key and value.

    Raises:
        PipelineError: what is given is one value, or none: a text, bytes, a named tuple, or what cannot be iterated.
    """

    @overload
    def __init__(self, values: Iterable[TimestampedValue[T]]) -> None: ...
    @overload
    def __init__(self: Create[tuple[K, V]], values: Mapping[K, V]) -> None: ...
    @overload
    def __init__(self, values: Iterable[T]) -> None: ...
    def __init__(self, values: Iterable[Any]) -> None:
        self._values: list[Any] = listed_elements(values, "Create")

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Read them from memory."""
        return pcoll | Read(MemorySource(self._values))

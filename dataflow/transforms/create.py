"""Create and Read: where a pipeline starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from dataflow.errors import PipelineError
from dataflow.graph import MAIN
from dataflow.graph import Read as ReadOperation
from dataflow.io.memory import MemorySource
from dataflow.io.source import Source
from dataflow.pcollection import PCollection
from dataflow.ptransform import PTransform
from dataflow.serialization import dumps_code
from triggers.windowing_strategy import WindowingStrategy

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

T = TypeVar("T")


class Read(PTransform["Pipeline", PCollection[Any]]):
    """The elements of a `Source`, in the global window."""

    def __init__(self, source: Source) -> None:
        if not isinstance(source, Source):
            raise PipelineError(f"Read needs a Source, not {source!r}")
        self._source = source

    def default_label(self) -> str:
        """``Read(SourceClass)``."""
        return f"Read({type(self._source).__name__})"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Add the primitive."""
        dumps_code(self._source, pcoll.here())
        return pcoll.add_operation(ReadOperation(self._source), [], WindowingStrategy())[MAIN]


class Create(PTransform["Pipeline", PCollection[T]]):
    """The given values.

    A `TimestampedValue` sets its event time; other values are at the beginning of time.
    """

    def __init__(self, values: Iterable[T]) -> None:
        self._values = list(values)

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Read them from memory."""
        return pcoll | Read(MemorySource(self._values))

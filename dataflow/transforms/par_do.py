"""ParDo and its short forms Map, FlatMap and Filter: user code on each element.  Dataflow Model, section 2.1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dataflow.do_fn import CallableDoFn, DoFn, Shape, requested_params
from dataflow.errors import PipelineError
from dataflow.graph import MAIN
from dataflow.graph import ParDo as ParDoOperation
from dataflow.pcollection import PCollection, PCollectionTuple
from dataflow.ptransform import PTransform
from dataflow.serialization import dumps_code

T = TypeVar("T")
OutT = TypeVar("OutT")


class ParDo(PTransform[PCollection[Any], PCollection[Any]]):
    """Run a `DoFn` on each element.

    Retractions pass through like any element: what ``process`` returns for them is taken back downstream.
    """

    def __init__(self, fn: DoFn) -> None:
        if not isinstance(fn, DoFn):
            raise PipelineError(
                f"ParDo needs a DoFn, not {fn!r}",
                hint="for a plain function use df.Map, df.FlatMap or df.Filter",
            )
        self._fn = fn

    def default_label(self) -> str:
        """``ParDo(ClassName)``."""
        return f"ParDo({type(self._fn).__name__})"

    def with_outputs(self, *tags: str, main: str = MAIN) -> MultiOutputParDo:
        """The same with extra outputs.

        ``process`` yields `TaggedOutput` for ``tags``, everything else goes to ``main``.
        """
        named = MultiOutputParDo(self._fn, main, tags)
        named.label = self.label
        return named

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the primitive."""
        return _add(self._fn, self._fn.process, pcoll, (MAIN,))[MAIN]


class MultiOutputParDo(PTransform[PCollection[Any], PCollectionTuple]):
    """What `ParDo.with_outputs` returns."""

    def __init__(self, fn: DoFn, main: str, tags: tuple[str, ...]) -> None:
        if len({main, *tags}) != 1 + len(tags):
            raise PipelineError(f"the outputs {[main, *tags]} are not all different")
        self._fn, self._main, self._tags = fn, main, tags

    def default_label(self) -> str:
        """``ParDo(ClassName)``."""
        return f"ParDo({type(self._fn).__name__})"

    def expand(self, pcoll: PCollection[Any]) -> PCollectionTuple:
        """Add the primitive."""
        return PCollectionTuple(_add(self._fn, self._fn.process, pcoll, (self._main, *self._tags)))


class _CallableTransform(PTransform[PCollection[Any], PCollection[OutT]]):
    shape: Shape

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise PipelineError(f"{type(self).__name__} needs a function, not {fn!r}")
        self._fn = fn

    def default_label(self) -> str:
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        return f"{type(self).__name__}({name})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[OutT]:
        return _add(CallableDoFn(self._fn, self.shape), self._fn, pcoll, (MAIN,))[MAIN]


class Map(_CallableTransform[OutT]):
    """One output per element: ``fn(element)``."""

    shape = Shape.MAP

    def __init__(self, fn: Callable[..., OutT]) -> None:
        super().__init__(fn)


class FlatMap(_CallableTransform[OutT]):
    """Any number of outputs per element: those of the iterable ``fn(element)``."""

    shape = Shape.FLAT_MAP

    def __init__(self, fn: Callable[..., Iterable[OutT] | None]) -> None:
        super().__init__(fn)


class Filter(_CallableTransform[T]):
    """The elements for which ``fn(element)`` is true."""

    shape = Shape.FILTER

    def __init__(self, fn: Callable[..., object]) -> None:
        super().__init__(fn)


def _add(
    fn: DoFn | CallableDoFn,
    call: Callable[..., Any],
    pcoll: PCollection[Any],
    tags: tuple[str, ...],
) -> dict[str, PCollection[Any]]:
    pipeline = pcoll.pipeline
    requested_params(call, pipeline.here())
    # Pickled here for its error alone: a lambda that cannot travel should fail on the line that wrote it.
    dumps_code(fn, pipeline.here())
    return pipeline.add_operation(
        ParDoOperation(fn, tags),
        [pcoll],
        pcoll.node.strategy,
        tags=tags,
        retracted_by=pcoll.node.retracted_by,
    )

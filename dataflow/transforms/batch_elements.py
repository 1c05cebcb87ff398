"""BatchElements: lists of elements, for calls that take several at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dataflow.do_fn import DoFn, WindowedValue
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import ParDo
from dataflow.type_vars import T
from windowing.window import Window


class BatchElements(PTransform[Any, Any]):
    """Lists of elements of one bundle and window, each with the earliest event time of its elements.

    Nothing waits for a list to be full: the lists of a bundle are emitted when it ends, and committed with it, so each
    element is in one list.  How many elements a bundle has is the runner's business and differs from run to run; where
    that must not matter use `GroupIntoBatches`, which keeps state.  The elements lose their panes.

    Args:
        min_batch_size: the fewest elements in a list, where the bundle has as many in that window, and they can be
            divided so; positive.
        max_batch_size: the most elements in a list; not less than ``min_batch_size``.

    Raises:
        PipelineError: the sizes are no such integers; when applied, the input may be retracted.
    """

    def __init__(self, min_batch_size: int = 1, max_batch_size: int = 10_000) -> None:
        for name, given in (
            ("min_batch_size", min_batch_size),
            ("max_batch_size", max_batch_size),
        ):
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                raise PipelineError(
                    f"BatchElements needs a positive {name}, not {given!r}",
                    hint="it is a number of elements",
                )
        if min_batch_size > max_batch_size:
            raise PipelineError(
                "BatchElements has a min_batch_size that is more than its max_batch_size",
                detail=f"{min_batch_size} > {max_batch_size}",
            )
        self._fn = _Batching(min_batch_size, max_batch_size)

    def expand(self, pcoll: PCollection[T]) -> PCollection[list[T]]:
        """Gather in a DoFn."""
        return pcoll | "batch" >> ParDo(self._fn)


class _Batching(DoFn):
    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._elements: dict[Window, list[tuple[Any, datetime]]] = {}

    def start_bundle(self) -> None:
        self._elements = {}

    def process(
        self,
        element: Any,
        /,
        at: datetime = DoFn.TimestampParam,
        window: Window = DoFn.WindowParam,
    ) -> None:
        self._elements.setdefault(window, []).append((element, at))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        elements, self._elements = self._elements, {}
        for window, stamped in elements.items():
            start = 0
            for end in _ends(len(stamped), self._least, self._most):
                batch = stamped[start:end]
                earliest = min(at for _, at in batch)
                yield WindowedValue([element for element, _ in batch], earliest, window)
                start = end


def _ends(size: int, least: int, most: int) -> list[int]:
    """Where the lists end: all are full but the last, which takes what it lacks from the one before."""
    ends = [*range(most, size, most), size]
    lacking = least - (size - (ends[-2] if len(ends) > 1 else 0))
    if len(ends) > 1 and lacking > 0:
        ends[-2] -= min(lacking, most - least)
    return ends

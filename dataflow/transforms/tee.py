"""Tee: side branches of a chain of transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.type_vars import T


class Tee(PTransform[Any, Any]):
    """The input itself, to which other transforms are applied too: ``p | read | df.Tee(write_raw) | parse``.

    Args:
        *consumers: transforms, or functions of the collection; what they return is not used.

    Raises:
        PipelineError: there is none, or something else than these.
    """

    def __init__(
        self, *consumers: PTransform[PCollection[T], Any] | Callable[[PCollection[T]], Any]
    ) -> None:
        if not consumers:
            raise PipelineError("Tee needs at least one transform that is applied to its input")
        for each in consumers:
            if not isinstance(each, PTransform) and not callable(each):
                raise PipelineError(
                    f"Tee needs transforms, or functions of a PCollection, not {each!r}"
                )
        self._consumers = consumers

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Apply each, and return the input."""
        for each in self._consumers:
            if isinstance(each, PTransform):
                pcoll | each
            else:
                each(pcoll)
        return pcoll

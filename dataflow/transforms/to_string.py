"""ToString: elements as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map


class ToString:
    """Transforms from elements to text: `Element`, `Iterables` and `Kvs`, as in Beam."""

    class Element(PTransform[PCollection[Any], PCollection[str]]):
        """``str(element)`` of each element."""

        def expand(self, pcoll: PCollection[Any]) -> PCollection[str]:
            """Map to text."""
            return pcoll | "text" >> Map(str)

    class Iterables(PTransform[PCollection[Iterable[Any]], PCollection[str]]):
        """The parts of each element as text, with a delimiter between them.

        Args:
            delimiter: the text between two parts.

        Raises:
            PipelineError: it is no text.
        """

        def __init__(self, delimiter: str = ",") -> None:
            if not isinstance(delimiter, str):
                raise PipelineError(f"ToString needs a text as delimiter, not {delimiter!r}")
            self._delimiter = delimiter

        def expand(self, pcoll: PCollection[Any]) -> PCollection[str]:
            """Map to text."""
            return pcoll | "join" >> Map(_Joined(self._delimiter))

    class Kvs(Iterables):
        """``key,value`` of each ``(key, value)`` pair."""


@attrs.frozen
class _Joined:
    delimiter: str

    def __call__(self, element: Iterable[Any]) -> str:
        return self.delimiter.join(map(str, element))

"""OneOutput: transforms with one collection as output, whose declared type type checkers see."""

from __future__ import annotations

from typing import Any, Generic, overload

from dataflow.pipeline import PCollection
from dataflow.ptransform import InT_contra, PTransform
from dataflow.type_vars import OutT, V


class OneOutput(PTransform[InT_contra, PCollection[OutT]], Generic[InT_contra, OutT]):
    """The base class of transforms with one collection as output."""

    @overload
    def with_output_types(
        self, element_type: type[V], /
    ) -> PTransform[InT_contra, PCollection[V]]: ...
    @overload
    def with_output_types(
        self, element_type: Any = ..., /, **tagged: Any
    ) -> PTransform[InT_contra, Any]: ...
    def with_output_types(
        self, element_type: Any = Any, /, **tagged: Any
    ) -> PTransform[InT_contra, Any]:
        """Declare the type of the elements that it emits; see `PTransform.with_output_types`."""
        return super().with_output_types(element_type, **tagged)

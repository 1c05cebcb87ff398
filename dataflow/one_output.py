"""OneOutput: transforms with one collection as output, whose declared type and failures type checkers see."""

from __future__ import annotations

from typing import Any, Generic, Unpack, overload

from dataflow.do_fn import TimestampedValue
from dataflow.exception_handling import BadElement, HandlingOptions
from dataflow.pipeline import PCollection, PCollectionTuple
from dataflow.ptransform import InT_contra, PTransform
from dataflow.type_vars import OutT, V

#: What a transform emits, and what it has failed on.
WithFailures = PCollectionTuple[PCollection[OutT], PCollection[BadElement]]


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

    @overload
    def with_exception_handling(
        self: OneOutput[InT_contra, TimestampedValue[V]],
        main_tag: str = ...,
        dead_letter_tag: str = ...,
        **options: Unpack[HandlingOptions],
    ) -> PTransform[InT_contra, WithFailures[V]]: ...
    @overload
    def with_exception_handling(
        self,
        main_tag: str = ...,
        dead_letter_tag: str = ...,
        **options: Unpack[HandlingOptions],
    ) -> PTransform[InT_contra, WithFailures[OutT]]: ...
    def with_exception_handling(
        self,
        main_tag: str = "good",
        dead_letter_tag: str = "bad",
        **options: Unpack[HandlingOptions],
    ) -> PTransform[InT_contra, Any]:
        """Have elements that it fails on as an output of their own; see `PTransform.with_exception_handling`.

        Args:
            main_tag: of the main output in the result.
            dead_letter_tag: of the output of bad elements.
            **options: its other arguments.
        """
        return super().with_exception_handling(main_tag, dead_letter_tag, **options)

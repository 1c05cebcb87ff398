"""PCollection: a bag of elements somewhere in a pipeline, bounded or not as its sources are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from dataflow.graph import PCollectionNode
    from dataflow.pipeline import Pipeline
    from dataflow.ptransform import PTransform

T_co = TypeVar("T_co", covariant=True)
OutT = TypeVar("OutT")


class PCollection(Generic[T_co]):
    """A handle on one collection of the pipeline that is being built; holds no data."""

    def __init__(self, pipeline: Pipeline, node: PCollectionNode) -> None:
        self.pipeline = pipeline
        self.node = node

    def __or__(self, transform: PTransform[PCollection[T_co], OutT]) -> OutT:
        """Apply a transform: ``pcollection | "label" >> transform``."""
        return self.pipeline.apply(transform, self)

    @property
    def is_bounded(self) -> bool:
        """Whether it ends by itself: all sources that it is made of do (`Source.is_bounded`)."""
        return self.node.is_bounded

    def __repr__(self) -> str:
        return f"PCollection({self.node.id}{'' if self.is_bounded else ', unbounded'})"


class PCollectionTuple:
    """The outputs of a transform that has several, by tag: ``outputs["late"]`` or ``outputs.late``."""

    def __init__(self, outputs: Mapping[str, PCollection[object]]) -> None:
        self._outputs = dict(outputs)

    def __getitem__(self, tag: str) -> PCollection[object]:
        return self._outputs[tag]

    def __getattr__(self, tag: str) -> PCollection[object]:
        # Not self._outputs: before __init__, as when copying, that would come here again.
        outputs: dict[str, PCollection[object]] = self.__dict__.get("_outputs", {})
        try:
            return outputs[tag]
        except KeyError:
            raise AttributeError(f"no output {tag!r}; there are {sorted(outputs)}") from None

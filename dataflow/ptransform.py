"""PTransform: a named step of a pipeline, primitive or made of others."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

InT_contra = TypeVar("InT_contra", contravariant=True)
OutT_co = TypeVar("OutT_co", covariant=True)
TransformT = TypeVar("TransformT", bound="PTransform[Any, Any]")


class PTransform(ABC, Generic[InT_contra, OutT_co]):
    """A step: override `expand` to build it from other steps.

    ``"label" >> transform`` names one use of it.  Labels make up the names of computations in the store, so a job
    that is to be restarted or updated wants explicit ones.
    """

    label: str | None = None

    @abstractmethod
    def expand(self, pcoll: InT_contra) -> OutT_co:
        """Apply the inner steps to the input and return the output."""

    def default_label(self) -> str:
        """The label where the user gave none."""
        return type(self).__name__

    def __rrshift__(self, label: str) -> Self:
        if not isinstance(label, str):
            return NotImplemented
        named = copy.copy(self)
        named.label = label
        return named


def changed(transform: TransformT, **attributes: object) -> TransformT:
    """A copy of a transform that differs in some attributes.

    Args:
        transform: stays as it is.
        **attributes: of the copy, by their names.
    """
    found = copy.copy(transform)
    vars(found).update(attributes)
    return found

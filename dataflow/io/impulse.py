"""Impulse: one element to start with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.impulse import ImpulseSource
from dataflow.io.create import Read
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline


class Impulse(PTransform["Pipeline", PCollection[bytes]]):
    """One element, ``b""``, at the beginning of time, in the global window."""

    def expand(self, pcoll: Pipeline) -> PCollection[bytes]:
        """Read it."""
        return pcoll | Read(ImpulseSource())

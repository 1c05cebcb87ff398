"""Recording: everything that a collection emitted and retracted, readable after the run on every runner.

The changes go into a table of the store without a key, as pickles, so they are exactly once as any row is.
See what is left of them with `dataflow.signed_sum`.
"""

from __future__ import annotations

import operator
from hashlib import sha256
from typing import Any

from dataflow.io.postgres import WriteToPostgres
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.runner import PipelineResult
from dataflow.serialization import dumps, loads
from dataflow.transforms.changelog import Change, ToChangelog
from dataflow.transforms.par_do import Map

_COLUMN = "change"


class Recording(PTransform[PCollection[Any], None]):
    """Records each `Change` of its input.

    Applied once.  The name of its table comes from the runner's job, if it has one, and from the label, so that the
    jobs of a store keep apart and a job that goes on finds what it has written.
    """

    def __init__(self) -> None:
        self._table = ""

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Add the transforms that write."""
        pipeline = pcoll.pipeline
        # The label without the line: a line moves when unrelated code does.
        name = f"{getattr(pipeline.runner, 'job', '')}\n{pipeline.here().rpartition(' (')[0]}"
        self._table = f"recording_{sha256(name.encode()).hexdigest()[:16]}"
        rows = pcoll | ToChangelog() | Map(_row)
        rows | WriteToPostgres(self._table, columns={_COLUMN: bytes})

    def changes(self, result: PipelineResult) -> list[Change[Any]]:
        """The recorded changes; the direct runner keeps the order, other runners do not."""
        column = map(operator.itemgetter(_COLUMN), result.read_table(self._table))
        return [loads(blob) for blob in column]


def _row(change: Change[Any]) -> dict[str, bytes]:
    return {_COLUMN: dumps(change)}

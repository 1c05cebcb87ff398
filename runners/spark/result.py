"""StoreResult: what a run left in its store, for the runners whose truth is there.

Opens the store when it is asked something, and closes it again: a result may be kept for long.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from runners.core.late import stored_late_mapping
from runners.core.poison import stored_dead_mapping
from runners.registry import open_store


class StoreResult:
    """A run that has ended.

    Args:
        dsn: the store.
        job: the job's name in it.
        graph: the pipeline, for its tables.
    """

    def __init__(self, dsn: str, job: str, graph: PipelineGraph) -> None:
        self.dsn, self.job = dsn, job
        self._tables = {table.name: table for table in graph.tables()}

    def wait_until_finish(self) -> None:
        """Nothing to wait for: the run has ended."""

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table.

        Raises:
            PipelineError: the pipeline writes no such table.
            StoreError: the store cannot be read.
        """
        if name not in self._tables:
            raise PipelineError(
                f"the pipeline writes no table {name!r}", detail=f"tables: {sorted(self._tables)}"
            )
        spec = self._tables[name]
        with closing(open_store(self.dsn)) as store:
            rows = store.read_table(spec)
        return [dict(zip(spec.columns, row, strict=True)) for row in rows]

    def send_signal(self, name: str) -> None:
        """Have every open window that listens to a signal hear it; see `runners.millwheel.signals` for how.

        Raises:
            SignalError: nobody would hear it: the job is finished, or runs in batch, or does not listen to the name.
        """
        with closing(open_store(self.dsn)) as store:
            store.send_signal(self.job, name)

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records that came after their window was gone; never any in a batch."""
        with closing(open_store(self.dsn)) as store:
            records = store.read_late(self.job)
        return [stored_late_mapping(record) for record in records]

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records that user code could not take."""
        with closing(open_store(self.dsn)) as store:
            letters = store.read_dead_letters(self.job)
        return [stored_dead_mapping(letter) for letter in letters]

    def late_counts(self) -> Mapping[str, int]:
        """How many of them each transform dropped; the store adds them up."""
        with closing(open_store(self.dsn)) as store:
            return store.read_late_counts(self.job)

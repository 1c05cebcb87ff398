"""The lineage of a job as its store has it."""

from collections.abc import Sequence
from typing import Any

from runners.core.ground.lineage import LineageKind
from runners.millwheel.store.guards import unknown_job
from runners.millwheel.store.port import Store
from runners.observability.drawing.pane_plot import PanePlot
from runners.observability.lineage.explained_rows import (
    Find,
    Recorded,
    RowExplanation,
    explain_row,
    not_recorded,
)
from runners.observability.lineage.recorded_panes import plot_key


def explain_stored_row(store: Store, job: str, table: str, key: str) -> RowExplanation:
    """Explain where a row of a table of a job comes from.

    Args:
        store: that has the job.
        job: its name.
        table: the name of the table.
        key: as a user writes it.

    Raises:
        PipelineError: nothing is recorded of such a row.
    """
    found = explain_row(finder(store, job), table, key)
    if found is None:
        raise not_recorded(table, key)
    return found


def plot_stored_key(store: Store, job: str, key: Any, *, transform: str | None = None) -> PanePlot:
    """Draw the panes of a key of a job; see `plot_key` for what it raises.

    Args:
        store: that has the job.
        job: its name.
        key: as elements have it.
        transform: the label of the grouping; None: it is looked for.

    Raises:
        StoreError: there is no such job.
    """
    found = store.read_job(job)
    if found is None:
        raise unknown_job(job)
    return plot_key(finder(store, job), found.computations, key, transform=transform)


def finder(store: Store, job: str) -> Find:
    """What finds the entries of a job in a store.

    Args:
        store: that has the job.
        job: its name; of an unknown one nothing is found.
    """

    def find(kind: LineageKind, transform: str, key_hash: int) -> Sequence[Recorded]:
        found = store.read_lineage(job, kind, transform, key_hash)
        return [Recorded(each.number, each.version, each.entry) for each in found]

    return find

"""What an update means for rows and elements that the old version has emitted and may have to retract.

Functions are not compared (`runners.millwheel.versions.state_shape`), so the notes tell the user what the new functions
must keep.
Pure.
"""

from collections.abc import Collection, Iterator, Mapping

from dataflow.graph import WriteTable
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.versions.state_shape import StateShape


def notes_on_tables(
    name: str, before: str, known: Mapping[str, StateShape | None], new: ExecutionPlan
) -> Iterator[str]:
    """Yield notes about a computation that keeps its state.

    Args:
        name: its name.
        before: its name in the old version.
        known: the shapes of the old version, by name.
        new: the new version.
    """
    old = known[before]
    former = old.tables if old is not None else {}
    for label, table, is_retracted in _tables(new, name):
        if former.get(label, table) != table:
            yield (
                f"{label} writes to {table!r} from here on; what it has written to {former[label]!r} stays there, "
                "and is neither replaced nor retracted"
            )
        elif is_retracted and label in former:
            yield (
                f"{label} retracts rows of {table!r} that the old version wrote, when {name} corrects them: where "
                "its functions now make another row of the same result, the next row of that key is refused "
                "(TableConflictError); for such rows give it a table of another name"
            )


def notes_on_groupings(
    name: str, old_senders: Collection[str], new: ExecutionPlan
) -> Iterator[str]:
    """Yield notes about a computation that keeps its state, whose input may be retracted.

    Args:
        name: its name.
        old_senders: the computations that sent to it and still do, by their new names.
        new: the new version.
    """
    if not new.graph.pcollections[new.stages[name].root.inputs[0]].retracted_by:
        return
    for sender in new.senders(name):
        if sender in old_senders and not new.stages[sender].is_source:
            yield (
                f"{name} has to retract what it received from {sender}: where functions between them now make another "
                "element of the same result, what it has counted stays; then give it another label"
            )


def notes_on_rows_that_stay(
    name: str, known: Mapping[str, StateShape | None], new: ExecutionPlan
) -> Iterator[str]:
    """Yield notes about a computation without state that writes rows that may be retracted to a table with old rows.

    Args:
        name: of the computation.
        known: the state of each computation, as the store describes it; None: it does not.
        new: the plan of the new pipeline.
    """
    written = {table for shape in known.values() if shape for table in shape.tables.values()}
    for label, table, is_retracted in _tables(new, name):
        if is_retracted and table in written:
            yield (
                f"{label} begins anew with {table!r}, where the rows of the old version stay: a row of a key that is "
                "there is refused (TableConflictError); give it a table of another name"
            )


def _tables(plan: ExecutionPlan, name: str) -> Iterator[tuple[str, str, bool]]:
    """The tables that a computation writes: label, name, and whether rows can be retracted."""
    for node in plan.stages[name].nodes:
        if isinstance(node.operation, WriteTable):
            is_retracted = plan.graph.pcollections[node.inputs[0]].retracted_by is not None
            yield node.label, node.operation.table.name, is_retracted

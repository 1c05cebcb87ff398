"""What is left of the changes of a batch, for tables in which a key has one row."""

from collections.abc import Sequence

from dataflow.errors import SinkRefusedError
from dataflow.sink import SinkChange
from dataflow.table import Row


def net_rows(
    title: str, key_indexes: Sequence[int], changes: Sequence[SinkChange], *, is_retracted: bool
) -> tuple[list[Row], list[Row]]:
    """The rows that are there after the changes, and those of which the key has none.

    A retraction and an emission of one row cancel each other, in whichever order they come.

    Args:
        title: of the table, for messages.
        key_indexes: of the columns of the key.
        changes: of a batch.
        is_retracted: whether the input retracts; otherwise the last row of a key is the one that counts.

    Raises:
        SinkRefusedError: a key has two rows at a time, or a value of it is missing.
    """
    emitted, retracted = dict[Row, list[Row]](), dict[Row, list[Row]]()
    for change in changes:
        key = tuple(change.value[at] for at in key_indexes)
        if None in key:
            raise SinkRefusedError(
                f"{title}: a row has no key",
                detail=f"the row: {change.value!r}",
                hint="give each row its key, or leave such rows out; the rows stay in the outbox",
            )
        same, other = (emitted, retracted) if change.sign > 0 else (retracted, emitted)
        if change.value in other.get(key, ()):
            other[key].remove(change.value)
        elif is_retracted:
            same.setdefault(key, []).append(change.value)
        else:
            same[key] = [change.value]
    for key, rows in emitted.items():
        if len(rows) > 1:
            raise SinkRefusedError(
                f"{title}: the key {key!r} has two rows at a time",
                detail=f"they are {rows[0]!r} and {rows[1]!r}",
                hint="let the key have what the results are grouped by, and the window; the rows stay in the outbox",
            )
    upserts = [row for rows in emitted.values() for row in rows]
    deletes = [rows[0] for key, rows in retracted.items() if rows and not emitted.get(key)]
    return upserts, deletes

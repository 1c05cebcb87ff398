"""Tables in which a key has one row: what a key may be, and what is left of the changes of a batch."""

from collections.abc import Mapping, Sequence

from dataflow.errors import PipelineError, SinkRefusedError
from dataflow.sink import SinkChange
from dataflow.table import ColumnType, Row, can_be_in_key, type_name


def checked_key(
    name: str,
    key: str | Sequence[str],
    columns: Mapping[str, ColumnType],
    changelog: str | None,
) -> tuple[str, ...]:
    """The columns of a key, which may be none.

    Args:
        name: of the transform, for messages.
        key: as the user gave it.
        columns: of the table.
        changelog: the column for signs; None: there is none.

    Raises:
        PipelineError: it has a column that there is not, or that cannot be in a key; or there are signs too.
    """
    key = (key,) if isinstance(key, str) else tuple(key)
    if key and changelog is not None:
        raise PipelineError(
            f"{name} was given a key and changelog",
            hint="a changelog has all changes of a row: leave the key out, or write a table without signs",
        )
    check_columns(name, "key", key, columns)
    for column in key:
        if not can_be_in_key(columns[column]):
            raise PipelineError(
                f"{name}: column {column!r} is of type {type_name(columns[column])} and cannot be in the key",
                hint="let the key have what identifies a row, e.g. a str or int",
            )
    return key


def check_columns(
    name: str, argument: str, names: Sequence[str], columns: Mapping[str, ColumnType]
) -> None:
    """Check that there are certain columns.

    Args:
        name: of the transform, for messages.
        argument: that names them, for messages.
        names: of the columns.
        columns: of the table.

    Raises:
        PipelineError: there is none of that name.
    """
    for column in names:
        if column not in columns:
            raise PipelineError(
                f"{name}: there is no column {column!r}",
                hint=f"name columns of columns= in {argument}",
            )


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

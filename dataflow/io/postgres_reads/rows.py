"""RowShape: from the texts of a row's columns to an element and its event time, the same whenever it is read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dataflow.errors import InputError
from dataflow.io.postgres_reads.column_rows import columns_of, rows_of, text_form
from dataflow.io.postgres_reads.row_form import Columns, RowForm
from dataflow.io.postgres_reads.values import Decode, decoder_of
from dataflow.set_aside import SetAside
from dataflow.source import SourceBatch, SplitStatus
from windowing.timestamps import MIN_TIMESTAMP_US, to_timestamp_us

#: A row as texts, None is NULL; and +1, or -1 where it is retracted.
SignedRow = tuple[Sequence[Any], int]
_SHOWN_BYTES = 200


class ElementsOfRows(NamedTuple):
    """Elements with their event times and signs, and what is none.

    Attributes:
        values: one for each row that is one, in order.
        timestamps_us: theirs.
        signs: theirs.
        set_aside: the others, in order.
    """

    values: Sequence[Any]
    timestamps_us: Sequence[int]
    signs: list[int]
    set_aside: list[SetAside]


class RowShape:
    """Makes elements of rows with these columns.

    Args:
        form: of the elements.
        columns: of the rows.
        where: names the input, for messages.

    Raises:
        InputError: a column that the elements need is not there.
    """

    def __init__(self, form: RowForm, columns: Columns, where: str) -> None:
        self._form, self.columns, self._where = form, columns, where
        names = [name for name, _ in columns]
        needed = list(form.fields)
        if isinstance(form.event_time, str):
            needed.append(form.event_time)
        if missing := [name for name in needed if name not in names]:
            raise InputError(
                f"{where} has no column {missing[0]!r}",
                detail=f"its columns are {', '.join(names)}",
                hint="correct rows=... or event_time=..., or add the column",
            )
        self._decoders: list[tuple[str, Decode]] = [
            (name, decoder_of(type_oid)) for name, type_oid in columns
        ]
        self._as_columns = text_form(form, columns)

    def read_all(self, found: Sequence[SignedRow]) -> ElementsOfRows:
        """The elements of rows, as columns where they can be, and what is set aside.

        Args:
            found: rows, and +1 or -1 for each.
        """
        if self._as_columns is not None and found:
            try:
                batch = columns_of(self._as_columns, self.columns, [raw for raw, _ in found])
                rows, times_us = rows_of(self._as_columns, self._where, batch)
            except (InputError, pa.ArrowException):
                pass  # which row it was, and what is to be said of it, is found one by one
            else:
                return ElementsOfRows(rows, times_us, [sign for _, sign in found], [])
        elements: list[Any] = []
        times: list[int] = []
        signs: list[int] = []
        set_aside: list[SetAside] = []
        for raw, sign in found:
            record = self.read(raw, sign)
            if isinstance(record, SetAside):
                set_aside.append(record)
                continue
            elements.append(record[0])
            times.append(record[1])
            signs.append(sign)
        return ElementsOfRows(elements, times, signs, set_aside)

    def read(self, raw: Sequence[Any], sign: int = +1) -> tuple[Any, int] | SetAside:
        """The element of a row with its event time in microseconds; or the row, set aside.

        Args:
            raw: its values, as texts; None is NULL.
            sign: -1 where it is retracted.
        """
        try:
            values = {
                name: None if value is None else decode(value)
                for (name, decode), value in zip(self._decoders, raw, strict=True)
            }
        except (ValueError, ArithmeticError, UnicodeError) as error:
            return self._set_aside(raw, error, sign, "a value that Python has no value for")
        form = self._form
        try:
            element: Any = values
            if form.row_type is not None:
                element = form.row_type(**{name: values[name] for name in form.fields})
            if form.event_time is None:
                return element, MIN_TIMESTAMP_US
            if isinstance(form.event_time, str):
                at: Any = values[form.event_time]
            else:
                at = form.event_time(element)
            return element, to_timestamp_us(at)
        except Exception as error:  # noqa: BLE001 - user code
            return self._set_aside(raw, error, sign, "no event time, or does not fit rows=")

    def _set_aside(self, raw: Sequence[Any], error: Exception, sign: int, what: str) -> SetAside:
        shown = {
            name: None if value is None else value[:_SHOWN_BYTES].decode("utf-8", "replace")
            for (name, _), value in zip(self._decoders, raw, strict=True)
        }
        return SetAside(
            error=InputError(
                f"{self._where} has a row with {what}",
                detail=f"{shown!r:.1000}: {type(error).__name__}: {error}",
                hint="correct the row, or the function; or go on without such rows: "
                "df.Pipeline(..., tries_per_record=1) keeps them as dead letters",
            ),
            cause=error,
            element=shown,
            sign=sign,
        )


def batch_of_rows(
    shape: RowShape | None, taken: Sequence[tuple[Any, ...]], position: Any, *, is_finished: bool
) -> SourceBatch:
    """A batch of rows of a table that is read once; they are in no order of event time.

    Args:
        shape: makes elements of them; None: nothing has been read yet.
        taken: the rows.
        position: behind them.
        is_finished: whether no more will come.
    """
    read = None if shape is None else shape.read_all([(raw, +1) for raw in taken])
    return SourceBatch(
        values=[] if read is None else read.values,
        timestamps_us=[] if read is None else read.timestamps_us,
        position=position,
        watermark_us=MIN_TIMESTAMP_US,
        status=SplitStatus.FINISHED if is_finished else SplitStatus.ACTIVE,
        set_aside=() if read is None else read.set_aside,
    )

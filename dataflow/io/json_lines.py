"""ReadFromJsonLines: values, or typed rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, overload

from dataflow.errors import PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.files import UNITS_US, Paths, ReadFromFiles, never_called
from dataflow.io.json_rows import JsonRowsSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.record_ids import RecordIds
from dataflow.rows import RowField, row_fields
from dataflow.type_vars import T
from windowing.timestamps import DurationLike, TimestampLike


class ReadFromJsonLines(ReadFromFiles[T]):
    """Values of files with one JSON value per line, or typed rows.

    Args:
        path: as for `ReadFromCsv`.
        max_disorder, max_ahead, record_ids, filesystem, compression: as for `ReadFromCsv`.
        rows: a row type: a `typing.NamedTuple` class with fields of int, float, str or bool, or one of these or None.
            Each line then is an object with at least these members (one that may be None may be missing), and elements
            are instances of the type.  They travel as columns where every step can take them so, which is many times
            faster; see docs/how-to/work-in-columns.md.
        event_time: as for `ReadFromCsv`; with ``rows`` also the name of a field: text with a time zone, as for
            `df.instant`, or a number of ``event_time_unit`` since 1970.
        event_time_unit: ``s``, ``ms`` or ``us``: seconds, milliseconds, microseconds; of a field that is a number.

    Raises:
        InputError: a file is missing or malformed: when the pipeline is built if its first lines show that, else when
            it is read, with the file, the line and its bytes.  With ``tries_per_record`` a malformed line, or one
            without an event time, is a dead letter instead.
        PipelineError: ``rows`` is no row type, or an argument does not suit the others.
    """

    source_class = JsonLinesSource

    @overload
    def __init__(
        self: ReadFromJsonLines[Any],
        path: Paths,
        *,
        rows: None = ...,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        record_ids: RecordIds | None = ...,
        filesystem: Any = ...,
        compression: str = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        path: Paths,
        *,
        rows: type[T],
        event_time: Callable[[T], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        record_ids: RecordIds | None = ...,
        filesystem: Any = ...,
        compression: str = ...,
    ) -> None: ...
    def __init__(
        self,
        path: Paths,
        *,
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | str | None = None,
        event_time_unit: str | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        record_ids: RecordIds | None = None,
        filesystem: Any = None,
        compression: str = "auto",
    ) -> None:
        field = event_time if isinstance(event_time, str) else None
        time_of = never_called if isinstance(event_time, str) else event_time
        super().__init__(
            path,
            event_time=time_of,
            max_disorder=max_disorder,
            max_ahead=max_ahead,
            record_ids=record_ids,
            filesystem=filesystem,
            compression=compression,
        )
        if rows is None:
            if field is not None or event_time_unit is not None:
                raise PipelineError(
                    "ReadFromJsonLines takes the name of a field, and a unit, with rows=... only",
                    hint="give the row type, or a function that gives an instant for each value",
                )
            return
        fields = row_fields(rows, "ReadFromJsonLines")
        check_row_fields("ReadFromJsonLines", rows, fields, field, event_time_unit)
        self._source = JsonRowsSource(
            pattern=self._source.pattern,
            event_time=None if field is not None else self._source.event_time,
            max_disorder_us=self._source.max_disorder_us,
            max_ahead=self._source.max_ahead,
            filesystem=self._source.filesystem,
            compression=self._source.compression,
            row_type=rows,
            fields=fields,
            time_field=field,
            unit_us=UNITS_US[event_time_unit or "s"],
        )


def check_row_fields(
    name: str,
    row_type: type,
    fields: Sequence[RowField],
    time_field: str | None,
    unit: str | None,
) -> None:
    """Refuse rows that JSON cannot have, and event times that their fields cannot be.

    Args:
        name: of the transform that reads them.
        row_type: of the rows.
        fields: of the row type.
        time_field: the name of the field of event times; None: it is none of them.
        unit: of the field, if it is a number; None: nothing was said.

    Raises:
        PipelineError: they cannot be read.
    """
    if unit is not None and (unit not in UNITS_US or time_field is None):
        raise PipelineError(
            f"{name} was given event_time_unit={unit!r}",
            hint=f"give one of {', '.join(map(repr, UNITS_US))}, with event_time= the name of a field",
        )
    if wrong := [each.name for each in fields if each.kind is datetime]:
        raise PipelineError(
            f"{name} cannot read the fields {wrong} of {row_type.__name__}",
            detail="JSON has no instants",
            hint="read them as str or int, and convert them in a df.Map",
        )
    kinds = {each.name: each.kind for each in fields if not each.is_optional}
    if time_field is not None and kinds.get(time_field) is str and unit is not None:
        raise PipelineError(
            f"{name} was given event_time_unit={unit!r} for the field {time_field!r}, which is text",
            hint="leave event_time_unit out: the text says which instant it is",
        )
    if time_field is not None and kinds.get(time_field) not in {int, float, str}:
        raise PipelineError(
            f"{name} cannot take event times from the field {time_field!r} of {row_type.__name__}",
            detail=f"fields: {', '.join(each.name for each in fields)}",
            hint="name a field of type str, int or float that is never None, or give a function of the row",
        )

"""ReadFromIceberg: rows of a snapshot of an Iceberg table, or of a table and what changes in it.

A snapshot that appends names files, which are read one by one.  Of one that deletes or overwrites, its files and their
deletes are compared with those of the one before; what differs is read whole, and rows that are in both are left out:
whoever rewrites a file for one row has changed one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, overload

import attrs
import pyarrow as pa

from dataflow.errors import InputError, PipelineError, TableNotOpenedError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.extras import require
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.parquet_files import ReadFromParquet
from dataflow.lake.delta_source import POLL
from dataflow.lake.iceberg_table import (
    IcebergPlace,
    check_table_name,
    close_catalog,
    planned_files,
)
from dataflow.lake.net_changes import net_changes
from dataflow.lake.reading import LakeSource, LakeTable, check_event_time
from dataflow.type_vars import T
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us

#: In place of the snapshot of a table that has none yet.
NOTHING = 0
#: Of a snapshot that deletes or overwrites: all its changes.
_CHANGES = "changes"


class IcebergTableReader(LakeTable):
    """An Iceberg table that is open.

    Args:
        place: of the table.
        has_signs: whether snapshots that take rows away are read too.

    Raises:
        TableNotOpenedError: it is not there, or is not reached.
    """

    def __init__(self, place: IcebergPlace, *, has_signs: bool = False) -> None:
        self._place, self.title, self._has_signs = place, place.table, has_signs
        self._table = place.checked("ReadFromIceberg")
        if self._table is None:
            raise TableNotOpenedError(
                f"there is no Iceberg table {place.table!r} in this catalogue",
                hint="check the name, with that of its namespace, and the properties of the catalogue, name among them",
            )
        self._tasks = lru_cache(maxsize=2)(self._tasks_of)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table as it is now."""
        return self._place.schema(self._table)

    def close(self) -> None:
        """Close the connections of its catalogue."""
        close_catalog(self._table)

    def newest(self) -> int:
        """The snapshot that the table is at."""
        self._table.refresh()
        return self._current()

    def files(self, version: int) -> list[str]:
        """By name."""
        return sorted(self._tasks(version, None))

    def changed_files(self, done: int) -> tuple[int, list[str]] | None:
        """What the next snapshot has appended, or all its changes; of the first one that is there, all that it has.

        Raises:
            InputError: it is not there any more; or it is no append, and only those are read.
        """
        following = self._following(done)
        if following is None:
            return None
        if done == NOTHING:
            return following.snapshot_id, self.files(following.snapshot_id)
        operation = following.summary.operation.value if following.summary else "unknown"
        version = int(following.snapshot_id)
        if operation == "replace":
            return version, []
        if operation == "append":
            return version, sorted(self._tasks(version, done))
        if not self._has_signs:
            raise InputError(
                f"{self.title}: snapshot {version} is no append, but of the kind {operation!r}",
                detail="the table is read with append_only=True, and a snapshot takes rows away",
                hint="leave append_only out, so that rows that are taken away are retracted, and begin the job anew",
            )
        return version, [_CHANGES]

    def rows(
        self, version: int, file: str, columns: Sequence[str], *, is_change: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, without those that are deleted; or all changes of a snapshot."""
        if is_change and file == _CHANGES:
            return iter(self._changes(version, columns))
        done = (
            (self._table.snapshot_by_id(version).parent_snapshot_id or None) if is_change else None
        )
        return self._rows(self._tasks(version, done)[file], columns)

    def _rows(self, found: tuple[Any, Any], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415 - an extra

        scan, task = found
        # The columns are those of the table as it is now, and some of them may be younger than the file.
        projected = self._table.schema().select(*columns)
        rows: Iterator[pa.RecordBatch] = ArrowScan(
            self._table.metadata, self._table.io, projected, scan.row_filter
        ).to_record_batches([task])
        return rows

    def _changes(self, version: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        """What a snapshot takes away and adds, by the files that the one before has not, or has with other deletes."""
        snapshot = self._table.snapshot_by_id(version)
        before, after = self._tasks(snapshot.parent_snapshot_id, None), self._tasks(version, None)
        differ = [
            file
            for file in sorted({*before, *after})
            if file not in before
            or file not in after
            or before[file][1].delete_files != after[file][1].delete_files
        ]
        rows = [
            [batch for file in differ if file in side for batch in self._rows(side[file], columns)]
            for side in (before, after)
        ]
        return net_changes(*rows).to_batches() if any(rows) else []

    def _current(self) -> int:
        snapshot = self._table.current_snapshot()
        return NOTHING if snapshot is None else int(snapshot.snapshot_id)

    def _following(self, done: int) -> Any:
        """The snapshot after one, on the way to that of the table; None: there is none."""
        if self._current() == done and self.newest() == done:
            return None
        at = self._table.current_snapshot()
        while at is not None and (at.parent_snapshot_id or NOTHING) != done:
            oldest, parent = at, at.parent_snapshot_id
            at = None if parent is None else self._table.snapshot_by_id(parent)
        if at is not None:
            return at
        raise InputError(
            f"{self.title}: what follows snapshot {done} is not there any more",
            detail=f"the oldest snapshot before that of the table is {oldest.snapshot_id}",
            hint="did snapshots expire, or was the table set back? keep them for longer than the job may be away, or "
            "begin it anew with fresh=True",
        )

    def _tasks_of(self, version: int, done: int | None) -> dict[str, tuple[Any, Any]]:
        """The files of a snapshot, or of what it has appended, by name, each with the scan that it is of."""
        if version == NOTHING:
            return {}
        if self._table.snapshot_by_id(version) is None and self.newest() != version:
            raise InputError(
                f"{self.title}: snapshot {version} is not there",
                detail=f"the table is at {self._current()}",
                hint="it has expired, or is of another table",
            )
        if done is None:
            scan = self._table.scan(snapshot_id=version)
        else:
            scan = self._table.incremental_append_scan(
                from_snapshot_id_exclusive=done, to_snapshot_id_inclusive=version
            )
        return {task.file.file_path: (scan, task) for task in planned_files(scan, self.title)}


@attrs.frozen(kw_only=True)
class IcebergSource(LakeSource):
    """An Iceberg table.

    Attributes:
        catalog: properties of its catalogue.
    """

    catalog: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def opened(self, *, is_tried_again: bool = False) -> IcebergTableReader:
        """The table."""
        place = IcebergPlace(catalog=self.catalog, table=self.input_name)
        return IcebergTableReader(place, has_signs=self.has_signs)


class ReadFromIceberg(ReadFromParquet[T]):
    """Rows of an Iceberg table, as typed rows or as mappings from column name to value; needs pyiceberg.

    Args:
        table: its name, with that of its namespace: ``shop.sales``.
        catalog: properties of the catalogue, as for `WriteToIceberg`.
        snapshot: the id of a snapshot; None: that which the table is at when the job begins.
        changes: whether the input has no end: the rows that are there when the job begins, and then what changes: rows
            that are deleted or replaced are retracted.
        append_only: with ``changes``, whether nothing is retracted, so that what follows need not take retractions; a
            snapshot that takes rows away is an error then.
        poll: how often the table is looked at that has nothing new.
        max_ahead: as for `ReadFromParquet`.
        options: rows, columns, event_time, event_time_unit, time_zone and max_disorder, as for `ReadFromParquet`.

    Raises:
        InputError: there is no such table or snapshot, or no such column, or one of a type that does not fit: when the
            pipeline is built.  When it is read, a snapshot that is not there any more, or has deletes that pyiceberg
            does not read; or with append_only takes rows away.
        PipelineError: an argument does not suit the others; or pyiceberg is not installed.
    """

    source_class = IcebergSource

    @overload
    def __init__(
        self: ReadFromIceberg[dict[str, Any]],
        table: str,
        *,
        catalog: Mapping[str, str],
        snapshot: int | None = ...,
        changes: bool = ...,
        append_only: bool = ...,
        poll: DurationLike = ...,
        rows: None = ...,
        columns: Sequence[str] | None = ...,
        event_time: Callable[[dict[str, Any]], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        table: str,
        *,
        catalog: Mapping[str, str],
        rows: type[T],
        snapshot: int | None = ...,
        changes: bool = ...,
        append_only: bool = ...,
        poll: DurationLike = ...,
        event_time: Callable[[T], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
    ) -> None: ...
    def __init__(
        self,
        table: str,
        *,
        catalog: Mapping[str, str],
        snapshot: int | None = None,
        changes: bool = False,
        append_only: bool = False,
        poll: DurationLike = POLL,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        **options: Any,
    ) -> None:
        require("pyiceberg", "iceberg", "ReadFromIceberg")
        check_table_name("ReadFromIceberg", table)
        super().__init__(table, max_ahead=max_ahead, **options)
        assert isinstance(self._source, IcebergSource)
        if snapshot is not None and changes:
            raise PipelineError(
                "ReadFromIceberg was given a snapshot and changes",
                hint="changes begin with the snapshot that the table is at: leave the snapshot out",
            )
        if append_only and not changes:
            raise PipelineError(
                "ReadFromIceberg was given append_only without changes",
                hint="leave it out: a snapshot is read as it is",
            )
        if changes:
            check_event_time("ReadFromIceberg", self._source)
        self._source = attrs.evolve(
            self._source,
            version=snapshot,
            follows=changes,
            has_signs=changes and not append_only,
            poll_us=to_duration_us(poll),
            catalog=dict(catalog),
        )

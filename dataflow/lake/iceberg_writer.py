"""IcebergSink, and IcebergWriter: the batches of one lane as snapshots of an Iceberg table, each with its number.

A commit of Iceberg can have one condition that says what was read: that the branch is still at the snapshot that it was
at.  Properties have none, so a commit of properties alone would shut nobody out.

* The fence is a snapshot without rows, with the token as a property.  Whoever has looked at the table before it is
  refused, as the branch is at another snapshot.
* A batch is one commit: a snapshot with its rows, and the number, in the snapshot's summary for people, and as a
  property of the table, as snapshots expire.
* By key a batch writes whole files again (`stage_rewrite`), in one snapshot as well; what it read for that is what the
  condition names.
* A commit that is refused because others have written is made again here: the table is read, the token and the number
  are looked at, and only then the rows are appended.  pyiceberg would append them again without looking, so its
  retries are switched off.

Iceberg specification, "Optimistic Concurrency"; REST catalogue, ``assert-ref-snapshot-id``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import InputError, SinkFencedError, SinkRefusedError
from dataflow.lake.iceberg_rewrite import stage_rewrite
from dataflow.lake.iceberg_table import (
    IcebergPlace,
    check_can_be_written,
    close_catalog,
    without_retries,
)
from dataflow.lake.keyed import net_rows
from dataflow.lake.table_format import LAKE_BATCHING, TableFormat
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter
from dataflow.table import ColumnType

#: How often a commit is tried before the relay takes over with its pauses, and how long it pauses before the second.
_TRIES, _PAUSE_S = 6, 0.05


@attrs.frozen(kw_only=True)
class IcebergSink(Sink[Any]):
    """A table of Apache Iceberg.

    One lane commits to it: each commit has the condition that nobody else has, so several would wait for each other.

    Attributes:
        place: where it is.
        file_format: its columns.
        key: of which there is one row each; empty: rows are added.
        is_retracted: whether the input retracts.
        properties: of the table, if it is created.
        how_large: how large batches are, and how long changes wait for that.
    """

    place: IcebergPlace
    file_format: TableFormat
    key: tuple[str, ...] = ()
    is_retracted: bool = False
    properties: Mapping[str, str] = attrs.field(factory=dict)
    how_large: Batching = LAKE_BATCHING

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns of the table, without the sign."""
        return self.file_format.columns

    @property
    def key_indexes(self) -> tuple[int, ...]:
        """Where the columns of the key are in a row."""
        names = list(self.columns)
        return tuple(map(names.index, self.key))

    @property
    def takes_retractions(self) -> bool:
        """Whether rows have a key, or a sign."""
        return bool(self.key) or self.file_format.sign is not None

    @property
    def batching(self) -> Batching:
        """How large batches are."""
        return self.how_large

    def check(self) -> None:
        """Check that the catalogue can be reached, and that rows can be in the table, if it is there.

        Raises:
            InputError: it cannot, or they cannot.
        """
        table = self.place.checked("WriteToIceberg")
        try:
            if table is not None:
                check_can_be_written(self.place.table, table.format_version)
                self.file_format.check_fit(self.place.table, self.place.schema(table))
        finally:
            close_catalog(table)

    def open(self, lane: Lane) -> SinkWriter:
        """A writer of the lane."""
        return IcebergWriter(self, lane)


@attrs.frozen
class _Batch:
    """What a batch does to the table.

    Attributes:
        rows: that are there behind it; of a sink with a key, and then those whose keys are gone.
        added: how many of them are there.
    """

    rows: pa.Table
    added: int


class IcebergWriter(SinkWriter):
    """Writes one lane.

    Args:
        sink: what is written.
        lane: the lane.
    """

    def __init__(self, sink: IcebergSink, lane: Lane) -> None:
        self._sink, self._lane, self._token = sink, lane, 0
        self._token_name = f"dataflow.{lane.writer}.token"
        self._number_name = f"dataflow.{lane.writer}.number"
        self._catalog: Any = None

    def fence(self, token: int) -> int:
        """Commit the token, and read the number that the table had then.

        Raises:
            SinkFencedError: the table has this token, or a higher one.
            SinkRefusedError: pyiceberg does not write tables of this version.
        """
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra

        self._catalog = self._sink.place.loaded_catalog()
        self._open_or_create()
        while True:
            table = self._opened()
            if _known(table, self._token_name) >= token:
                raise self._fenced()
            try:
                self._commit(table, None, {self._token_name: str(token)}, {})
                break
            except CommitFailedException:
                time.sleep(_PAUSE_S)
        self._token = token
        return _known(table, self._number_name)

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Commit the rows with their number.

        Raises:
            SinkFencedError: another writer has the lane.
            SinkRefusedError: the table does not take the rows.
            Exception: nobody knows; the next writer asks.
        """
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra

        batch = self._batch(changes)
        for tried in range(1, _TRIES + 1):
            table = self._opened()
            if _known(table, self._token_name) != self._token:
                raise self._fenced()
            if _known(table, self._number_name) >= number:
                return
            schema = self._sink.place.schema(table)
            fitted = self._sink.file_format.fitted(self._sink.place.table, batch.rows, schema)
            try:
                self._commit(
                    table,
                    _Batch(fitted, batch.added),
                    {self._number_name: str(number)},
                    {"dataflow.lane": self._lane.title, "dataflow.number": str(number)},
                )
            except CommitFailedException:
                if tried == _TRIES:
                    raise
                time.sleep(_PAUSE_S * tried)
            else:
                return

    def close(self) -> None:
        """Close the connections of the catalogue."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _open_or_create(self) -> None:
        sink = self._sink
        table = sink.place.opened_or_created(
            self._catalog, sink.file_format.schema, sink.properties
        )
        try:
            check_can_be_written(sink.place.table, table.format_version)
        except InputError as error:
            raise SinkRefusedError(error.fact, detail=error.detail, hint=error.hint) from error

    def _opened(self) -> Any:
        return without_retries(self._sink.place.opened(self._catalog))

    def _batch(self, changes: Sequence[SinkChange]) -> _Batch:
        sink = self._sink
        if not sink.key:
            return _Batch(sink.file_format.table_of(changes), len(changes))
        upserts, deletes = net_rows(
            sink.place.table, sink.key_indexes, changes, is_retracted=sink.is_retracted
        )
        rows = [*upserts, *deletes]
        return _Batch(sink.file_format.table(rows, [1] * len(rows)), len(upserts))

    def _commit(
        self,
        table: Any,
        batch: _Batch | None,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> None:
        """Commit a snapshot and properties, on the condition that the branch is where it was when it was opened."""
        with table.transaction() as transaction:
            transaction.set_properties(dict(properties))
            if batch is None:
                transaction.append(self._sink.place.schema(table).empty_table())
            elif self._sink.key and batch.rows.num_rows:
                self._stage_by_key(transaction, table, batch, summary)
            else:
                transaction.append(batch.rows, snapshot_properties=dict(summary))

    def _stage_by_key(
        self, transaction: Any, table: Any, batch: _Batch, summary: Mapping[str, str]
    ) -> None:
        rows, keys = batch.rows.slice(0, batch.added), batch.rows.select(list(self._sink.key))
        try:
            stage_rewrite(transaction, table, rows, keys, summary)
        except InputError as error:
            raise SinkRefusedError(error.fact, detail=error.detail, hint=error.hint) from error

    def _fenced(self) -> SinkFencedError:
        return SinkFencedError(f"{self._lane.title} was fenced by another writer")


def _known(table: Any, name: str) -> int:
    return int(table.metadata.properties.get(name, 0))

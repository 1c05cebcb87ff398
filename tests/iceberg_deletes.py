"""Deletes beside the files of an Iceberg table, as engines write them that rewrite no files; pyiceberg writes none."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record


def delete_positions(table: Table, positions: Sequence[tuple[str, int]]) -> None:
    """Delete rows of an unpartitioned table by their files and their places there.

    Args:
        table: that was opened; it is at the new snapshot then.
        positions: of the rows.
    """
    files, places = zip(*sorted(positions), strict=True)
    rows = pa.table({"file_path": files, "pos": pa.array(places, pa.int64())})
    _commit(table, rows, DataFileContent.POSITION_DELETES, None)


def delete_equal(table: Table, rows: pa.Table) -> None:
    """Delete all rows of an unpartitioned table that have certain values in certain columns.

    Args:
        table: that was opened; it is at the new snapshot then.
        rows: the values.
    """
    fields = [table.schema().find_field(name).field_id for name in rows.column_names]
    _commit(table, rows, DataFileContent.EQUALITY_DELETES, fields)


def _commit(
    table: Table, rows: pa.Table, content: DataFileContent, fields: list[int] | None
) -> None:
    with table.transaction() as transaction:
        snapshot = _RowDelta(operation=Operation.DELETE, transaction=transaction, io=table.io)
        path = table.location_provider().new_data_location(f"{snapshot.commit_uuid}.parquet")
        with table.io.new_output(path).create() as file:
            pq.write_table(rows, file)
        snapshot.deletes = DataFile.from_args(
            content=content,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=rows.num_rows,
            file_size_in_bytes=len(table.io.new_input(path)),
            equality_ids=fields,
        )
        snapshot.deletes.spec_id = table.spec().spec_id
        snapshot.commit()


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelta(_FastAppendFiles):
    """A snapshot that adds a file of deletes."""

    deletes: Any

    def _manifests(self) -> list[ManifestFile]:
        writer = _DeleteManifestWriter(
            self._transaction.table_metadata.spec(),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )
        with writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=self.deletes,
                )
            )
        return [writer.to_manifest_file(), *self._existing_manifests()]

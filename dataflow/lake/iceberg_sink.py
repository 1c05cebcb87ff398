"""WriteToIceberg: rows into a table of Apache Iceberg, each exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dataflow.io.extras import require
from dataflow.io.sinks import Write
from dataflow.lake.iceberg_table import IcebergPlace, check_can_be_written, check_table_name
from dataflow.lake.iceberg_writer import IcebergSink
from dataflow.lake.keyed import checked_key
from dataflow.lake.table_format import LAKE_BATCHING, RowOf, table_format
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.sink import Batching
from dataflow.table import ColumnType
from dataflow.transforms.par_do import Map


class WriteToIceberg(PTransform[PCollection[Any], None]):
    """Mappings, or named tuples, as rows of an Iceberg table; needs pyiceberg.

    Elements go by way of an outbox, of which each batch becomes one snapshot of the table, with its number: after a
    retry, a failure or a restart each row is there once.  A table that is missing is created with these columns.

    Args:
        table: its name, with that of its namespace: ``shop.sales``.
        catalog: properties of the catalogue, as pyiceberg has them, such as ``{"type": "sql", "uri":
            "postgresql+psycopg://...", "warehouse": "s3://bucket/lake"}``; ``name`` is that of the catalogue.  They are
            sent to the workers as they are, with secrets that are in them.
        columns: names with Python types, as for `WriteToParquet`, but no timedelta.
        key: columns of which there is one row each: a later row replaces the earlier one, and a retraction deletes it.
            Each batch then writes all files again that have such a row (copy-on-write).
        changelog: the name of a further column with the sign of a change, +1 or -1.  Without this and ``key``, input
            that retracts is refused.
        batching: how large snapshots are, and how long rows wait for that.
        properties: of the table, if it is created.

    Raises:
        PipelineError: columns, key and changelog do not suit each other; a column has an unknown type, or the table no
            namespace; the input retracts, and there is neither key nor changelog; or pyiceberg is not installed.
        InputError: a table of a version that pyiceberg does not write is to be created.
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: Mapping[str, str],
        columns: Mapping[str, ColumnType],
        key: Sequence[str] = (),
        changelog: str | None = None,
        batching: Batching = LAKE_BATCHING,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        require("pyiceberg", "iceberg", "WriteToIceberg")
        check_table_name("WriteToIceberg", table)
        properties = dict(properties or {})
        check_can_be_written(table, int(properties.get("format-version", 0)))
        self._sink = IcebergSink(
            place=IcebergPlace(catalog=dict(catalog), table=table),
            file_format=table_format("WriteToIceberg", columns, changelog),
            key=checked_key("WriteToIceberg", key, columns, changelog),
            properties=properties,
            how_large=batching,
        )

    def default_label(self) -> str:
        """``WriteToIceberg(table)``."""
        return f"WriteToIceberg({self._sink.place.table})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Make rows of elements, and write them.

        Raises:
            PipelineError: the input retracts, and there is neither key nor changelog.
        """
        rows = pcoll | "rows" >> Map(RowOf(self._sink.file_format))
        is_retracted = bool(pcoll.node.retracted_by)
        Write(attrs.evolve(self._sink, is_retracted=is_retracted)).expand(rows)

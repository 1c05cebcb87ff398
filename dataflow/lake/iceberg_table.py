"""IcebergPlace: in which catalogue an Iceberg table is, and how it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import PipelineError, TableNotOpenedError

#: The property of a table that says how often a commit is made again on top of what others have committed.
_RETRIES = "commit.retry.num-retries"


@attrs.frozen(kw_only=True)
class IcebergPlace:
    """A table by its name.

    Attributes:
        catalog: properties of the catalogue, as pyiceberg has them.
        table: its name, with that of its namespace: ``shop.sales``.
    """

    catalog: Mapping[str, str] = attrs.field(repr=False)
    table: str

    def loaded_catalog(self) -> Any:
        """The catalogue, with connections of its own."""
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra

        properties = {key: value for key, value in self.catalog.items() if key != "name"}
        if properties.get("warehouse", "").startswith(("gs://", "gcs://")):
            properties.setdefault("py-io-impl", "dataflow.lake.iceberg_io.GcsFileIO")
        return load_catalog(self.catalog.get("name", "dataflow"), **properties)

    def opened_or_created(
        self, catalog: Any, schema: pa.Schema, properties: Mapping[str, str]
    ) -> Any:
        """The table; where there is none, it is created, and its namespace.

        Args:
            catalog: that has the table.
            schema: its columns.
            properties: of the table.
        """
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra

        try:
            return self.opened(catalog)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            catalog.create_table_if_not_exists(self.table, schema, properties=dict(properties))
            return self.opened(catalog)

    def opened(self, catalog: Any) -> Any:
        """The table as it is now.

        Args:
            catalog: that has it.
        """
        return catalog.load_table(self.table)

    def schema(self, table: Any) -> pa.Schema:
        """The columns of a table, as Arrow has them.

        Args:
            table: that was opened.
        """
        return table.schema().as_arrow()

    def checked(self, name: str) -> Any:
        """The table, with a catalogue of its own; None: there is none.

        Args:
            name: of the transform, for messages.

        Raises:
            TableNotOpenedError: nobody can say.
        """
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra

        catalog = None
        try:
            catalog = self.loaded_catalog()
            return self.opened(catalog)
        except NoSuchTableError:
            _close(catalog)
            return None
        except Exception as error:
            _close(catalog)
            raise TableNotOpenedError(
                f"{name} does not reach the table {self.table!r}",
                detail=f"{type(error).__name__}: {error}",
                hint="check the properties of the catalogue, and the credentials, where the pipeline runs",
            ) from error


def close_catalog(table: Any) -> None:
    """Close the connections of the catalogue of a table.

    Args:
        table: that was opened; None: there is none.
    """
    _close(None if table is None else table.catalog)


def _close(catalog: Any) -> None:
    if catalog is not None:
        catalog.close()


def without_retries(table: Any) -> Any:
    """A table whose commits are not made again on top of what others have committed.

    Only in memory: the property of the table is other writers' as well.

    Args:
        table: changed in place.
    """
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def check_table_name(name: str, table: str) -> None:
    """Check that a name has a namespace.

    Args:
        name: of the transform, for messages.
        table: as the user gave it.

    Raises:
        PipelineError: it has none.
    """
    if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
        raise PipelineError(
            f"{name} was given the table {table!r}",
            hint="give its name with that of its namespace, e.g. 'shop.sales'",
        )

"""IcebergPlace: in which catalogue an Iceberg table is, and how it is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import InputError, PipelineError, TableNotOpenedError
from dataflow.postgres_links import NOTICED

#: The property of a table that says how often a commit is made again on top of what others have committed.
_RETRIES = "commit.retry.num-retries"
#: The property that names a class of catalogues, in place of a type.
_IMPLEMENTATION = "py-catalog-impl"
#: Addresses of a Postgres by the driver that is ours.
_PSYCOPG = "postgresql+psycopg://"
#: The highest version of the format that pyiceberg writes.
_WRITTEN_MAX = 2


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
        properties = _with_timeouts(properties)
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


def check_can_be_written(title: str, version: int) -> None:
    """Check that pyiceberg writes tables of a version of the format.

    Args:
        title: of the table, for messages.
        version: of its format.

    Raises:
        InputError: it does not.
    """
    if version > _WRITTEN_MAX:
        raise InputError(
            f"{title} has format version {version}",
            detail=f"pyiceberg reads such tables, and writes those of version {_WRITTEN_MAX} and before",
            hint="write to a table of version 2, which is what is created without the property format-version",
        )


def close_catalog(table: Any) -> None:
    """Close the connections of the catalogue of a table.

    Args:
        table: that was opened; None: there is none.
    """
    _close(None if table is None else table.catalog)


def _close(catalog: Any) -> None:
    if catalog is not None:
        catalog.close()


def _with_timeouts(properties: dict[str, str]) -> dict[str, str]:
    """The properties of a catalogue, so that a connection that is silent is noticed to be lost."""
    uri = properties.get("uri", "")
    kind = properties.get("type", "rest" if uri.startswith("http") else "")
    if kind == "rest" and _IMPLEMENTATION not in properties:
        others = {key: value for key, value in properties.items() if key != "type"}
        return {**others, _IMPLEMENTATION: "dataflow.lake.iceberg_rest.TimedRestCatalog"}
    if not uri.startswith(_PSYCOPG):
        return properties
    from sqlalchemy import make_url  # noqa: PLC0415 - comes with the extra

    url = make_url(uri)
    noticed = {name: str(value) for name, value in NOTICED.items() if name not in url.query}
    timed = url.update_query_dict(noticed).render_as_string(hide_password=False)
    return {**properties, "uri": timed}


def planned_files(scan: Any, title: str) -> list[Any]:
    """The files of a scan, each with the deletes that apply to it.

    Args:
        scan: of the table.
        title: of the table, for messages.

    Raises:
        InputError: it has deletes that cannot be read.
    """
    try:
        found: Iterable[Any] = scan.plan_files()
        return list(found)
    except (ValueError, NotImplementedError) as error:
        if "equality delete" not in str(error):
            raise
        raise InputError(
            f"{title} has rows that are deleted by equality",
            detail="such deletes name values and not rows, and pyiceberg does not read them; Flink writes them for "
            "upserts",
            hint="have the engine that writes them rewrite the files (rewrite_data_files with delete-file-threshold=1 "
            "in Spark), or write position deletes, or whole files (copy-on-write)",
        ) from error


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

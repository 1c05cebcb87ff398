"""DeltaPlace: where a Delta table is, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import TableNotOpenedError
from dataflow.io.storage import gcs_service_key


@attrs.frozen(kw_only=True)
class DeltaPlace:
    """A table by its address.

    Attributes:
        uri: a folder, or an address.
        options: of the object store.
        is_tried_again: whether who opens it tries again, and other inputs are to be read meanwhile; so that the client
            need not.
    """

    uri: str
    options: Mapping[str, str] | None = None
    is_tried_again: bool = False

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options, and that a service without encryption may be one, where the environment names such a one."""
        if not self.is_tried_again:
            return self._given_options
        return {"max_retries": "1", **(self._given_options or {})}

    @property
    def _given_options(self) -> dict[str, str] | None:
        if self.options is not None:
            return dict(self.options)
        gcs_key = gcs_service_key()
        if gcs_key is not None and self.uri.startswith(("gs://", "gcs://")):
            return {"google_service_account_key": gcs_key, "allow_http": "true"}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            return {"AWS_ALLOW_HTTP": "true"}
        return None

    def opened(self, version: int | None = None) -> Any:
        """The table.

        Args:
            version: which one; None: the newest.

        Raises:
            TableNotFoundError: there is none.
        """
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        return DeltaTable(self.uri, version=version, storage_options=self.storage_options)

    def found(self) -> Any:
        """The table; None: there is none."""
        # `DeltaTable.is_deltatable` would keep all other threads of the process waiting meanwhile.
        from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415 - an extra

        try:
            return self.opened()
        except TableNotFoundError:
            return None

    def opened_or_created(
        self, schema: pa.Schema, partition_by: Sequence[str], configuration: Mapping[str, str]
    ) -> Any:
        """The table; where there is none, it is created.

        Args:
            schema: its columns.
            partition_by: those by which files are divided.
            configuration: its properties.
        """
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - an extra

        found = self.found()
        if found is not None:
            return found
        try:
            DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                partition_by=list(partition_by) or None,
                configuration=dict(configuration),
                storage_options=self.storage_options,
            )
        except DeltaError:
            # Of two lanes that create it at once, one is too late.
            if self.found() is None:
                raise
        return self.opened()

    def schema(self, table: Any) -> pa.Schema:
        """The columns of a table, as Arrow has them.

        Args:
            table: that was opened.
        """
        return pa.schema(table.schema().to_arrow())

    def checked(self, name: str) -> Any:
        """The table; None: there is none.

        Args:
            name: of the transform, for messages.

        Raises:
            TableNotOpenedError: nobody can say.
        """
        try:
            return self.found()
        except Exception as error:
            raise TableNotOpenedError(
                f"{name} does not reach the table {self.uri!r}",
                detail=str(error),
                hint="check the address, and the credentials, where the pipeline runs",
            ) from error

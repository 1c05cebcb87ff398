"""GcsFileIO: files of Iceberg tables in Google's object store, by Arrow, whose client gives up soon."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyarrow.fs import GcsFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

#: Arrow would try for a quarter of an hour, and whoever asks tries again by itself.
_RETRIED = timedelta(seconds=10)


class GcsFileIO(PyArrowFileIO):
    """pyiceberg's own, but for the time-out."""

    def _initialize_gcs_fs(self) -> Any:
        _, (options,) = super()._initialize_gcs_fs().__reduce__()
        return GcsFileSystem(**{**options, "retry_time_limit": _RETRIED})

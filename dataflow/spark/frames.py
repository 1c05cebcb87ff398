"""ReadFromSpark: the rows of a DataFrame of Spark, as Spark itself wrote them down once.

A frame is a plan of one session: its rows exist nowhere, may come in another order or be others the next time, and no
worker of ours can ask for them.  So Spark writes them once, as Parquet, with its executors; what is read are the files.
"""

from __future__ import annotations

import json
import logging
import shutil
from atexit import register
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, overload

from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.parquet_files import ReadFromParquet
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.record_ids import RecordIds
from dataflow.type_vars import T
from windowing.errors import error_text
from windowing.timestamps import DurationLike, TimestampLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dataflow.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
#: What Spark leaves in a folder when it is whole, and what is noted there of the frame.
_WHOLE, _SCHEMA = "_SUCCESS", "_dataflow_schema.json"
#: By default Spark writes instants in a form that does not say that they are any.
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


class ReadFromSpark(OneOutput["Pipeline", T]):
    """The rows of a DataFrame of Spark, as typed rows or as mappings from column name to value.  The input ends.

    The frame is computed once, when the pipeline is built: Spark writes its rows to a folder, as Parquet, and the
    workers read the files in parts.  So whoever reads a part again reads the same rows, whatever the frame would have
    said then, and its session is not needed any more.  It costs to write and to read the rows once.

    Args:
        frame: of a classic session or of Spark Connect; no streaming one.
        folder: where to write, which Spark's executors and our workers reach by this path; it must not be there, or be
            empty.  A folder that has the whole of a frame with the same schema is read as it is, and the frame is not
            computed: that is how a job that goes on finds its input.  Nobody deletes it.  None: a temporary folder of
            this machine, deleted when the process ends; so a job that goes on in another process does not find it.
        rows: a row type, as for `ReadFromParquet`; None: elements are mappings.
        event_time: as for `ReadFromParquet`: a column, a function, or `ARRIVAL_TIME`.
        event_time_unit: as for `ReadFromParquet`.
        time_zone: of columns of the type ``timestamp_ntz``, which are no instants without it.
        max_disorder: as for `ReadFromParquet`.
        max_ahead: as for `ReadFromParquet`.
        record_ids: as for `ReadFromParquet`.

    Raises:
        InputError: Spark cannot compute or write the frame, or the folder has something else; or as
            `ReadFromParquet`.
        PipelineError: it is no frame, or a streaming one; or as `ReadFromParquet`.
    """

    @overload
    def __init__(
        self: ReadFromSpark[dict[str, Any]],
        frame: DataFrame,
        folder: str | Path | None = ...,
        *,
        rows: None = ...,
        event_time: Callable[[dict[str, Any]], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        record_ids: RecordIds | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        frame: DataFrame,
        folder: str | Path | None = ...,
        *,
        rows: type[T],
        event_time: Callable[[T], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        record_ids: RecordIds | None = ...,
    ) -> None: ...
    def __init__(
        self,
        frame: DataFrame,
        folder: str | Path | None = None,
        *,
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | str | None = None,
        event_time_unit: str | None = None,
        time_zone: str | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        record_ids: RecordIds | None = None,
    ) -> None:
        _check_frame(frame)
        self._frame, self._folder = frame, None if folder is None else Path(folder)
        self._options: dict[str, Any] = {
            "rows": rows,
            "event_time": event_time,
            "event_time_unit": event_time_unit,
            "time_zone": time_zone,
            "max_disorder": max_disorder,
            "max_ahead": max_ahead,
            "record_ids": record_ids,
        }
        # Arguments are refused before anything is computed.
        ReadFromParquet("frame", **self._options)

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Have Spark write the frame, unless it is there, and read the files."""
        folder = self._folder or _temporary_folder()
        write_once(self._frame, folder)
        read: PCollection[T] = pcoll | "files" >> ReadFromParquet(folder, **self._options)
        return read


def write_once(frame: DataFrame, folder: Path) -> None:
    """Have Spark write a frame as Parquet, unless the folder has it.

    Args:
        frame: with an end.
        folder: where to.

    Raises:
        InputError: Spark cannot, or the folder has something else.
    """
    schema = frame.schema.jsonValue()
    noted = folder / _SCHEMA
    if noted.exists() and (folder / _WHOLE).exists():
        if json.loads(noted.read_text()) != schema:
            raise InputError(
                f"{folder} has another frame of Spark than is to be read",
                detail=f"its schema is {noted.read_text()[:500]}",
                hint="a folder keeps one frame: give another folder, or delete this one",
            )
        _LOG.info("%s has the frame already, and is read as it is", folder)
        return
    if folder.exists() and any(each.name != _SCHEMA for each in folder.iterdir()):
        raise InputError(
            f"{folder} is not empty, and does not have the whole of a frame of Spark",
            detail="what is there was not written by ReadFromSpark, or its writing was interrupted",
            hint="give a folder that is not there yet, or delete this one",
        )
    try:
        with instants_as_such(frame):
            frame.write.mode("append").parquet(folder.absolute().as_uri())
    except Exception as error:
        raise InputError(
            f"Spark has not written the frame to {folder}",
            detail=f"{type(error).__name__}: {error_text(error)[:1000]}",
            hint="does frame.count() work, and may Spark's executors write there?",
        ) from error
    if not (folder / _WHOLE).exists():
        raise InputError(
            f"what Spark has written to {folder} is not there",
            detail="Spark says that it has written the frame, but this machine does not see it",
            hint="give a folder that this machine, Spark's executors and our workers reach by one path",
        )
    # Spark refuses nothing that is hidden, and deletes nothing when it appends.
    noted.write_text(json.dumps(schema))


@contextmanager
def instants_as_such(frame: DataFrame) -> Iterator[None]:
    """Have instants in files say that they are instants; a context manager.

    Args:
        frame: that is written in it.
    """
    conf = frame.sparkSession.conf
    before = conf.get(_TIMESTAMPS)
    conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        conf.set(_TIMESTAMPS, str(before))


def _temporary_folder() -> Path:
    parent = mkdtemp(prefix="dataflow-frame-")
    register(shutil.rmtree, parent, ignore_errors=True)
    return Path(parent, "frame")


def _check_frame(frame: object) -> None:
    if not all(hasattr(frame, name) for name in ("sparkSession", "isStreaming", "schema")):
        raise PipelineError(
            f"ReadFromSpark cannot read {frame!r:.200}", hint="give it a DataFrame of PySpark"
        )
    if getattr(frame, "isStreaming", False):
        raise PipelineError(
            "ReadFromSpark was given a streaming frame, which has no end",
            hint="write it to a SparkInbox, and read that: df.ReadFromSparkInbox",
        )

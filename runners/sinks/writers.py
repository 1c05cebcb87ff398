"""Opens the writers of sinks: those that come with the SDK here, others by themselves."""

from typing import Any

from dataflow.io.postgres import PostgresTable
from dataflow.sink import Lane, Sink, SinkWriter


def open_writer(sink: Sink[Any], lane: Lane) -> SinkWriter:
    """A writer of a lane of the sink.

    Args:
        sink: the sink.
        lane: the lane.
    """
    if isinstance(sink, PostgresTable):
        # Imported here: it takes long, and most pipelines have no such sink.
        from runners.sinks.postgres import PostgresWriter  # noqa: PLC0415 - the connector has a driver of its own to import

        return PostgresWriter(sink, lane)
    return sink.open(lane)

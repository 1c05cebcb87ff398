"""The Computation API of MillWheel: user code that is called for each record and each timer of a key.

A `Topology` of computations and named streams is a transform: it becomes a part of an ordinary pipeline, and so runs on
every runner with the guarantees that the runner has for all of it (ADR 0014).

MillWheel, sections 4 and 5.
"""

from dataflow.computations.computation import (
    LOW_WATERMARK,
    WALL_TIME,
    Computation,
    Record,
    Timer,
)
from dataflow.computations.file_injector import CsvInjector, JsonLinesInjector
from dataflow.computations.file_watcher import CsvWatcher, JsonLinesWatcher
from dataflow.computations.hook import StateCoder
from dataflow.computations.topology import Streams, Topology
from dataflow.computations.watched_files import WatchFiles

__all__ = [
    "LOW_WATERMARK",
    "WALL_TIME",
    "Computation",
    "CsvInjector",
    "CsvWatcher",
    "JsonLinesInjector",
    "JsonLinesWatcher",
    "Record",
    "StateCoder",
    "Streams",
    "Timer",
    "Topology",
    "WatchFiles",
]

"""WHAT results are computed: the SDK.  ``import dataflow as df`` is all a user needs.

Re-exports the public names of `windowing` (where) and `triggers` (when, how).  Knows no engine.
"""

from dataflow.combine_fn import CombineFn
from dataflow.do_fn import DoFn, TaggedOutput, TimestampedValue
from dataflow.errors import (
    DataflowError,
    DuplicateLabelError,
    InputError,
    KeyEncodingError,
    PipelineError,
    TableRowError,
    TimeError,
    TransformError,
    WindowError,
)
from dataflow.io.files import ReadFromCsv, ReadFromJsonLines
from dataflow.io.postgres import WriteToPostgres
from dataflow.io.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.io.table import ColumnType
from dataflow.pcollection import PCollection, PCollectionTuple
from dataflow.pipeline import Pipeline
from dataflow.ptransform import PTransform
from dataflow.runner import PipelineResult, Runner
from dataflow.transforms.create import Create, Read
from dataflow.transforms.flatten import Flatten
from dataflow.transforms.group import CombinePerKey, GroupByKey
from dataflow.transforms.par_do import Filter, FlatMap, Map, ParDo
from dataflow.transforms.window_into import WindowInto
from triggers import (
    AccumulationMode,
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    AtPeriod,
    DefaultTrigger,
    Never,
    OrFinally,
    Progress,
    Repeatedly,
    Trigger,
    Wakeup,
)
from windowing import (
    CalendarWindows,
    FixedWindows,
    GlobalWindows,
    Merge,
    MergingWindowFn,
    PaneInfo,
    PaneTiming,
    PhaseShiftedWindows,
    Sessions,
    SlidingWindows,
    Window,
    WindowFn,
    merge_overlapping,
)

__all__ = [
    "AccumulationMode",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterProcessingTime",
    "AfterWatermark",
    "Always",
    "AtPeriod",
    "CalendarWindows",
    "ColumnType",
    "CombineFn",
    "CombinePerKey",
    "Create",
    "DataflowError",
    "DefaultTrigger",
    "DoFn",
    "DuplicateLabelError",
    "Filter",
    "FixedWindows",
    "FlatMap",
    "Flatten",
    "GlobalWindows",
    "GroupByKey",
    "InputError",
    "KeyEncodingError",
    "Map",
    "Merge",
    "MergingWindowFn",
    "Never",
    "OrFinally",
    "PCollection",
    "PCollectionTuple",
    "PTransform",
    "PaneInfo",
    "PaneTiming",
    "ParDo",
    "PhaseShiftedWindows",
    "Pipeline",
    "PipelineError",
    "PipelineResult",
    "Progress",
    "Read",
    "ReadFromCsv",
    "ReadFromJsonLines",
    "Repeatedly",
    "Runner",
    "Sessions",
    "SlidingWindows",
    "Source",
    "SourceBatch",
    "SourceReader",
    "SplitStatus",
    "TableRowError",
    "TaggedOutput",
    "TimeError",
    "TimestampedValue",
    "TransformError",
    "Trigger",
    "Wakeup",
    "Window",
    "WindowError",
    "WindowFn",
    "WindowInto",
    "WriteToPostgres",
    "merge_overlapping",
]

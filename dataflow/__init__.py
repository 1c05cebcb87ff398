"""WHAT results are computed: the SDK.  ``import dataflow as df`` is all a user needs.

Re-exports the public names of `windowing` (where) and `triggers` (when, how).  Knows no engine.
"""

from dataflow import (
    distribution,  # first: it looks at whether anything hides this package's others
    interruption,
    value_tags,  # noqa: F401 - so that stored values are known by their tags
)
from dataflow.collecting import collect
from dataflow.column_combine_fn import ColumnCombineFn, ColumnGroups
from dataflow.combine_fn import CombineFn, associative
from dataflow.combiners import (
    CountCombineFn,
    MeanCombineFn,
    SingleInputTupleCombineFn,
    SumCombineFn,
    TupleCombineFn,
)
from dataflow.containers import ToDictCombineFn, ToListCombineFn, ToSetCombineFn
from dataflow.do_fn import (
    DoFn,
    OutputTag,
    TaggedOutput,
    TimestampedValue,
    WindowedValue,
    nondeterministic,
)
from dataflow.errors import (
    ArrivalOrderWarning,
    DataflowError,
    DataLossWarning,
    DuplicateLabelError,
    InputError,
    KeyEncodingError,
    PipelineError,
    RequestFailedError,
    SinkError,
    SinkFencedError,
    SinkRefusedError,
    TableConflictError,
    TableRowError,
    TimeError,
    TooManyFailuresError,
    TransformError,
    WindowError,
)
from dataflow.exception_handling import BadElement, Failure
from dataflow.files.read_all import (
    MatchAll,
    ReadAllFromAvro,
    ReadAllFromCsv,
    ReadAllFromJsonLines,
    ReadAllFromParquet,
    ReadAllFromText,
)
from dataflow.files.writes import (
    WriteToAvro,
    WriteToCsv,
    WriteToJsonLines,
    WriteToParquet,
    WriteToText,
)
from dataflow.io.arrival import ARRIVAL_TIME
from dataflow.io.avro_files import ReadFromAvro
from dataflow.io.create import Create, Read
from dataflow.io.csv_files import ReadFromCsv
from dataflow.io.http.transform import ReceiveHttp
from dataflow.io.impulse import Impulse
from dataflow.io.json_lines import ReadFromJsonLines
from dataflow.io.kafka.read import ReadFromKafka
from dataflow.io.kafka.records import KafkaRecord
from dataflow.io.kafka.values import KafkaSchemas
from dataflow.io.kafka.write import WriteToKafka
from dataflow.io.nats_streams.source import NatsMessage
from dataflow.io.nats_streams.transform import ReadFromNats
from dataflow.io.parquet_files import ReadFromParquet
from dataflow.io.periodic import PeriodicImpulse
from dataflow.io.postgres import WriteToPostgres
from dataflow.io.postgres_reads.transform import ReadFromPostgres
from dataflow.io.redis_streams.transform import ReadFromRedis
from dataflow.io.sinks import Write
from dataflow.io.text_lines import ReadFromText
from dataflow.join_fn import JoinType
from dataflow.lake.delta_sink import WriteToDelta
from dataflow.lake.delta_source import ReadFromDelta
from dataflow.lake.iceberg_sink import WriteToIceberg
from dataflow.lake.iceberg_source import ReadFromIceberg
from dataflow.message_writes.http import WriteToHttp
from dataflow.message_writes.nats import WriteToNats
from dataflow.message_writes.redis import WriteToRedis
from dataflow.metrics import (
    DistributionResult,
    GaugeResult,
    MetricResult,
    MetricResults,
    Metrics,
    MetricsFilter,
)
from dataflow.options import PipelineOptions, parse_options
from dataflow.pipeline import PCollection, PCollectionTuple, Pipeline
from dataflow.ptransform import PTransform, ptransform_fn
from dataflow.record_ids import RecordIds
from dataflow.row_expressions import RowExpression, col
from dataflow.runner import PipelineResult, PipelineState, Runner
from dataflow.selections import (
    ArgMaxCombineFn,
    ArgMinCombineFn,
    LatestCombineFn,
    SampleCombineFn,
    TopCombineFn,
)
from dataflow.set_aside import SetAside
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter
from dataflow.sketches import ApproximateQuantilesCombineFn, ApproximateUniqueCombineFn
from dataflow.source import (
    Backlog,
    Outage,
    Source,
    SourceBatch,
    SourceReader,
    SplitChanges,
    SplitStatus,
)
from dataflow.spark.data_sources import ReadFromSparkDataSource, spark_data_source
from dataflow.spark.frames import ReadFromSpark
from dataflow.spark.inbox import ReadFromSparkInbox, SparkInbox
from dataflow.spark.results import collect_to_spark
from dataflow.table import ColumnType
from dataflow.times import duration, instant
from dataflow.transforms.batch_elements import BatchElements
from dataflow.transforms.changelog import Change, ToChangelog
from dataflow.transforms.co_group import CoGroupByKey
from dataflow.transforms.combine_globally import CombineGlobally, CombineValues
from dataflow.transforms.combiner_families import (
    ApproximateQuantiles,
    ApproximateUnique,
    Count,
    Latest,
    Max,
    Mean,
    Min,
    Sample,
    Sum,
    ToDict,
    ToList,
    Top,
    ToSet,
)
from dataflow.transforms.count_windows import CountWindows
from dataflow.transforms.deduplicate import Deduplicate, DeduplicatePerKey
from dataflow.transforms.distinct import Distinct
from dataflow.transforms.flatten import Flatten, FlattenWith
from dataflow.transforms.fresh_within import FreshWithin
from dataflow.transforms.group import CombinePerKey, GroupByKey
from dataflow.transforms.group_by import GroupBy
from dataflow.transforms.group_into_batches import GroupIntoBatches
from dataflow.transforms.join import Join
from dataflow.transforms.keys import Keys, KvSwap, Values, WithKeys
from dataflow.transforms.log_elements import LogElements
from dataflow.transforms.par_do import Filter, FlatMap, Map, ParDo, WithTimestamps
from dataflow.transforms.partition import Partition
from dataflow.transforms.periodic_sequence import PeriodicSequence
from dataflow.transforms.reify import Reify
from dataflow.transforms.request_response import Enrichment, RequestResponse
from dataflow.transforms.reshuffle import Reshuffle
from dataflow.transforms.select import Select
from dataflow.transforms.side_inputs import AsDict, AsIter, AsList, AsMultiMap, AsSingleton
from dataflow.transforms.tee import Tee
from dataflow.transforms.to_string import ToString
from dataflow.transforms.tuples import FlatMapTuple, MapTuple
from dataflow.transforms.wait_on import WaitOn
from dataflow.transforms.window_bounds import WindowEnd, WindowStart
from dataflow.transforms.window_into import WindowInto
from dataflow.user_state import (
    BagStateSpec,
    CombiningValueStateSpec,
    MapStateSpec,
    OrderedListStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerFamilySpec,
    TimerSpec,
    WatermarkHoldStateSpec,
    on_timer,
    on_window_expiration,
    on_window_merge,
)
from triggers import (
    AccumulationMode,
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPattern,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSignal,
    AfterWatermark,
    Always,
    AtPeriod,
    Clocks,
    DataDrivenTrigger,
    DefaultTrigger,
    EarlyFirings,
    Elements,
    FiringBehavior,
    Never,
    OrFinally,
    Progress,
    Repeatedly,
    TimestampCombiner,
    Trigger,
    TriggerTimers,
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
    TimeDomain,
    Window,
    WindowColumns,
    WindowFn,
    merge_overlapping,
)

__version__ = distribution.VERSION
interruption.show_in_brief()

__all__ = [
    "ARRIVAL_TIME",
    "AccumulationMode",
    "AfterAll",
    "AfterAny",
    "AfterBytes",
    "AfterCount",
    "AfterEach",
    "AfterPattern",
    "AfterProcessingTime",
    "AfterPunctuation",
    "AfterSignal",
    "AfterWatermark",
    "Always",
    "ApproximateQuantiles",
    "ApproximateQuantilesCombineFn",
    "ApproximateUnique",
    "ApproximateUniqueCombineFn",
    "ArgMaxCombineFn",
    "ArgMinCombineFn",
    "ArrivalOrderWarning",
    "AsDict",
    "AsIter",
    "AsList",
    "AsMultiMap",
    "AsSingleton",
    "AtPeriod",
    "Backlog",
    "BadElement",
    "BagStateSpec",
    "BatchElements",
    "Batching",
    "CalendarWindows",
    "Change",
    "Clocks",
    "CoGroupByKey",
    "ColumnCombineFn",
    "ColumnGroups",
    "ColumnType",
    "CombineFn",
    "CombineGlobally",
    "CombinePerKey",
    "CombineValues",
    "CombiningValueStateSpec",
    "Count",
    "CountCombineFn",
    "CountWindows",
    "Create",
    "DataDrivenTrigger",
    "DataLossWarning",
    "DataflowError",
    "Deduplicate",
    "DeduplicatePerKey",
    "DefaultTrigger",
    "Distinct",
    "DistributionResult",
    "DoFn",
    "DuplicateLabelError",
    "EarlyFirings",
    "Elements",
    "Enrichment",
    "Failure",
    "Filter",
    "FiringBehavior",
    "FixedWindows",
    "FlatMap",
    "FlatMapTuple",
    "Flatten",
    "FlattenWith",
    "FreshWithin",
    "GaugeResult",
    "GlobalWindows",
    "GroupBy",
    "GroupByKey",
    "GroupIntoBatches",
    "Impulse",
    "InputError",
    "Join",
    "JoinType",
    "KafkaRecord",
    "KafkaSchemas",
    "KeyEncodingError",
    "Keys",
    "KvSwap",
    "Lane",
    "Latest",
    "LatestCombineFn",
    "LogElements",
    "Map",
    "MapStateSpec",
    "MapTuple",
    "MatchAll",
    "Max",
    "Mean",
    "MeanCombineFn",
    "Merge",
    "MergingWindowFn",
    "MetricResult",
    "MetricResults",
    "Metrics",
    "MetricsFilter",
    "Min",
    "NatsMessage",
    "Never",
    "OrFinally",
    "OrderedListStateSpec",
    "Outage",
    "OutputTag",
    "PCollection",
    "PCollectionTuple",
    "PTransform",
    "PaneInfo",
    "PaneTiming",
    "ParDo",
    "Partition",
    "PeriodicImpulse",
    "PeriodicSequence",
    "PhaseShiftedWindows",
    "Pipeline",
    "PipelineError",
    "PipelineOptions",
    "PipelineResult",
    "PipelineState",
    "Progress",
    "Read",
    "ReadAllFromAvro",
    "ReadAllFromCsv",
    "ReadAllFromJsonLines",
    "ReadAllFromParquet",
    "ReadAllFromText",
    "ReadFromAvro",
    "ReadFromCsv",
    "ReadFromDelta",
    "ReadFromIceberg",
    "ReadFromJsonLines",
    "ReadFromKafka",
    "ReadFromNats",
    "ReadFromParquet",
    "ReadFromPostgres",
    "ReadFromRedis",
    "ReadFromSpark",
    "ReadFromSparkDataSource",
    "ReadFromSparkInbox",
    "ReadFromText",
    "ReadModifyWriteStateSpec",
    "ReceiveHttp",
    "RecordIds",
    "Reify",
    "Repeatedly",
    "RequestFailedError",
    "RequestResponse",
    "Reshuffle",
    "RowExpression",
    "Runner",
    "Sample",
    "SampleCombineFn",
    "Select",
    "Sessions",
    "SetAside",
    "SetStateSpec",
    "SingleInputTupleCombineFn",
    "Sink",
    "SinkChange",
    "SinkError",
    "SinkFencedError",
    "SinkRefusedError",
    "SinkWriter",
    "SlidingWindows",
    "Source",
    "SourceBatch",
    "SourceReader",
    "SparkInbox",
    "SplitChanges",
    "SplitStatus",
    "Sum",
    "SumCombineFn",
    "TableConflictError",
    "TableRowError",
    "TaggedOutput",
    "Tee",
    "TimeDomain",
    "TimeError",
    "TimerFamilySpec",
    "TimerSpec",
    "TimestampCombiner",
    "TimestampedValue",
    "ToChangelog",
    "ToDict",
    "ToDictCombineFn",
    "ToList",
    "ToListCombineFn",
    "ToSet",
    "ToSetCombineFn",
    "ToString",
    "TooManyFailuresError",
    "Top",
    "TopCombineFn",
    "TransformError",
    "Trigger",
    "TriggerTimers",
    "TupleCombineFn",
    "Values",
    "WaitOn",
    "WatermarkHoldStateSpec",
    "Window",
    "WindowColumns",
    "WindowEnd",
    "WindowError",
    "WindowFn",
    "WindowInto",
    "WindowStart",
    "WindowedValue",
    "WithKeys",
    "WithTimestamps",
    "Write",
    "WriteToAvro",
    "WriteToCsv",
    "WriteToDelta",
    "WriteToHttp",
    "WriteToIceberg",
    "WriteToJsonLines",
    "WriteToKafka",
    "WriteToNats",
    "WriteToParquet",
    "WriteToPostgres",
    "WriteToRedis",
    "WriteToText",
    "__version__",
    "associative",
    "col",
    "collect",
    "collect_to_spark",
    "duration",
    "instant",
    "merge_overlapping",
    "nondeterministic",
    "on_timer",
    "on_window_expiration",
    "on_window_merge",
    "parse_options",
    "ptransform_fn",
    "spark_data_source",
]

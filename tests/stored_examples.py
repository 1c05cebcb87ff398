"""One example of everything that is stored or crosses a process, for golden files: what it is, and its bytes.

`python -m tests.stored_examples` writes the golden files of a format that has none yet, and refuses for one that has:
bytes that are stored somewhere do not change.  A change of bytes needs a new number (`runners.stored.framing.FORMAT`)
with a reader of the old one; docs/stored-format.md says how.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from http import HTTPMethod
from pathlib import Path
from re import RegexFlag
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa

import dataflow as df
from dataflow.canonical_keys import canonical_key
from dataflow.coders import decode_key, encode_key, hash_key
from dataflow.column_combine_fn import Accumulators
from dataflow.columns import WindowColumn
from dataflow.combiner_columns import ExtremeColumns, ListedColumns, MeanColumns, SumColumns
from dataflow.combiners import TupleCombineFn
from dataflow.computations.computation import Record, Timer
from dataflow.computations.file_injector import InjectorSplit
from dataflow.computations.folder_reader import FolderPosition
from dataflow.exception_handling import BadElement, Failure
from dataflow.io.arrival import ArrivalPosition, ArrivalSplit
from dataflow.io.parquet_files import ParquetSplit
from dataflow.io.text_files import FileSplit
from dataflow.metric_updates import Metric, MetricKind, MetricOf
from dataflow.paged_state import CountedBag, JoinedBag, PagedBag, PagedList, PagedMap
from dataflow.record_ids import record_digest
from dataflow.rows import row_class
from dataflow.serialization import dumps, loads
from dataflow.set_aside import Origin
from dataflow.source import Backlog
from dataflow.unbounded_sums import UnboundedSum
from dataflow.views import SignedViewPart, View, ViewEnd, ViewPart, WithViews
from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import (
    NOTHING,
    EmittedPane,
    LateArrival,
    LateElement,
    Page,
    PageId,
    WindowState,
    WindowTimers,
)
from runners.core.ground.dead_letters import DeadLetter
from runners.core.ground.lineage import CarriedPane, PaneOrigin, SplitOrigin, ViewedOrigin
from runners.core.partials.partial import LatePartial
from runners.core.partials.parts import PartialParts
from runners.core.partials.signed_combine import NaN
from runners.core.side_inputs.arriving_views import ArrivingView
from runners.core.stages.entries import Released, Whole
from runners.core.stages.percentile_watermark import SplitProgress
from runners.core.stages.plan import plan
from runners.core.stateful.keyed_state import KeyedState, MergingState
from runners.millwheel.cell_codec import (
    decode_cell_id,
    decode_timer,
    encode_cell_key,
    encode_page_key,
    encode_window,
)
from runners.millwheel.control.shapes import MergeKeys, RangeShape, Routing, SplitKeys
from runners.millwheel.model.accounts import OverdueTimers, RangeHolds, WorkerAccount
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.hot_keys import FrequentKey
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.loads import RangeLoad
from runners.millwheel.model.signals import Signal, SignalNews
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.store.port import StoredTimer
from runners.millwheel.store.postgres.catalog import to_signed
from runners.millwheel.versions.state_shape import StateShape, state_shapes
from runners.millwheel.wire import messages
from runners.stored.cells import decode_cell, encode_cell
from runners.stored.errors import CLASSES, decode_error, encode_error
from runners.stored.framing import FORMAT
from runners.stored.journal import decode_entry, encode_changes, encode_released, encode_whole
from runners.stored.letters import (
    dead_payload,
    late_payload,
    stored_dead_mapping,
    stored_late_mapping,
)
from runners.stored.metrics import decode_metrics, encode_metrics
from runners.stored.partials import decode_partials, encode_partials
from runners.stored.places import (
    ReadSoFar,
    RetractionMark,
    SplitMark,
    decode_position,
    decode_read_so_far,
    decode_retraction_mark,
    decode_split,
    decode_split_mark,
    encode_position,
    encode_read_so_far,
    encode_retraction_mark,
    encode_split,
    encode_split_mark,
)
from runners.stored.runs import (
    RUN_HEAD,
    PartBlob,
    decode_kept,
    decode_packed,
    decode_parts,
    decode_run_head,
    decode_shipped,
    encode_kept,
    encode_own,
    encode_packed,
    encode_parts,
    encode_reached,
    encode_run_frame,
    encode_sent,
)
from runners.task_traceback import TaskTraceback
from triggers.after_watermark import Phases
from triggers.parts import Fired
from triggers.repeatedly import Finished
from triggers.trigger import Progress, TriggerTimers
from windowing.pane import NO_FIRING, PaneInfo, PaneTiming
from windowing.time_domain import TimeDomain
from windowing.window import Window
from windowing.window_fn import Merge

GOLDEN = Path(__file__).parent / "golden"
FIRST, SECOND = Window(0, 60_000_000), Window(60_000_000, 120_000_000)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE_PANE = PaneInfo(2, PaneTiming.LATE, is_first=False, is_last=True, nonspeculative_index=1)
LOW, HIGH = RangeId("sum", 0), RangeId("sum", 1)


@attrs.frozen
class Example:
    """A value, its bytes, and how it is made of these again."""

    value: Any
    blob: Callable[[], bytes]
    read: Callable[[bytes], Any]


def _example(value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Example:
    return Example(value, lambda: encode(value), decode)


def _partials(blob: bytes) -> Any:
    return decode_partials(blob, None)


def _entry(blob: bytes) -> Any:
    return decode_entry(blob, None)


def columns(keys: tuple[pa.Array, ...], *, is_single: bool) -> PartialColumns:
    """Two partials with a sum, a mean and a listed maximum."""
    return PartialColumns(
        keys,
        WindowColumn(np.array([0, 60_000_000]), np.array([60_000_000, 120_000_000]), 60_000_000),
        np.array([3, 1]),
        ((np.array([6, 7]),), (np.array([1.5, 2.5]), np.array([3, 1])), (np.array([9, 8]),)),
        combiners=(SumColumns(), MeanColumns(), ListedColumns(ExtremeColumns(is_greatest=True))),
        is_single=is_single,
    )


class Spread(df.CombineFn):
    """A CombineFn of a user's, with two arrays for what it accumulates."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add_input(self, accumulator: tuple[int, int], value: int) -> tuple[int, int]:
        return min(accumulator[0], value), max(accumulator[1], value)

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, int]:
        lows, highs = zip(*accumulators, strict=True)
        return min(lows), max(highs)

    def extract_output(self, accumulator: tuple[int, int]) -> int:
        return accumulator[1] - accumulator[0]

    def columns(self) -> df.ColumnCombineFn:
        return SpreadColumns()


@attrs.frozen
class SpreadColumns(df.ColumnCombineFn):
    """Folds columns for `Spread`."""

    def lift(self, values: Any, groups: df.ColumnGroups) -> Accumulators | None:
        return None

    def merge(self, accumulators: Accumulators, groups: df.ColumnGroups) -> Accumulators | None:
        return None

    def results(self, accumulators: Accumulators) -> pa.Array:
        return pa.array(accumulators[1] - accumulators[0])


class Keeper(df.DoFn):
    """Has state and a timer of each kind of signature."""

    TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
    SEEN = df.BagStateSpec("seen")
    END = df.TimerSpec("end", TimeDomain.EVENT)

    def process(
        self,
        element: Any,
        total: Any = df.DoFn.StateParam(TOTAL),
        seen: Any = df.DoFn.StateParam(SEEN),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        pass

    @df.on_timer(END)
    def on_end(self) -> None:
        pass


def _shapes() -> dict[str, StateShape]:
    """What is noted of a source, of groupings and of a stateful DoFn."""
    pipeline = df.Pipeline()
    people, pets = (
        pipeline
        | name >> df.Create([df.TimestampedValue(("ann", 1), NOON)])
        | f"windows of {name}"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        for name in ("people", "pets")
    )
    _ = (people, pets) | "join" >> df.Join()
    spreads = TupleCombineFn(Spread())
    windows = df.WindowInto(df.Sessions(60)).with_output_types(Any)  # it is never run
    spread = people | "sessions" >> windows | df.CombinePerKey(spreads)
    rows = spread | "keep" >> df.ParDo(Keeper()) | df.Map(lambda pair: {"n": pair})
    rows | "rows" >> df.WriteToPostgres("rows", columns={"n": int})
    found = state_shapes(plan(pipeline.graph()))
    (combined,) = [name for name in found if name.startswith("CombinePerKey")]
    of = {
        "a source": "pets/Read(MemorySource)",
        "a join": "join/join",
        "columns": combined,
        "a stateful DoFn": "keep",
    }
    return {f"state shape of {what}": found[name] for what, name in of.items()}


OF_USER = PartialColumns(
    (pa.array(["a", "b"]),),
    WindowColumn(np.array([0, 60_000_000]), np.array([60_000_000, 120_000_000]), 60_000_000),
    np.array([3, 1]),
    ((np.array([1, 2]), np.array([6, 7])),),
    combiners=(SpreadColumns(),),
    is_single=True,
)
COLUMNS = columns((pa.array(["a", "b"]), pa.array([1, 2])), is_single=False)
#: So many that their numbers are stored in fewer bytes: of every size, with and without a step, and as they are.
MANY = np.arange(1_000)
MANY_COLUMNS = PartialColumns(
    (pa.array(MANY - 7), pa.array(MANY * 100)),
    WindowColumn(MANY * 60_000_000, (MANY + 1) * 60_000_000, 60_000_000),
    MANY % 3 + 1,
    ((MANY * (1 << 53) + 5,), (MANY * MANY * 99 + 3, MANY % 2 + 1)),
    combiners=(SumColumns(), MeanColumns()),
    is_single=False,
)
LATE_PARTIAL = LatePartial.of(("k", FIRST, [5], 1), LateElement(5, 30_000_000, -1))
ROWS = [("k", FIRST, [1, 2], 2), ("k", SECOND, [3], 1), ("l", FIRST, [4], 1)]
STATE = WindowState(
    [1, 2],
    2,
    (
        EmittedPane(("k", 3), 59_999_999, FIRST, LATE_PANE, {"Map(guess)": [[5], []]}),
        EmittedPane(("k", 4), 119_999_999, SECOND, NO_FIRING),
    ),
    3,
    1,
    is_past=True,
    trigger=Progress(7, is_finished=True),
    timers=WindowTimers(120_000_000, None, 5),
    hold_us=59_999_999,
)
COMPOSITE = WindowState(
    trigger=Progress(Phases(1, (Fired(2), Finished(3)), has_fired_on_time=True))
)
KEYED = KeyedState(
    {"count": 5, "names": ["x"]},
    {"end": (60_000_000, 30_000_000), ("family", "tag"): (7, 8)},
    [("value", 7, LATE_PANE, 1), ("other", 8, NO_FIRING, -1)],
    TriggerTimers(60_000_000, None),
)
MERGING = MergingState(
    {FIRST: KEYED, SECOND: KeyedState()},
    [("value", 7, LATE_PANE, 1, SECOND), ("other", 8, NO_FIRING, 1, FIRST)],
    TriggerTimers(60_000_000, None),
)
#: Of a state of each kind, what is left where the rest is in pages.
KEYED_IN_PAGES = KeyedState({"bag": PagedBag(2, ["z"]), "list": PagedList(), "count": 5})
PAGE = Page(["x", "y"])
CELLS = [
    (("k", FIRST), STATE),
    (("k", SECOND), None),
    (("l", FIRST), WindowState()),
    ((("tuple", 1), None), {FIRST: STATE, SECOND: COMPOSITE}),
    (("m", FIRST), KEYED),
    (PageId("m", FIRST, "names", 0), PAGE),
    (PageId("m", FIRST, ("version", "names", 2), 1), None),
]
TIMERS = [
    ((("k", FIRST), FIRST, TimeDomain.EVENT), 60_000_000),
    ((("k", SECOND), SECOND, TimeDomain.PROCESSING), None),
    (((("tuple", 1), None), SECOND, TimeDomain.PERCENTILE), 5),
]
SO_FAR = ReadSoFar(1_000, FileSplit("a.csv", 0, 10), 2, {0: 1 << 63, 7: 3}, 4, None)
MARK = SplitMark(
    records=1_000,
    position=4_711,
    watermark_us=5,
    is_source_finished=True,
    is_end=True,
    dead=2,
    until_us=6,
    now_us=7,
    sent={0: 1 << 63, 7: 3},
    letters=None,
)
COUNTED = {
    MetricOf("read", Metric(MetricKind.COUNTER, "scores", "refused")): -3,
    MetricOf("read", Metric(MetricKind.COUNTER, "scores", "large")): 1 << 70,
    MetricOf("sum", Metric(MetricKind.DISTRIBUTION, "scores", "points")): (3, 15, 3, 7),
    MetricOf("sum", Metric(MetricKind.GAUGE, "scores", "limit")): (0.5, 70_000_000),
    MetricOf("sum", Metric(MetricKind.STRING_SET, "scores", "teams")): frozenset(["red", "blue"]),
}
ARRIVAL = LateArrival("k", FIRST, [5], 1, 70_000_000, LateElement(5, 30_000_000, -1))
LETTER = DeadLetter(
    stage="sum",
    element=("k", 5),
    timestamp_us=30_000_000,
    window=FIRST,
    sign=1,
    error="it failed",
    traceback="here",
    tries=3,
    origin=Origin(path="a\udcff.csv", line=2, start_bytes=10, end_bytes=20, raw=b"k,5"),
)
#: An instance for each tag of `dataflow.value_tags` and `runners.stored`.
FAILURE = Failure("ValueError", "no number", ("ValueError: no number",), "parse", LETTER.origin)
SPLIT_ORIGIN = SplitOrigin("read", "(0, 1)", "5")
PANE_ORIGIN = PaneOrigin("rates", "'eur'", 7, 0, 60_000_000, 2)
VALUES: dict[str, Any] = {
    "window": FIRST,
    "merge": Merge(Window(0, 20), (Window(0, 10), Window(5, 20))),
    "progress": Progress(1, is_finished=True),
    "wakeup": TriggerTimers(1, None),
    "phases": Phases(1, None, has_fired_on_time=True),
    "fired": Fired(1),
    "finished": Finished(2),
    "failure": FAILURE,
    "bad element": BadElement("k,x", FAILURE),
    "kafka record": df.KafkaRecord(
        b"k", {"n": 1}, (("source", b"web"),), "orders", 3, 4_711, 1_600_000_000_000_000
    ),
    "pane": LATE_PANE,
    "tagged output": df.TaggedOutput("late", 1),
    "change": df.Change(("k", 1), -1, 5, FIRST, LATE_PANE, 6),
    "file split": FileSplit("a.csv", 0, 10),
    "parquet split": ParquetSplit("a.parquet", 2, 5, 4_711, 6),
    "injector split": InjectorSplit("a.csv", 5, 6),
    "folder position": FolderPosition(done=(("part-", 4, ".csv", (1, 9)),), name="x", offset=5),
    "arrival split": ArrivalSplit(FileSplit("a.csv", 0, 10), 5),
    "arrival position": ArrivalPosition(4_711, 5),
    "origin": LETTER.origin,
    "computation record": Record(value=1, key="k", timestamp=NOON, stream="in"),
    "computation timer": Timer(
        tag="end", time=NOON, domain=TimeDomain.EVENT, key="k", timestamp=NOON
    ),
    "timestamped value": df.TimestampedValue("x", NOON),
    "windowed value": df.WindowedValue("x", NOON, FIRST),
    "view": View([("k", 1)]),
    "view part": ViewPart([("k", 1)], 1_000),
    "signed view part": SignedViewPart([("k", 1), ("k", 2)], signs=[-1, 1]),
    "view end": ViewEnd(1_000, [("k", 1)]),
    "with views": WithViews("x", (View([1]), View([]))),
    "paged bag": PagedBag(2, ["z"]),
    "counted bag": CountedBag(2, ["z"], [3, 5]),
    "joined bag": JoinedBag(2, ["z"], 1, [(("bag", 1), 0, 1), (("bag", 2), 0, 3)]),
    "paged map": PagedMap(3, 4, 5, 99, {}),
    "paged list": PagedList(),
    "emitted": EmittedPane("x", 59_999_999, FIRST, LATE_PANE, {"Map(guess)": [[5], []]}),
    "carried pane": CarriedPane.of(LATE_PANE, ViewedOrigin(SPLIT_ORIGIN, (PANE_ORIGIN, None))),
    "arriving view": ArrivingView(2, 3, [("k", 1), ("l", 2), ("m", 3)]),
    "pane timing": PaneTiming.LATE,
    "time domain": TimeDomain.PROCESSING,
    "row": row_class(("name", "size"))("x", 1),
    "nan": NaN.NAN,
    "unbounded sum": UnboundedSum(5, 1, 0, 2),
    "nothing": NOTHING,
    "key": canonical_key(("k", Decimal("0.1"))),
}
#: A key of each type, as it is decoded.
KEYS: dict[str, Any] = {
    "none": None,
    "text": "caf\u00e9",
    # From 24 bytes on, a head of another form.
    "long text": "caf\u00e9" * 60,
    "bytes": b"\x00\xff",
    "integer": -5,
    "large integer": 1 << 70,
    "float": 0.1,
    "short float": 1.5,
    "datetime": NOON,
    "date": NOON.date(),
    "tuple": ("k", 1, ("x", NOON)),
    "decimal": canonical_key(Decimal("12.50")),
    "uuid": canonical_key(UUID(int=5)),
    "time": canonical_key(time(1, 2, 3, 4)),
    "timedelta": canonical_key(timedelta(days=-1)),
    "member": canonical_key(HTTPMethod.GET),
    "flags": canonical_key(RegexFlag.ASCII | RegexFlag.VERBOSE),
    "window": canonical_key(FIRST),
    "row": canonical_key(row_class(("name", "size"))("x", Decimal(1))),
    "tuple with a decimal": canonical_key(("k", Decimal("0.1"))),
}
#: Those of "k" and of ("id", 1), worked out from the text of docs/stored-format.md alone.
KEY_HASH = 5_614_323_547_474_680_989
RECORD_DIGEST = bytes.fromhex("15ce6fc02e35c258f50027b517f55486")
NEWS = SignalNews(inputs={"sum": 1}, signals=(Signal(1, "flush"),))
ROUTING = Routing(number=2, keys={LOW: KeyRange(0, 8), HIGH: KeyRange(8, 1 << 64)})
WORKER: dict[str, Any] = {"slot": 0, "worker": "w"}
#: A message of each kind.
MESSAGES: dict[str, Any] = {
    "register": messages.Register(**WORKER, address="tcp://host:1"),
    "assign": messages.Assign(
        ranges=(LOW,),
        inputs_us={"sum": 5},
        percentiles_us={"sum": 6},
        signals=NEWS,
        routing=ROUTING,
        sent_ms=7,
        suspects=(StepInput((LOW,), RangeId("read", 0), 3, 4),),
    ),
    "ready": messages.Ready(
        **WORKER, ranges=(LOW,), shapes={LOW: RangeShape(KeyRange(0, 8), None)}
    ),
    "revoke": messages.Revoke(ranges=(LOW,)),
    "end splits": messages.EndSplits(ranges=(LOW,)),
    "released": messages.RangesReleased(**WORKER, ranges=(LOW,)),
    "end handover": messages.EndHandover(ranges=(LOW,)),
    "handover ended": messages.HandoverEnded(**WORKER, ranges=(LOW,)),
    "routes": messages.Routes(addresses={LOW: "tcp://host:1"}, routing=ROUTING),
    "watermarks": messages.Watermarks(
        inputs_us={"sum": 5},
        percentiles_us={},
        signals=NEWS,
        slowest_source_us=4,
        is_draining=False,
        is_pausing=True,
        sent_ms=7,
    ),
    "report": messages.Report(
        **WORKER,
        watermarks_us={LOW: 5},
        idle=frozenset({RangeId("read", 0)}),
        signals={LOW: 1},
        percentiles_us={},
        progress={RangeId("read", 0): SplitProgress(5, 10, ((0, 1.0),))},
        polls={RangeId("read", 0): SplitPoll(polled_us=9, record_us=8, backlog=Backlog(records=7))},
        routings={LOW: 2},
        commits={LOW: CommitMark(3, 4)},
        is_quiet=False,
        is_paused=False,
        counts=Counts(records_read=5, loads={LOW: RangeLoad(5, (1, 2))}),
        as_of_ms=7,
        holds={LOW: RangeHolds(processed_us=5, unacknowledged_us=None, window_us=4)},
        account=WorkerAccount(
            busy_ms=5,
            blocked_ms=6,
            idle_ms=7,
            stages_us={"sum": 8},
            commit_counts=(1, 2),
            commit_sum_us=9,
            committed_us=None,
            frequent={LOW: (FrequentKey(key_hash=1, count=2, error=0, of=3, text="key"),)},
            overdue={"sum": OverdueTimers(count=2, processing_us=None)},
        ),
    ),
    "failed": messages.Failed(worker="w", error=b"error"),
    "died": messages.Died(
        slot=0, at=(StepInput((LOW, HIGH), None, 3, None),), reason="killed", is_silent=True
    ),
    "heartbeat": messages.Heartbeat(
        **WORKER,
        sent_us=9,
        at=(StepInput((LOW,), RangeId("read", 0), 3, 4),),
        since_us=8,
        transform="sum",
        record=2,
        interpreter_us=7,
    ),
    "waiting": messages.Waiting(**WORKER, reason="no store"),
    "stop": messages.Stop(),
    "split range": SplitKeys(range_id=LOW, born=HIGH, at=5),
    "merge ranges": MergeKeys(range_id=LOW, gone=HIGH),
    "deliver": messages.Deliver(
        Channel(LOW, HIGH), 5, b"payload", is_oldest=True, origin=CommitMark(3, 4)
    ),
    "deliver traced": messages.Deliver(
        Channel(LOW, HIGH), 5, b"payload", is_oldest=True, origin=CommitMark(3, 4), trace=bytes(24)
    ),
    "acknowledge": messages.Acknowledge(
        Channel(LOW, HIGH), 5, Receipt(CommitMark(3, 4), is_remembered=True)
    ),
}


def _changes(value: Any) -> bytes:
    return encode_changes(*value)


def _run_frame(value: Any) -> bytes:
    window, records, content = value
    return encode_run_frame(window, records, encode_own(content))


def _run_content(blob: bytes) -> Any:
    head = decode_run_head(blob, 0)
    assert head.content_bytes + head.window_bytes + RUN_HEAD.size == len(blob)
    return head.window, head.records, loads(blob[RUN_HEAD.size + head.window_bytes :])


def _timer(tag: bytes) -> Any:
    cell_key = encode_cell_key(FIRST, encode_key("k"))
    stored = StoredTimer(key_hash=0, cell_key=cell_key, tag=tag, domain="event", fire_us=5)
    return decode_timer(stored, is_merging=False)


def _error_blob(value: Any) -> bytes:
    name, words, traceback, notes = value
    error = CLASSES[name](words[0], detail=words[1], hint=words[2])
    for note in notes:
        error.add_note(note)
    error.__cause__ = TaskTraceback(traceback)
    return encode_error(error)


def _error_value(blob: bytes) -> Any:
    error: Any = decode_error(blob)
    words = error.fact, error.detail, error.hint
    return type(error).__name__, words, error.__cause__.args[0], error.__notes__


EXAMPLES: dict[str, Example] = {
    "error": _example(
        (
            "TransformError",
            (
                "transform 'parse' (job.py:12) raised ValueError: seven",
                "element: 'seven'",
                "mend it",
            ),
            'Traceback (most recent call last):\n  File "job.py", line 12, in parse\nValueError: seven\n',
            ["it was the third element"],
        ),
        _error_blob,
        _error_value,
    ),
    "shuffle, sent": _example(
        ["sum", 0, 5, b"parts"],
        lambda value: encode_sent((value[0], value[1]), *value[2:]),
        lambda blob: decode_shipped(blob)[1],
    ),
    "shuffle, reached": _example(
        ["sum", 0, 60_000_000, True],
        lambda value: encode_reached((value[0], value[1]), value[2], is_finished=value[3]),
        lambda blob: decode_shipped(blob)[1],
    ),
    "partials": _example(ROWS, encode_partials, _partials),
    "partials with tuples for keys": _example(
        [(("a", 1), FIRST, 5, 1), (("b", 2), FIRST, 6, 1)], encode_partials, _partials
    ),
    "partials with dates for keys": _example(
        [((NOON, 1), FIRST, 5, 1), (1 << 70, SECOND, 6, 1)], encode_partials, _partials
    ),
    "partials with decimals for keys": _example(
        [(canonical_key(Decimal(number)), FIRST, number, 1) for number in (5, 6)],
        encode_partials,
        _partials,
    ),
    "partials that are late": _example([*ROWS, LATE_PARTIAL], encode_partials, _partials),
    "partials of a stateful DoFn": _example(
        [("k", FIRST, [("value", 7, LATE_PANE, 1), ("other", 8, NO_FIRING, -1)], 2)],
        encode_partials,
        _partials,
    ),
    "partials as columns": _example(COLUMNS, encode_partials, _partials),
    "partials as columns of few bytes": _example(MANY_COLUMNS, encode_partials, _partials),
    "partials as columns of a user": _example(
        OF_USER, encode_partials, lambda blob: decode_partials(blob, OF_USER.combiners)
    ),
    "partials of both kinds": Example(
        [*COLUMNS, *ROWS],
        lambda: encode_partials(PartialParts([COLUMNS, ROWS])),
        lambda blob: list(_partials(blob)),
    ),
    "cell": _example(STATE, encode_cell, decode_cell),
    "cell of windows that merge": _example(
        {FIRST: STATE, SECOND: COMPOSITE}, encode_cell, decode_cell
    ),
    "cell of a stateful DoFn": _example(KEYED, encode_cell, decode_cell),
    "cell of a stateful DoFn in windows that merge": _example(MERGING, encode_cell, decode_cell),
    "cell of a stateful DoFn, in pages": _example(KEYED_IN_PAGES, encode_cell, decode_cell),
    "page": _example(PAGE, encode_cell, decode_cell),
    "journal, changes": _example((CELLS, TIMERS), _changes, lambda blob: tuple(_entry(blob))),
    "journal, whole": _example(Whole([COLUMNS]), encode_whole, _entry),
    "journal, released": _example(Released([FIRST, SECOND]), encode_released, _entry),
    "split": _example(FileSplit("a.csv", 0, 10), encode_split, decode_split),
    "position": _example(4_711, encode_position, decode_position),
    "batch mark": _example(SO_FAR, encode_read_so_far, decode_read_so_far),
    "batch mark with letters": _example(
        attrs.evolve(SO_FAR, letters=1 << 63), encode_read_so_far, decode_read_so_far
    ),
    "batch mark with letters alone": _example(
        attrs.evolve(SO_FAR, sent=None, letters=5), encode_read_so_far, decode_read_so_far
    ),
    "retraction mark": _example(
        RetractionMark(version=3, next_hash=(1 << 64) - 1),
        encode_retraction_mark,
        lambda blob: decode_retraction_mark(blob, 3),
    ),
    "backfill mark": _example(MARK, encode_split_mark, decode_split_mark),
    "backfill mark with letters": _example(
        attrs.evolve(MARK, letters=1 << 63), encode_split_mark, decode_split_mark
    ),
    "backfill mark with packings": _example(
        attrs.evolve(MARK, packings={0: [9, 1, 70_000, 500], 7: [2]}),
        encode_split_mark,
        decode_split_mark,
    ),
    "metrics": _example(COUNTED, encode_metrics, decode_metrics),
    "late record": Example(
        {"sign": -1, "payload": [5], "element": df.TimestampedValue(("k", 5), 30)},
        lambda: late_payload(ARRIVAL),
        lambda blob: stored_late_mapping({"payload": blob}),
    ),
    "dead letter": Example(
        {
            "element": df.TimestampedValue(("k", 5), 30),
            "text": "('k', 5)",
            "origin": attrs.asdict(LETTER.origin),  # type: ignore[arg-type]
            "window_start_us": 0,
            "window_end_us": 60_000_000,
            "sign": 1,
        },
        lambda: dead_payload(LETTER),
        lambda blob: _without_payload(stored_dead_mapping({"payload": blob})),
    ),
    "state shape": _example(
        StateShape({"window_fn": "FixedWindows(size_us=5)"}, ("read",), {"Write": "scores"}),
        lambda shape: shape.encoded().encode(),
        lambda blob: StateShape.decoded(blob.decode()),
    ),
    **{
        name: _example(
            shape,
            lambda each: each.encoded().encode(),
            lambda blob: StateShape.decoded(blob.decode()),
        )
        for name, shape in _shapes().items()
    },
    "run file": _example((SECOND, 2, [1, 2]), _run_frame, _run_content),
    "shuffle, parts": _example([PartBlob(7, 2, b"partials")], encode_parts, decode_parts),
    "file, packed": _example((3, b"partials"), lambda value: encode_packed(*value), decode_packed),
    "file, kept": _example([["read", 0, 1, 2, b"partials"]], encode_kept, decode_kept),
    **{f"key, {kind}": _example(key, encode_key, decode_key) for kind, key in KEYS.items()},
    "key of a cell": _example(
        ("k", Window(-1, 1 << 40)),
        lambda value: encode_cell_key(value[1], encode_key(value[0])),
        lambda blob: decode_cell_id(blob, is_merging=False),
    ),
    "key of a page": _example(
        ("k", FIRST),
        lambda value: encode_page_key("names", 3, encode_cell_key(value[1], encode_key(value[0]))),
        lambda blob: decode_cell_id(blob, is_merging=False),
    ),
    "key of a cell of windows that merge": _example(
        (("tuple", 1), None),
        lambda value: encode_cell_key(value[1], encode_key(value[0])),
        lambda blob: decode_cell_id(blob, is_merging=True),
    ),
    "key, tag of a timer": _example(
        (("k", FIRST), SECOND, TimeDomain.EVENT), lambda value: encode_window(value[1]), _timer
    ),
    # Of these nothing is read back: a store finds by them what it has.
    "key, hash in the store": Example(
        KEY_HASH,
        lambda: to_signed(hash_key(encode_key("k"))).to_bytes(8, "big", signed=True),
        lambda blob: int.from_bytes(blob, "big", signed=True),
    ),
    "key, digest of the id of a record": Example(
        RECORD_DIGEST, lambda: record_digest(("id", 1)), lambda blob: blob
    ),
    **{f"value, {tag}": _example(value, dumps, loads) for tag, value in VALUES.items()},
    **{
        f"message, {kind}": _example(MESSAGES[kind], messages.encode, messages.decode)
        for kind in ("deliver", "deliver traced", "acknowledge")
    },
}


def _without_payload(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != "payload"}


def path_of(name: str, number: int = FORMAT.number) -> Path:
    """Where the golden file of an example is."""
    return GOLDEN / f"format_{number}" / f"{name.replace(', ', '-').replace(' ', '_')}.bin"


def main() -> int:
    """Write the golden files of a format that has none; returns the exit status."""
    folder = path_of("x").parent
    missing = [name for name in EXAMPLES if not path_of(name).exists()]
    if folder.exists() and "--new" not in sys.argv:
        print(
            f"{folder} is there: bytes of format {FORMAT.number} do not change.\n"
            "Raise FORMAT in runners/stored/framing.py, with a reader of the old number; or, for a shape that is new, "
            "add its file with --new, which leaves the others as they are.",
            file=sys.stderr,
        )
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name in missing:
        path_of(name).write_bytes(EXAMPLES[name].blob())
        print(path_of(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

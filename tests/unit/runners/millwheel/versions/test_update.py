"""What the plan of an update names as kept, begun anew and lost."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dataflow as df
from dataflow.combiners import TupleCombineFn
from dataflow.computations import CsvInjector, CsvWatcher
from dataflow.errors import PipelineError
from dataflow.testing import TestStream
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.errors import JobMismatchError, UpdateRefusedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.production import CellWrite, Checkpoint, Production, TimerWrite
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.millwheel.versions.job_versions import Update, open_version, plan_version
from runners.millwheel.versions.state_shape import StateShape, state_shapes
from runners.millwheel.versions.update import Fate, UpdatePlan
from runners.testing.scripted_source import ScriptedSource
from tests.columnar import Spread, SpreadColumns

Build = Callable[[df.Pipeline], object]
SEEN = df.ReadModifyWriteStateSpec("seen")
MORE = df.BagStateSpec("more")
AGAIN = df.BagStateSpec("seen")
END = df.TimerSpec("end", df.TimeDomain.EVENT)
AT_END = df.TimerSpec("end", df.TimeDomain.PROCESSING)


def planned(build: Build) -> ExecutionPlan:
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline)
    return plan(pipeline.graph())


def grouped(
    label: str = "sum",
    combine: Any = sum,
    function: Any = str,
    source: df.Source | None = None,
    **windows: Any,
) -> Build:
    window_fn = windows.pop("window_fn", df.FixedWindows(60))
    windows = {"accumulation_mode": df.AccumulationMode.DISCARDING, **windows}

    def build(p: df.Pipeline) -> None:
        (
            p
            | "read" >> df.Read(source or ScriptedSource([]))
            | "windows" >> df.WindowInto(window_fn, **windows)
            | label >> df.CombinePerKey(combine)
            | "after" >> df.Map(function)
        )

    return build


def stateful(allowed_lateness: float = 0) -> Build:
    def build(p: df.Pipeline) -> None:
        (
            p
            | "read" >> df.Read(ScriptedSource([]))
            | "windows"
            >> df.WindowInto(
                df.FixedWindows(60),
                allowed_lateness=allowed_lateness,
                accumulation_mode=df.AccumulationMode.DISCARDING,
            )
            | "keep" >> df.ParDo(Keeper())
        )

    return build


def kept_parts(old: Build, new: Build, name: str = "sum") -> list[str]:
    return state_shapes(planned(old))[name].unreadable(state_shapes(planned(new))[name])


def opened(build: Build, store: MemoryStore, update: Update | None = None) -> list[str]:
    execution, messages = planned(build), list[str]()
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    open_version(store, spec, execution, update, messages.append, lambda _: None)
    return messages


def update_of(build: Build, store: MemoryStore, **renamed: str) -> UpdatePlan:
    execution = planned(build)
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    found = plan_version(store, spec, execution, Update(renamed=renamed))
    assert found is not None
    return found


def used(store: MemoryStore, name: str = "sum", *, in_flight: int = 0) -> MemoryStore:
    """Two cells, a timer, a position, a watermark of a day after 1970, what is in flight; and a mark of a backfill."""
    read, total = RangeId("read", 0), RangeId(name, 0)
    taken = store.acquire("job", [read, total], "worker")
    production = Production(
        job="job",
        fences=[Fence(range_id=each, token=taken[each].row.token, bundle=1) for each in taken],
        cells=[CellWrite(name, 7, key, b"") for key in (b"a", b"b")],
        timers=[TimerWrite(name, 7, b"a", b"w", "event", 5)],
        checkpoints=[
            Checkpoint(Channel(read, total), number, 0, b"") for number in range(1, in_flight + 1)
        ],
        positions={read: b"here", total: b"all"},
        watermarks_us={total: 86_400_000_000},
    )
    assert store.commit(production) == Committed()
    return store


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"window_fn": df.FixedWindows(30)}, "window_fn"),
        ({"trigger": df.AfterCount(2)}, "trigger"),
        ({"accumulation_mode": df.AccumulationMode.ACCUMULATING}, "accumulation_mode"),
        ({"allowed_lateness": 60}, "allowed_lateness"),
        ({"combine": max}, "combine_fn"),
        ({"combine": df.MeanCombineFn()}, "combine_fn"),
    ],
)
def test_state_that_new_code_cannot_read(change: dict[str, Any], part: str) -> None:
    """The part that is another is named, as it was and as it is."""
    reason, *others = kept_parts(grouped(), grouped(**change))
    assert reason.startswith(f"{part} was ")
    assert all(each.startswith("accumulator was ") for each in others)


def test_other_accumulators_under_the_same_name_are_noticed() -> None:
    """Code that has changed has the same name, but what an empty accumulator is made of shows it."""

    def combining(empty: Any) -> Any:
        class Mine(df.CombineFn):
            def create_accumulator(self) -> Any:
                return empty

            def add_input(self, accumulator: Any, value: Any) -> Any:
                return accumulator

            def merge_accumulators(self, accumulators: Any) -> Any:
                return empty

            def extract_output(self, accumulator: Any) -> Any:
                return accumulator

        return Mine()

    one, other = grouped(combine=combining((0, 0))), grouped(combine=combining((0, 0.0)))
    assert kept_parts(one, grouped(combine=combining((0, 0)))) == []
    assert kept_parts(one, other) == ["accumulator was tuple(int, int), is tuple(int, float)"]
    for empty in (0, [0, 0], {"sum": 0, "count": 0}, (0, 0, 0), None):
        assert kept_parts(one, grouped(combine=combining(empty)))
    store = MemoryStore()
    opened(one, store)
    used(store)
    with pytest.raises(JobMismatchError, match=r"(?s)allow_loss=\['sum'\].*accumulator was"):
        opened(other, store)
    with pytest.raises(UpdateRefusedError, match="would lose state"):
        opened(other, store, Update())


def test_columns_that_no_function_reads_any_more_are_noticed() -> None:
    """What is on its way may be columns of a function of the user's; shipped ones are known by their `CombineFn`."""

    class Other(SpreadColumns):
        pass

    class Mine(Spread):
        def __init__(self, columns: df.ColumnCombineFn | None) -> None:
            self._columns = columns

        def columns(self) -> df.ColumnCombineFn | None:
            return self._columns

    def by_columns(columns: df.ColumnCombineFn | None) -> Build:
        return grouped(combine=TupleCombineFn(Mine(columns)))

    one, none = by_columns(SpreadColumns()), by_columns(None)
    assert kept_parts(one, by_columns(SpreadColumns())) == kept_parts(none, one) == []
    assert kept_parts(one, none) == ["columns was SpreadColumns, is none"]
    (reason,) = kept_parts(one, by_columns(Other()))
    assert reason.startswith("columns was SpreadColumns, is ")
    shipped = grouped(combine=TupleCombineFn(df.SumCombineFn()))
    assert "columns" not in state_shapes(planned(shipped))["sum"].parts


def test_functions_that_one_is_made_of_are_noticed() -> None:
    """A sum and a count have accumulators that look alike, so these do not show it; at any depth."""

    def by(*combine_fns: df.CombineFn) -> Build:
        return grouped(combine=TupleCombineFn(*combine_fns))

    total, count = df.SumCombineFn(), df.CountCombineFn()
    assert kept_parts(by(total, count), by(df.SumCombineFn(), df.CountCombineFn())) == []
    assert kept_parts(by(total), by(count)) == ["combined by was SumCombineFn, is CountCombineFn"]
    assert kept_parts(by(total, count), by(count, total))
    assert kept_parts(by(TupleCombineFn(total)), by(TupleCombineFn(count)))

    def by_field(combine: Any) -> Build:
        def build(p: df.Pipeline) -> None:
            (
                p
                | "read" >> df.Read(ScriptedSource([]))
                | "windows" >> df.WindowInto(df.FixedWindows(60))
                | "sum" >> df.GroupBy("key").aggregate_field("amount", combine, "total")
            )

        return build

    assert kept_parts(by_field(total), by_field(total), "sum/combine") == []
    assert kept_parts(by_field(total), by_field(count), "sum/combine")
    assert kept_parts(
        combining_state(TupleCombineFn(total)), combining_state(TupleCombineFn(count))
    )


def combining_state(combine_fn: df.CombineFn) -> Build:
    spec = df.CombiningValueStateSpec("total", combine_fn)

    class Combined(df.DoFn):
        def process(
            self,
            element: Any,
            /,
            total: Any = df.DoFn.StateParam(spec),
        ) -> Any:
            total.add(element[1])

    def build(p: df.Pipeline) -> None:
        p | "read" >> df.Read(ScriptedSource([])) | "sum" >> df.ParDo(Combined())

    return build


class Named(ScriptedSource):
    """A source that declares what it reads."""

    def __init__(self, name: str) -> None:
        super().__init__([])
        self._name = name

    @property
    def input_name(self) -> str:
        return self._name


def test_a_source_that_reads_something_else_begins_anew_and_never_reads_the_old_on() -> None:
    store = MemoryStore()
    opened(grouped(source=Named("a.csv")), store)
    used(store)
    other = grouped(source=Named("b.csv"))
    with pytest.raises(JobMismatchError, match=r"(?s)read: input name was a\.csv, is b\.csv"):
        opened(other, store)
    with pytest.raises(UpdateRefusedError, match="would lose state"):
        opened(other, store, Update())
    (messages,) = opened(other, store, Update(allow_loss=["read"]))
    assert "1 positions" in messages
    job = store.read_job("job")
    assert job is not None
    assert job.ranges[RangeId("read", 0)].position is None
    assert job.ranges[RangeId("sum", 0)].position == b"all"


@pytest.mark.parametrize(
    ("read", "other"),
    [
        (df.ReadFromCsv, "b.csv"),
        (lambda path: df.ReadFromCsv(path, event_time=df.ARRIVAL_TIME), "b.csv"),
        (df.ReadFromJsonLines, "b.jsonl"),
        (lambda path: df.Read(CsvInjector(path, event_time=float)), "b.csv"),
        (lambda path: df.Read(CsvWatcher(path, event_time=float, max_disorder=1)), "*.csv"),
    ],
)
def test_every_source_of_files_states_what_it_reads(read: Any, other: str, tmp_path: Any) -> None:
    for name in ("a.csv", "b.csv", "a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("1\n")
    first = "a." + other.rpartition(".")[2]

    def shapes(name: str) -> dict[str, StateShape]:
        return state_shapes(planned(lambda p: p | "read" >> read(tmp_path / name)))

    one, two = shapes(first), shapes(other)
    ((label, shape),) = one.items()
    (reason,) = shape.unreadable(two[label])
    assert reason.startswith("input name was ")


ELEMENTS: list[Any] = [1, "one", {"a": [1, {2, 3}]}, dt.date(2026, 1, 1), 2**70]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (df.Create([1, 2]), df.Create([1, 2, 3])),
        (df.Create(ELEMENTS), df.Create([*ELEMENTS[:2], {"a": [1, {2, 4}]}, *ELEMENTS[3:]])),
        (df.Create(ELEMENTS), df.Create([*ELEMENTS[:-1], "int"])),
        (
            df.Create([df.TimestampedValue(2**70, 1)]),
            df.Create([df.TimestampedValue(2**70, 2)]),
        ),
        (TestStream().add_elements([1, 2**70]), TestStream().add_elements([2, 2**70])),
        (
            TestStream().add_elements([1]).advance_watermark_to(5),
            TestStream().add_elements([1]).advance_watermark_to(6),
        ),
    ],
)
def test_elements_of_the_pipeline_are_its_input(one: Any, other: Any) -> None:
    """A job that went on where it was would never read the elements that were added."""

    def built(source: Any) -> Build:
        return lambda p: p | "read" >> source | "sum" >> df.Map(str)

    store = MemoryStore()
    opened(built(one), store)
    opened(built(one), store)
    with pytest.raises(JobMismatchError, match=r"input name was \d+ \w+ \(\w+\), is \d+ \w+ \("):
        opened(built(other), store)


@pytest.mark.slow
def test_elements_have_the_same_name_in_every_process() -> None:
    """Sets and texts have another order and hash in each."""
    code = (
        "import dataflow as df; from dataflow.io.memory import digest_of;"
        "print(digest_of([{str(n) for n in range(9)}, {'b': 1, 'a': 2}, object(), 2**70, frozenset('abc')]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }

    assert len(found) == 1
    assert found != {""}


def test_a_source_that_begins_to_state_what_it_reads_goes_on() -> None:
    shape = StateShape({"input name": "None", "source": "S"})

    assert shape.unreadable(StateShape({"input name": "a.csv", "source": "S"})) == []
    assert shape.unreadable(StateShape({"input name": "a.csv", "source": "T"}))


def test_another_table_is_announced_and_nothing_is_lost_in_silence() -> None:
    def writing(table: str) -> Build:
        def build(p: df.Pipeline) -> None:
            sums = p | "read" >> df.Read(ScriptedSource([])) | "sum" >> df.CombinePerKey(sum)
            rows = sums | df.Map(lambda pair: {"n": pair[1]})
            rows | "rows" >> df.WriteToPostgres(table, columns={"n": int})

        return build

    store = MemoryStore()
    opened(writing("one"), store)
    used(store)
    with pytest.raises(JobMismatchError, match="rows writes to 'two' from here on"):
        opened(writing("two"), store)
    (messages,) = opened(writing("two"), store, Update())
    assert "what it has written to 'one' stays there" in messages
    assert "sum          keeps its state" in messages


RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


def corrected(
    window_s: int = 60, table: str = "one", mode: df.AccumulationMode = RETRACTING, more: str = ""
) -> Build:
    """Sums that go to a table, and are counted; ``more``: a transform by which the version is another one."""

    def build(p: df.Pipeline) -> None:
        sums = (
            p
            | "read" >> df.Read(ScriptedSource([]))
            | "windows" >> df.WindowInto(df.FixedWindows(window_s), accumulation_mode=mode)
            | "sum" >> df.CombinePerKey(sum)
        )
        columns = {"key": int, "n": int}
        rows = sums | f"row{more}" >> df.Map(lambda pair: {"key": pair[0], "n": pair[1]})
        rows | "rows" >> df.WriteToPostgres(table, columns=columns, key=["key"])
        sums | f"one{more}" >> df.Map(lambda pair: ("all", 1)) | "count" >> df.CombinePerKey(sum)

    return build


def test_what_other_functions_must_not_change_is_announced() -> None:
    """Rows, and what is grouped again, that the old version has emitted and the new one may have to retract."""
    store = MemoryStore()
    opened(corrected(), store)
    used(store)
    with pytest.raises(JobMismatchError, match="rows retracts rows of 'one'"):
        opened(corrected(more=" of 2"), store)
    kept = str(update_of(corrected(more=" of 2"), store))
    assert "rows retracts rows of 'one' that the old version wrote, when sum corrects them" in kept
    assert "count has to retract what it received from sum" in kept
    anew = str(update_of(corrected(window_s=30), store))
    assert "rows begins anew with 'one', where the rows of the old version stay" in anew
    assert "retracts" not in anew
    moved = str(update_of(corrected(table="two", more=" of 2"), store))
    assert "rows writes to 'two' from here on" in moved
    assert "retracts rows" not in moved


def test_where_nothing_is_retracted_no_function_is_warned_of() -> None:
    store = MemoryStore()
    mode = df.AccumulationMode.DISCARDING
    opened(corrected(mode=mode), store)
    used(store)
    assert "note:" not in str(update_of(corrected(mode=mode, more=" of 2"), store))


#: What is read, what state is made of, and how long a window waits.
INCOMPATIBLE: dict[str, tuple[Build, Build, str]] = {
    "another source": (
        grouped(source=Named("a.csv")),
        grouped(source=Named("b.csv")),
        "read: input name was a.csv, is b.csv",
    ),
    "another accumulator": (
        grouped(combine=df.MeanCombineFn()),
        grouped(combine=max),
        "sum: combine_fn was",
    ),
    "more lateness": (
        grouped(),
        grouped(allowed_lateness=60),
        "sum: allowed_lateness was 0, is 60000000",
    ),
    "less lateness": (
        grouped(allowed_lateness=60),
        grouped(),
        "sum: allowed_lateness was 60000000, is 0",
    ),
    "more lateness of state": (stateful(), stateful(60), "keep: allowed_lateness was 0, is"),
}


@pytest.mark.parametrize("change", INCOMPATIBLE)
def test_an_incompatible_change_is_refused_and_nothing_has_happened(change: str) -> None:
    """With the plan; what is allowed to be lost is that of one computation, and the others keep theirs."""
    old, new, reason = INCOMPATIBLE[change]
    store = MemoryStore()
    opened(old, store)
    name = reason.partition(":")[0]
    used(store, "keep" if name == "keep" else "sum")
    before, counts = store.read_job("job"), store.count_state("job")
    with pytest.raises(JobMismatchError) as mismatch:
        opened(new, store)
    with pytest.raises(UpdateRefusedError, match="would lose state") as refused:
        opened(new, store, Update())
    for error in (mismatch, refused):
        assert "update of job 'job' from version 0 to 1" in str(error.value)
        assert reason in str(error.value)
    after = store.read_job("job")
    assert before is not None
    assert after is not None
    assert (after.version, after.computations) == (0, before.computations)
    assert store.count_state("job") == counts
    assert opened(old, store) == []
    (messages,) = opened(new, store, Update(allow_loss=[name]))
    assert reason in messages
    assert messages.count("begins anew") == 1


def test_a_job_that_was_described_by_less_keeps_its_state() -> None:
    """Parts that are noted since are taken to be as they are."""
    (read, total) = state_shapes(planned(grouped())).values()
    for shape in (read, total):
        former = {
            name: part
            for name, part in shape.parts.items()
            if name not in ("input name", "accumulator")
        }
        old = StateShape(former, shape.senders)
        assert old.unreadable(shape) == []


def test_functions_are_no_part_of_state() -> None:
    """Neither those behind a grouping nor those before it."""
    assert kept_parts(grouped(), grouped(function=repr)) == []


class Keeper(df.DoFn):
    def process(self, element: Any, /, seen: Any = df.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        yield element


class KeepsMore(Keeper):
    def process(
        self,
        element: Any,
        /,
        seen: Any = df.DoFn.StateParam(SEEN),
        more: Any = df.DoFn.StateParam(MORE),
        end: Any = df.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        yield element

    @df.on_timer(END)
    def ended(self) -> None:
        """Nothing to do."""


class KeepsOther(Keeper):
    def process(self, element: Any, /, seen: Any = df.DoFn.StateParam(AGAIN)) -> Iterator[Any]:
        yield element


class Alarmed(KeepsMore):
    def process(
        self,
        element: Any,
        /,
        seen: Any = df.DoFn.StateParam(SEEN),
        more: Any = df.DoFn.StateParam(MORE),
        end: Any = df.DoFn.TimerParam(AT_END),
    ) -> Iterator[Any]:
        yield element

    @df.on_timer(AT_END)
    def ended(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        (Keeper(), KeepsMore(), []),
        (KeepsMore(), Keeper(), 2),
        (Keeper(), KeepsOther(), 1),
        (KeepsMore(), Alarmed(), 1),
    ],
)
def test_state_of_a_stateful_do_fn(old: df.DoFn, new: df.DoFn, reasons: Any) -> None:
    """More may be declared; less, or something else under a name, is another state."""

    def build(fn: df.DoFn) -> Build:
        return lambda p: p | "read" >> df.Read(ScriptedSource([])) | "keep" >> df.ParDo(fn)

    found = kept_parts(build(old), build(new), "keep")
    assert len(found) == (reasons or 0)


@pytest.mark.slow
def test_shapes_are_the_same_in_every_process() -> None:
    """No address, no order of a set: or else a job could not be continued."""
    code = (
        "from tests.unit.runners.millwheel.versions.test_update import *\n"
        "build = grouped(combine=lambda values: 1, trigger=df.AfterAny(df.AfterCount(2), df.AfterSignal('a')))\n"
        "print([each.encoded() for each in state_shapes(planned(build)).values()])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_a_shape_is_text_in_the_store() -> None:
    """It comes back as it was."""
    for shape in state_shapes(planned(grouped())).values():
        assert StateShape.decoded(shape.encoded()) == shape


def test_a_kept_a_changed_and_a_new_computation() -> None:
    """A function changes, and everything is kept; the windows do, and the grouping begins anew."""
    store = MemoryStore()
    opened(grouped(), store)
    used(store)
    assert opened(grouped(function=repr), store) == []
    plan_ = update_of(grouped(window_fn=df.FixedWindows(30)), store)
    fates = {each.name: (each.fate, each.losses) for each in plan_.computations}
    assert fates == {
        "read": (Fate.KEPT, []),
        "sum": (Fate.CHANGED, ["2 cells", "1 timers"]),
    }
    assert "sum sees what is read from here on" in str(plan_)
    renamed = update_of(grouped("total"), store, sum="total")
    assert renamed.kept == {"read": "read", "sum": "total"}
    assert "keeps its state (was sum): 2 cells, 1 timers" in str(renamed)
    assert not renamed.losing


def test_without_being_asked_nothing_is_updated() -> None:
    """The hint shows the plan, and what to pass."""
    store = MemoryStore()
    opened(grouped(), store)
    used(store)
    before = store.read_job("job")
    with pytest.raises(JobMismatchError, match=r"(?s)allow_loss=\['sum'\].*is removed"):
        opened(grouped("other"), store)
    for allowed in ([], ["read"], ["other"]):
        with pytest.raises(UpdateRefusedError, match=r"allow_loss=\['sum'\]"):
            opened(grouped("other"), store, Update(allow_loss=allowed))
    with pytest.raises(PipelineError, match="nothing"):
        opened(grouped("other"), store, Update(allow_loss=["nothing"]))
    job = store.read_job("job")
    assert before is not None
    assert job is not None
    assert (job.version, job.fingerprint) == (0, before.fingerprint)
    (messages,) = opened(grouped("other"), store, Update(allow_loss=["sum"]))
    assert "2 cells, 1 timers" in messages
    assert opened(grouped("other"), store, Update()) == []


def test_what_is_in_flight_is_a_loss_of_who_goes() -> None:
    """From a source that is removed to a grouping that is kept: it would be lost, though the source has no state."""

    class Other(ScriptedSource):
        pass

    store = MemoryStore()
    opened(grouped(), store)
    used(store, in_flight=3)
    plan_ = update_of(grouped(source=Other([])), store)
    (lost,) = plan_.losing
    assert (lost.name, lost.losses) == ("read", ["3 in flight", "1 positions"])
    assert "read begins at its beginning and is new to sum; sum is at watermark 1970-01-02" in str(
        plan_
    )
    with pytest.raises(UpdateRefusedError, match="pause"):
        plan_.check([])


def test_an_edge_that_goes_takes_what_is_on_it() -> None:
    """Both ends are kept, but nobody would wait for it any more."""

    def build(*, is_crossed: bool) -> Build:
        def inner(p: df.Pipeline) -> None:
            one, two = (
                p | label >> df.Read(ScriptedSource([])) for label in ("read", "other")
            )  # fmt: skip
            (two if is_crossed else one) | "sum" >> df.CombinePerKey(sum)
            (one if is_crossed else two) | "max" >> df.CombinePerKey(max)

        return inner

    store = MemoryStore()
    opened(build(is_crossed=False), store)
    used(store, in_flight=2)
    plan_ = update_of(build(is_crossed=True), store)
    assert {each.fate for each in plan_.computations} == {Fate.KEPT}
    assert [(each.name, each.losses) for each in plan_.losing] == [("read", ["2 in flight"])]


@pytest.mark.parametrize(
    "renamed", [{"nothing": "total"}, {"sum": "nothing"}, {"sum": "total", "read": "total"}]
)
def test_names_that_are_not_there(renamed: dict[str, str]) -> None:
    """A wrong name is an error, and no reason to lose something."""
    store = MemoryStore()
    opened(grouped(), store)
    with pytest.raises(PipelineError, match="cannot be renamed"):
        update_of(grouped("total"), store, **renamed)


def test_a_job_of_before_is_described_when_it_is_opened() -> None:
    """Until then its state is not known, and not read by other code; the same pipeline can always go on."""
    store, execution = MemoryStore(), planned(grouped())
    spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    store.open_job(
        type(spec)(job="job", mode="streaming", fingerprint=spec.fingerprint, ranges=spec.ranges)
    )
    used(store)
    plan_ = update_of(grouped("total"), store, sum="total")
    assert [each.name for each in plan_.losing] == ["read", "total"]
    assert "run the old version once more" in str(plan_)
    assert opened(grouped(), store) == []
    assert not update_of(grouped("total"), store, sum="total").losing


def test_a_finished_job_has_no_new_version() -> None:
    """There is nothing that could go on."""
    store = MemoryStore()
    opened(grouped(), store)
    store.finish_job("job")
    with pytest.raises(UpdateRefusedError, match="is finished"):
        opened(grouped("other"), store, Update())


def test_a_function_that_was_renamed_reads_the_state_of_before() -> None:
    """The shape of a stored job has the name that a tuple of functions had, where all of them can retract."""
    p = df.Pipeline()
    pairs = p | df.Create([("a", (1, 2))])
    both = df.TupleCombineFn(df.SumCombineFn(), df.CountCombineFn())
    pairs | "both" >> df.CombinePerKey(both)
    new = state_shapes(plan(p.graph()))["both"]
    old = new.encoded().replace('"TupleCombineFn"', '"_RetractableTupleCombineFn"')

    assert old != new.encoded()
    assert StateShape.decoded(old).unreadable(new) == []


def with_side_input(*, shards: int = 16, seconds: int = 60) -> Build:
    """Elements beside the list of a collection, in windows."""

    def build(p: df.Pipeline) -> None:
        side = p | "side" >> df.Create([df.TimestampedValue(1, 5)])
        windowed = side | "side windows" >> df.WindowInto(df.FixedWindows(seconds))
        elements = p | "read" >> df.Create([df.TimestampedValue(2, 5)])
        minutes = elements | "windows" >> df.WindowInto(df.FixedWindows(60))
        minutes | "look" >> df.Map(lambda x, n: (x, n), df.AsList(windowed, shards=shards))

    return build


def test_shards_that_have_no_view_yet_are_an_update_that_loses_state() -> None:
    """An element that went to a new shard would wait for a pane that the former shards have had."""
    name = "look/side inputs"

    assert [] == kept_parts(with_side_input(), with_side_input(), name)
    assert ["shards was 16, is 32"] == kept_parts(
        with_side_input(), with_side_input(shards=32), name
    )
    (why,) = kept_parts(with_side_input(), with_side_input(seconds=120), name)
    assert why.startswith("side inputs was (SideWindows(window_fn=FixedWindows(")

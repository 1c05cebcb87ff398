"""Whatever crosses a process boundary survives it: public errors, and values made of attrs."""

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

import dataflow as df
import runners.core
import triggers
import windowing
from dataflow.combine_fn import CallableCombineFn, ListCombineFn
from dataflow.do_fn import CallableDoFn, Shape
from dataflow.graph import Group
from dataflow.io.csv_files import CsvSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.memory import MemorySource
from dataflow.io.text_files import FileSplit
from dataflow.table import TableSpec, TableWrite
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import (
    NOTHING,
    Effects,
    EmittedPane,
    LateArrival,
    WindowState,
    WindowTimers,
)
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.partials.folding import Accumulation
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.direct import DirectRunner
from tests.about import about
from tests.ids import shown
from triggers.windowing_strategy import WindowingStrategy
from windowing.pane import NO_FIRING
from windowing.time_domain import TimeDomain
from windowing.window_fn import FrozenWindows, Merge

PICKLERS: list[Callable[[Any], Any]] = [
    lambda value: pickle.loads(pickle.dumps(value, protocol=5)),
    lambda value: pickle.loads(cloudpickle.dumps(value, protocol=5)),
]
WINDOW = windowing.Window(0, 10)
TABLE = TableSpec(name="t", columns={"a": int}, key=("a",))
PANE = windowing.PaneInfo(
    2, windowing.PaneTiming.LATE, is_first=False, is_last=True, nonspeculative_index=1
)
EMITTED = EmittedPane((1, 2), 9, WINDOW, PANE)
VALUES: list[Any] = [
    WINDOW,
    PANE,
    NO_FIRING,
    Merge(WINDOW, (WINDOW, WINDOW)),
    df.FixedWindows(60, offset=5),
    df.PhaseShiftedWindows(60),
    df.SlidingWindows(60, period=7, offset=3),
    df.Sessions(60),
    df.Sessions(len),
    df.CalendarWindows.weeks(2, time_zone="Europe/Berlin"),
    df.GlobalWindows(),
    FrozenWindows(),
    triggers.TriggerTimers(1, 2),
    df.DefaultTrigger(),
    WindowingStrategy(window_fn=df.Sessions(5), allowed_lateness_us=3),
    df.TimestampedValue("x", 5),
    df.TaggedOutput("late", 1),
    CallableCombineFn(sum),
    CallableDoFn(len, Shape.MAP),
    TABLE,
    TableWrite(table=TABLE, changes=[((1,), None)]),
    df.SourceBatch(values=[1], timestamps_us=[0], position=7, watermark_us=0),
    CsvSource(pattern="*.csv", event_time=float, max_disorder_us=1),
    JsonLinesSource(pattern="*.jsonl"),
    FileSplit("a.csv", 0, 10),
    Bundle([1], [0], [WINDOW], [PANE], [-1]),
    EMITTED,
    EmittedPane((1, 2), 9, WINDOW, PANE, {"Map(guess)": [[5], []]}),
    WindowState([1], 2, (EMITTED,), 1, 1, is_past=True, timers=WindowTimers(9, 5)),
    WindowState(),
    LateArrival("k", WINDOW, [1], 1, 10),
    Effects(
        [1], [0], [WINDOW], [PANE], [1], [EMITTED], {(("k", None), WINDOW, TimeDomain.EVENT): 5}
    ),
    df.Clocks(watermark_us=1, now_us=2, percentile_us=3),
    StageClocks(watermark_us=1, output_watermark_us=0, now_us=2),
    df.BagStateSpec("bag"),
    df.CombiningValueStateSpec("mean", CallableCombineFn(sum)),
    df.ReadModifyWriteStateSpec("value"),
    df.TimerSpec("end", TimeDomain.EVENT),
    *df.TimeDomain,
    *df.AccumulationMode,
    *df.PaneTiming,
    *df.SplitStatus,
    *Shape,
]


def errors() -> Iterator[type[df.DataflowError]]:
    """Every error class of the packages."""
    for package in (windowing, triggers, df, runners.core):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("runners.errors")
    pending: list[type[df.DataflowError]] = [df.DataflowError]
    while pending:
        error = pending.pop()
        # Those of tests may be made so that they do not.
        if not error.__module__.startswith("tests."):
            yield error
        pending += error.__subclasses__()


@pytest.mark.parametrize("copied", PICKLERS, ids=["pickle", "cloudpickle"])
def test_errors_survive(copied: Callable[[Any], Any]) -> None:
    """Fact, detail, hint, message and class; also after being located, and without detail."""
    for error_class in sorted(set(errors()), key=str):
        for error in (
            error_class("the fact", detail="what was seen", hint="what to do"),
            error_class("the fact").located("transform 'x' (a.py:1)"),
        ):
            with about(error_class):
                other = copied(error)

                assert type(error) is type(other)
                assert vars(error) == vars(other)
                assert str(error) == str(other)


@pytest.mark.parametrize("copied", PICKLERS, ids=["pickle", "cloudpickle"])
def test_values_survive(copied: Callable[[Any], Any]) -> None:
    """An equal value of the same class comes back."""
    for value in VALUES:
        with about(value):
            other = copied(value)

            assert type(value) is type(other)
            assert value == other


def test_public_classes_are_found_under_their_module() -> None:
    """So that pickle finds them by name, whatever they were imported as."""
    for name in df.__all__:
        public = getattr(df, name)
        if inspect.isclass(public):
            assert getattr(importlib.import_module(public.__module__), public.__name__) is public


def test_nothing_stays_itself() -> None:
    """The marker of an empty accumulator is compared by identity, in the store as well."""
    for copied in PICKLERS:
        assert copied(NOTHING) is NOTHING


def test_a_graph_and_its_plan_survive() -> None:
    """What is sent to workers: the pipeline, with functions that exist only here."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Create([("a", 1)])
        | df.Map(lambda pair: pair)
        | df.WindowInto(df.FixedWindows(1))
        | df.CombinePerKey(lambda values: sum(values, start=0))
    )
    graph = PICKLERS[1](pipeline.graph())

    assert pipeline.graph().fingerprint() == graph.fingerprint()
    assert list(plan(pipeline.graph()).stages) == list(plan(graph).stages)
    (group,) = [node for node in graph.transforms if isinstance(node.operation, Group)]
    assert 3 == group.operation.combine_fn.extract_output([1, 2])


@pytest.mark.parametrize(
    "value", [MemorySource([1, df.TimestampedValue(2, 5)]), ListCombineFn()], ids=shown
)
def test_classes_without_equality_survive(value: Any) -> None:
    for copied in PICKLERS:
        assert vars(value) == vars(copied(value))


def test_the_machine_survives() -> None:
    """It holds configuration only, so a copy acts the same."""
    machine = GroupAlsoByWindow(Accumulation(ListCombineFn(), WindowingStrategy()))
    effects = [
        each.add({}, [("k", WINDOW, [1], 1)], df.Clocks(watermark_us=10, now_us=0))
        for each in (machine, PICKLERS[0](machine))
    ]

    assert effects[0] == effects[1]

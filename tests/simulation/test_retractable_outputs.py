"""Updates that remove a stateful DoFn with retractable outputs: nothing of what it has emitted is left."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import DataflowError
from dataflow.user_state import EMITTED
from runners.core.stateful import stateful_do_fn, stateful_invoker
from runners.core.stateful.stateful_do_fn import StatefulDoFnMachine
from runners.direct import DirectRunner
from runners.testing.simulator.errors import SimulationError
from tests.effort import by_profile, costly
from tests.simulation.test_plain_input import FOR_EVER, RETRACTING, check_rows, updated
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

pytestmark = pytest.mark.slow

COLUMNS = {"key": str, "values": str}
SEEN = df.BagStateSpec("seen")
SOON = df.TimerSpec("soon", df.TimeDomain.EVENT)
WINDOW_FNS = [df.GlobalWindows(), df.FixedWindows(60), df.SlidingWindows(60, period=30)]
DICE = random.Random()
Patch = pytest.MonkeyPatch


class Running(df.DoFn[Any, Any]):
    """Says for each element, in the order of arrival, what it has seen so far; some to another output, some later."""

    has_retractable_outputs = True
    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[int, int],
        at: Any = df.DoFn.TimestampParam,
        seen: Any = df.DoFn.StateParam(SEEN),
        soon: Any = df.DoFn.TimerParam(SOON),
    ) -> Any:
        key, value = element
        if value % 11 == 7:
            raise ValueError(value)
        seen.add(value)
        soon.set(at)
        yield key, sum(seen.read())
        yield df.TaggedOutput("other", (key, -value))

    @df.on_timer(SOON)
    def on_soon(self, key: Any = df.DoFn.KeyParam, seen: Any = df.DoFn.StateParam(SEEN)) -> Any:
        yield key, len(seen.read())


@df.nondeterministic
def rolled(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[0], DICE.randrange(1_000_000)


@attrs.frozen
class Shape:
    """What there is of the DoFn.

    Attributes:
        window_fn: of its elements.
        is_rolled: whether dice fall for what it emits.
    """

    window_fn: df.WindowFn = WINDOW_FNS[0]
    is_rolled: bool = False

    def windows(self) -> df.WindowInto:
        return df.WindowInto(
            self.window_fn,
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=RETRACTING,
            allowed_lateness=FOR_EVER,
        )


shapes = st.builds(Shape, st.sampled_from(WINDOW_FNS), st.booleans())


def built(source: df.Source, shape: Shape, ways: Sequence[str]) -> df.Pipeline:
    """What is read, and what a stateful DoFn makes of it by some ways, counted together."""
    p = df.Pipeline(DirectRunner(bundle_records=3))
    pairs = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda value: (value % 5, value))
        | "windows" >> shape.windows()
    )
    inputs = [pairs]
    if ways:
        running = df.ParDo(Running()).with_outputs("other", main="main")
        main, other, bad = pairs | "running" >> running.with_exception_handling()
        if shape.is_rolled:
            main = main | "roll" >> df.Map(rolled)
        found = {
            "main": main,
            "other": other,
            "bad": bad | "failed" >> df.Map(lambda pair: pair[0]),
        }
        inputs += [found[way] | way >> df.Map(lambda pair: pair) for way in ways]
    (
        inputs
        | "flatten" >> df.Flatten()
        | "total" >> df.GroupByKey()
        | "row" >> df.Map(row)
        | "rows" >> df.WriteToPostgres("rows", columns=COLUMNS, key=["key"])
    )
    return p


def row(pair: Any, window: Any = df.DoFn.WindowParam) -> dict[str, str]:
    return {"key": f"{pair[0]} {window.start_us}", "values": str(sorted(map(str, pair[1])))}


WAYS: Sequence[tuple[Sequence[str], Sequence[str]]] = (
    (["main", "other", "bad"], []),
    (["main"], []),
)


@costly(cells=2)
@given(
    shape=shapes,
    script=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 60),
    ways=st.sampled_from(WAYS),
)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_the_rows_are_those_of_a_pipeline_that_never_had_it(
    crash_rate: float,
    shape: Shape,
    script: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    rounds: int,
    ways: tuple[Sequence[str], Sequence[str]],
) -> None:
    source = scripted(script, disorder)
    old, new = (built(source, shape, each) for each in ways)
    cluster = updated(old, new, seed=seed, crash_rate=crash_rate, rounds=rounds)
    assume(cluster is not None)
    assert cluster is not None
    check_rows(cluster, new, seed)


#: Of a key several come together, of which some fail.
LONG = [[(step + 5 * each, step) for each in range(4)] for step in range(60)]


def long(
    shape: Shape, seed: int, ways: tuple[Sequence[str], Sequence[str]], crash_rate: float = 0.0
) -> Cluster:
    """A run that has emitted much when it is updated, and has much to read yet."""
    source = scripted(LONG, 20)
    old, new = (built(source, shape, each) for each in ways)
    cluster = updated(old, new, seed=seed, crash_rate=crash_rate, rounds=60)
    assert cluster is not None
    check_rows(cluster, new, seed)
    return cluster


def in_pages(patch: Patch) -> None:
    patch.setattr(stateful_do_fn, "FEW", 1)
    keep_in_pages = StatefulDoFnMachine.keep_in_pages
    patch.setattr(
        StatefulDoFnMachine,
        "keep_in_pages",
        lambda machine, _, need_pages: keep_in_pages(machine, 60, need_pages),
    )


@pytest.mark.parametrize("shape", [Shape(), Shape(WINDOW_FNS[1], is_rolled=True)])
@pytest.mark.parametrize("is_in_pages", [False, True])
def test_much_is_retracted_in_pieces(
    shape: Shape, monkeypatch: Patch, *, is_in_pages: bool
) -> None:
    if is_in_pages:
        in_pages(monkeypatch)
    for seed in range(by_profile(2, nightly=100)):
        long(shape, seed, WAYS[0], 0.1)


@pytest.mark.parametrize("window_fn", WINDOW_FNS[:2])
def test_of_a_do_fn_that_stays_only_the_way_that_is_removed_is_retracted(
    window_fn: df.WindowFn,
) -> None:
    for seed in range(by_profile(2, nightly=100)):
        long(Shape(window_fn), seed, (["bad", "other"], ["other"]))


def _retract_nothing(patch: Patch) -> None:
    """What the DoFn has emitted stays."""
    patch.setattr(
        StatefulDoFnMachine,
        "retract_standing",
        lambda machine, cells, _, clocks: machine.add(cells, [], clocks),
    )


def _keep_with_user_state(patch: Patch) -> None:
    """A call that fails takes what code behind remembers of former outputs with it."""
    patch.setattr(stateful_invoker, "EMITTED", "none")


def _keep_the_last_output_alone(patch: Patch) -> None:
    """Of what was emitted before a step nothing is kept."""

    def adding(machine: Any, cells: Any, partials: Any, clocks: Any) -> Any:
        for cell in cells.values():
            cell.values.pop(EMITTED, None)
        return add(machine, cells, partials, clocks)

    add = StatefulDoFnMachine.add
    patch.setattr(StatefulDoFnMachine, "add", adding)


@pytest.mark.parametrize(
    ("mutation", "shape"),
    [
        (_retract_nothing, Shape()),
        (_keep_the_last_output_alone, Shape()),
        (_keep_with_user_state, Shape(is_rolled=True)),
    ],
)
def test_breakages_are_found(
    mutation: Callable[[Patch], None], shape: Shape, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)

    def check_all() -> None:
        for seed in range(4):
            long(shape, seed, WAYS[0])

    with pytest.raises((AssertionError, DataflowError, SimulationError)):
        check_all()

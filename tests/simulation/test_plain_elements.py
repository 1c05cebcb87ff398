"""Updates that remove what stateful DoFns and side inputs have seen or emitted: what is left is as if it never was."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import DataflowError
from runners.core.side_inputs import side_inputs_machine
from runners.core.side_inputs.side_inputs_machine import SideInputsMachine
from runners.core.stateful import plain_elements
from runners.direct import DirectRunner
from runners.testing.simulator.errors import SimulationError
from tests.effort import by_profile, costly, each_third
from tests.simulation.test_plain_input import FOR_EVER, RETRACTING, corrected_at_once, updated
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

pytestmark = pytest.mark.slow

COLUMNS = {"key": str, "values": str}
COUNTS = df.ReadModifyWriteStateSpec("counts")
WINDOW_FNS = [df.GlobalWindows(), df.FixedWindows(60), df.SlidingWindows(60, period=30)]
Patch = pytest.MonkeyPatch


class Counts(df.DoFn):
    """How often each value is there; what is true now is the last that it says of a key and window."""

    handles_retractions = True

    def process(
        self,
        element: tuple[int, int],
        sign: Any = df.DoFn.SignParam,
        window: Any = df.DoFn.WindowParam,
        counts: Any = df.DoFn.StateParam(COUNTS),
    ) -> Any:
        key, value = element
        found = Counter(dict(counts.read() or {}))
        found[value] += sign
        there = {each: count for each, count in sorted(found.items()) if count}
        counts.write(there)
        yield {"key": f"{key} {window.start_us}", "values": str(there)}


class CountsInOrder(Counts):
    """Counts elements that wait until the watermark has passed them."""

    requires_time_sorted_input = True


@attrs.frozen
class Shape:
    """What comes after the branches.

    Attributes:
        window_fn: of the elements.
        sees: "counts", "counts in order", or how a side input is, beside which elements are grouped.
    """

    window_fn: df.WindowFn = WINDOW_FNS[0]
    sees: str = "counts"

    def windows(self) -> df.WindowInto:
        return df.WindowInto(
            self.window_fn,
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=RETRACTING,
            allowed_lateness=FOR_EVER,
        )


SEES = ("counts", "counts in order", "once", "retracted", "both")
shapes = st.builds(Shape, st.sampled_from(WINDOW_FNS), st.sampled_from(SEES))


def beside(elements: Any, sides: Any, shape: Shape, name: str) -> Any:
    """Elements beside a side input that fires once, one whose panes retract each other, or both."""
    once = sides | f"once {name}" >> df.WindowInto(shape.window_fn)
    retracted = sides | f"retracted {name}" >> shape.windows()
    views = {"once": [once], "retracted": [retracted], "both": [once, retracted]}[shape.sees]
    return elements | name >> df.Map(
        lambda pair, *sides: (pair[0], (pair[1], *(tuple(sorted(each)) for each in sides))),
        *(df.AsList(each, shards=2) for each in views),
    )


def built(
    source: df.Source, shape: Shape, branches: Sequence[str], *, names: Sequence[str] = ("see",)
) -> df.Pipeline:
    """What is read, and the panes of branches, seen together.

    Args:
        source: what is read.
        shape: what comes after.
        branches: that may retract their panes, with keys and values that nothing else has.
        names: of the steps beside side inputs.
    """
    p = df.Pipeline(DirectRunner(bundle_records=3))
    pairs = p | "read" >> df.Read(source) | "pair" >> df.Map(lambda value: (value % 5, value))
    inputs = [pairs | "windows" >> shape.windows()]
    inputs += [
        pairs
        | f"{name} windows" >> corrected_at_once(df.FixedWindows(10 * len(name)))
        | name >> df.CombinePerKey(sum)
        | f"{name} values" >> df.MapTuple(lambda key, value: (key + key % 2 * 4, -value - 1))
        | f"windows of {name}" >> shape.windows()
        for name in branches
    ]
    together = inputs | "flatten" >> df.Flatten()
    if shape.sees.startswith("counts"):
        fn = Counts() if shape.sees == "counts" else CountsInOrder()
        together | "see" >> df.ParDo(fn) | "rows" >> write()
        return p
    numbers = pairs | "numbers" >> df.Values() | "few" >> df.Filter(lambda value: value % 3 == 0)
    seen = [beside(together, numbers, shape, name) for name in names]
    (
        seen
        | "flatten again" >> df.Flatten()
        | "global" >> corrected_at_once(df.GlobalWindows())
        | "after" >> df.GroupByKey()
        | "row"
        >> df.MapTuple(lambda key, found: {"key": str(key), "values": str(sorted(map(str, found)))})
        | "rows" >> write()
    )
    return p


def write() -> df.PTransform[Any, Any]:
    return df.WriteToPostgres("rows", columns=COLUMNS, key=["key"])


def check_rows(cluster: Cluster, new: df.Pipeline, seed: int) -> None:
    """The rows of keys of which nothing is left are there where no engine can delete them."""
    (spec,) = new.graph().tables()
    expected = {tuple(each.values()) for each in new.run().read_table(spec.name)}
    found = {tuple(row) for row in cluster.store.read_table(spec) if row[1] != "{}"}
    assert found == {row for row in expected if row[1] != "{}"}, f"seed={seed}"


def disorder_of(script: list[list[tuple[int, int]]]) -> int:
    """How far an element is behind one before it, at most, in seconds.

    Elements that are late see what is there by chance, as views have no more to come: of these, two runs may differ.
    """
    seconds = [second for batch in script for _, second in batch]
    newest = list(accumulate(seconds, max))
    return max((first - second for first, second in zip(newest, seconds, strict=True)), default=0)


@costly(cells=2)
@given(
    shape=shapes,
    script=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 60),
    branches=st.sampled_from([(["lows"], []), (["lows", "highs"], ["highs"])]),
)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_a_branch_that_is_removed_has_never_been_seen(
    crash_rate: float,
    shape: Shape,
    script: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    rounds: int,
    branches: tuple[Sequence[str], Sequence[str]],
) -> None:
    source = scripted(script, disorder + disorder_of(script))
    old, new = (built(source, shape, each) for each in branches)
    cluster = updated(old, new, seed=seed, crash_rate=crash_rate, rounds=rounds)
    assume(cluster is not None)
    assert cluster is not None
    check_rows(cluster, new, seed)


LONG = [[(second * 7 % 100, second)] for second in range(60)]


def long(
    shape: Shape,
    seed: int,
    branches: tuple[Sequence[str], Sequence[str]] = (["lows"], []),
    names: tuple[Sequence[str], Sequence[str]] = (["see"], ["see"]),
) -> None:
    """A run that has emitted much when it is updated, and has much to read yet."""
    source = scripted(LONG, 20)
    old, new = (
        built(source, shape, each, names=some) for each, some in zip(branches, names, strict=True)
    )
    cluster = updated(old, new, seed=seed, crash_rate=0.0, rounds=60)
    assert cluster is not None
    check_rows(cluster, new, seed)


@pytest.mark.parametrize("window_fn", WINDOW_FNS[:2])
@pytest.mark.parametrize("sees", each_third(SEES, 0))
@pytest.mark.parametrize("is_in_pages", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_much_is_converted(
    sees: str, window_fn: df.WindowFn, monkeypatch: Patch, *, is_in_pages: bool
) -> None:
    if is_in_pages:
        if sees.startswith("counts"):
            return
        in_pages(monkeypatch)
    for seed in range(by_profile(2, nightly=100)):
        long(Shape(window_fn, sees), seed)


def in_pages(patch: Patch) -> None:
    patch.setattr(side_inputs_machine, "FEW", 1)
    keep_in_pages = SideInputsMachine.keep_in_pages
    patch.setattr(
        SideInputsMachine,
        "keep_in_pages",
        lambda machine, _, *more: keep_in_pages(machine, 60, *more),
    )


@pytest.mark.parametrize("sees", ["retracted", "both"])
@pytest.mark.parametrize("branches", [[], pytest.param(["lows"], marks=pytest.mark.nightly)])
@pytest.mark.parametrize("is_in_pages", [False, True])
def test_what_a_removed_step_beside_side_inputs_has_emitted_is_retracted(
    sees: str, branches: Sequence[str], monkeypatch: Patch, *, is_in_pages: bool
) -> None:
    """With the views that it was emitted with; what another step has emitted stays."""
    if is_in_pages:
        in_pages(monkeypatch)
    for seed in range(by_profile(2, nightly=100)):
        long(
            Shape(WINDOW_FNS[1], sees),
            seed,
            (branches, branches),
            (["see", "and see"], ["see"]),
        )


def _retract_nothing(patch: Patch) -> None:
    """What the step has emitted stays."""

    def nothing(machine: SideInputsMachine, cells: Any, _: Any, clocks: Any) -> Any:
        return machine.add(cells, [], clocks)

    patch.setattr(SideInputsMachine, "retract_standing", nothing)


def _keep_all_that_waits(patch: Patch) -> None:
    """A retraction comes to a grouping that accepts none."""
    patch.setattr(side_inputs_machine, "without_retracted", list)
    patch.setattr(plain_elements, "without_retracted", list)


def _keep_digests(patch: Patch) -> None:
    """Elements are kept as those that may be retracted one by one."""
    patch.setattr(side_inputs_machine._Step, "convert", lambda *_: None)


REMOVED: Any = {"branches": ([], []), "names": (["see", "and see"], ["see"])}


@pytest.mark.parametrize(
    ("mutation", "shape", "how"),
    [
        (_retract_nothing, Shape(WINDOW_FNS[1], "retracted"), REMOVED),
        (_keep_all_that_waits, Shape(WINDOW_FNS[1], "once"), {}),
        (_keep_digests, Shape(WINDOW_FNS[1], "retracted"), {}),
    ],
)
def test_breakages_are_found(
    mutation: Callable[[Patch], None], shape: Shape, how: Any, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)

    def check_all() -> None:
        for seed in range(4):
            long(shape, seed, **how)

    with pytest.raises((AssertionError, AttributeError, DataflowError, SimulationError)):
        check_all()

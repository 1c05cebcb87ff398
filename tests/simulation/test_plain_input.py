"""Updates after which nothing retracts the input of a grouping any more: its state is converted, whatever dies."""

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import DataflowError
from runners.core.ground.cells import NOTHING
from runners.core.panes.plain_input import PlainInput
from runners.core.partials.signed_combine import RetractingCombineFn
from runners.direct import DirectRunner
from runners.errors import UpdateRefusedError
from runners.millwheel.versions.job_versions import Update
from runners.millwheel.worker import retraction
from runners.stored.places import RetractionMark, decode_retraction_mark
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.errors import SimulationError
from tests.effort import costly
from tests.simulation.test_worker_crashes import Cluster, batches, scripted

pytestmark = pytest.mark.slow

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
#: No window has expired when the branch is removed.
FOR_EVER = timedelta(days=365 * 2_500)
COLUMNS = {"key": str, "values": str}


def sums(pairs: Any) -> Any:
    return pairs | "grouped" >> df.Sum.PerKey()


def lows(pairs: Any) -> Any:
    return pairs | "grouped" >> df.CombinePerKey(min)


def lists(pairs: Any) -> Any:
    grouped = pairs | "grouped" >> df.GroupByKey()
    return grouped | "sorted" >> df.MapTuple(lambda key, values: (key, str(sorted(values))))


def means(pairs: Any) -> Any:
    return pairs | "grouped" >> df.Mean.PerKey()


def joined(pairs: Any) -> Any:
    again = pairs | "few" >> df.Filter(lambda pair: pair[1] % 3 == 0)
    return (pairs, again) | "grouped" >> df.Join()


def outer(pairs: Any) -> Any:
    few = pairs | "few" >> df.Filter(lambda pair: pair[1] % 3 == 0)
    return (pairs, few) | "grouped" >> df.Join(df.JoinType.LEFT_OUTER)


GROUPINGS: Sequence[Callable[[Any], Any]] = (sums, lows, lists, means, joined, outer)
WINDOW_FNS = [
    df.GlobalWindows(),
    df.FixedWindows(60),
    df.SlidingWindows(60, period=30),
    df.Sessions(20),
]
TRIGGERS = [
    None,
    df.Repeatedly(df.AfterCount(1)),
    df.Repeatedly(df.AfterCount(3)),
    df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(4)),
    df.Repeatedly(df.AfterProcessingTime(0.3)),
]


@attrs.frozen
class Shape:
    """What the grouping whose state is converted is like."""

    grouping: Callable[[Any], Any] = sums
    window_fn: df.WindowFn = WINDOW_FNS[0]
    trigger: df.Trigger | None = TRIGGERS[1]
    timestamp_combiner: df.TimestampCombiner = df.TimestampCombiner.END_OF_WINDOW

    def windows(self) -> df.WindowInto:
        return df.WindowInto(
            self.window_fn,
            trigger=self.trigger,
            accumulation_mode=RETRACTING,
            allowed_lateness=FOR_EVER,
            timestamp_combiner=self.timestamp_combiner,
        )


shapes = st.builds(
    Shape,
    grouping=st.sampled_from(GROUPINGS),
    window_fn=st.sampled_from(WINDOW_FNS),
    trigger=st.sampled_from(TRIGGERS),
    timestamp_combiner=st.sampled_from([*df.TimestampCombiner]),
)


def corrected_at_once(window_fn: df.WindowFn) -> df.WindowInto:
    return df.WindowInto(
        window_fn,
        trigger=df.Repeatedly(df.AfterCount(1)),
        accumulation_mode=RETRACTING,
        allowed_lateness=FOR_EVER,
    )


def built(source: df.Source, shape: Shape, branches: Sequence[str]) -> df.Pipeline:
    """What is read, and the panes of the branches, grouped together; a branch may retract its panes.

    A branch has keys that nothing else has, and panes at the ends of its windows: without it there are fewer windows.
    """
    p = df.Pipeline(DirectRunner(bundle_records=3))
    pairs = p | "read" >> df.Read(source) | "pair" >> df.Map(lambda value: (value % 5, value))
    inputs = [pairs | "windows" >> shape.windows()]
    for name in branches:
        if name == "same" and not isinstance(shape.window_fn, df.Sessions):
            # In the windows of the grouping, which come from two places.
            inputs.append(inputs[0] | name >> df.CombinePerKey(sum))
            continue
        inputs.append(
            pairs
            | f"{name} windows" >> corrected_at_once(df.FixedWindows(10 * len(name)))
            | name >> df.CombinePerKey(sum)
            | f"{name} values" >> df.MapTuple(lambda key, value: (key + key % 2 * 4, -value))
            | f"windows of {name}" >> shape.windows()
        )
    together = inputs | "flatten" >> df.Flatten()
    (
        shape.grouping(together)
        | "global" >> corrected_at_once(df.GlobalWindows())
        | "after" >> df.GroupByKey()
        | "row"
        >> df.MapTuple(lambda key, found: {"key": str(key), "values": str(sorted(map(str, found)))})
        | "table" >> df.WriteToPostgres("rows", columns=COLUMNS, key=["key"])
    )
    return p


def has_gone_over_some(cluster: Cluster) -> bool:
    job = cluster.store.read_job(JOB)
    assert job is not None
    marks = (
        decode_retraction_mark(row.position, job.version)
        for row in job.ranges.values()
        if row.keys is not None
    )
    return any(mark.is_end or mark.next_hash for mark in marks)


def go_over(cluster: Cluster, new: df.Pipeline, update: Update) -> None:
    """Go over by way of the versions between, in each of which all workers die when something is done."""
    for _ in range(12):
        cluster.update(new.graph(), update)
        if not cluster.is_retracting:
            return
        cluster.run_until(lambda: has_gone_over_some(cluster) or cluster.master.is_paused)
        for process in cluster.workers:
            if process is not None:
                process.die()
        cluster.run_until(lambda: cluster.master.is_paused)
    raise AssertionError("the job never comes to the end of what it is to retract")


def updated(
    old: df.Pipeline, new: df.Pipeline, *, seed: int, crash_rate: float, rounds: int
) -> Cluster | None:
    """A run that was updated after so many rounds; None if it was done, or its input had ended."""
    cluster = Cluster(old.graph(), seed, crash_rate)
    left = iter(range(rounds))
    cluster.run_until(lambda: next(left, None) is None)
    if cluster.master.is_done:
        return None
    update = Update(retract_removed=True, former=old.graph())
    job = cluster.store.read_job(JOB)
    assert job is not None
    if any(row.split is not None and row.is_finished for row in job.ranges.values()):
        with suppress(UpdateRefusedError):
            cluster.update(new.graph(), update)
        return None
    go_over(cluster, new, update)
    cluster.run()
    return cluster


def check_rows(cluster: Cluster, new: df.Pipeline, seed: int) -> None:
    expected = new.run()
    (spec,) = new.graph().tables()
    rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
    assert rows == {*cluster.store.read_table(spec)}, f"seed={seed}"


@costly(cells=2)
@given(
    shape=shapes,
    script=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 60),
    branches=st.sampled_from(
        [(["lows"], []), (["same"], []), (["same", "lows"], []), (["lows", "highs"], ["highs"])]
    ),
)
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_the_rows_are_those_of_a_pipeline_that_never_had_the_branch(
    crash_rate: float,
    shape: Shape,
    script: list[list[tuple[int, int]]],
    disorder: int,
    seed: int,
    rounds: int,
    branches: tuple[Sequence[str], Sequence[str]],
) -> None:
    """Whether the grouping has other input that may be retracted, or has none, and its state is converted."""
    source = scripted(script, disorder)
    old, new = (built(source, shape, each) for each in branches)
    cluster = updated(old, new, seed=seed, crash_rate=crash_rate, rounds=rounds)
    assume(cluster is not None)
    assert cluster is not None
    check_rows(cluster, built(source, shape, branches[1]), seed)


LONG = [[(second * 7 % 100, second)] for second in range(60)]


def long(shape: Shape, seed: int, branch: str = "lows") -> None:
    """A run that has emitted much when it is updated, by small steps, and has much to read yet."""
    source = scripted(LONG, 0)
    old, new = (built(source, shape, each) for each in ([branch], []))
    cluster = updated(old, new, seed=seed, crash_rate=0.0, rounds=60)
    assert cluster is not None
    check_rows(cluster, built(source, shape, []), seed)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(sums, df.SlidingWindows(60, period=30)),
        Shape(lists, df.GlobalWindows(), TRIGGERS[2]),
        Shape(means, df.Sessions(20)),
        Shape(joined, df.FixedWindows(60), TRIGGERS[2]),
        Shape(outer, df.Sessions(20), TRIGGERS[3]),
    ],
    ids=lambda each: each.grouping.__name__,
)
def test_much_is_converted_in_pieces(shape: Shape) -> None:
    """Each cell once, whoever goes on with its range."""
    long(shape, 1)
    long(shape, 2, "same")


def _twice(self: RetractingCombineFn, accumulator: Any) -> Any:
    """What a cell that is converted twice would have."""
    del self
    return accumulator


def _nothing(self: Any, cells: MutableMapping[Any, Any], *more: Any) -> None:
    del self, cells, more


def _all_gone(self: PlainInput, state: Any) -> Any:
    """What is left of a window counts as nothing."""
    del self, state
    return NOTHING


def _at_the_end(blob: bytes | None, version: int) -> RetractionMark:
    """Nothing is gone over."""
    del blob
    return RetractionMark(version=version, is_end=True)


def _from_the_beginning(blob: bytes | None, version: int) -> RetractionMark:
    """A mark that nobody keeps: who takes a range over begins again."""
    del blob
    return RetractionMark(version=version)


@pytest.mark.parametrize(
    ("place", "broken"),
    [
        ((RetractingCombineFn, "unsigned"), _twice),
        ((PlainInput, "fire_changed"), _nothing),
        ((PlainInput, "_whole"), _all_gone),
        ((retraction, "decode_retraction_mark"), _at_the_end),
        ((retraction, "decode_retraction_mark"), _from_the_beginning),
    ],
)
def test_breakages_are_found(
    place: tuple[Any, str], broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above can fail."""
    monkeypatch.setattr(*place, broken)

    def is_found(shape: Shape, seed: int) -> bool:
        try:
            long(shape, seed)
        except (AssertionError, DataflowError, SimulationError):
            return True
        return False

    wanted = [Shape(), Shape(trigger=TRIGGERS[2]), Shape(joined, trigger=TRIGGERS[2])]
    assert any(is_found(shape, seed) for shape in wanted for seed in range(1, 3))

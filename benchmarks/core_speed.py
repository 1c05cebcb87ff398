"""How fast the semantic core is by itself: lifting and grouping, and the ways of a grouping through the engines.

    python -m benchmarks.core_speed [--elements 500000] [--only "stream, columns"] [--profile]

Prints elements per second of processor time, the best of several rounds.  No process and no database is around it.
"""

import cProfile
import pstats
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import attrs

import dataflow as df
from benchmarks import harness
from benchmarks.core_paths import PATHS
from dataflow.graph import MAIN, Group, TransformNode
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import Cell, CellId, TimerId
from runners.core.ground.timers import TimerQueue
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.partials.folding import Accumulation
from runners.core.partials.lifting import Lifter
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import MAX_TIMESTAMP_US

ROUNDS = 7


@attrs.frozen(kw_only=True)
class Case:
    """A stream in time order: every key has an element every ``keys * step_us``."""

    name: str
    window_fn: df.WindowFn
    keys: int
    bundle: int
    step_us: int = 1_000
    mode: df.AccumulationMode = df.AccumulationMode.DISCARDING
    trigger: df.Trigger = attrs.field(factory=df.DefaultTrigger)
    is_retracted: bool = False


RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
EARLY_AND_LATE = df.AfterWatermark(early=df.AfterCount(100), late=df.AfterCount(1))
MINUTES, SESSIONS = df.FixedWindows(60), df.Sessions(timedelta(seconds=2))
CASES = [
    Case(name="fixed, 1,000 keys, bundles of 10,000", window_fn=MINUTES, keys=1_000, bundle=10_000),
    Case(name="fixed, 1,000 keys, bundles of 500", window_fn=MINUTES, keys=1_000, bundle=500),
    Case(name="fixed, 10 keys, bundles of 10,000", window_fn=MINUTES, keys=10, bundle=10_000),
    Case(
        name="sessions, 1,000 keys, bundles of 10,000",
        window_fn=SESSIONS,
        keys=1_000,
        bundle=10_000,
    ),
    Case(name="sessions, 1,000 keys, bundles of 500", window_fn=SESSIONS, keys=1_000, bundle=500),
    Case(
        name="sliding, 4 windows each, 1,000 keys, bundles of 10,000",
        window_fn=df.SlidingWindows(60, period=15),
        keys=1_000,
        bundle=10_000,
    ),
    Case(
        name="fixed, early and late, 1,000 keys, bundles of 10,000",
        window_fn=MINUTES,
        keys=1_000,
        bundle=10_000,
        trigger=EARLY_AND_LATE,
    ),
    Case(
        name="the same, retracting",
        window_fn=MINUTES,
        keys=1_000,
        bundle=10_000,
        trigger=EARLY_AND_LATE,
        mode=RETRACTING,
    ),
    Case(
        name="fixed, input that may be retracted, bundles of 10,000",
        window_fn=MINUTES,
        keys=1_000,
        bundle=10_000,
        mode=RETRACTING,
        is_retracted=True,
    ),
    Case(
        name="sessions, input that may be retracted, bundles of 10,000",
        window_fn=SESSIONS,
        keys=1_000,
        bundle=10_000,
        mode=RETRACTING,
        is_retracted=True,
    ),
    Case(
        name="sessions that all end, retracting, bundles of 500",
        window_fn=SESSIONS,
        keys=5_000,
        bundle=500,
        mode=RETRACTING,
    ),
]


def bundles(case: Case, elements: int) -> list[Bundle]:
    """The stream in bundles, with windows assigned."""
    cut = []
    for start in range(0, elements, case.bundle):
        numbers = range(start, min(start + case.bundle, elements))
        times_us = [number * case.step_us for number in numbers]
        values = [(f"user-{number % case.keys}", 1) for number in numbers]
        assigned = case.window_fn.assign_bundle(times_us, values)
        indexes = [index for index, windows in enumerate(assigned) for _ in windows]
        windows = [window for windows in assigned for window in windows]
        # One in ten retracts an element.
        signs = [-1 if case.is_retracted and index % 10 == 9 else 1 for index in indexes]
        cut.append(
            Bundle(
                [values[index] for index in indexes],
                [times_us[index] for index in indexes],
                windows,
                signs=signs if case.is_retracted else None,
            )
        )
    return cut


def run(case: Case, stream: list[Bundle]) -> int:
    """Lift, group and fire everything; returns the number of panes."""
    strategy = WindowingStrategy(
        window_fn=case.window_fn, accumulation_mode=case.mode, trigger=case.trigger
    )
    node = TransformNode(
        label="sum", location="", operation=Group(df.SumCombineFn()), inputs=(0,), outputs={MAIN: 1}
    )
    accumulation = Accumulation(df.SumCombineFn(), strategy, is_retracted=case.is_retracted)
    lifter = Lifter(node, accumulation)
    machine = GroupAlsoByWindow(accumulation)
    cells: dict[CellId, Cell] = {}
    timers = TimerQueue[TimerId]()
    panes, watermark_us = 0, 0
    for bundle in stream:
        partials = lifter.lift(bundle, watermark_us=watermark_us)
        effects = machine.add(cells, partials, df.Clocks(watermark_us=watermark_us, now_us=0))
        watermark_us = bundle.timestamps_us[-1]
        for timer, fire_us in effects.timers.items():
            timers.set(timer, fire_us)
        panes += len(effects.values)
        panes += fire(machine, cells, timers, watermark_us)
    return panes + fire(machine, cells, timers, MAX_TIMESTAMP_US)


def fire(
    machine: GroupAlsoByWindow,
    cells: dict[CellId, Cell],
    timers: TimerQueue[TimerId],
    watermark_us: int,
) -> int:
    """Fire what is due."""
    due = timers.pop_due(watermark_us)
    effects = machine.fire_timers(cells, due, df.Clocks(watermark_us=watermark_us, now_us=0))
    for timer, fire_us in effects.timers.items():
        timers.set(timer, fire_us)
    return len(effects.values)


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def report(name: str, elements: int, work: Callable[[], object], *, is_profiled: bool) -> None:
    """Measure one case, and print its line.

    Args:
        name: of the case.
        elements: that it has.
        work: does all of it once.
        is_profiled: whether to print where the time goes too.
    """
    work()
    print(f"{name:60} {elements / seconds(work):12,.0f} elements/s", flush=True)
    if is_profiled:
        profile = cProfile.Profile()
        profile.runcall(work)
        pstats.Stats(profile).sort_stats("tottime").print_stats(12)


def main() -> None:
    """Print a line per case."""
    parser = harness.parser(__doc__)
    parser.add_argument("--elements", type=int, default=500_000)
    parser.add_argument("--only", default="", help="the cases whose names contain this")
    parser.add_argument("--profile", action="store_true", help="where the time goes, per case")
    options = parser.parse_args()
    elements, is_profiled = options.elements, options.profile
    for case in CASES:
        if options.only in case.name:
            stream = bundles(case, elements)
            report(case.name, elements, partial(run, case, stream), is_profiled=is_profiled)
    for path in PATHS:
        if options.only in path.name:
            given = path.input(elements)
            report(path.name, elements, partial(path.run, given), is_profiled=is_profiled)


if __name__ == "__main__":
    main()

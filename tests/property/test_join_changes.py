"""What a join emits as changed is what has changed, in whatever order values come and are retracted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.co_group_fn import CoGroupFn
from dataflow.join_fn import LEFT, RIGHT, JoinFn
from runners.core.ground.cells import Effects
from runners.core.panes.group_also_by_window import GroupAlsoByWindow
from runners.core.partials.folding import Accumulation
from tests.effort import by_profile
from tests.oracle.joined import oracle_pairs
from tests.oracle.laws import microseconds
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import MIN_TIMESTAMP_US

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
#: Side, value, sign.
Step = tuple[str, Any, int]
SIDES = st.sampled_from([LEFT, RIGHT])
VALUES = st.integers(0, 2)
JOIN_TYPES = st.sampled_from(df.JoinType)
#: An example takes a millisecond.
EFFORT = settings(max_examples=by_profile(150, nightly=10_000))


def steps(*, is_retracted: bool = True) -> st.SearchStrategy[list[list[Step]]]:
    """Bundles of what comes and goes: also more often than it has come, and before."""
    signs = st.sampled_from([1, 1, -1] if is_retracted else [1])
    bundles = st.lists(st.tuples(SIDES, VALUES, signs), min_size=1, max_size=3)
    return st.lists(bundles, min_size=2, max_size=6)


def inputs(bundle: Sequence[Step], *, is_retracted: bool) -> list[Any]:
    if is_retracted:
        return [((side, value), sign) for side, value, sign in bundle]
    return [(side, value) for side, value, _ in bundle]


def what_is_there(bundles: Sequence[Sequence[Step]], side: str) -> list[Any]:
    counts: Counter[Any] = Counter()
    for each, value, sign in (step for bundle in bundles for step in bundle):
        counts[value] += sign * (each == side)
    return list(counts.elements())


@pytest.mark.slow
@pytest.mark.parametrize("is_retracted", [False, True])
@EFFORT
@given(data=st.data(), join_type=JOIN_TYPES)
def test_changes_are_the_difference(
    data: st.DataObject, join_type: df.JoinType, *, is_retracted: bool
) -> None:
    """Of all pairs before and after, also when they are looked at later."""
    bundles = data.draw(steps(is_retracted=is_retracted))
    accumulation = Accumulation(
        JoinFn.of(join_type),
        WindowingStrategy(accumulation_mode=RETRACTING),
        is_retracted=is_retracted,
    )
    combine_fn, folded = accumulation.combine_fn, accumulation.folded([])
    changes, wholes = [], []
    for bundle in bundles:
        more = accumulation.folded(inputs(bundle, is_retracted=is_retracted))
        changes.append(accumulation.changes(folded, more))
        folded = combine_fn.merge_accumulators((folded, more))
        wholes.append(accumulation.result(folded))
    before: Counter[Any] = Counter()
    for count, ((gone, come), whole) in enumerate(zip(changes, wholes, strict=True), start=1):
        lefts, rights = (what_is_there(bundles[:count], side) for side in (LEFT, RIGHT))
        after = Counter(oracle_pairs(lefts, rights, join_type))

        assert after == Counter(whole)
        assert not Counter(gone) - before, "only what was emitted is retracted"
        assert after == before - Counter(gone) + Counter(come)
        assert (bool(list(gone)), bool(list(come))) == (bool(gone), bool(come))
        before = after


@pytest.mark.slow
@EFFORT
@given(
    bundles=steps(),
    join_type=JOIN_TYPES,
    combiner=st.sampled_from(df.TimestampCombiner),
    trigger=st.sampled_from([df.Always(), df.Repeatedly(df.AfterCount(3)), df.DefaultTrigger()]),
    window_fn=st.sampled_from([df.FixedWindows(microseconds(100)), df.GlobalWindows()]),
    ends=st.booleans(),
)
def test_the_machine_emits_of_pairs_what_it_emits_of_groups(
    bundles: list[list[Step]],
    join_type: df.JoinType,
    combiner: df.TimestampCombiner,
    trigger: df.Trigger,
    window_fn: df.WindowFn,
    *,
    ends: bool,
) -> None:
    """Both are equal at each moment and at equal event times, with equal timers and holds."""
    check_the_machine(bundles, join_type, combiner, trigger, window_fn, ends=ends)


def scripts() -> Iterator[list[list[Step]]]:
    """Short scripts: everything that can happen to one value of each side."""
    changes = [(side, 1, sign) for side in (LEFT, RIGHT) for sign in (1, -1)]
    for script in product(changes, repeat=3):
        yield [[step] for step in script]


def check_the_machine(
    bundles: list[list[Step]],
    join_type: df.JoinType,
    combiner: df.TimestampCombiner,
    trigger: df.Trigger,
    window_fn: df.WindowFn,
    *,
    ends: bool = False,
) -> None:
    """A join and a grouping of the same, side by side."""
    ((window,),) = window_fn.assign_bundle([0], [None])
    strategy = WindowingStrategy(
        window_fn=window_fn,
        trigger=trigger,
        accumulation_mode=RETRACTING,
        timestamp_combiner=combiner,
        allowed_lateness_us=10,
    )
    pairs, groups = (
        Accumulation(fn, strategy, is_retracted=True)
        for fn in (JoinFn.of(join_type), CoGroupFn((LEFT, RIGHT)))
    )
    machines: list[tuple[Any, GroupAlsoByWindow, dict[Any, Any], Counter[Any]]] = [
        (each, GroupAlsoByWindow(each), {}, Counter()) for each in (pairs, groups)
    ]
    for at_us, bundle in enumerate(bundles):
        found = []
        for accumulation, machine, cells, emitted in machines:
            values: list[Any] = inputs(bundle, is_retracted=True)
            if accumulation.is_stamped:
                values = [(value, (at_us * 37) % 100) for value in values]
            watermark_us = 100 if ends and at_us > len(bundles) // 2 else MIN_TIMESTAMP_US
            partials = [("k", window, accumulation.folded(values), len(values))] * bool(values)
            effects = machine.add(cells, partials, df.Clocks(watermark_us=watermark_us, now_us=0))
            add_rows(emitted, effects, join_type)
            found.append((+emitted, effects.timers, effects.holds, set(cells)))

        assert min(machines[0][3].values(), default=0) >= 0
        assert found[0] == found[1]


def add_rows(emitted: Counter[Any], effects: Effects, join_type: df.JoinType) -> None:
    bundle = effects.bundle()
    signs = bundle.signs or [1] * len(bundle)
    for (_, value), at_us, sign in zip(bundle.values, bundle.timestamps_us, signs, strict=True):
        pairs = oracle_pairs(value[0], value[1], join_type) if isinstance(value, tuple) else value
        for pair in pairs:
            emitted[pair, at_us] += sign


@pytest.mark.parametrize("join_type", df.JoinType, ids=lambda each: each.name)
@pytest.mark.parametrize("combiner", df.TimestampCombiner, ids=lambda each: each.name)
def test_all_that_can_happen_to_two_values(
    join_type: df.JoinType, combiner: df.TimestampCombiner
) -> None:
    """In each window, one step after the other."""
    for window_fn in (df.FixedWindows(microseconds(100)), df.GlobalWindows()):
        for bundles in scripts():
            check_the_machine(bundles, join_type, combiner, df.Always(), window_fn)

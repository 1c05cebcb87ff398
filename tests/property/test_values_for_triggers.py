"""What a trigger that reads values is shown of records: their values alone, and none that is retracted."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.bundle import Bundle
from runners.core.partials.folding import Accumulation
from triggers.windowing_strategy import WindowingStrategy

RECORDS = st.lists(st.tuples(st.integers(), st.integers(0, 99), st.sampled_from([1, -1])))


@given(RECORDS, st.sampled_from(df.TimestampCombiner), st.booleans())
def test_a_trigger_sees_values_that_are_not_retracted(
    records: Sequence[tuple[int, int, int]], combiner: df.TimestampCombiner, is_retracted: bool
) -> None:
    """Neither their signs nor their event times, whichever the grouping folds with them."""
    strategy = WindowingStrategy(window_fn=df.FixedWindows(60), timestamp_combiner=combiner)
    accumulation = Accumulation(df.SumCombineFn(), strategy, is_retracted=is_retracted)
    bundle = Bundle(
        [("k", value) for value, _, _ in records],
        [at_us for _, at_us, _ in records],
        signs=[sign for _, _, sign in records] if is_retracted else None,
    )
    inputs = [value for _, value in accumulation.pairs(bundle)]

    shown = [value for value, _, sign in records if sign > 0 or not is_retracted]
    assert shown == accumulation.values(inputs)

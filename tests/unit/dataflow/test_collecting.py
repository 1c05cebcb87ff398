"""collect: what leads to a collection is run, and nothing else."""

from pathlib import Path

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner


def test_elements_are_collected_again_and_again_while_a_pipeline_is_built() -> None:
    p = df.Pipeline()
    numbers = p | df.Create([3, 1, 2])
    assert df.collect(numbers) == [3, 1, 2]
    squares = numbers | df.Map(lambda x: x * x)
    assert df.collect(squares) == [9, 1, 4] == df.collect(squares)
    assert df.collect(squares, DirectRunner(bundle_records=1)) == [9, 1, 4]
    assert df.collect(squares, "direct", bundle_records=1) == [9, 1, 4]


def test_other_branches_are_not_run(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    p = df.Pipeline()
    numbers = p | df.Create([1, 2])
    numbers | "touch" >> df.Map(lambda _: seen.touch())
    rows = numbers | df.Map(lambda n: {"n": n})
    rows | "touch behind" >> df.Map(lambda _: seen.touch())
    rows | df.WriteToPostgres("t", columns={"n": int})
    assert df.collect(rows) == [{"n": 1}, {"n": 2}]
    assert not seen.exists()
    result = p.run()
    assert seen.exists()
    assert len(result.read_table("t")) == 2


def test_branches_that_meet_and_tagged_outputs_are_collected() -> None:
    p = df.Pipeline()
    numbers = p | df.Create(range(4))
    even, odd = numbers | df.Partition(lambda n, _: n % 2, 2)
    assert df.collect(odd) == [1, 3]
    assert sorted(df.collect((even, odd) | df.Flatten())) == [0, 1, 2, 3]


def test_what_was_retracted_is_not_there() -> None:
    script = (
        TestStream()
        .add_elements([df.TimestampedValue(("a", 1), 1)])
        .advance_watermark_to(10)
        .add_elements([df.TimestampedValue(("a", 2), 2), df.TimestampedValue(("b", [3]), 2)])
        .advance_watermark_to_infinity()
    )
    sums = (
        df.Pipeline()
        | script
        | df.Map(lambda pair: (pair[0], pair[1] if isinstance(pair[1], int) else 3))
        | df.WindowInto(
            df.FixedWindows(10),
            trigger=df.AfterWatermark(late=df.AfterCount(1)),
            allowed_lateness=100,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
    )
    assert df.collect(sums) == [("a", 3), ("b", 3)]


def test_what_has_no_end_is_refused() -> None:
    ticks = df.Pipeline() | df.PeriodicImpulse(1)
    with pytest.raises(df.PipelineError, match="has no end, so its elements cannot be collected"):
        df.collect(ticks)

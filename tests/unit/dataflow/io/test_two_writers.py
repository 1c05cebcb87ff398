"""Two transforms that write to one table do so in one manner."""

import pytest

import dataflow as df
from dataflow.errors import PipelineError
from runners.direct import DirectRunner


@pytest.mark.parametrize("is_first", [True, False])
def test_one_that_takes_rows_back_and_one_that_replaces_them_are_refused(is_first: bool) -> None:
    pipeline = df.Pipeline(DirectRunner())
    pairs = pipeline | df.Create([("a", 1)])
    retracted = (
        pairs
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
    )
    rows = [
        each | f"row {number}" >> df.Map(lambda pair: {"k": pair[0], "n": pair[1]})
        for number, each in enumerate((pairs, retracted))
    ]
    first, second = rows if is_first else rows[::-1]
    columns = {"k": str, "n": int}
    first | "one" >> df.WriteToPostgres("t", columns=columns, key=["k"])

    with pytest.raises(
        PipelineError, match="write to the same table, and one of them retracts rows"
    ):
        second | "two" >> df.WriteToPostgres("t", columns=columns, key=["k"])

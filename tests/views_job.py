"""A stream that looks elements up in large side inputs, whose parts come slowly: a driver that tests may kill.

One has all its elements in one pane, one in several that accumulate, and the elements of one are retracted.

``python -m tests.views_job STORE``: the DSN.
"""

import sys
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner

JOB = "views"
#: Slow enough to be killed several times before the views are there.
RECORDS_PER_SECOND = 3_000
PAIRS, ELEMENTS = 30_000, 1_000
#: Of the side input whose elements are retracted once each.
REVISED = 10_000
COLUMNS = {"number": int, "found": str, "size": int, "revised": int}


def pair(number: int) -> tuple[str, str]:
    """A pair of the side inputs."""
    return f"key {number}", f"{number:0100}"


def row(number: int, by_key: Any, by_place: Any, revised: Any) -> dict[str, Any]:
    """What an element finds: the value of its key, how many pairs there are, and the value that was not retracted."""
    found = by_key[pair(number)[0]]
    size = len(by_key) + len(by_place) + len(revised)
    return {
        "number": number,
        "found": found,
        "size": size,
        "revised": revised[f"key {number % REVISED}"],
    }


def several_panes(elements: int, mode: df.AccumulationMode) -> df.WindowInto:
    """All in one window, which fires whenever so many have come."""
    return df.WindowInto(
        df.GlobalWindows(),
        trigger=df.AfterWatermark(early=df.AfterCount(elements)),
        accumulation_mode=mode,
    )


def main(store: str) -> None:
    """Run the job to its end."""
    runner = StreamingRunner(
        job=JOB,
        store=store,
        records_per_second=RECORDS_PER_SECOND,
        state_cache_bytes=1 << 20,
        show_progress=False,
    )
    p = df.Pipeline(runner)
    pairs = p | "pairs" >> df.Create(range(PAIRS)) | "pair" >> df.Map(pair)
    growing = pairs | "growing" >> several_panes(PAIRS // 4, df.AccumulationMode.ACCUMULATING)
    retracting = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    revised = (
        p
        | "twice" >> df.Create(range(2 * REVISED))
        | "revision" >> df.Map(lambda number: (f"key {number % REVISED}", number))
        | "each" >> several_panes(1, retracting)
        | "newest" >> df.CombinePerKey(max)
        | "revised" >> several_panes(REVISED // 2, retracting)
    )
    (
        p
        | "elements" >> df.Create(range(0, PAIRS, PAIRS // ELEMENTS))
        | df.Map(
            row,
            df.AsDict(pairs, shards=4),
            df.AsList(growing, shards=4),
            df.AsDict(revised, shards=4, retracts=False),
        )
        | df.WriteToPostgres("found", columns=COLUMNS)
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])

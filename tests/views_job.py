"""A stream that looks elements up in a large side input, whose parts come slowly: a driver that tests may kill.

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
COLUMNS = {"number": int, "found": str, "size": int}


def pair(number: int) -> tuple[str, str]:
    """A pair of the side inputs."""
    return f"key {number}", f"{number:0100}"


def row(number: int, by_key: Any, by_place: Any) -> dict[str, Any]:
    """What an element finds: the value of its key, and how many pairs there are."""
    found = by_key[pair(number)[0]]
    return {"number": number, "found": found, "size": len(by_key) + len(by_place)}


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
    (
        p
        | "elements" >> df.Create(range(0, PAIRS, PAIRS // ELEMENTS))
        | df.Map(row, df.AsDict(pairs, shards=4), df.AsList(pairs, shards=4))
        | df.WriteToPostgres("found", columns=COLUMNS)
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])

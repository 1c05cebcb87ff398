"""A stream of sums from requests to requests, that tests may kill: ``python -m tests.http_job SPOOL PORT URL STORE``.

Requests ``{"user": ..., "n": ...}`` become sums of users, that are emitted early and retracted, as requests with a
sign.
It runs until it is killed.
"""

import sys
from collections.abc import Iterable
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner


def total(group: tuple[str, Iterable[int]]) -> dict[str, Any]:
    numbers = list(group[1])
    return {"user": group[0], "count": len(numbers), "sum": sum(numbers)}


def main() -> None:
    """Run the job "sums"."""
    spool, port, url, store = sys.argv[1:]
    p = df.Pipeline(StreamingRunner(store=store, job="sums", show_progress=False))
    (
        p
        | df.ReceiveHttp(spool, port=int(port))
        | df.Map(lambda row: (row["user"], row["n"]))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterProcessingTime(0.1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.GroupByKey()
        | df.Map(total)
        | df.WriteToHttp(
            url,
            delivery="at-least-once",
            changelog="sign",
            lanes=2,
            key=lambda row: row["user"],
            timeout=5,
        )
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main()

"""A stream of sums from NATS to Redis, that tests may kill: ``python -m tests.nats_to_redis_job NATS REDIS STORE``.

Messages ``{"user": ..., "n": ...}`` of the stream ORDERS become sums of users, that are emitted early and retracted, as
entries with signs of the streams ``sums:0`` and ``sums:1``.  It runs until it is killed.
"""

import sys
from collections.abc import Iterable
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner

STREAM, SUMS, LANES = "ORDERS", "sums", 2


def total(group: tuple[str, Iterable[int]]) -> dict[str, Any]:
    numbers = list(group[1])
    return {"user": group[0], "count": f"{len(numbers)}", "sum": f"{sum(numbers)}"}


def main() -> None:
    """Run the job "sums"."""
    nats, redis, store = sys.argv[1:]
    p = df.Pipeline(StreamingRunner(store=store, job="sums", show_progress=False))
    (
        p
        | df.ReadFromNats(STREAM, url=nats)
        | df.Map(lambda row: (row["user"], row["n"]))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterProcessingTime(0.1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.GroupByKey()
        | df.Map(total)
        | df.WriteToRedis(
            SUMS, url=redis, lanes=LANES, changelog="sign", key=lambda row: row["user"]
        )
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main()

"""The stream of the soak: totals of users by windows that are emitted early and retracted, and counts in keyed state.

    python -m benchmarks.soak.job SETTINGS

SETTINGS is `Settings` as JSON.  Goes on where an earlier process of the same job ended, and ends with its source.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import dataflow as df
from benchmarks.peers.ours_pipelines import CountAndSum
from benchmarks.peers.ours_session import MASTER
from benchmarks.soak.jumping_clock import install
from benchmarks.soak.load import ChangingRate
from runners.streaming import StreamingRunner

JOB, TOTALS, HUNDREDS = "soak", "totals", "hundreds"
WINDOW_S = 10
#: A row of `HUNDREDS` for so many records of a user.
EVERY = 100

SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())


class Settings(NamedTuple):
    """Settings of a process of the job: its store, the load, and the file with the offset of its clock."""

    store: str
    start_us: int
    rate: int
    keys: int
    seconds: int
    clock: str

    @property
    def source(self) -> ChangingRate:
        """The load."""
        return ChangingRate(
            start_us=self.start_us, rate=self.rate, keys=self.keys, seconds=self.seconds
        )


class CountHundreds(df.DoFn):
    """A row for every so many records of a user."""

    requires_time_sorted_input = False

    def __init__(self, clock: str) -> None:
        self._clock = clock

    def setup(self) -> None:
        """Have the worker's clock jump."""
        install(self._clock)

    def process(
        self, element: tuple[int, int], seen: Any = df.DoFn.StateParam(SEEN)
    ) -> Iterator[dict[str, int]]:
        """Count the record."""
        seen.add(1)
        if (count := seen.read()) % EVERY == 0:
            yield {"user_id": element[0], "count": count}


def row(
    total: tuple[int, tuple[int, int]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, int]:
    """A row of `TOTALS`."""
    user, (count, amount) = total
    return {"user_id": user, "start_us": window.start_us, "count": count, "sum": amount}


def build(pipeline: df.Pipeline, settings: Settings) -> None:
    """The whole pipeline."""
    read = pipeline | "read" >> df.Read(settings.source)
    (
        read
        | "hundreds" >> df.ParDo(CountHundreds(settings.clock))
        | df.WriteToPostgres(HUNDREDS, columns={"user_id": int, "count": int})
    )
    (
        read
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(WINDOW_S),
            trigger=df.AfterWatermark(early=df.AfterProcessingTime(2)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "total" >> df.CombinePerKey(CountAndSum())
        | "row" >> df.Map(row)
        | df.WriteToPostgres(
            TOTALS,
            columns={"user_id": int, "start_us": int, "count": int, "sum": int},
            key=["user_id", "start_us"],
        )
    )


def main() -> None:
    """Run to the end of the load."""
    settings = Settings(**json.loads(sys.argv[1]))
    install(settings.clock)
    runner = StreamingRunner(job=JOB, store=settings.store, master=MASTER, show_progress=False)
    pipeline = df.Pipeline(runner)
    build(pipeline, settings)
    pipeline.run().wait_until_finish()


if __name__ == "__main__":
    main()

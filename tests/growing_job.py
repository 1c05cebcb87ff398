"""A job whose input gets files and loses them, a split each: ``python -m tests.growing_job FOLDER STORE JOB``.

Runs until it is drained or killed.  A line of a file is a number and its second; table ``seen (number)``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner

SECOND_US = 1_000_000
SEEN = {"number": int}


class Parts(df.Source):
    """The files of a folder, which grow, come and go."""

    is_bounded = False
    discover_every_ms = 200

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def splits(self, desired: int) -> Sequence[str]:
        return sorted(path.name for path in Path(self.folder).glob("*.part"))

    def discover(self, known: Sequence[Any]) -> df.SplitChanges:
        there = self.splits(1)
        return df.SplitChanges(
            added=[each for each in there if each not in known],
            removed=[each for each in known if each not in there],
        )

    def open(self, split: str, position: int | None, *, fence: int) -> df.SourceReader:
        return _PartReader(Path(self.folder, split), position or 0)


class _PartReader(df.SourceReader):
    def __init__(self, path: Path, position: int) -> None:
        self._path, self._next = path, position
        self._watermark_us = 0

    def read(self, max_records: int) -> df.SourceBatch:
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        found = [line.split() for line in lines[self._next : self._next + max_records]]
        self._next += len(found)
        times_us = [int(second) * SECOND_US for _, second in found]
        self._watermark_us = max([self._watermark_us, *times_us])
        return df.SourceBatch(
            values=[int(number) for number, _ in found],
            timestamps_us=times_us,
            position=self._next,
            watermark_us=self._watermark_us,
            status=df.SplitStatus.ACTIVE if found else df.SplitStatus.IDLE,
            backlog=df.Backlog(records=max(0, len(lines) - self._next)),
        )


def build(pipeline: df.Pipeline, folder: str) -> None:
    (
        pipeline
        | df.Read(Parts(folder))
        | df.Map(lambda number: (number % 5, number))
        | df.WindowInto(
            df.FixedWindows("1 minute"),
            trigger=df.Repeatedly(df.AfterProcessingTime(0.05)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness="1 day",
        )
        | df.GroupByKey()
        | df.FlatMap(lambda pair: [{"number": number} for number in pair[1]])
        | df.WriteToPostgres("seen", columns=SEEN)
    )


def main() -> None:
    folder, store, job = sys.argv[1:]
    pipeline = df.Pipeline(StreamingRunner(store=store, job=job, show_progress=False))
    build(pipeline, folder)
    pipeline.run().wait_until_finish()


if __name__ == "__main__":
    main()

"""The readers of a source are notified of what is durable on every runner, and a backfill leaves that to its stream."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.backfill_then_live import BackfillThenLiveRunner
from tests.conformance.conftest import MakeRunner

RECORDS = 40


@attrs.frozen
class Queue(Source[int]):
    """Two splits of numbers; a file has the positions that were acknowledged, a line each."""

    file: Path
    acknowledges = True

    def splits(self, desired: int) -> Sequence[int]:
        return [0, 1]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _QueueReader(self, split, position or 0)


class _QueueReader(SourceReader):
    def __init__(self, queue: Queue, split: int, position: int) -> None:
        self._queue, self._split, self._next = queue, split, position
        self._opened_at = position

    def read(self, max_records: int) -> SourceBatch:
        values = list(range(self._next, min(RECORDS, self._next + max_records, self._next + 7)))
        self._next += len(values)
        return SourceBatch(
            values=[2 * value + self._split for value in values],
            timestamps_us=[0 for _ in values],
            position=self._next,
            watermark_us=0,
            status=SplitStatus.FINISHED if self._next == RECORDS else SplitStatus.ACTIVE,
        )

    def committed(self, position: int) -> None:
        assert position <= self._next
        with self._queue.file.open("a", encoding="utf-8") as file:
            file.write(f"{self._split} {position}\n")


def acknowledged(file: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        split, position = map(int, line.split())
        found.setdefault(split, []).append(position)
    return found


def build(p: df.Pipeline, file: Path, failing: Path | None = None) -> None:
    def checked(pair: tuple[int, int]) -> tuple[int, int]:
        if failing is not None and failing.exists():
            raise ValueError("not yet")
        return pair

    sums = p | df.Read(Queue(file)) | df.WithKeys(lambda n: n % 3) | df.CombinePerKey(sum)
    rows = sums | "check" >> df.Map(checked) | df.MapTuple(lambda key, total: {"total": total})
    rows | df.WriteToPostgres("sums", columns={"total": int})


def test_readers_are_notified_up_to_the_end(make_runner: MakeRunner, tmp_path: Path) -> None:
    file = tmp_path / "acknowledged"
    p = df.Pipeline(make_runner())
    build(p, file)
    result = p.run()
    result.wait_until_finish()

    assert sum(row["total"] for row in result.read_table("sums")) == sum(range(2 * RECORDS))
    found = acknowledged(file)
    assert {split: positions[-1] for split, positions in found.items()} == {0: 40, 1: 40}
    assert all(positions == sorted(positions) for positions in found.values())


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
def test_a_batch_notifies_nobody_before_all_of_it_is_durable(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """The splits have been read to their ends when the grouping fails."""
    file, failing = tmp_path / "acknowledged", tmp_path / "failing"
    file.touch()
    failing.touch()
    options: Any = {"job": "job", "store": store_dsn, "master": spark_master}

    def run() -> None:
        p = df.Pipeline("batch", **options, partitions=2, show_progress=False)
        build(p, file, failing)
        p.run().wait_until_finish()

    with pytest.raises(df.DataflowError, match="not yet"):
        run()
    assert acknowledged(file) == {}

    failing.unlink()
    run()
    assert acknowledged(file) == {0: [40], 1: [40]}


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
def test_the_stream_behind_a_backfill_notifies_of_what_that_has_read(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    file = tmp_path / "acknowledged"
    runner = BackfillThenLiveRunner(
        job="job", store=store_dsn, master=spark_master, show_progress=False
    )
    p = df.Pipeline(runner)
    build(p, file)
    p.run().wait_until_finish()

    assert {split: positions[-1] for split, positions in acknowledged(file).items()} == {
        0: 40,
        1: 40,
    }

"""What the sources of the SDK know of what is still to be read."""

import gzip
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import CsvInjector, JsonLinesWatcher
from dataflow.impulse import ImpulseSource
from dataflow.io.arrival import ArrivalTime, ArrivalTimeSource
from dataflow.io.csv_files import CsvSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.memory import MemorySource
from dataflow.io.periodic import PeriodicSource
from dataflow.source import open_split
from windowing.timestamps import US_PER_SECOND


def backlogs(source: df.Source, sizes: list[int], position: Any = None) -> list[df.Backlog | None]:
    """Read so many records of the only split at a time, and return the backlog behind each batch."""
    (split,) = source.splits(1)
    with closing(open_split(source, split, position)) as reader:
        return [reader.read(size).backlog for size in sizes]


def write_whole(path: Path, text: str) -> None:
    """Write a file long ago: what has just been written may not be whole yet."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, (0, 0))


def records(*left: int) -> list[df.Backlog]:
    return [df.Backlog(records=each) for each in left]


def size_bytes(*left: int) -> list[df.Backlog]:
    return [df.Backlog(size_bytes=each) for each in left]


def test_memory_knows_how_many_records_are_left() -> None:
    assert backlogs(MemorySource(list(range(10))), [3, 6, 6]) == records(7, 1, 0)
    assert backlogs(MemorySource(list(range(10))), [3], position=5) == records(2)
    assert backlogs(ImpulseSource(), [1, 1]) == records(0, 0)


def test_what_gives_records_other_times_keeps_the_backlog() -> None:
    source = ArrivalTimeSource(MemorySource([1, 2, 3]), ArrivalTime(lambda: 5))
    assert backlogs(source, [1, 1, 1]) == records(2, 1, 0)


@pytest.mark.parametrize("kind", [CsvSource, JsonLinesSource])
def test_a_file_knows_how_many_bytes_are_left(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    lines = ["111\n", "22222\n", "3\n", "4444\n"]
    head = "number\n" if kind is CsvSource else ""
    path.write_text(head + "".join(lines), encoding="utf-8")

    assert backlogs(kind(pattern=str(path)), [1, 1, 1, 1, 1]) == size_bytes(13, 7, 5, 0, 0)


def test_a_folder_knows_how_many_bytes_are_there(tmp_path: Path) -> None:
    """The files that wait count too, and so do those that come later."""
    for name in ("a", "b", "c"):
        write_whole(tmp_path / f"{name}.jsonl", "1\n22\n333\n")
    watcher = JsonLinesWatcher(tmp_path / "*.jsonl", event_time=float, max_disorder=1_000, poll=0)

    assert backlogs(watcher, [1, 1, 1, 1]) == size_bytes(25, 22, 18, 16)
    (split,) = watcher.splits(1)
    with closing(open_split(watcher, split, None)) as reader:
        for _ in range(9):
            position = reader.read(1).position
        quiet = reader.read(1)
        assert (quiet.status, quiet.backlog) == (df.SplitStatus.IDLE, df.Backlog(size_bytes=0))
        write_whole(tmp_path / "d.jsonl", "1\n22\n")
        assert reader.read(1).backlog == df.Backlog(size_bytes=3)
    with closing(open_split(watcher, split, position)) as reader:
        assert reader.read(1).backlog == df.Backlog(size_bytes=3)


def test_an_injector_knows_how_many_bytes_of_its_file_are_left(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("at\n1\n22\n", encoding="utf-8")
    injector = CsvInjector(path, event_time=lambda row: float(row["at"]))
    assert backlogs(injector, [1, 1]) == size_bytes(3, 0)


def test_instants_that_have_come_and_are_not_read_are_behind() -> None:
    """The oldest of them has been there for as long as the clock is past it."""
    clock = ArrivalTime(lambda: 5 * US_PER_SECOND + 7)
    found = backlogs(PeriodicSource(0, None, US_PER_SECOND, clock), [1, 4, 1, 1])

    assert found == [
        df.Backlog(records=5, age_us=4 * US_PER_SECOND + 7),
        df.Backlog(records=1, age_us=7),
        df.Backlog(records=0, age_us=0),
        df.Backlog(records=0, age_us=0),
    ]
    whole = PeriodicSource(0, 3 * US_PER_SECOND, US_PER_SECOND, clock).repeatable()
    assert backlogs(whole, [1, 2]) == [df.Backlog(records=2), df.Backlog(records=0, age_us=0)]


def test_of_a_packed_file_it_is_known_when_nothing_is_left(tmp_path: Path) -> None:
    """Its bytes are not those of its records; a file that waits counts as it is."""
    packed = gzip.compress(b"1\n22\n" * 50_000)
    for name in ("a", "b"):
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(packed)
        os.utime(path, (0, 0))
    found = backlogs(JsonLinesSource(pattern=str(tmp_path / "a.jsonl.gz")), [1, 100_000, 1])
    assert [found[0], found[-1]] == [None, df.Backlog(size_bytes=0)]
    watcher = JsonLinesWatcher(
        tmp_path / "*.jsonl.gz", event_time=float, max_disorder=1_000, poll=0
    )
    (split,) = watcher.splits(1)
    with closing(open_split(watcher, split, None)) as reader:
        behind = []
        while (batch := reader.read(1_000_000)).status is not df.SplitStatus.IDLE:
            behind.append(batch.backlog)
    assert df.Backlog(size_bytes=len(packed)) in behind
    assert (behind[-1], batch.backlog) == (df.Backlog(size_bytes=0),) * 2

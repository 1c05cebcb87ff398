"""Watching a folder: what it takes, what it reports of itself, and what it refuses."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import CsvWatcher, JsonLinesWatcher
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from runners.direct import DirectRunner
from windowing.timestamps import MIN_TIMESTAMP_US

US = 1_000_000


def time_of(record: dict[str, float]) -> float:
    return record["at"]


def hour_of(path: Path) -> float:
    return 3600.0 * int(path.stem)


def write(path: Path, *times: float) -> None:
    hidden = path.parent / f".{path.name}"
    hidden.write_text("".join(f"{json.dumps({'at': each})}\n" for each in times))
    hidden.rename(path)


def watcher(folder: Path, **options: Any) -> JsonLinesWatcher:
    options = {"event_time": time_of, "max_disorder": 10, "poll": 0, **options}
    return JsonLinesWatcher(folder / "*.jsonl", **options)


def described(batch: SourceBatch) -> tuple[list[float], SplitStatus, int]:
    """Event times, status and watermark, in seconds."""
    return [each / US for each in batch.timestamps_us], batch.status, batch.watermark_us // US


Opened = Callable[..., SourceReader]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens the only share of a folder, and closes it in the end."""
    with ExitStack() as stack:

        def open_share(source: df.Source, position: Any = None) -> SourceReader:
            reader = source.open(0, position, fence=0)
            stack.callback(reader.close)
            return reader

        yield open_share


NOTHING = MIN_TIMESTAMP_US // US


def test_it_is_idle_between_files_and_never_ends(tmp_path: Path, opened: Opened) -> None:
    """The watermark follows at a distance, and stays where it was when there is nothing."""
    reader = opened(watcher(tmp_path))
    assert described(reader.read(9)) == ([], SplitStatus.IDLE, NOTHING)
    write(tmp_path / "b.jsonl", 100, 95)
    assert described(reader.read(9)) == ([100, 95], SplitStatus.ACTIVE, 90)
    assert described(reader.read(9)) == ([], SplitStatus.IDLE, 90)
    write(tmp_path / "a.jsonl", 110)
    assert described(reader.read(9)) == ([110], SplitStatus.ACTIVE, 100)
    assert described(reader.read(9)) == ([], SplitStatus.IDLE, 100)
    assert not watcher(tmp_path).is_bounded


def test_files_that_are_there_hold_the_watermark_at_their_beginnings(
    tmp_path: Path, opened: Opened
) -> None:
    """Figure 10: the first of those that are not read to their end; then the latest that was."""
    for hour in (5, 2, 7):
        write(tmp_path / f"{hour}.jsonl", 3600 * hour + 30, 3600 * hour + 20)
    reader = opened(watcher(tmp_path, created=hour_of, max_disorder=None))

    assert [described(reader.read(1))[2] / 3600 for _ in range(7)] == [2, 5, 5, 7, 7, 7, 7]


def test_within_a_file_it_may_follow_the_records(tmp_path: Path, opened: Opened) -> None:
    write(tmp_path / "1.jsonl", 3605, 3700)
    write(tmp_path / "2.jsonl", 7205)
    reader = opened(watcher(tmp_path, created=hour_of))

    assert [described(reader.read(1))[2] for _ in range(3)] == [3600, 7200, 7200]


def test_it_ends_with_a_marker_when_all_are_read(tmp_path: Path, opened: Opened) -> None:
    source = watcher(tmp_path, until="done.jsonl")
    reader = opened(source)
    assert source.is_bounded
    write(tmp_path / "a.jsonl", 1)
    write(tmp_path / "done.jsonl")
    write(tmp_path / "b.jsonl", 2)

    assert [described(reader.read(9))[:2] for _ in range(3)] == [
        ([1], SplitStatus.ACTIVE),
        ([2], SplitStatus.ACTIVE),
        ([], SplitStatus.FINISHED),
    ]


def test_only_files_with_such_names_are_read(tmp_path: Path, opened: Opened) -> None:
    """Not those that are hidden, as is what is being written; nor folders, nor others."""
    for name in (".hidden.jsonl", "other.txt"):
        (tmp_path / name).write_text('{"at": 1}\n')
    (tmp_path / "folder.jsonl").mkdir()
    write(tmp_path / "this.jsonl", 7)
    reader = opened(watcher(tmp_path))

    assert described(reader.read(9))[0] == [7]
    assert described(reader.read(9))[1] is SplitStatus.IDLE


def test_it_looks_only_now_and_then(tmp_path: Path, opened: Opened) -> None:
    """But a clock that has gone back does not stop it."""
    now = [1000]
    reader = opened(watcher(tmp_path, poll=60, now_us=lambda: now[0] * US))
    reader.read(9)
    write(tmp_path / "a.jsonl", 1)
    seen = []
    for now[0] in (1059, 1060, 1061):
        seen.append(described(reader.read(9))[0])
    write(tmp_path / "b.jsonl", 2)
    now[0] = 900
    seen.append(described(reader.read(9))[0])

    assert seen == [[], [1], [], [2]]


def test_a_file_that_grows_after_its_end_is_an_error(tmp_path: Path, opened: Opened) -> None:
    """What came later would be lost in silence."""
    write(tmp_path / "a.jsonl", 1)
    reader = opened(watcher(tmp_path))
    reader.read(9)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"at": 2}\n')

    with pytest.raises(df.InputError, match="has grown after it was read") as caught:
        reader.read(9)
    assert "settle" in caught.value.hint


def test_a_file_that_is_gone_too_early_is_an_error(tmp_path: Path, opened: Opened) -> None:
    write(tmp_path / "a.jsonl", 1, 2)
    source = watcher(tmp_path)
    reader = opened(source)
    position = reader.read(1).position
    reader.close()
    (tmp_path / "a.jsonl").unlink()

    with pytest.raises(df.InputError, match="was deleted before it was read to its end"):
        opened(source, position).read(1)


def test_files_that_are_read_may_be_deleted(tmp_path: Path, opened: Opened) -> None:
    """Their names stay known."""
    source = watcher(tmp_path)
    write(tmp_path / "a.jsonl", 1)
    reader = opened(source)
    position = reader.read(9).position
    (tmp_path / "a.jsonl").unlink()
    assert described(reader.read(9))[1] is SplitStatus.IDLE
    write(tmp_path / "a.jsonl", 1)
    again = opened(source, position)

    assert described(again.read(9))[:2] == ([], SplitStatus.IDLE)


def test_a_header_that_is_half_there_waits(tmp_path: Path, opened: Opened) -> None:
    source = CsvWatcher(
        tmp_path / "*.csv", event_time=lambda row: float(row["at"]), created=hour_of, settle=3600
    )
    path = tmp_path / "1.csv"
    path.write_text("at,te")
    reader = opened(source)
    assert described(reader.read(9)) == ([], SplitStatus.ACTIVE, 3600)
    path.write_text("at,text\n3601,a\n36")

    reader = opened(source)
    assert reader.read(9).values == [{"at": "3601", "text": "a"}]


def test_a_packed_file_that_grows_is_read_when_it_is_complete(
    tmp_path: Path, opened: Opened
) -> None:
    """Until then it holds the watermark; and one that is changed after that is noticed by its size in the folder."""
    path, packed = tmp_path / "1.jsonl.gz", gzip.compress(b'{"at": 3601}\n')
    path.write_bytes(packed[:-4])
    now_us = [path.stat().st_mtime_ns // 1_000]
    source = JsonLinesWatcher(
        tmp_path / "*.gz",
        event_time=time_of,
        created=lambda _: 3600,
        settle=60,
        poll=0,
        now_us=lambda: now_us[0],
    )
    reader = opened(source)
    assert described(reader.read(9)) == ([], SplitStatus.ACTIVE, 3600)
    path.write_bytes(packed)
    now_us[0] = path.stat().st_mtime_ns // 1_000 + 60 * US
    batches = [reader.read(9) for _ in range(3)]
    assert [3601] == [each / US for batch in batches for each in batch.timestamps_us]
    assert batches[-1].status is SplitStatus.IDLE
    path.write_bytes(packed + packed)
    with pytest.raises(df.InputError, match="has grown after it was read"):
        reader.read(9)


@pytest.mark.parametrize("name", ["1.csv.bz2", "1.csv.gz"])
def test_a_file_that_cannot_be_unpacked_is_set_aside(
    tmp_path: Path, opened: Opened, name: str
) -> None:
    """In one piece; the next file is read."""
    (tmp_path / name).write_bytes(b"at\n5\n")
    (tmp_path / "2.csv").write_bytes(b"at\n7\n")
    source = CsvWatcher(
        tmp_path / "*.csv*", event_time=lambda row: float(row["at"]), max_disorder=0, poll=0
    )
    reader = opened(source)
    batches = [reader.read(9) for _ in range(4)]

    (aside,) = [each for batch in batches for each in batch.set_aside]
    assert aside.origin is not None
    assert str(tmp_path / name) == aside.origin.path
    assert [{"at": "7"}] == [row for batch in batches for row in batch.values]


def test_only_the_last_file_ends_the_input_of_a_batch(tmp_path: Path, opened: Opened) -> None:
    """Until then it waits, for which a batch refuses it, and a backfill leaves the rest to the stream."""
    write(tmp_path / "1.jsonl", 3600)
    for source in (watcher(tmp_path, until="end"), watcher(tmp_path)):
        reader = opened(source.repeatable())
        assert [len(reader.read(9).values) for _ in range(3)] == [1, 0, 0]
        assert reader.read(9).status is SplitStatus.IDLE
    (tmp_path / "end").touch()
    reader = opened(watcher(tmp_path, until="end").repeatable())
    assert [reader.read(9).status for _ in range(3)][-1] is SplitStatus.FINISHED


def test_in_a_pipeline_files_come_while_it_runs(tmp_path: Path) -> None:
    """The first one is there; each makes the next."""
    write(tmp_path / "1.jsonl", 3600)
    sums: list[Any] = []

    def make_next(record: dict[str, float]) -> tuple[str, int]:
        hour = round(record["at"] / 3600)
        if hour < 4:
            write(tmp_path / f"{hour + 1}.jsonl", 3600 * (hour + 1))
        else:
            (tmp_path / "end").touch()
        return "all", hour

    with df.Pipeline(DirectRunner()) as p:
        (
            p
            | df.Read(watcher(tmp_path, created=hour_of, until="end"))
            | df.Map(make_next)
            | df.WindowInto(df.FixedWindows(7200))
            | df.CombinePerKey(sum)
            | df.Map(sums.append)
        )

    assert sums == [("all", 1), ("all", 2 + 3), ("all", 4)]


@pytest.mark.parametrize(
    ("pattern", "options", "refusal"),
    [
        ("*.jsonl", {"max_disorder": None}, "how far event time has come"),
        ("*.jsonl", {"max_disorder": -1}, "negative duration"),
        ("*.jsonl", {"settle": -1}, "negative duration"),
        ("*.jsonl", {"event_time": "at"}, "needs a function of a record"),
        ("*.jsonl", {"shares": 0}, "into 0 shares"),
        ("*/*.jsonl", {}, "watches one folder"),
    ],
)
def test_what_is_refused_when_it_is_made(
    pattern: str, options: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(df.PipelineError, match=refusal) as caught:
        JsonLinesWatcher(pattern, **{"event_time": time_of, "max_disorder": 1, **options})
    assert "JsonLinesWatcher" in caught.value.fact


def test_a_folder_that_is_not_there_is_found_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(df.InputError, match="there is no folder"):
        watcher(tmp_path / "inbox").check()


def test_a_beginning_that_cannot_be_found_names_the_file(tmp_path: Path, opened: Opened) -> None:
    write(tmp_path / "monday.jsonl", 1)
    reader = opened(watcher(tmp_path, created=hour_of))
    with pytest.raises(df.InputError, match=r"not known when .*monday.jsonl begins"):
        reader.read(1)

"""Files that appear while a folder is watched are read once, in one order, wherever reading is taken up again."""

import csv
import io
import json
import os
import pickle
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.computations import CsvWatcher, JsonLinesWatcher
from dataflow.computations.file_watcher import FileWatcher
from dataflow.io import csv_files, text_files, whole_lines
from dataflow.source import SplitStatus
from windowing.timestamps import MIN_TIMESTAMP_US

US = 1_000_000
UNCHANGED, POLL = 10, 1


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the ends of records in tiny steps."""
    for module in (text_files, csv_files):
        monkeypatch.setattr(module, "PIECE_BYTES", 3)
    monkeypatch.setattr(whole_lines, "READ_BYTES", 2)


def time_of(record: Any) -> float:
    return float(record["at"])


def hour_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def csv_text(records: list[tuple[int, str]], line_end: str = "\r\n") -> str:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=line_end, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([("at", 'the "text"\nitself'), *records])
    return buffer.getvalue()


def json_text(records: list[tuple[int, str]], line_end: str = "\n") -> str:
    return "".join(json.dumps({"at": at, "text": text}) + line_end for at, text in records)


FORMATS: list[tuple[type[FileWatcher], Callable[[list[tuple[int, str]]], str]]] = [
    (CsvWatcher, csv_text),
    (CsvWatcher, partial(csv_text, line_end="\r")),
    (JsonLinesWatcher, json_text),
    (JsonLinesWatcher, partial(json_text, line_end="\r")),
]

TEXTS = st.text(st.sampled_from('a,"\n\ré😀'), max_size=4)
#: A file for an hour: records with seconds of that hour, and whether the last line ends.
FILES = st.dictionaries(
    st.integers(0, 40),
    st.tuples(st.lists(st.tuples(st.integers(0, 9), TEXTS), max_size=5), st.booleans()),
    max_size=6,
)


@attrs.define
class Folder:
    """A folder on a clock of its own, and somebody who reads it and sometimes dies."""

    path: Path
    watcher: FileWatcher
    share: Any = 0
    now: int = 1000
    position: Any = None
    watermark_us: int = MIN_TIMESTAMP_US
    #: Times and texts that were committed.
    read: list[tuple[int, str]] = attrs.field(factory=list)
    reader: Any = None

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def write(self, name: str, data: bytes) -> None:
        hidden = self.path / f".{name}"
        hidden.write_bytes(data)
        os.utime(hidden, (self.now, self.now))
        hidden.rename(self.path / name)

    def append(self, name: str, data: bytes) -> None:
        with (self.path / name).open("ab") as file:
            file.write(data)
        os.utime(self.path / name, (self.now, self.now))

    def step(self, records_max: int, *, dies: bool) -> SplitStatus:
        """Read and commit, or die before the commit."""
        if self.reader is None:
            self.reader = self.watcher.open(
                self.share, pickle.loads(pickle.dumps(self.position)), fence=0
            )
        batch = self.reader.read(records_max)
        if dies:
            self.reader.close()
            self.reader = None
            return SplitStatus.ACTIVE
        assert len(batch.values) == len(batch.timestamps_us) <= records_max
        for value, at_us in zip(batch.values, batch.timestamps_us, strict=True):
            at, text = value.values()
            assert at_us == int(at) * US
            assert at_us >= self.watermark_us, "a record is not before the watermark"
            self.read.append((int(at), text))
        if batch.values or batch.watermark_us > self.watermark_us:
            self.position = batch.position
        self.watermark_us = max(self.watermark_us, batch.watermark_us)
        status: SplitStatus = batch.status
        return status


#: How many records to read, whether to die before they are committed, and seconds that pass.
READS = st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 3)), max_size=12)


def watched(
    tmp_path: Path, clock: Callable[[], int], kind: type[FileWatcher], settle: int
) -> FileWatcher:
    return kind(
        tmp_path / "hour-*.log",
        event_time=time_of,
        created=lambda path: 3600 * hour_of(path),
        until="end",
        settle=settle,
        poll=POLL,
        now_us=clock,
    )


@pytest.mark.parametrize(("kind", "text_of"), FORMATS)
@given(files=FILES, reads=READS, data=st.data())
def test_each_record_is_read_once_wherever_it_is_taken_up_again(
    tmp_path_factory: pytest.TempPathFactory,
    kind: type[FileWatcher],
    text_of: Callable[[list[tuple[int, str]]], str],
    files: dict[int, tuple[list[tuple[int, str]], bool]],
    reads: list[tuple[int, bool, int]],
    data: st.DataObject,
) -> None:
    """Files come in order and are whole; nothing is late, and the order is that of their beginnings."""
    path = tmp_path_factory.mktemp("watched")
    expected, hours = [], sorted(files)
    with closing(Folder(path, watched(path, lambda: folder.now * US, kind, 0))) as folder:
        for records_max, dies, seconds in reads:
            has_next: bool = data.draw(st.booleans())
            if hours and has_next:
                write(folder, hours.pop(0), files, text_of)
            folder.step(records_max, dies=dies)
            folder.now += seconds
        for hour in hours:
            write(folder, hour, files, text_of)
        (path / "end").touch()
        while folder.step(3, dies=False) is not SplitStatus.FINISHED:
            folder.now += 1
        for hour in sorted(files):
            expected += [(3600 * hour + second, text) for second, text in files[hour][0]]

        assert expected == folder.read
        assert folder.step(3, dies=False) is SplitStatus.FINISHED


def write(folder: Folder, hour: int, files: Any, text_of: Callable[[Any], str]) -> None:
    records, ends = files[hour]
    text = text_of([(3600 * hour + second, text) for second, text in records])
    folder.write(f"hour-{hour}.log", (text if ends else text.rstrip("\r\n")).encode())


@pytest.mark.parametrize(("kind", "text_of"), FORMATS)
@given(
    records=st.lists(st.tuples(st.integers(3600, 3609), TEXTS), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    reads=READS,
)
def test_a_file_that_grows_is_read_by_its_records(
    tmp_path_factory: pytest.TempPathFactory,
    kind: type[FileWatcher],
    text_of: Callable[[list[tuple[int, str]]], str],
    records: list[tuple[int, str]],
    cuts: list[int],
    reads: list[tuple[int, bool, int]],
) -> None:
    """However it is cut, also within a character; it holds the watermark until it was unchanged for long enough."""
    path = tmp_path_factory.mktemp("growing")
    with closing(Folder(path, watched(path, lambda: folder.now * US, kind, UNCHANGED))) as folder:
        whole = text_of(records).encode()
        bounds = [0, *sorted(cut % len(whole) for cut in cuts), len(whole)]
        turns = iter(reads)
        for start, end in pairwise(bounds):
            folder.append("hour-1.log", whole[start:end])
            records_max, dies, _ = next(turns, (1, False, 0))
            folder.now += POLL
            assert folder.step(records_max, dies=dies) is SplitStatus.ACTIVE
            assert folder.watermark_us <= 3600 * US
        (path / "end").touch()
        for _ in range(UNCHANGED - 1):
            assert folder.step(100, dies=False) is not SplitStatus.FINISHED
            folder.now += POLL
        folder.now += UNCHANGED
        while folder.step(3, dies=False) is not SplitStatus.FINISHED:
            folder.now += 1

        assert records == folder.read


@given(
    files=st.dictionaries(
        st.text(st.sampled_from("abc01"), min_size=1, max_size=4),
        st.lists(st.integers(0, 100), max_size=4),
        max_size=8,
    ),
    shares=st.integers(1, 3),
    reads=READS,
)
def test_every_file_falls_to_one_share_and_the_order_is_the_same_again(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, list[int]],
    shares: int,
    reads: list[tuple[int, bool, int]],
) -> None:
    """By name, where nothing shows when files begin; the watermark is an estimate."""
    path = tmp_path_factory.mktemp("shared")
    watcher = JsonLinesWatcher(
        path / "*", event_time=time_of, max_disorder=100, until="end", shares=shares, poll=0
    )
    for name, times in files.items():
        (path / name).write_text(json_text([(at, name) for at in times]))
    (path / "end").touch()
    shares_of: dict[str, set[Any]] = {}
    read: list[tuple[int, str]] = []
    for share in watcher.splits(7):
        folder = Folder(path, watcher, share=share)
        turns, status = iter(reads), SplitStatus.ACTIVE
        while status is not SplitStatus.FINISHED:
            records_max, dies, _ = next(turns, (2, False, 0))
            status = folder.step(records_max, dies=dies)
        mine = sorted({name for _, name in folder.read})
        assert [(at, name) for name in mine for at in files[name]] == folder.read
        if folder.read:
            assert folder.watermark_us <= (max(at for at, _ in folder.read) - 100) * US
        for name in mine:
            shares_of.setdefault(name, set()).add(share)
        read += folder.read

    assert sorted((at, name) for name, times in files.items() for at in times) == sorted(read)
    assert all(len(each) == 1 for each in shares_of.values())

"""Files of every format that are watched, or that elements name, on this machine and in S3; and Avro."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.computations import WatchFiles
from dataflow.computations.name_set import NameSet
from dataflow.computations.watched_files import WatchedPosition, _WatchedReader
from dataflow.errors import InputError, PipelineError
from dataflow.files.formats import avro_schema
from dataflow.files.places import place_of
from dataflow.files.read_all import ReadAllFromFiles
from dataflow.files.writes import WriteToFiles
from dataflow.io import avro_files
from dataflow.io.avro_files import _AvroReader
from dataflow.io.files import ReadFromFiles
from dataflow.source import SourceReader, SplitStatus
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError

COLUMNS = {"n": int, "name": str}


class Row(NamedTuple):
    n: int
    name: str


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"n": n, "name": f"name {n}"} for n in range(start, stop)]


Write = Callable[[str], WriteToFiles]
Read = Callable[[str], ReadFromFiles[Any]]
#: How files are written, read, and read where elements name them, and the number in an element.
FORMATS: dict[str, tuple[Write, Read, ReadAllFromFiles[Any], Callable[[Any], int]]] = {
    "text": (
        df.WriteToText,
        df.ReadFromText,
        df.ReadAllFromText(),
        lambda line: int(line.removeprefix("name ")),
    ),
    "csv": (
        lambda path: df.WriteToCsv(path, columns=list(COLUMNS), compression="gzip"),
        df.ReadFromCsv,
        df.ReadAllFromCsv(),
        lambda row: int(row["n"]),
    ),
    "json": (
        lambda path: df.WriteToJsonLines(path, compression="zstd"),
        lambda path: df.ReadFromJsonLines(path, rows=Row),
        df.ReadAllFromJsonLines(rows=Row),
        lambda row: row.n,
    ),
    "parquet": (
        lambda path: df.WriteToParquet(path, columns=COLUMNS),
        lambda path: df.ReadFromParquet(path, rows=Row),
        df.ReadAllFromParquet(columns=["n"]),
        lambda row: row["n"] if isinstance(row, dict) else row.n,
    ),
    "avro": (
        lambda path: df.WriteToAvro(path, columns=COLUMNS),
        lambda path: df.ReadFromAvro(path, rows=Row),
        df.ReadAllFromAvro(),
        lambda row: row["n"] if isinstance(row, dict) else row.n,
    ),
}
formats = pytest.mark.parametrize("name", FORMATS)


def put(folder: str, name: str, file: str, start: int, stop: int) -> str:
    """Write a file, under its own name at once."""
    file_format = FORMATS[name][0](folder).file_format
    made = [
        file_format.row_of(each["name"] if name == "text" else each) for each in rows(start, stop)
    ]
    content = file_format.encode(
        [tuple(each[column] for column in file_format.columns) for each in made], [1] * len(made)
    )
    path = f"{file}{file_format.suffix}"
    place = place_of(folder)
    place.put(f".dataflow/{path}", content)
    place.show(f".dataflow/{path}", path)
    return f"{folder}/{path}"


def opened(read: ReadFromFiles[Any], position: WatchedPosition | None) -> SourceReader:
    return WatchFiles(read, poll=0)._source.open(0, position, fence=0)


def check_watched(folder: str, name: str, schedule: Sequence[int]) -> None:
    """Files appear between reads, and readers are opened anew; each record is read once, in the order of the names."""
    _, read, _, number_of = FORMATS[name]
    found, position, written = list[int](), None, 0
    for step, size in enumerate([*schedule, 0]):
        if size:
            put(folder, name, f"in-{step:03}", written, written + size)
            written += size
        with closing(opened(read(folder), position)) as reader:
            for _ in range(3 if step < len(schedule) else 1_000):
                batch = reader.read(2)
                found += map(number_of, batch.values)
                position = batch.position
                if batch.status is SplitStatus.IDLE:
                    break
    assert found == list(range(written))


@pytest.mark.slow
@formats
@settings(max_examples=5)
@given(schedule=st.lists(st.integers(0, 7), max_size=5))
def test_a_watched_folder_is_read_once(
    name: str, schedule: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_watched(str(tmp_path_factory.mktemp("watched")), name, schedule)


@pytest.mark.slow
@formats
def test_a_watched_bucket_is_read_once(name: str, s3: Callable[[], str]) -> None:
    check_watched(f"s3://{s3()}/watched", name, [3, 0, 5, 1])


@pytest.mark.nightly
@formats
def test_a_watched_bucket_of_gcs_is_read_once(name: str, gcs: Callable[[], str]) -> None:
    check_watched(f"gs://{gcs()}/watched", name, [3, 0, 5, 1])


def test_a_reader_that_forgets_names_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NameSet, "runs", lambda _: ())
    with pytest.raises(AssertionError):
        check_watched(str(tmp_path), "parquet", [3, 5])


def test_a_watermark_follows_all_files(tmp_path: Path) -> None:
    read = df.ReadFromAvro(
        str(tmp_path), rows=Row, event_time=lambda row: row.n, max_disorder=2, max_ahead=None
    )
    put(str(tmp_path), "avro", "a", 10, 20)
    put(str(tmp_path), "avro", "b", 5, 8)
    with closing(opened(read, None)) as reader:
        watermarks = [reader.read(100).watermark_us for _ in range(3)]
        position = reader.read(1).position
    assert watermarks == [17_000_000] * 3
    with closing(opened(read, position)) as reader:
        assert reader.read(1).watermark_us == 17_000_000
    with pytest.raises(PipelineError, match="how far event time has come"):
        WatchFiles(df.ReadFromAvro(str(tmp_path), event_time=lambda row: row["n"]))


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = put(str(tmp_path), "text", "a", 0, 5)
    with closing(opened(df.ReadFromText(str(tmp_path)), None)) as reader:
        assert isinstance(reader, _WatchedReader)
        reader.read(2)
        with Path(path).open("a") as file:
            file.write("more\n")
        with pytest.raises(InputError, match="has changed"):
            reader.read(100)


def check_named(folder: str, name: str) -> None:
    """Of three files, one is named alone, and two by a pattern."""
    paths = [put(folder, name, f"{file}", 5 * file, 5 * file + 5) for file in range(3)]
    p = df.Pipeline("direct")
    named = p | df.Create([paths[0], paths[1].replace("/1.", "/[12].")])
    assert sorted(df.collect(named | FORMATS[name][2] | df.Map(FORMATS[name][3]))) == [*range(15)]


@formats
def test_files_that_elements_name_are_read(name: str, tmp_path: Path) -> None:
    check_named(str(tmp_path), name)


@pytest.mark.slow
@formats
def test_objects_that_elements_name_are_read(name: str, s3: Callable[[], str]) -> None:
    check_named(f"s3://{s3()}/named", name)


@pytest.mark.slow
@formats
def test_objects_of_gcs_that_elements_name_are_read(name: str, gcs: Callable[[], str]) -> None:
    check_named(f"gs://{gcs()}/named", name)


class TestAvro(SourceContract):
    """Avro files keep the contract of a source."""

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.fill(tmp_path)

    def fill(self, tmp_path: Path) -> None:
        for start in (0, 60):
            with (tmp_path / f"{start}.avro").open("wb") as file:
                fastavro.writer(
                    file, avro_schema(COLUMNS), rows(start, start + 60), sync_interval=100
                )
        self._folder = str(tmp_path)

    def make_source(self) -> df.Source[Any]:
        return df.ReadFromAvro(
            self._folder, event_time=lambda row: row["n"], max_disorder=0, max_ahead=None
        ).source

    def expected(self) -> list[Any]:
        return rows(0, 120)


class _GoesOnAtTheBlock(_AvroReader):
    """Whoever goes on within a block reads it again from its start."""

    def __init__(self, source: Any, split: Any, position: tuple[int, int]) -> None:
        super().__init__(source, split, (position[0], 0))


def test_the_contract_rejects_a_reader_of_avro_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_files, "_AvroReader", _GoesOnAtTheBlock)
    contract = TestAvro()
    contract.fill(tmp_path)
    with pytest.raises(BrokenRuleError):
        contract.test_it_goes_on_behind_any_record()


def test_what_is_no_avro_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(b"something else")
    with pytest.raises(InputError, match="no Avro file"):
        df.ReadFromAvro(str(tmp_path)).source.check()
    whole = Path(put(str(tmp_path), "avro", "b", 0, 100))
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot be read on"):
        df.collect(df.Pipeline("direct") | df.ReadFromAvro(str(whole)))


def test_a_record_without_an_event_time_is_set_aside(tmp_path: Path) -> None:
    put(str(tmp_path), "avro", "a", 0, 5)
    read = df.ReadFromAvro(str(tmp_path), rows=Row, event_time=lambda row: 1 / (row.n - 3))
    source = read.source
    with closing(source.open(source.splits(1)[0], None, fence=0)) as reader:
        batch = reader.read(100)
    assert [row.n for row in batch.values] == [0, 1, 2, 4]
    (set_aside,) = batch.set_aside
    assert set_aside.element == Row(3, "name 3")
    assert "3 behind block 1, record 1" in set_aside.error.fact

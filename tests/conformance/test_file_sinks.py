"""Sinks of files keep the contract of a sink in every format and place, and whatever fails, each row is in one file."""

import itertools
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

import dataflow as df
from dataflow.errors import SinkError
from dataflow.files.file_writer import FileWriter
from dataflow.files.places import FilePlace, Folder, Objects, place_of
from dataflow.files.writes import FileSink, WriteToFiles
from dataflow.io.packing import Unpacked, codec_of
from dataflow.io.storage import Storage
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest

_NAMES = itertools.count()
TYPES = {"team": str, "at": datetime, "score": int}
ROWS = [
    (f'team "{n}", ü', datetime(2026, 1, n, 1, 2, 3, 456789, tzinfo=UTC), n * 10)
    for n in range(1, 11)
]
#: Rows with their signs.
Changes = Sequence[tuple[tuple[Any, ...], int]]


def unpacked(path: str) -> bytes:
    codec = codec_of(path, "auto")
    with closing(Storage().open(path)) as file:
        return file.read() if codec is None else Unpacked(file, path, codec).read(1 << 30)


def read_text(path: str) -> Changes:
    return [((line,), +1) for line in unpacked(path).split(b"\n")[:-1]]


def read_json(path: str) -> Changes:
    found = []
    for line in unpacked(path).decode().splitlines():
        value = json.loads(line)
        sign = value.pop("sign", 1)
        found.append(((json.dumps(value).encode(),), sign))
    return found


def read_csv(path: str) -> Changes:
    header, *lines = unpacked(path).decode().splitlines()
    assert header == "team,score,sign"
    return [((line.rpartition(",")[0].encode(),), int(line.rpartition(",")[2])) for line in lines]


def read_parquet(path: str) -> Changes:
    with closing(Storage().open_arrow(path)) as file:
        rows = pq.read_table(file).to_pylist()
    return [
        ((row["team"], row["at"].astimezone(UTC), row["score"]), row.get("sign", 1)) for row in rows
    ]


def read_avro(path: str) -> Changes:
    with closing(Storage().open(path)) as file:
        rows: list[Any] = list(fastavro.reader(file))
    return [
        ((row["team"], row["at"].astimezone(UTC), row["score"]), row.get("sign", 1)) for row in rows
    ]


def shown(folder: str, read: Callable[[str], Changes]) -> list[Any]:
    """What visible files have, without what is retracted."""
    with suppress(df.InputError):
        changes = [change for path in Storage().find(folder) for change in read(path)]
        left = [value for value, sign in changes if sign > 0]
        for value, sign in changes:
            if sign < 0:
                left.remove(value)
        return left
    return []


class FilesUnderTest(SinkContract):
    """Files in a folder."""

    rounds = 3
    folder: Callable[[], str]
    values: Sequence[tuple[Any, ...]] = ROWS
    writer: type[FileWriter] = FileWriter
    refused: Any = None

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = lambda: str(tmp_path / str(next(_NAMES)))

    @abstractmethod
    def write(self, path: str) -> WriteToFiles:
        """The transform."""

    @abstractmethod
    def read(self, path: str) -> Changes:
        """What a file has."""

    def place(self, path: str) -> FilePlace:
        return place_of(path)

    def make(self) -> SinkUnderTest:
        path = self.folder()
        file_format = self.write(path).file_format
        sink = FileSink(path=path, file_format=file_format)

        def read() -> Sequence[Any]:
            return [("a/part", *value) for value in shown(path, self.read)]

        return SinkUnderTest(
            sink=sink,
            values=[("a/part", *value) for value in self.values],
            read=read,
            open_writer=lambda lane: self.writer(self.place(path), file_format, lane),
            refused=self.refused,
        )


class TestText(FilesUnderTest):
    def write(self, path: str) -> WriteToFiles:
        return df.WriteToText(path)

    def read(self, path: str) -> Changes:
        return read_text(path)

    values = [(f"line {n}".encode(),) for n in range(10)]


class TestJsonLines(FilesUnderTest):
    def write(self, path: str) -> WriteToFiles:
        return df.WriteToJsonLines(path, changelog="sign", compression="gzip")

    def read(self, path: str) -> Changes:
        return read_json(path)

    values = [(json.dumps({"n": n} if n else {}).encode(),) for n in range(10)]


class TestCsv(FilesUnderTest):
    def write(self, path: str) -> WriteToFiles:
        return df.WriteToCsv(path, columns=["team", "score"], changelog="sign", compression="zstd")

    def read(self, path: str) -> Changes:
        return read_csv(path)

    values = [(f'"a, {n}",{n}'.encode(),) for n in range(10)]


class TestParquet(FilesUnderTest):
    def write(self, path: str) -> WriteToFiles:
        return df.WriteToParquet(path, columns=TYPES, changelog="sign")

    def read(self, path: str) -> Changes:
        return read_parquet(path)

    refused = ("a/part", "team", datetime(2026, 1, 1, tzinfo=UTC), 1 << 63)


class TestAvro(FilesUnderTest):
    def write(self, path: str) -> WriteToFiles:
        return df.WriteToAvro(path, columns=TYPES, changelog="sign")

    def read(self, path: str) -> Changes:
        return read_avro(path)

    refused = ("a/part", "team", datetime(2026, 1, 1, tzinfo=UTC), 1 << 63)


@pytest.mark.slow
class TestParquetInS3(TestParquet):
    """Parquet in an object store, by conditional puts."""

    rounds = 2

    @pytest.fixture(autouse=True)
    def _folder(self, s3: Callable[[], str]) -> None:
        bucket = s3()
        self.folder = lambda: f"s3://{bucket}/{next(_NAMES)}"


@pytest.mark.slow
class TestParquetInGcs(TestParquet):
    """Parquet in an object store, by generations."""

    rounds = 2

    @pytest.fixture(autouse=True)
    def _folder(self, gcs: Callable[[], str]) -> None:
        bucket = gcs()
        self.folder = lambda: f"gs://{bucket}/{next(_NAMES)}"


@pytest.mark.slow
class TestJsonLinesInGcs(TestJsonLines):
    """Packed lines, the same."""

    rounds = 2

    @pytest.fixture(autouse=True)
    def _folder(self, gcs: Callable[[], str]) -> None:
        bucket = gcs()
        self.folder = lambda: f"gs://{bucket}/{next(_NAMES)}"


class _Unlocked(Folder):
    """A rename that replaces whatever is there."""

    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        found = self.read(name)
        return super().replace(name, content, None if found is None else found[1])


class _Unconditional(Objects):
    """A put that replaces whatever is there."""

    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        self._store.put(self._key(name), content)
        found = self.read(name)
        assert found is not None
        return found[1]


class _ShowsFirst(FileWriter):
    """Files are seen before they count."""

    def _commit(self, manifest: Any, version: Any) -> None:
        for file in manifest.files:
            self._place.show(file.hidden, file.name)
        super()._commit(manifest, version)


def rejected(kind: type[FilesUnderTest], **parts: Any) -> None:
    contract = type("Broken", (kind,), {"rounds": 20, **parts})()
    with pytest.raises((AssertionError, SinkError)):
        contract.check_all()


def test_the_contract_rejects_a_folder_without_a_condition(tmp_path: Path) -> None:
    rejected(
        TestText,
        folder=lambda _: str(tmp_path / str(next(_NAMES))),
        place=lambda _, path: _Unlocked(path),
    )


def test_the_contract_rejects_files_that_are_seen_too_early(tmp_path: Path) -> None:
    rejected(TestText, folder=lambda _: str(tmp_path / str(next(_NAMES))), writer=_ShowsFirst)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_the_contract_rejects_an_unconditional_put(
    scheme: str, request: pytest.FixtureRequest
) -> None:
    bucket = request.getfixturevalue({"s3": "s3", "gs": "gcs"}[scheme])()

    def place(_: Any, path: str) -> FilePlace:
        found = place_of(path)
        assert isinstance(found, Objects)
        return _Unconditional(found._store, found._prefix)

    rejected(TestParquet, folder=lambda _: f"{scheme}://{bucket}/{next(_NAMES)}", place=place)

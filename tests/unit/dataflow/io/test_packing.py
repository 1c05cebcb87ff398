"""Compressed files: by name or by argument, and errors where they are damaged."""

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import dataflow as df
from runners.direct import DirectRunner
from tests.unit.dataflow.io.test_files import read

LINES = b"".join(b'{"n": %d}\n' % n for n in range(5_000))
VALUES = [{"n": n} for n in range(5_000)]


class N(NamedTuple):
    """A typed row."""

    n: int


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


PACKERS = [("gzip", ".gz", gzip.compress), ("zstd", ".zst", zstd)]


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "end", "pack"), PACKERS)
def test_files_are_unpacked_by_their_names_or_by_the_argument(
    tmp_path: Path, codec: str, end: str, pack: Any
) -> None:
    """Written by the programs' own libraries, in two members; as values and as typed rows."""
    packed = pack(LINES[:1_000]) + pack(LINES[1_000:])
    named, other = tmp_path / f"a.jsonl{end}", tmp_path / "a.data"
    named.write_bytes(packed)
    other.write_bytes(packed)

    assert VALUES == read(df.ReadFromJsonLines(named))
    assert VALUES == read(df.ReadFromJsonLines(other, compression=codec))
    assert [N(n) for n in range(5_000)] == read(df.ReadFromJsonLines(named, rows=N))


def test_a_name_alone_packs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(LINES)

    assert VALUES == read(df.ReadFromJsonLines(path, compression="none"))
    with pytest.raises(df.InputError, match=r"a\.gz cannot be unpacked as gzip"):
        read(df.ReadFromJsonLines(path))


@pytest.mark.parametrize(("codec", "end", "pack"), PACKERS)
@pytest.mark.parametrize("rows", [None, N])
@pytest.mark.parametrize("damage", ["cut", "cut early", "changed", "followed", "empty"])
def test_a_damaged_file_is_an_error_and_its_rest_is_not_lost_in_silence(
    tmp_path: Path, codec: str, end: str, pack: Any, rows: Any, damage: str
) -> None:
    packed = pack(LINES)
    if (codec, damage) == ("zstd", "changed"):
        # Arrow writes no checksum, the program zstd does; so a byte is changed that no frame can do without.
        packed = packed[:4] + b"\xff" * 8 + packed[12:]
    damaged = {
        "cut": packed[:-1],
        "cut early": packed[:500],
        "changed": packed[:900] + bytes([packed[900] ^ 255]) + packed[901:],
        "followed": packed + b"more",
        "empty": b"",
    }[damage]
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(damaged)
    options: dict[str, Any] = {} if rows is None else {"rows": rows}
    with pytest.raises(df.InputError, match=rf"(?s)cannot be unpacked as {codec}"):
        read(df.ReadFromJsonLines(path, **options))


def test_a_packed_file_is_one_split_and_others_are_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow.io.text_files.SPLIT_BYTES_MIN", 1_000)
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    source: Any = df.ReadFromJsonLines(tmp_path)._source
    splits = [(Path(each.path).name, each.end_bytes is None) for each in source.splits(8)]

    assert [("a.jsonl", False)] * 4 + [("b.jsonl.gz", True)] == splits


def test_a_malformed_line_of_a_packed_file_has_its_place_in_what_was_packed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"1\n2\nnope\n4\n"))
    values: list[Any] = []
    bad: list[Any] = []
    p = df.Pipeline(DirectRunner())
    good, failures = p | df.ReadFromJsonLines(path).with_exception_handling(threshold=0.9)
    good | "good" >> df.Map(values.append)
    failures | "bad" >> df.Map(lambda each: bad.append(each.failure.origin))
    p.run()

    assert [1, 2, 4] == values
    assert [(3, 4, b"nope\n")] == [(each.line, each.start_bytes, each.raw) for each in bad]


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(df.PipelineError, match=r"(?s)compression='lzma'.*'auto', 'none', 'gzip'"):
        df.ReadFromCsv("a.csv", compression="lzma")

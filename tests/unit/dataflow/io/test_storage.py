"""Where files are found: on this machine and in Arrow's file systems, by one rule and in one order."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

import dataflow as df
from dataflow.io import storage
from dataflow.io.storage import Storage
from runners.direct import DirectRunner
from tests.unit.dataflow.io.test_files import read

FILES = [
    "a.csv",
    "b.csv",
    ".hidden.csv",
    "_log.csv",
    "day=1/a.csv",
    "day=1/.c.csv",
    "day=2/b.csv",
    "day=2/deep/c.csv",
    "_tmp/d.csv",
    "x[1].csv",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(f"x\n{name}\n")
    return tmp_path


def found(system: Any, folder: Path, pattern: str) -> list[str]:
    """What is found below a folder, by names."""
    if system is None:
        prefix, storage = f"{folder}/", Storage()
        return [path.removeprefix(prefix) for path in storage.find(prefix + pattern)]
    return Storage(fs.SubTreeFileSystem(str(folder), system)).find(pattern)


@pytest.mark.parametrize("system", [None, fs.LocalFileSystem()], ids=["here", "arrow"])
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.csv", ["a.csv"]),
        ("*.csv", ["_log.csv", "a.csv", "b.csv", "x[1].csv"]),
        ("?.csv", ["a.csv", "b.csv"]),
        ("[bx]*.csv", ["b.csv", "x[1].csv"]),
        ("x[1].csv", ["x[1].csv"]),
        ("day=1", ["day=1/a.csv"]),
        ("day=*", ["day=1/a.csv", "day=2/b.csv", "day=2/deep/c.csv"]),
        ("day=*/*.csv", ["day=1/a.csv", "day=2/b.csv"]),
        ("**/c.csv", ["day=2/deep/c.csv"]),
        ("day=2/**/*.csv", ["day=2/b.csv", "day=2/deep/c.csv"]),
        ("day=1/.*.csv", ["day=1/.c.csv"]),
    ],
)
def test_a_pattern_finds_files_in_order(
    folder: Path, system: Any, pattern: str, names: list[str]
) -> None:
    assert names == found(system, folder, pattern)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pattern=st.lists(
        st.sampled_from(["*", "**", "?.csv", "*.csv", "day=*", "deep", "[ab].csv", "day=2"]),
        min_size=1,
        max_size=3,
    ).map("/".join)
)
def test_patterns_mean_the_same_everywhere(folder: Path, pattern: str) -> None:
    """Here they are those of the standard library; nothing is found twice."""
    both = []
    for system in (None, fs.LocalFileSystem()):
        try:
            both.append(found(system, folder, pattern))
        except df.InputError:
            both.append([])
    here, there = both

    assert here == there
    assert sorted(set(here)) == here


@pytest.mark.parametrize("pattern", ["none.csv", "none-*.csv", "none/*.csv", "day=3"])
@pytest.mark.parametrize("system", [None, fs.LocalFileSystem()], ids=["here", "arrow"])
def test_what_matches_nothing_is_an_error(folder: Path, system: Any, pattern: str) -> None:
    with pytest.raises(df.InputError, match=f"there is no file .*{pattern[:4]}"):
        found(system, folder, pattern)


def test_a_folder_and_a_list_are_read_each_file_once(folder: Path) -> None:
    days: list[str | Path] = [folder / "day=2", folder / "*.csv", str(folder / "day=2" / "b.csv")]
    names = ["day=2/b.csv", "day=2/deep/c.csv", "_log.csv", "a.csv", "b.csv", "x[1].csv"]

    assert names == [row["x"] for row in read(df.ReadFromCsv(days))]
    with pytest.raises(df.InputError, match=r"there is no file .*day=9"):
        read(df.ReadFromCsv([folder / "a.csv", folder / "day=9"]))


@pytest.mark.parametrize("path", [[], [1], 5, None])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(df.PipelineError, match="ReadFromCsv cannot read"):
        df.ReadFromCsv(path)


def test_every_format_is_read_from_a_file_system(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    system = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    assert [{"x": "1"}] == read(df.ReadFromCsv("a.csv", filesystem=system))
    assert [1, 2] == read(df.ReadFromJsonLines("*.jsonl", filesystem=system))
    assert [{"x": 1}] == read(df.ReadFromParquet("a.parquet", filesystem=system))


@pytest.mark.parametrize("scheme", storage.SCHEMES)
def test_an_address_is_read_from_the_file_system_of_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """With its name in messages and positions as it was given."""
    opened: list[str] = []

    def file_system(scheme: str, bucket: str) -> Any:
        opened.append(f"{scheme}://{bucket}")
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    monkeypatch.setattr(storage, "_file_system", file_system)
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a b.csv").write_text("x\n1\n")
    address = f"{scheme}://bucket/*.csv"
    source: Any = df.ReadFromCsv(address)._source

    assert [f"{scheme}://bucket/a b.csv"] == [split.path for split in source.splits(1)]
    assert [{"x": "1"}] == read(df.ReadFromCsv(address))
    assert {f"{scheme}://bucket"} == set(opened)
    with pytest.raises(df.InputError, match=rf"no file '{scheme}://bucket/none'"):
        df.Pipeline(DirectRunner()) | df.ReadFromCsv(f"{scheme}://bucket/none")


def test_an_endpoint_is_that_of_the_environment_or_that_of_the_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(fs, "S3FileSystem", lambda **options: given.append(options))
    monkeypatch.setattr(fs, "resolve_s3_region", lambda bucket: f"region of {bucket}")
    make = storage._file_system.__wrapped__
    for name in storage.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    make("s3", "shop")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5000")
    make("s3", "shop")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:5001")
    make("s3", "shop")

    assert [
        {"region": "region of shop"},
        {"endpoint_override": "http://127.0.0.1:5000"},
        {"endpoint_override": "http://127.0.0.1:5001"},
    ] == given

"""A watched object store that is away now and then: each record is read once, and a damaged file is an error still."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

import dataflow as df
from dataflow.computations import WatchFiles
from dataflow.errors import InputError
from dataflow.io import outages
from dataflow.io.storage import Storage, not_opened
from dataflow.source import SourceReader, SplitStatus

FILES, LINES = 3, 5
EXPECTED = [f"{file} {line}" for file in range(FILES) for line in range(LINES)]


def reader_of(folder: Path, position: Any = None) -> SourceReader:
    read = df.ReadFromText(f"{folder}/*.txt", filesystem=LocalFileSystem())
    source = WatchFiles(read, poll=0)._source
    return source.open(0, position, fence=1)


@pytest.mark.slow
@given(
    faults=st.sets(st.integers(0, 50), max_size=6), sizes=st.lists(st.integers(1, 7), min_size=1)
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_record_is_read_once_whatever_request_fails(
    tmp_path: Path, faults: set[int], sizes: list[int]
) -> None:
    """Lists, looks at sizes, and openings; between any two reads another reader may go on."""
    for file in range(FILES):
        lines = (f"{file} {line}\n" for line in range(LINES))
        (tmp_path / f"{file}.txt").write_text("".join(lines))
    requests = count()

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(self: Storage, path: str) -> Any:
            if next(requests) in faults:
                error = OSError("AWS Error NETWORK_CONNECTION")
                raise not_opened(path, error) if call.__name__ == "listed" else error
            return call(self, path)

        return answer

    found = list[str]()
    with pytest.MonkeyPatch.context() as patched:
        reader = reader_of(tmp_path)
        # However often one comes while the place answers again at once.
        patched.setattr(outages, "REFUSALS_MAX", len(faults) + 1)
        patched.setattr(outages, "PAUSE_MAX_S", 0.0)
        for name in ("listed", "size", "open"):
            patched.setattr(Storage, name, failing(getattr(Storage, name)))
        for number in range(500):
            batch = reader.read(sizes[number % len(sizes)])
            found += batch.values
            if batch.status is SplitStatus.IDLE:
                break
            if number % 3 == 2:
                reader.close()
                reader = reader_of(tmp_path, batch.position)
        reader.close()
    assert found == EXPECTED


def test_a_damaged_file_is_an_error_where_the_place_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "PAUSE_MAX_S", 0.0)
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    read = df.ReadFromParquet(f"{tmp_path}/*.parquet", filesystem=LocalFileSystem())
    reader = WatchFiles(read, poll=0)._source.open(0, None, fence=1)
    for _ in range(2):
        outage = reader.read(1).outage
        assert outage is not None
        assert "no Parquet file" in outage.error
    with pytest.raises(InputError, match="no Parquet file"):
        reader.read(1)

"""Jobs of the batch runner, for tests: run one, compare it with the direct runner, leave notes in it."""

from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs

import dataflow as df
from runners.batch import BatchRunner
from runners.direct import DirectRunner
from runners.registry import open_store

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
#: The ten data points of the paper's figure 5: value, minute and second of event time.
POINTS = [
    (5, 0, 30), (7, 2, 10), (3, 3, 40), (4, 3, 55), (3, 4, 25),
    (8, 3, 0), (3, 6, 40), (9, 1, 20), (8, 7, 20), (1, 7, 45),
]  # fmt: skip
SCORES = [
    df.TimestampedValue(
        (f"user{value % 3}", value), NOON + timedelta(minutes=minute, seconds=second)
    )
    for value, minute, second in POINTS
]

Build = Callable[[df.Pipeline], object]


@attrs.frozen
class Batch:
    """Runs pipelines as the job "job" on this test's database."""

    store: str
    master: str

    def run(self, build: Build, **options: Any) -> df.PipelineResult:
        options = {"job": "job", "partitions": 3, "show_progress": False, **options}
        pipeline = df.Pipeline(BatchRunner(store=self.store, master=self.master, **options))
        build(pipeline)
        result = pipeline.run()
        result.wait_until_finish()
        return result

    def finished(self) -> dict[str, list[bool]]:
        with closing(open_store(self.store)) as store:
            job = store.read_job("job")
        assert job is not None
        found: dict[str, list[bool]] = {}
        for range_id, row in sorted(job.ranges.items()):
            found.setdefault(range_id.computation, []).append(row.is_finished)
        return found


def write(table: str, *columns: str, key: Iterable[str] = ()) -> df.WriteToPostgres:
    kinds: dict[str, Any] = {"start": datetime, "user": str, "text": str}
    return df.WriteToPostgres(
        table, columns={name: kinds.get(name, int) for name in columns}, key=tuple(key)
    )


def windowed(pair: tuple[str, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"user": pair[0], "start": window.start, "total": pair[1]}


def rows_of(result: df.PipelineResult, table: str) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in result.read_table(table))


def assert_same(batch: Batch, build: Build, *tables: str, **options: Any) -> df.PipelineResult:
    """Check that both runners leave the same rows; nothing is ever late in a batch."""
    direct = df.Pipeline(DirectRunner(bundle_records=3))
    build(direct)
    expected = direct.run()
    result = batch.run(build, **options)
    for table in tables:
        assert rows_of(expected, table) == rows_of(result, table)
    assert list(result.late_records()) == []
    return result


# Notes that user code leaves in a file: appended, so that all processes can write them.


def note(path: Path, line: object) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def notes(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def once(path: Path) -> bool:
    """True for the first caller of all processes."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

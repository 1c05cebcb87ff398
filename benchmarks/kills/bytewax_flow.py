"""Bytewax: a snapshot each second, and its own file sink, which goes back to the size of the snapshot."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.kills.feed import DISORDER_S, WINDOW_S, Settings

ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_PAUSE = timedelta(milliseconds=200)


class _Files(StatefulSourcePartition):  # type: ignore[misc]
    """Files of a folder by their numbers; the position is how many have been read."""

    def __init__(self, folder: str, done: int | None) -> None:
        self._folder, self._done, self._next = Path(folder), done or 0, datetime.now(UTC)

    def next_batch(self) -> list[Any]:
        path = self._folder / f"{self._done:04d}.jsonl"
        if not path.exists():
            self._next = datetime.now(UTC) + _PAUSE
            return []
        self._done += 1
        return [json.loads(line) for line in path.read_text().splitlines()]

    def next_awake(self) -> datetime:
        return self._next

    def snapshot(self) -> int:
        return self._done


class FolderSource(FixedPartitionedSource):  # type: ignore[misc]
    """A folder in which files appear: `DirSource` has those alone that are there when it starts."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        """One."""
        return ["files"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Files:
        """Where the snapshot was."""
        return _Files(self._folder, resume_state)


def flow(settings: Settings) -> Any:
    """A row for each key and ended window."""
    whole = Dataflow("kills")
    records = op.input("read", whole, FolderSource(settings.files))
    clock = windowing.EventClock(
        lambda record: datetime.fromtimestamp(record["at"] / 1_000, UTC),
        timedelta(seconds=DISORDER_S),
        # Event time alone, as in the others: its watermark goes on with this clock from the newest record, so what
        # comes after a pause, as a restart is one, would be late and left out.
        now_getter=lambda: ORIGIN,
        to_system_utc=lambda _: None,
    )
    windower = windowing.TumblingWindower(length=timedelta(seconds=WINDOW_S), align_to=ORIGIN)
    found = windowing.count_window("count", records, clock, windower, lambda record: record["key"])

    def row(item: Any) -> tuple[str, str]:
        key, (number, count) = item
        return key, f"{key},{number * WINDOW_S},{count}"

    op.output("write", op.map("row", found.down, row), FileSink(Path(settings.rows) / "rows.csv"))
    return whole


def main() -> None:
    """Count until it is killed."""
    settings = Settings.from_command_line()
    snapshots = Path(settings.scratch) / "snapshots"
    if not snapshots.exists():
        snapshots.mkdir()
        init_db_dir(snapshots, 1)
    cli_main(
        flow(settings),
        epoch_interval=timedelta(seconds=1),
        recovery_config=RecoveryConfig(str(snapshots)),
    )


if __name__ == "__main__":
    main()

"""The input of a streaming count that is killed, and its right answer.

Each file is ten seconds of event time, in order; counts differ by key and window, so that no mistake hides in a sum.
Imports nothing but the standard library: every program that is compared has it.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

WINDOW_S = 10
#: How far behind the newest record the watermark is, in all programs.
DISORDER_S = 1
KEYS = 20


class Row(NamedTuple):
    """A row of a sink: how many records of a key and a window it counts; a sink may have several of one of each."""

    key: str
    start_s: int
    records: int


class Settings(NamedTuple):
    """The settings that a program is given at each of its starts.

    ``files``: the folder in which the input appears.  ``rows``: the folder of its output, if that is files.
    ``scratch``: for its checkpoints.  ``store``: DSN of a database, if it writes into one.  ``attempt``: counts its
    starts, from 0.
    """

    files: str
    rows: str
    scratch: str
    store: str
    attempt: int

    @classmethod
    def from_command_line(cls) -> "Settings":
        """The settings that this process was started with."""
        return cls(**json.loads(sys.argv[1]))


def count_of(key: int, window: int) -> int:
    """How many records a key has in a window, by their numbers."""
    return 1 + (7 * key + 13 * window) % 40


def right_rows(windows: int) -> list[Row]:
    """One row for each key and window."""
    return [
        Row(f"key{key:02d}", window * WINDOW_S, count_of(key, window))
        for window in range(windows)
        for key in range(KEYS)
    ]


def put_windows(folder: Path, windows: range) -> None:
    """Have one file with all records of some windows appear in a folder, whole."""
    records = sorted(
        (window * WINDOW_S + number * WINDOW_S / count_of(key, window), f"key{key:02d}")
        for window in windows
        for key in range(KEYS)
        for number in range(count_of(key, window))
    )
    _put(folder, records)


def put_end(folder: Path, windows: int) -> None:
    """Have the last file appear: a record of each key, so far ahead that windows before it end, and its own never."""
    at = float(windows * WINDOW_S + 3_600)
    _put(folder, [(at, f"key{key:02d}") for key in range(KEYS)])


def _put(folder: Path, records: list[tuple[float, str]]) -> None:
    # Some programs read one number after the other.
    name = f"{len(list(folder.iterdir())):04d}.jsonl"
    # Beside the folder first: some programs read whatever has appeared in it, whole or not.
    whole = folder.parent / name
    lines = (json.dumps({"key": key, "at": int(at * 1_000)}) + "\n" for at, key in records)
    whole.write_text("".join(lines))
    whole.rename(folder / name)

"""What every program under test reads: events and text, made up from a seed, the same bytes on every machine.

An event is ``{"user_id": int, "event_time": milliseconds, "value": int}``.  There are 10,000 users, and user k has
events in proportion to 1 / (k + 1), so the busiest has a tenth of all.  The events of a set are spread over one hour in
the order of their arrival; each happened up to a minute before it arrives, and one in a hundred up to five minutes
before that.  So no event is more than `DISORDER_MAX_MS` behind the newest one.

A text has ten words to a line, from a vocabulary of 50,000 that is used as unevenly as the users.

Runs in any Python 3.11 and imports nothing but the standard library: peers have environments of their own.
Only ``Random.random`` is used, the one method that promises the same numbers in all versions of Python.
"""

import os
import shutil
from bisect import bisect
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import NamedTuple

SEED = 42
USERS = 10_000
WORDS = 50_000
WORDS_PER_LINE = 10
#: The first event of a set arrives here: a whole minute, in milliseconds since 1970.
BASE_MS = 1_700_000_400_000
SPAN_MS = 3_600_000
DISORDER_MS = 60_000
LATE_MS = 300_000
LATE_SHARE = 0.01
DISORDER_MAX_MS = DISORDER_MS + LATE_MS
#: How far a watermark stays behind the newest event: some more than what can happen, so that nothing is dropped.
WATERMARK_BOUND_S = 365
VALUES = 1_000
#: Into how many files a set is divided for programs that read one file after the other.
STREAM_FILES = 20
#: Behind every window, for programs whose last windows wait for something newer; its user is nobody's.
LAST_USER, LAST_MS = -1, BASE_MS + 2 * 86_400_000

_FIRST_FILE_S, _SECONDS_BETWEEN_FILES = 1_600_000_000, 10


class Event(NamedTuple):
    """One event; see the module."""

    user_id: int
    event_time: int
    value: int

    def to_json(self) -> str:
        """The event as a line of a file, without the line's end."""
        return f'{{"user_id":{self.user_id},"event_time":{self.event_time},"value":{self.value}}}'


class Dataset(NamedTuple):
    """A set on disk.

    ``two``: a folder with two files, each in the order of arrival, that have every other record each.
    ``stream``: a folder with the same records in `STREAM_FILES` files, one after the other in time by their names and
    by the times of the files, and one with a last event behind all windows; None of a text.
    """

    two: Path
    stream: Path | None


def users(count: int, chance: Random) -> Iterator[int]:
    """Draws users, each as often as it is busy."""
    return _uneven(USERS, count, chance)


def events(count: int, seed: int = SEED, span_ms: int = SPAN_MS) -> Iterator[Event]:
    """A set, in the order of arrival, over an hour or another span."""
    chance = Random(seed)
    uniform = chance.random
    for index, user_id in enumerate(users(count, Random(seed + 1))):
        event_ms = BASE_MS + index * span_ms // count - int(uniform() * DISORDER_MS)
        if uniform() < LATE_SHARE:
            event_ms -= int(uniform() * LATE_MS)
        yield Event(user_id, event_ms, int(uniform() * VALUES))


def lines_of_text(words: int, seed: int = SEED) -> Iterator[str]:
    """A text of so many words."""
    chance = Random(seed)
    uniform = chance.random
    vocabulary = [
        "".join(chr(ord("a") + int(uniform() * 26)) for _ in range(3 + int(uniform() * 6)))
        for _ in range(WORDS)
    ]
    numbers = _uneven(WORDS, words, chance)
    while line := [vocabulary[number] for number in islice(numbers, WORDS_PER_LINE)]:
        yield " ".join(line)


def event_files(data: Path, count: int, seed: int = SEED, span_ms: int = SPAN_MS) -> Dataset:
    """The set of so many events below a folder; made if it is not there."""
    home = data / f"events-{count}-{seed}{'' if span_ms == SPAN_MS else f'-{span_ms}'}"
    if not home.exists():
        with _made_aside(home) as new:
            lines = [event.to_json() for event in events(count, seed, span_ms)]
            _write_halves(new / "two", lines, "jsonl")
            _write_stream(new / "stream", lines)
    return Dataset(home / "two", home / "stream")


def text_files(data: Path, words: int, seed: int = SEED) -> Dataset:
    """The text of so many words below a folder; made if it is not there."""
    home = data / f"text-{words}-{seed}"
    if not home.exists():
        with _made_aside(home) as new:
            _write_halves(new / "two", list(lines_of_text(words, seed)), "txt")
    return Dataset(home / "two", None)


class _made_aside:  # noqa: N801 - used as a function
    """A folder that gets its name when it is complete, so that a killed process leaves nothing that looks complete."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __enter__(self) -> Path:
        self._home.parent.mkdir(parents=True, exist_ok=True)
        self._new = Path(mkdtemp(prefix="new-", dir=self._home.parent))
        return self._new

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None and not self._home.exists():
            self._new.rename(self._home)
        shutil.rmtree(self._new, ignore_errors=True)


def _uneven(kinds: int, count: int, chance: Random) -> Iterator[int]:
    weights = list(accumulate(1 / (kind + 1) for kind in range(kinds)))
    total, last, uniform = weights[-1], kinds - 1, chance.random
    for _ in range(count):
        yield min(bisect(weights, uniform() * total), last)


def _write_halves(folder: Path, lines: list[str], suffix: str) -> None:
    folder.mkdir()
    for half in (0, 1):
        _write(folder / f"{half}.{suffix}", lines[half::2])


def _write_stream(folder: Path, lines: list[str]) -> None:
    folder.mkdir()
    size = -(-len(lines) // STREAM_FILES)
    parts = [lines[start : start + size] for start in range(0, len(lines), size)]
    parts.append([Event(LAST_USER, LAST_MS, 0).to_json()])
    for number, part in enumerate(parts):
        path = folder / f"part-{number:03}.jsonl"
        _write(path, part)
        # Spark's file source takes files in the order of these times.
        at_s = _FIRST_FILE_S + _SECONDS_BETWEEN_FILES * number
        os.utime(path, (at_s, at_s))


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)

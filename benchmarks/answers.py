"""Whether two programs gave the same answer, by a few numbers that do not depend on the order of its rows.

The digest is the sum of a hash of every row, so a row that is wrong, missing, or there twice changes it; the sums by
column show, when it differs, whether something was lost or went to another window.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import attrs

from benchmarks.cases import Case
from benchmarks.nexmark import NexmarkCase

_DIGESTS = 1 << 64


@attrs.frozen
class Answer:
    """``sums``: of each column of integers.  ``weighted``: of each but the last, times the last one, row by row."""

    rows: int
    sums: tuple[int, ...]
    weighted: tuple[int, ...]
    digest: int

    @classmethod
    def of(cls, case: Case | NexmarkCase, rows: Iterable[Sequence[Any]]) -> "Answer":
        """The answer of rows with the case's columns.  Raises `ValueError` where a row has others."""
        numbers = [index for index, name in enumerate(case.columns) if name not in case.text]
        *weighing, last = numbers
        count, digest = 0, 0
        sums, weighted = [0] * len(numbers), [0] * len(weighing)
        for row in rows:
            if len(row) != len(case.columns):
                raise ValueError(f"a row of {case.name} has {case.columns}, not {row!r}")
            values = [int(row[index]) for index in numbers]
            count += 1
            for place, value in enumerate(values):
                sums[place] += value
            for place, index in enumerate(weighing):
                weighted[place] += int(row[index]) * int(row[last])
            text = ",".join(str(field).strip() for field in row)
            digest += int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
        return cls(count, tuple(sums), tuple(weighted), digest % _DIGESTS)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Answer":
        """Back from a line."""
        found = json.loads(text)
        return cls(found["rows"], tuple(found["sums"]), tuple(found["weighted"]), found["digest"])

    def difference(self, other: "Answer") -> str:
        """The differences, described for people; empty if there are none."""
        mine, theirs = attrs.asdict(self), attrs.asdict(other)
        return "; ".join(
            f"{name}: {mine[name]}, not {theirs[name]}"
            for name in mine
            if mine[name] != theirs[name]
        )


def rows_below(folder: Path) -> Iterator[list[str]]:
    """The fields of all lines of the text files that a program has left below a folder."""
    for path in _files_below(folder):
        yield from _lines_of(path)


def rows_of(case: Case | NexmarkCase, folder: Path) -> Iterable[Sequence[Any]]:
    """The rows of a case's answer, of the text files that a program has left below a folder."""
    if not isinstance(case, NexmarkCase):
        return rows_below(folder)
    if case.is_in_folders:
        return _with_folders(case, folder)
    return added_up(rows_below(folder)) if case.adds_up else rows_below(folder)


def added_up(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Rows with the sum of the last fields of those that have the same others."""
    totals = Counter[tuple[Any, ...]]()
    for *others, part in rows:
        totals[tuple(others)] += int(part)
    return ((*others, total) for others, total in totals.items())


def _with_folders(case: NexmarkCase, folder: Path) -> Iterator[list[str]]:
    """Rows that begin with the folder of their file; where a file begins with the names of its columns, without."""
    names = list(case.columns[1:])
    for path in _files_below(folder):
        of_file = path.parent.relative_to(folder).as_posix()
        for place, fields in enumerate(_lines_of(path)):
            if place or fields != names:
                yield [of_file, *fields]


def _files_below(folder: Path) -> Iterator[Path]:
    """The files of an answer: programs mark what is not part of it with a dot or an underscore."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part[0] in "._" for part in parts):
            yield path


def _lines_of(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n").split(",")

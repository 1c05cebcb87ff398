"""The table of Beam's names says what is here: what it calls the same exists, and what it calls absent does not."""

import re
from collections.abc import Iterator
from pathlib import Path

import dataflow as df
import dataflow.testing

TABLE = Path(__file__).parents[2] / "docs" / "from-beam.md"
_NAME = re.compile(r"`([A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)?)[`(]")


def rows() -> Iterator[tuple[str, str]]:
    """The first two columns of each row."""
    for line in TABLE.read_text().splitlines():
        columns = [each.strip() for each in re.split(r"(?<!\\)\|", line)]
        if line.startswith("|") and len(columns) > 3 and columns[1] not in ("Beam", "---"):
            yield columns[1], columns[2]


def is_here(name: str) -> bool:
    first, _, inner = name.partition(".")
    owners = [each for each in (df, dataflow.testing) if hasattr(each, first)]
    if not owners:
        return any(hasattr(each, name) for each in (df.PTransform, df.PCollection, df.DoFn))
    return not inner or hasattr(getattr(owners[0], first), inner)


NAMES = [(name, here) for beam, here in rows() for name in _NAME.findall(beam)]


def test_what_is_the_same_is_here() -> None:
    same = [name for name, here in NAMES if here == "the same"]

    assert [name for name in same if not is_here(name) and not is_here(f"DoFn.{name}")] == []


def test_what_is_absent_is_not_here() -> None:
    absent = [name for name, here in NAMES if here in ("absent", "not yet")]

    assert list(filter(is_here, absent)) == []


def test_what_it_is_called_here_is_here() -> None:
    names = [name for _, here in rows() for name in _NAME.findall(here) if here != "the same"]

    assert [
        name for name in names if not is_here(name) and not hasattr(df.TimestampCombiner, name)
    ] == []


def test_there_are_many() -> None:
    assert len(NAMES) > 80


def test_what_is_absent_is_so_in_every_row_and_has_a_reason() -> None:
    absent, present = set[str](), set[str]()
    for line in TABLE.read_text().splitlines():
        columns = [each.strip() for each in re.split(r"(?<!\\)\|", line)]
        if len(columns) < 5:
            continue
        names = re.findall(r"`([^`]+)`", columns[1])
        if columns[2] == "absent":
            absent.update(names)
            assert columns[3], line
        else:
            present.update(names)
    assert not absent & present
    assert len(absent) > 10

"""The document of what a driver knows: it reads as it was written, and says so when it cannot be read."""

import json
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import StoredFormatError
from runners.observability.evidence.snapshot import (
    VERSION,
    Doing,
    DriverEvidence,
    FreshnessObjective,
    Histogram,
    HotKey,
    JobSnapshot,
    RangeEvidence,
    SplitEvidence,
    StageEvidence,
    WorkerEvidence,
)
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

INSTANTS = st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)
HASHES = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]))
COUNTS = st.integers(0, 2**63 - 1)


def _built(kind: type, **given_fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Values of a class, with every field of it, also those that have defaults."""
    drawn = {}
    for field in attrs.fields(kind):
        drawn[field.name] = given_fields.get(field.name, _of_type(field.type, field.name))
    return st.builds(kind, **drawn)


def _of_type(kind: object, name: str) -> st.SearchStrategy[object]:
    plain = {
        int: INSTANTS if name.endswith("_us") else COUNTS,
        bool: st.booleans(),
        str: NAMES,
        float: st.floats(allow_nan=False, allow_infinity=False),
        Sequence[str]: st.lists(NAMES, max_size=3).map(tuple),
        Sequence[int]: st.lists(COUNTS, max_size=3).map(tuple),
    }
    for each, values in plain.items():
        if kind == each:
            return values
        if kind == (each | None):
            return st.none() | values
    return st.from_type(kind)  # type: ignore[arg-type]


SNAPSHOTS = _built(
    JobSnapshot,
    version=st.just(VERSION),
    driver=_built(DriverEvidence, moves=_built(Histogram)),
    objectives=st.lists(_built(FreshnessObjective), max_size=2),
    stages=st.dictionaries(NAMES, _built(StageEvidence), max_size=3),
    ranges=st.dictionaries(
        NAMES,
        _built(
            RangeEvidence,
            hot_keys=st.lists(_built(HotKey, key_hash=HASHES), max_size=2),
            poll=st.none() | _built(SplitEvidence),
            keys=st.none() | st.tuples(HASHES, HASHES),
            hashes=st.lists(HASHES, max_size=3),
        ),
        max_size=3,
    ),
    workers=st.lists(
        _built(WorkerEvidence, doing=st.none() | _built(Doing), commits=_built(Histogram)),
        max_size=3,
    ),
    counts=st.dictionaries(NAMES, COUNTS, max_size=3),
    rates=st.dictionaries(NAMES, st.floats(0, 1e9), max_size=3),
)


def _plain(snapshot: JobSnapshot) -> object:
    return json.loads(json.dumps(attrs.asdict(snapshot)))


@given(SNAPSHOTS)
def test_a_document_reads_as_it_was_written(snapshot: JobSnapshot) -> None:
    read = JobSnapshot.read(snapshot.write())
    assert _plain(read) == _plain(snapshot)
    assert JobSnapshot.read(read.write()) == read


@given(SNAPSHOTS)
def test_fields_of_later_documents_are_passed_over(snapshot: JobSnapshot) -> None:
    document = json.loads(snapshot.write())
    document["driver"]["later"] = document["later"] = [1]
    assert JobSnapshot.read(json.dumps(document).encode()) == JobSnapshot.read(snapshot.write())


@pytest.mark.parametrize(
    ("document", "what"),
    [(b'{"version": 2}', "later version"), (b"{}", "cannot be read"), (b"\0", "cannot be read")],
)
def test_what_is_no_such_document_is_refused(document: bytes, what: str) -> None:
    with pytest.raises(StoredFormatError, match=what):
        JobSnapshot.read(document)


def test_a_lag_is_inherited_or_its_own() -> None:
    """A stage is behind the clock by what it inherits and by what it makes, and a source makes all of it."""
    stage = StageEvidence(is_source=False, senders=("read",), input_us=70, output_us=40)
    source = StageEvidence(is_source=True, senders=(), input_us=None, output_us=40)
    assert (stage.inherited_lag_us(100), stage.own_lag_us(100)) == (30, 30)
    assert (source.inherited_lag_us(100), source.own_lag_us(100)) == (0, 60)

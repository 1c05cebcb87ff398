"""Laws of what is read from a replication slot: each message is read as it was written, and each change counts once."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import InputError
from dataflow.io.postgres_reads.change_decoder import ChangeDecoder
from dataflow.io.postgres_reads.keys import KeyOf
from dataflow.io.postgres_reads.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    LoggedChange,
    ProtocolError,
    Relation,
    Truncate,
    parse,
)
from dataflow.io.postgres_reads.positions import SlotPosition
from dataflow.io.postgres_reads.table import TableShape
from tests import pgoutput_bytes as encoded

LSNS = st.integers(0, (1 << 62) - 1)
TIMES_US = st.integers(0, 1 << 52)
OIDS = st.integers(1, (1 << 32) - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
VALUES = st.none() | st.binary(max_size=20) | st.just("unchanged")
ROWS = st.lists(VALUES, max_size=5)


def read(values: list[Any]) -> tuple[Any, ...]:
    return tuple(UNCHANGED if value == "unchanged" else value for value in values)


@given(lsn=LSNS, end=LSNS, at_us=TIMES_US)
def test_transactions_are_read_as_they_were_written(lsn: int, end: int, at_us: int) -> None:
    assert parse(encoded.begin(lsn, at_us)) == Begin(lsn, at_us)
    assert parse(encoded.commit(lsn, end, at_us)) == Commit(lsn, end, at_us)


@given(oid=OIDS, schema=NAMES, name=NAMES, columns=st.lists(st.tuples(NAMES, OIDS), max_size=5))
def test_tables_are_read_as_they_were_written(
    oid: int, schema: str, name: str, columns: list[tuple[str, int]]
) -> None:
    expected = Relation(oid, schema, name, "d", tuple(columns))
    assert parse(encoded.relation(oid, schema, name, columns, identity="d")) == expected


@given(oid=OIDS, old=ROWS, new=ROWS, kind=st.sampled_from("OK"))
def test_changes_are_read_as_they_were_written(
    oid: int, old: list[Any], new: list[Any], kind: str
) -> None:
    was, now, is_whole = read(old), read(new), kind == "O"
    assert parse(encoded.insert(oid, new)) == LoggedChange(oid, None, now, False)
    assert parse(encoded.update(oid, None, new)) == LoggedChange(oid, None, now, False)
    assert parse(encoded.update(oid, old, new, kind)) == LoggedChange(oid, was, now, is_whole)
    assert parse(encoded.delete(oid, old, kind)) == LoggedChange(oid, was, None, is_whole)


@given(oids=st.lists(OIDS, max_size=4))
def test_truncations_are_read_as_they_were_written(oids: list[int]) -> None:
    assert parse(encoded.truncate(*oids)) == Truncate(tuple(oids))


@given(oid=OIDS, old=ROWS, new=ROWS, data=st.data())
def test_a_message_that_is_cut_off_is_refused(
    oid: int, old: list[Any], new: list[Any], data: st.DataObject
) -> None:
    whole = encoded.update(oid, old, new)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ProtocolError):
        parse(cut)


# A server in memory: a log of transactions, and the table at each place of it.

OID, LSN_STEP = 77, 10
COLUMNS = (("id", 23), ("name", 25))
SHAPE = TableShape(
    oid=OID,
    schema="public",
    name="t",
    kind="r",
    identity="f",
    pages=1,
    columns=COLUMNS,
    key=(("id", 23),),
)
Row = tuple[bytes, bytes]
Table = dict[int, Row]


@attrs.frozen
class Transaction:
    """What it changes, as old and new rows, and the table behind it."""

    commit_lsn: int
    changes: list[tuple[Row | None, Row | None]]
    after: Table

    @property
    def end_lsn(self) -> int:
        return self.commit_lsn + 3

    def messages(self) -> list[bytes]:
        rows = [encoded.relation(OID, "public", "t", COLUMNS)]
        for old, new in self.changes:
            if old is None and new is not None:
                rows.append(encoded.insert(OID, new))
            elif old is not None and new is not None:
                rows.append(encoded.update(OID, old, new))
            elif old is not None:
                rows.append(encoded.delete(OID, old))
        return [
            encoded.begin(self.commit_lsn, self.commit_lsn),
            *rows,
            encoded.commit(self.commit_lsn, self.end_lsn, self.commit_lsn),
        ]


IDS = st.integers(1, 6)


@st.composite
def logs(draw: st.DrawFn) -> tuple[Table, list[Transaction]]:
    """A table, and what then happens to it."""
    table: Table = {each: (b"%d" % each, b"first") for each in draw(st.sets(IDS))}
    first, log = dict(table), []
    for number in range(draw(st.integers(0, 6))):
        changes: list[tuple[Row | None, Row | None]] = []
        for _ in range(draw(st.integers(1, 4))):
            old_id, new_id = draw(IDS), draw(IDS)
            name = draw(st.sampled_from([b"tea", b"cake"]))
            old = table.pop(old_id, None)
            if old is not None and draw(st.booleans()):
                changes.append((old, None))
            elif new_id not in table:
                table[new_id] = (b"%d" % new_id, name)
                changes.append((old, table[new_id]))
            elif old is not None:
                table[old_id] = old
        log.append(Transaction(LSN_STEP * (number + 1), changes, dict(table)))
    return first, log


class Reader:
    """Reads as the reader of a slot does, with any number of deaths, each of which goes on at the last position."""

    def __init__(self, first: Table, log: list[Transaction]) -> None:
        self._first, self._log = first, log
        self.position = SlotPosition(table=OID, columns=COLUMNS)
        self.records: Counter[tuple[Any, ...]] = Counter()

    def copy(self, lsn: int, rows_max: int | None) -> None:
        """Begin the copy, or go on with it, at a place in the log; die after so many rows, or None: end it."""
        self.position = self.position.began_copy(lsn)
        # Only those of the next place on are there, and see what was committed before.
        behind = [each.after for each in self._log if each.commit_lsn < lsn]
        table = behind[-1] if behind else self._first
        last = self.position.last_key
        left = [table[each] for each in sorted(table) if last is None or (each,) > last]
        for row in left[:rows_max]:
            self.records[row] += 1
            self.position = self.position.copied_to((int(row[0]),))
        if rows_max is None:
            self.position = self.position.copy_ended()
        self.position = SlotPosition.of(self.position.plain())

    def follow(self, records_max: int | None, keepalive: int = 0) -> None:
        """Read the log from the position on; die after so many records, or None: at the end."""
        decoder = ChangeDecoder(
            self.position,
            name="t",
            key_of=KeyOf(SHAPE, COLUMNS),
        )
        if decoder.is_between_transactions:
            decoder.passed(keepalive)
        taken = 0
        sent = [each for each in self._log if each.commit_lsn >= self.position.lsn]
        for message in [message for each in sent for message in each.messages()]:
            decoder.take(message)
            while decoder.pending:
                if taken == records_max:
                    self.position = SlotPosition.of(decoder.position.plain())
                    return
                raw, sign = decoder.pending.popleft()
                if raw is not None:
                    self.records[raw] += sign
                    assert self.records[raw] >= 0, "a retraction comes after its record"
                    taken += 1
        self.position = SlotPosition.of(decoder.position.plain())


def check_handover(
    reader_of: Callable[[Table, list[Transaction]], Reader],
    first: Table,
    log: list[Transaction],
    copies: list[tuple[int, int]],
    reads: list[int],
) -> None:
    reader = reader_of(first, log)
    places = sorted(LSN_STEP * place + 5 for place, _ in copies)
    for place, (_, rows) in zip(places, copies, strict=True):
        reader.copy(place, rows)
    reader.copy(places[-1] if places else 0, None)
    for records in reads:
        reader.follow(records)
    reader.follow(None)
    expected = log[-1].after if log else first
    assert +reader.records == Counter(expected.values())
    assert not -reader.records


COPIES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4)), max_size=4)
READS = st.lists(st.integers(0, 3), max_size=6)


@given(story=logs(), copies=COPIES, reads=READS)
def test_copy_and_changes_have_no_gap_and_no_overlap(
    story: tuple[Table, list[Transaction]], copies: list[tuple[int, int]], reads: list[int]
) -> None:
    """Wherever the copy is broken off and begun again, and wherever the reading of changes is."""
    check_handover(Reader, *story, copies, reads)


ROWS_OF = {each: (b"%d" % each, b"first") for each in (1, 2)}
CHANGED = {**ROWS_OF, 1: (b"1", b"tea"), 2: (b"2", b"tea")}
LOG = [
    Transaction(10, [(ROWS_OF[1], CHANGED[1]), (ROWS_OF[2], CHANGED[2])], CHANGED),
    Transaction(20, [(CHANGED[2], None)], {1: CHANGED[1]}),
]


class _Forgetful(Reader):
    """Each has one mistake that the law must find."""

    mistake = ""

    def copy(self, lsn: int, rows_max: int | None) -> None:
        super().copy(lsn, rows_max)
        if self.mistake == "one segment":
            # As if all keys had been read in the last snapshot.
            segments = self.position.segments[-1:]
            self.position = attrs.evolve(self.position, segments=segments, lsn=segments[0].lsn)
        if self.mistake == "no segments":
            self.position = attrs.evolve(self.position, segments=())

    def follow(self, records_max: int | None, keepalive: int = 0) -> None:
        if self.mistake == "no index":
            self.position = attrs.evolve(self.position, index=0)
        super().follow(records_max, keepalive)


@pytest.mark.parametrize(
    ("mistake", "copies", "reads"),
    [
        ("", [(0, 1), (1, 0)], [1, 1]),
        ("one segment", [(0, 1), (1, 1)], []),
        ("no segments", [(0, 1), (1, 1)], []),
        ("no index", [(0, 1)], [1]),
    ],
)
def test_a_mistake_is_found(mistake: str, copies: list[tuple[int, int]], reads: list[int]) -> None:
    def reader_of(first: Table, log: list[Transaction]) -> Reader:
        reader = _Forgetful(first, log)
        reader.mistake = mistake
        return reader

    if not mistake:
        check_handover(reader_of, ROWS_OF, LOG, copies, reads)
        return
    with pytest.raises(AssertionError):
        check_handover(reader_of, ROWS_OF, LOG, copies, reads)


def decoder() -> ChangeDecoder:
    position = SlotPosition(table=OID, columns=COLUMNS, is_copied=True)
    made = ChangeDecoder(position, name="t", key_of=None)
    made.take(encoded.begin(10, 10))
    return made


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([encoded.relation(OID, "public", "t", COLUMNS[:1])], "lost the column 'name'"),
        (
            [encoded.relation(OID, "public", "t", [("id", 20), ("name", 25)])],
            "'id' of t has changed its type",
        ),
        ([encoded.relation(OID, "public", "t", COLUMNS, identity="d")], "not logged in full"),
        (
            [
                encoded.relation(OID, "public", "t", COLUMNS),
                encoded.delete(OID, [b"1", None], kind="K"),
            ],
            "not logged in full",
        ),
        ([encoded.truncate(3, OID)], "was truncated"),
        ([b"X"], "malformed"),
    ],
)
def test_what_cannot_be_followed_is_refused(messages: list[bytes], words: str) -> None:
    reader = decoder()
    for message in messages[:-1]:
        reader.take(message)
    with pytest.raises(InputError, match=words):
        reader.take(messages[-1])


def test_other_tables_and_added_columns_are_passed_over() -> None:
    reader = decoder()
    reader.take(encoded.relation(5, "public", "other", [("x", 23)]))
    reader.take(encoded.insert(5, [b"1"]))
    reader.take(encoded.truncate(5))
    reader.take(encoded.relation(OID, "public", "t", [("added", 16), *COLUMNS]))
    reader.take(encoded.insert(OID, [b"t", b"1", b"tea"]))
    assert reader.pending.popleft() == ((b"1", b"tea"), +1)


def test_a_large_value_that_is_not_sent_is_that_of_the_old_row() -> None:
    reader = decoder()
    reader.take(encoded.relation(OID, "public", "t", COLUMNS))
    reader.take(encoded.update(OID, [b"1", b"large"], [b"2", "unchanged"]))
    assert reader.pending.popleft() == ((b"1", b"large"), -1)
    assert reader.pending.popleft() == ((b"2", b"large"), +1)

"""Checks of rows for people: result tables, late records, dead letters."""

import math
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import attrs

from dataflow.errors import TableRowError
from dataflow.table import TableSpec, TableWrite
from runners.errors import StoreError, TableMismatchError
from runners.millwheel.model.production import LateRecord, StoredDeadLetter
from runners.millwheel.store.port import Fenced
from runners.testing.store_conformance.world import (
    JOB,
    LOG,
    LOW,
    SCORES,
    Owner,
    StoreFactory,
    cell,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
)

#: So many that a store may take another way for them.
_MANY_ROWS = 20_000


def check_late_records(connect: StoreFactory) -> None:
    """Late records are kept as they are, in order; text that is no text does not stop a commit."""
    store = opened(connect)
    owner = Owner(store, LOW)
    late = LateRecord(
        transform="Sum",
        key="red",
        window_start_us=-5,
        window_end_us=5,
        watermark_us=99,
        payload=b"\x80\x00",
        count=3,
    )
    odd = attrs.evolve(late, key="a\0b\ud800")
    owner.commit(late=[late, late])
    owner.commit(late=[odd])
    rows = connect().read_late(JOB)
    numbers = [row["number"] for row in rows]
    expect_equal(numbers, sorted(set(numbers)), "the numbers of late records")
    shown = [{name: row[name] for name in attrs.asdict(late)} for row in rows[:2]]
    expect_equal(shown, [attrs.asdict(late)] * 2, "late records")
    expect_equal(rows[2]["key"], "a\\x00b\\ud800", "a key that is no text, escaped")
    expect_equal(store.statistics(JOB)["late"], 3, "number of late records")
    expect_equal(list(store.read_late("nobody")), [], "late records of an unknown job")


def check_late_counts(connect: StoreFactory) -> None:
    """Records are counted, not rows; by transform, and for each job by itself."""
    store = opened(connect)
    store.open_job(job_spec("second"))
    owner = Owner(store, LOW)
    late = LateRecord(
        transform="Sum",
        key="red",
        window_start_us=0,
        window_end_us=5,
        watermark_us=99,
        payload=b"",
        count=3,
    )
    expect_equal(dict(store.read_late_counts(JOB)), {}, "late records when none has come")
    owner.commit(late=[late, attrs.evolve(late, transform="Group", count=1)])
    owner.commit(late=[attrs.evolve(late, window_end_us=7, count=1 << 40)])
    counts = connect().read_late_counts(JOB)
    expect_equal(dict(counts), {"Sum": (1 << 40) + 3, "Group": 1}, "late records by transform")
    expect(all(type(each) is int for each in counts.values()), f"whole numbers, not {counts!r}")
    expect_equal(dict(store.read_late_counts("second")), {}, "late records of another job")
    expect_equal(dict(store.read_late_counts("nobody")), {}, "late records of an unknown job")


def check_keyed_table(connect: StoreFactory) -> None:
    """Rows replace the row of their key."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(tables=[TableWrite(table=SCORES, upserts=[("red", 1), ("blue", 2)])])
    owner.commit(tables=[TableWrite(table=SCORES, upserts=[("red", 9), ("a'; --", 3)])])
    rows = sorted(connect().read_table(SCORES))
    expect_equal(rows, [("a'; --", 3), ("blue", 2), ("red", 9)], "rows of a table with a key")


def check_table_without_key(connect: StoreFactory) -> None:
    """Rows are added, equal ones too."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(tables=[TableWrite(table=LOG, inserts=[("red", 1), ("red", 1)])])
    owner.commit(tables=[TableWrite(table=LOG, inserts=[("blue", 2)])])
    rows = sorted(connect().read_table(LOG))
    expect_equal(rows, [("blue", 2), ("red", 1), ("red", 1)], "rows of a table without a key")


def check_many_rows(connect: StoreFactory) -> None:
    """Many rows of a table without key, of every type, come back equal; those of a fenced owner do not come at all."""
    columns = {"id": int, "share": float, "name": str, "flag": bool, "raw": bytes, "at": datetime}
    table = TableSpec(name="many", columns=columns)
    numbers = TableSpec(name="numbers", columns={"id": int, "share": float, "at": datetime})
    store = connect()
    store.open_job(attrs.evolve(job_spec(), tables=[table, numbers]))
    start = datetime(1999, 12, 31, 23, tzinfo=UTC)
    whole = [
        (
            n - 5,
            n / 7,
            f"naïve {n}",
            n % 2 > 0,
            b"\0" * (n % 3),
            start + timedelta(seconds=n, microseconds=1),
        )
        for n in range(_MANY_ROWS)
    ]
    holes = [
        tuple(None if n % 6 == at else each for at, each in enumerate(row))
        for n, row in enumerate(whole)
    ]
    narrow = [(row[0], row[1], row[5]) for row in whole]
    owner = Owner(store, LOW)
    writes = [TableWrite(table=table, inserts=whole), TableWrite(table=numbers, inserts=narrow)]
    owner.commit(cells=[cell(b"k", b"1")], tables=writes)
    owner.commit(tables=[TableWrite(table=table, inserts=holes)])
    found = connect().read_table(table)
    expect(
        sorted(found, key=repr) == sorted([*whole, *holes], key=repr),
        "many rows came back otherwise",
    )
    expect(sorted(store.read_table(numbers)) == sorted(narrow), "many numbers came back otherwise")
    expect_equal(store.statistics(JOB)["cells"], 1, "cells beside many rows")
    Owner(connect(), LOW, name="another")
    fenced = owner.production(tables=[TableWrite(table=numbers, inserts=narrow)])
    expect_equal(store.commit(fenced), Fenced(LOW), "many rows of a fenced owner")
    expect_equal(len(store.read_table(numbers)), _MANY_ROWS, "rows after those of a fenced owner")


def check_column_types(connect: StoreFactory) -> None:
    """Every column type comes back equal, extremes and nulls included; names are quoted."""
    table = TableSpec(
        name="odd.Types %s",
        columns={
            "id": int,
            "a float": float,
            'te"xt': str,
            "flag": bool,
            "raw": bytes,
            "at": datetime,
        },
        key=("id", "at"),
    )
    store = connect()
    store.open_job(attrs.evolve(job_spec(), tables=[table]))
    east = timezone(timedelta(hours=5, minutes=30))
    rows = [
        (
            -(1 << 63),
            math.inf,
            "naïve \U0001f600\n",
            True,
            b"\x00\xff",
            datetime.max.replace(tzinfo=UTC),
        ),
        ((1 << 63) - 1, -0.1, "", False, b"", datetime.min.replace(tzinfo=UTC)),
        (0, None, None, None, None, datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=east)),
        (1, 3, "int in float column", True, b"", datetime(1970, 1, 1, tzinfo=UTC)),
    ]
    owner = Owner(store, LOW)
    owner.commit(tables=[TableWrite(table=table, upserts=rows)])
    expect_equal(sorted(connect().read_table(table)), sorted(rows), "rows of all types")
    not_a_number = (5, math.nan, "", True, b"", rows[3][5])
    owner.commit(tables=[TableWrite(table=table, upserts=[not_a_number])])
    (number,) = (row[1] for row in connect().read_table(table) if row[0] == 5)
    expect(math.isnan(number), f"NaN came back as {number!r}")


def check_rows_that_do_not_fit(connect: StoreFactory) -> None:
    """A row that the table cannot hold is refused before anything happens."""
    store = opened(connect)
    owner = Owner(store, LOW)
    bad_rows = [("red", "1"), ("red", True), ("red",), (None, 1), ("a\0b", 1), ("\ud800", 1)]
    for row in [*bad_rows, ("red", 1 << 63), (b"red", 1)]:
        production = owner.production(
            cells=[cell(b"k", b"1")], tables=[TableWrite(table=SCORES, upserts=[row])]
        )
        expect_error(TableRowError, partial(store.commit, production), f"the row {row!r}")
    unknown = TableSpec(name="nobody", columns={"a": int})
    write = TableWrite(table=unknown, inserts=[(1,)])
    production = owner.production(cells=[cell(b"k", b"1")], tables=[write])
    expect_error(StoreError, lambda: store.commit(production), "a table that is not there")
    expect_error(StoreError, lambda: store.read_table(unknown), "reading no table")
    owner.commit()
    expect_equal(store.statistics(JOB)["cells"], 0, "cells of refused productions")
    expect_equal(store.read_table(SCORES), [], "rows of refused productions")


def check_open_refuses_another_table(connect: StoreFactory) -> None:
    """A table of the same name and another shape is refused, and the job is not created."""
    store = opened(connect)
    columns = {"team": str, "total": int}
    others = [
        TableSpec(name="scores", columns={**columns, "total": float}, key=("team",)),
        TableSpec(name="scores", columns={"team": str}, key=("team",)),
        TableSpec(name="scores", columns={**columns, "more": int}, key=("team",)),
        TableSpec(name="scores", columns=columns),
        TableSpec(name="scores", columns=columns, key=("team", "total")),
    ]
    for table in others:
        spec = attrs.evolve(job_spec("second"), tables=[table])
        expect_error(TableMismatchError, partial(store.open_job, spec), str(table))
        expect_equal(store.read_job("second"), None, "a job whose table was refused")


def check_dead_letters(connect: StoreFactory) -> None:
    """Dead letters are kept in the same commit as the rest, in order, whatever text user code puts into errors."""
    store = opened(connect)
    owner = Owner(store, LOW)
    letter = StoredDeadLetter(
        stage="read",
        error="it raised ValueError",
        traceback="Traceback ...",
        tries=3,
        timestamp_us=-5,
        payload=b"\x00\xff",
    )
    owner.commit(dead=[letter, attrs.evolve(letter, tries=1, timestamp_us=1 << 50)])
    owner.commit(dead=[attrs.evolve(letter, error="a\0b\ud800")])
    rows = [dict(row) for row in connect().read_dead_letters(JOB)]
    numbers = [row.pop("number") for row in rows]
    expect_equal(numbers, sorted(set(numbers)), "the numbers of dead letters")
    expect_equal(rows[:1], [attrs.asdict(letter)], "a dead letter")
    expect_equal([row["timestamp_us"] for row in rows], [-5, 1 << 50, -5], "their order")
    expect_equal(rows[2]["error"], "a\\x00b\\ud800", "text that is no text")
    expect_equal(store.statistics(JOB)["dead"], 3, "number of dead letters")
    expect_equal(list(store.read_dead_letters("nobody")), [], "dead letters of an unknown job")
    thief = Owner(connect(), LOW, name="thief")
    stale = owner.production(dead=[letter])
    expect_equal(store.commit(stale), Fenced(LOW), "a zombie's dead letter")
    thief.commit()
    expect_equal(store.statistics(JOB)["dead"], 3, "dead letters after a zombie")
    store.reset_job(JOB)
    expect_equal(list(store.read_dead_letters(JOB)), [], "dead letters after a reset")

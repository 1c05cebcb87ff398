"""Checks of rows that are emitted and retracted: which of them are deleted, and where they may be added."""

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

import attrs

from dataflow.errors import TableConflictError
from dataflow.table import Row, RowChange, TableSpec, TableWrite
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
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

_INTERLEAVINGS, _STEPS = 12, 8


def check_changed_rows(connect: StoreFactory) -> None:
    """A row that can be retracted is deleted only if all of it is as emitted, and added only where there is no row."""
    store = opened(connect)
    owner = Owner(store, LOW)
    first = [(None, ("red", 1)), (None, ("blue", 2)), (None, ("a'; --", 3))]
    owner.commit(tables=[TableWrite(table=SCORES, changes=first)])
    changes = [(("red", 1), ("red", 9)), (("blue", 2), None), (("a'; --", 4), None)]
    owner.commit(tables=[TableWrite(table=SCORES, changes=[*changes, (("nobody", 1), None)])])
    rows = sorted(connect().read_table(SCORES))
    expect_equal(rows, [("a'; --", 3), ("red", 9)], "rows after some were retracted")
    for change in [(None, ("red", 1)), (None, ("red", 9)), (("red", 1), ("red", 2))]:
        write = TableWrite(table=SCORES, changes=[(None, ("new", 1)), change])
        refused = owner.production(cells=[cell(b"k", b"1")], tables=[write])
        expect_error(TableConflictError, partial(store.commit, refused), f"{change} beside another")
    both = [TableWrite(table=SCORES, changes=[each]) for each in first[1:2] * 2]
    refused = owner.production(cells=[cell(b"k", b"1")], tables=both)
    expect_error(TableConflictError, partial(store.commit, refused), "two rows in one commit")
    expect_equal(store.statistics(JOB)["cells"], 0, "cells of refused productions")
    expect_equal(sorted(store.read_table(SCORES)), rows, "rows after refused productions")
    owner.commit(tables=[TableWrite(table=SCORES, changes=[(("red", 9), None)])])
    owner.commit(tables=[TableWrite(table=SCORES, changes=[(None, ("red", 5))])])
    expect_equal(
        sorted(store.read_table(SCORES)), [("a'; --", 3), ("red", 5)], "a row after another"
    )


def check_changes_in_any_order(connect: StoreFactory) -> None:
    """Whatever two owners emit and retract, in any order: the rows of the multiset, or a refusal."""
    random = Random(5)  # noqa: S311 - the same each time
    table = TableSpec(name="shared", columns={"k": int, "v": float}, key=("k",))
    store = connect()
    store.open_job(attrs.evolve(job_spec(), tables=[table]))
    owners = [Owner(connect(), LOW), Owner(connect(), HIGH)]
    standing: Counter[Row] = Counter()
    ended: Counter[bool] = Counter()
    for number in range(_INTERLEAVINGS):
        rows: list[Row | None] = [None, None]
        for _ in range(_STEPS):
            who = random.randrange(2)
            before, after = rows[who], None
            if random.random() < 0.8:
                after = (10 * number + random.randrange(3 + 3 * who), float(who))
            changes = _changes(before, after)
            try:
                owners[who].commit(tables=[TableWrite(table=table, changes=changes)])
            except TableConflictError:
                # None of its changes has happened.
                ended[False] += 1
                continue
            ended[True] += 1
            rows[who] = after
            standing.subtract([each for each in [before] if each])
            standing.update([each for each in [after] if each])
        expect_equal(Counter(store.read_table(table)), +standing, f"rows of interleaving {number}")
    expect(len(ended) == 2, "some are refused, and others are not")


def _changes(before: Row | None, after: Row | None) -> list[RowChange]:
    if before is not None and after is not None and before[0] == after[0]:
        return [(before, after)]
    changes: list[RowChange] = [(before, None), (None, after)]
    return [each for each in changes if any(each)]


def check_rows_are_retracted_whole(connect: StoreFactory) -> None:
    """Rows of every type are retracted as a whole, nulls and NaN included; one other value makes another row."""
    columns = {"id": int, "share": float, "name": str, "flag": bool, "raw": bytes, "at": datetime}
    table = TableSpec(name="whole", columns=columns, key=("id",))
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    store = connect()
    store.open_job(attrs.evolve(job_spec(), tables=[table]))
    rows: list[Row] = [
        (1, math.nan, "naïve", True, b"\0", noon),
        (2, None, None, None, None, None),
        (3, -0.1, "", False, b"", noon),
        (4, 1e300, "", False, b"", None),
    ]
    owner = Owner(store, LOW)
    owner.commit(tables=[TableWrite(table=table, changes=[(None, row) for row in rows])])
    for index, other in [(1, 2.0), (2, "x"), (3, None), (4, b"x"), (5, noon + timedelta(hours=1))]:
        others = [(*row[:index], other, *row[index + 1 :]) for row in rows if row[index] != other]
        changes: list[RowChange] = [(each, None) for each in others]
        owner.commit(tables=[TableWrite(table=table, changes=changes)])
    expect_equal(len(store.read_table(table)), len(rows), "rows after others were retracted")
    owner.commit(tables=[TableWrite(table=table, changes=[(row, None) for row in rows])])
    expect_equal(store.read_table(table), [], "rows after they were retracted")

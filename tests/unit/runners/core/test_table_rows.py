"""The net effect of a bundle of signed rows on a table."""

from collections import Counter
from datetime import datetime
from itertools import combinations, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import TransformNode, WriteTable
from dataflow.table import TableSpec
from runners.core.ground.bundle import Bundle
from runners.core.tables.changelog import Rows, apply_table_write
from runners.core.tables.row_changes import RowChanges
from runners.core.tables.rows import table_write
from tests.ids import shown

TABLE = TableSpec(name="t", columns={"key": int, "value": int}, key=("key",))
NODE = TransformNode(
    label="write", location="here.py:1", operation=WriteTable(TABLE), inputs=(0,), outputs={}
)


def bundle(changes: list[tuple[int, int, int]]) -> Bundle:
    """Of ``(sign, key, value)``."""
    return Bundle(
        [{"key": key, "value": value} for _, key, value in changes],
        [0] * len(changes),
        signs=[sign for sign, _, _ in changes],
    )


@pytest.mark.parametrize(
    ("emitted", "changes"),
    [
        ([(-1, 1, 5), (1, 1, 6)], [((1, 5), (1, 6))]),
        ([(-1, 1, 5)], [((1, 5), None)]),
        ([(1, 1, 5), (-1, 1, 5)], []),
        ([(-1, 1, 5), (1, 1, 5)], []),
        ([(-1, 1, 5), (-1, 2, 6), (1, 1, 11)], [((1, 5), (1, 11)), ((2, 6), None)]),
        # Another's row comes before this one is retracted.
        ([(1, 1, 6), (-1, 1, 5)], [((1, 5), (1, 6))]),
    ],
    ids=shown,
)
def test_what_is_left_of_a_bundle_is_written(emitted: Any, changes: Any) -> None:
    write = table_write(NODE, TABLE, bundle(emitted), is_retracted=True)

    assert (list(write.changes), list(write.upserts), list(write.inserts)) == (changes, [], [])


def test_of_rows_that_are_never_retracted_the_last_counts() -> None:
    write = table_write(
        NODE, TABLE, Bundle([{"key": 1, "value": 5}, {"key": 1, "value": 6}], [0, 0])
    )

    assert (list(write.upserts), list(write.changes)) == ([(1, 6)], [])


@pytest.mark.parametrize("other", [5, 6])
def test_two_rows_of_one_key_name_the_transform(other: int) -> None:
    """Also where they are equal: when one is retracted, the other is still there."""
    with pytest.raises(
        df.TableConflictError, match=rf"(?s)'write'.*two results.*\(1, 5\).*\(1, {other}\)"
    ):
        table_write(NODE, TABLE, bundle([(1, 1, 5), (1, 1, other)]), is_retracted=True)


#: What each of some groups emits: of one row after the other, each of some key.
GROUPS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=4), min_size=1, max_size=3
)


@given(groups=GROUPS, data=st.data())
def test_any_changes_leave_the_rows_of_the_multiset_or_are_refused(
    groups: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """Whoever emits and retracts, in whatever order, in whatever bundles."""
    changes = data.draw(interleaved(groups))
    emitted = Counter[tuple[int, int]]()
    for sign, *row in changes:
        emitted[row[0], row[1]] += sign
    rows: Rows = {}
    cuts = data.draw(st.lists(st.integers(0, len(changes)), max_size=4))
    bounds = [0, *sorted(cuts), len(changes)]
    try:
        for low, high in pairwise(bounds):
            some = bundle(changes[low:high])
            apply_table_write(rows, table_write(NODE, TABLE, some, is_retracted=True))
    except df.TableConflictError:
        owners = [{key for key, _ in group} for group in groups]
        assert any(one & other for one, other in combinations(owners, 2))
    else:
        assert Counter(rows.values()) == +emitted


@given(
    retracted=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3))),
    emitted=st.dictionaries(st.integers(0, 2), st.integers(0, 3)),
)
def test_changes_that_wait_for_each_other_lose_nothing(
    retracted: set[tuple[int, int]], emitted: dict[int, int]
) -> None:
    """Several rows of a key may be retracted before the one or the other is emitted, by a bundle still to come."""
    table = TableSpec(name="t", columns={"key": int, "value": int}, key=("key",))
    changes = RowChanges(table)
    changes.add(retracted, [-1] * len(retracted))
    changes.add(emitted.items(), [+1] * len(emitted))
    together = RowChanges(table)
    together.take(changes.net())
    expected = Counter(emitted.items())
    expected.subtract(retracted)
    found = Counter[Any]()
    for before, after in together.net():
        found[before] -= before is not None
        found[after] += after is not None

    assert {row: count for row, count in found.items() if count} == {
        row: count for row, count in expected.items() if count
    }


@st.composite
def interleaved(draw: st.DrawFn, groups: list[list[tuple[int, int]]]) -> list[tuple[int, int, int]]:
    """What the groups emit, each in its order; before a row comes the one before it is retracted, or goes with it."""
    waiting = []
    for group in groups:
        steps = []
        for before, row in pairwise([None, *group]):
            assert row is not None
            steps.append([*([(-1, *before)] if before else []), (1, *row)])
        waiting.append(steps)
    found: list[tuple[int, int, int]] = []
    while any(waiting):
        index = draw(st.sampled_from([at for at, steps in enumerate(waiting) if steps]))
        found += waiting[index].pop(0)
    return found


@given(
    keys=st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), max_size=20),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_bundle_bounds_do_not_matter(keys: list[tuple[int, int]], cuts: list[int]) -> None:
    """Replacing values of keys, cut into any bundles, leaves the last value of each."""
    emitted: dict[int, int] = {}
    changes = []
    for key, value in keys:
        if key in emitted:
            changes.append((-1, key, emitted[key]))
        changes.append((1, key, value))
        emitted[key] = value
    rows: Rows = {}
    bounds = [0, *sorted(min(cut, len(changes)) for cut in cuts), len(changes)]
    for low, high in pairwise(bounds):
        some = bundle(changes[low:high])
        apply_table_write(rows, table_write(NODE, TABLE, some, is_retracted=True))

    assert emitted == {row[0]: row[1] for row in rows.values()}


def test_values_are_checked_before_keys_are_compared() -> None:
    """A key that cannot be hashed is a row that does not fit."""
    with pytest.raises(
        df.DataflowError, match=r"^transform 'write' .here.py:1.: a row does not fit"
    ):
        table_write(NODE, TABLE, Bundle([{"key": [1], "value": 1}], [0]))


BERLIN = ZoneInfo("Europe/Berlin")
#: The clocks of Berlin show this twice, and Python calls both readings equal.
TWICE = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
MOMENTS = TableSpec(name="moments", columns={"at": datetime, "flag": bool}, key=("at", "flag"))


def test_two_moments_that_a_clock_shows_alike_are_two_rows() -> None:
    """In one bundle as in two: rows are kept, and compared, in UTC."""
    changes = [{"at": at, "flag": True} for at in (TWICE, TWICE.replace(fold=1))]
    whole: Rows = {}
    apply_table_write(whole, table_write(NODE, MOMENTS, Bundle(changes, [0, 0])))
    single: Rows = {}
    for each in changes:
        apply_table_write(single, table_write(NODE, MOMENTS, Bundle([each], [0])))

    assert whole == single
    assert ["00:30 UTC", "01:30 UTC"] == [f"{at:%H:%M %Z}" for at, _ in whole.values()]


def test_a_column_of_booleans_takes_the_key_that_stands_for_one() -> None:
    """1 and 0, and no other number."""
    rows: Rows = {}
    values = [{"at": TWICE, "flag": flag} for flag in (1, False)]
    apply_table_write(rows, table_write(NODE, MOMENTS, Bundle(values, [0, 0])))

    assert [True, False] == [flag for _, flag in rows.values()]
    assert all(type(flag) is bool for _, flag in rows.values())
    with pytest.raises(df.TableRowError, match=r"flag \(bool\) holds 2"):
        table_write(NODE, MOMENTS, Bundle([{"at": TWICE, "flag": 2}], [0]))

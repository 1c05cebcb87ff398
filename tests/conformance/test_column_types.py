"""Every type of column, on both stores and every runner: what is written is read, and is retracted exactly."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from types import GenericAlias
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import TableRowError
from dataflow.table import Row, TableSpec, TableWrite
from runners.core.tables.changelog import check_rows
from runners.core.tables.row_changes import comparable
from runners.core.tables.values import as_stored, size_of_rows
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec, Store
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.tables import COPY_ROWS_MIN
from tests.conformance.conftest import MakeRunner
from tests.ids import shown


class Color(StrEnum):
    RED = "red"
    BLUE = 'it\'s \\ "blue"'


class Size(Enum):
    SMALL = 1
    LARGE = (2, 3)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    float: st.floats(),
    str: TEXTS,
    bool: st.booleans(),
    bytes: st.binary(max_size=5),
    datetime: st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
    Decimal: st.decimals(allow_nan=True).filter(
        lambda x: not x.is_snan() and abs(_exponent(x)) < 9_000
    )
    | st.sampled_from(
        [
            Decimal("0.10"),
            Decimal("-0.00"),
            Decimal("1E+3"),
            Decimal("9" * 40 + ".01"),
            Decimal("Infinity"),
        ]
    )
    | st.integers(-(10**30), 10**30),
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas() | st.sampled_from([timedelta.min, timedelta.max]),
    UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Size: st.sampled_from(Size),
}
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    **SCALARS,
    dict: st.dictionaries(TEXTS, JSON, max_size=3),
    list: st.lists(JSON, max_size=3),
    **{
        GenericAlias(list, (kind,)): st.lists(st.none() | each, max_size=3)
        for kind, each in SCALARS.items()
    },
}
COLUMNS = {"id": int, **{f"c{index}": kind for index, kind in enumerate(VALUES)}}
ROWS = st.lists(st.tuples(*[st.none() | each for each in VALUES.values()]), min_size=1, max_size=3)
ADDED = TableSpec(name="added", columns=COLUMNS)
KEYED = TableSpec(name="keyed", columns=COLUMNS, key=("id",))
RANGE = RangeId("count", 0)
SPEC = JobSpec(
    job="job",
    mode="streaming",
    fingerprint="f",
    ranges=[RangeSpec(range_id=RANGE, keys=even_ranges(1)[0])],
    tables=[ADDED, KEYED],
)


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def spelled(value: Any) -> Any:
    """A value with all its types; JSON has no order of names."""
    if isinstance(value, dict):
        return {name: spelled(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(each) for each in value]
    return type(value).__name__, repr(value)


class Committing:
    """A store with one worker."""

    def __init__(self, store: Store) -> None:
        self.store, self.next_id = store, 0
        store.open_job(SPEC)

    def commit(self, **parts: Any) -> None:
        table: TableSpec = parts["table"]
        assert isinstance(table, TableSpec)
        row = self.store.acquire("job", [RANGE], "worker")[RANGE].row
        fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
        production = Production(job="job", fences=[fence], tables=[TableWrite(**parts)])
        assert self.store.commit(production) == Committed()

    def with_ids(self, rows: Sequence[Row], table: TableSpec) -> Sequence[Row]:
        self.next_id += len(rows)
        first = self.next_id - len(rows)
        return as_stored(table, [(first + at, *row) for at, row in enumerate(rows)])

    def read(self, table: TableSpec, first: int) -> list[Any]:
        return [
            spelled(row)
            for row in sorted(self.store.read_table(table), key=lambda r: r[0])
            if row[0] >= first
        ]


@pytest.fixture(params=["memory", pytest.param("postgres", marks=[pytest.mark.postgres])])
def stored(request: pytest.FixtureRequest) -> Iterator[Committing]:
    if request.param == "memory":
        yield Committing(MemoryStore())
        return
    store = PostgresStore(request.getfixturevalue("store_dsn"))
    yield Committing(store)
    store.close()


_ON_ONE_STORE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=12,
    deadline=None,
    # Each example is several transactions: what fails is shown as it is.
    phases=(Phase.explicit, Phase.generate),
)


@given(rows=ROWS)
@_ON_ONE_STORE
def test_rows_that_are_added_are_read_as_they_were_written(
    stored: Committing, rows: list[Row]
) -> None:
    found = stored.with_ids(rows, ADDED)
    stored.commit(table=ADDED, inserts=found)

    assert [spelled(row) for row in found] == stored.read(ADDED, found[0][0])


@pytest.mark.slow
@given(rows=ROWS)
@settings(_ON_ONE_STORE, max_examples=3)
def test_rows_that_go_by_copy_are_read_as_they_were_written(
    stored: Committing, rows: list[Row]
) -> None:
    found = stored.with_ids(rows * (1 + COPY_ROWS_MIN // len(rows)), ADDED)
    stored.commit(table=ADDED, inserts=found)

    read = stored.read(ADDED, found[0][0])
    assert len(found) == len(read)
    assert [spelled(row) for row in found[:9]] == read[:9]
    assert spelled(found[-1]) == read[-1]


@pytest.mark.slow
@given(rows=ROWS, later=ROWS)
@_ON_ONE_STORE
def test_rows_that_are_replaced_and_retracted(
    stored: Committing, rows: list[Row], later: list[Row]
) -> None:
    """A retraction of a row finds it, and that of another row does not."""
    first = stored.next_id
    found = stored.with_ids(rows, KEYED)
    stored.commit(table=KEYED, upserts=found)
    others = as_stored(KEYED, [(0, *each) for each in later])
    again = [(row[0], *other[1:]) for row, other in zip(found, others, strict=False)]
    stored.commit(table=KEYED, upserts=again)
    expected = {row[0]: row for row in [*found, *again]}
    assert [spelled(row) for row in expected.values()] == stored.read(KEYED, first)

    gone = [row for row in found if comparable(row) != comparable(expected[row[0]])]
    stored.commit(table=KEYED, changes=[(row, None) for row in gone])
    assert len(expected) == len(stored.read(KEYED, first))

    stored.commit(table=KEYED, changes=[(row, None) for row in expected.values()])
    assert stored.read(KEYED, first) == []


@given(rows=ROWS)
def test_what_is_stored_stays_as_it_is(rows: list[Row]) -> None:
    """And fits; its size is not less than nothing."""
    found = as_stored(ADDED, [(0, *row) for row in rows])

    check_rows(ADDED, found)
    assert spelled(found) == spelled(as_stored(ADDED, found))
    assert size_of_rows(TableWrite(table=ADDED, inserts=found)) >= 8 * len(COLUMNS)


SCALARS_OF_NUMPY: Sequence[tuple[Any, Any, Any]] = (
    (int, np.int64(-7), -7),
    (int, np.uint8(7), 7),
    (float, np.float32(0.5), 0.5),
    (float, np.float64(0.1), 0.1),
    (float, np.int32(3), 3.0),
    (bool, np.bool_(False), False),
    (str, np.str_("x"), "x"),
    (bytes, np.bytes_(b"x"), b"x"),
    (Decimal, np.int64(12), Decimal(12)),
    (list[int], [np.int64(1), None], [1, None]),
    (list[float], [np.float32(0.5)], [0.5]),
)


def test_scalars_of_numpy_are_what_they_stand_for() -> None:
    """So what is committed are plain values, whatever the store."""
    columns = {f"c{index}": kind for index, (kind, _, _) in enumerate(SCALARS_OF_NUMPY)}
    table = TableSpec(name="numbers", columns={"id": int, **columns})
    (row,) = as_stored(table, [(np.int64(1), *(value for _, value, _ in SCALARS_OF_NUMPY))])

    check_rows(table, [row])
    assert spelled([1, *(plain for _, _, plain in SCALARS_OF_NUMPY)]) == spelled(row)


@pytest.mark.postgres
def test_columns_have_the_types_that_people_expect(store_dsn: str) -> None:
    """In SQL sums of money are exact."""
    table = TableSpec(
        name="bills",
        columns={
            "at": date,
            "price": Decimal,
            "paid": Color,
            "tags": list[str],
            "more": dict,
            "took": timedelta,
        },
    )
    store = PostgresStore(store_dsn)
    store.open_job(attrs.evolve(SPEC, tables=[table]))
    row = store.acquire("job", [RANGE], "worker")[RANGE].row
    fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
    bills: list[Any] = [
        (
            date(2024, 2, 29),
            Decimal(price),
            Color.RED,
            ["a", 'b"\\,}'],
            {"n": [1]},
            timedelta(-1, 5),
        )
        for price in ("0.10", "0.20", "99999999999999999999.01")
    ]
    write = TableWrite(table=table, inserts=as_stored(table, bills))
    store.commit(Production(job="job", fences=[fence], tables=[write]))
    store.close()

    with psycopg.connect(store_dsn) as person:
        (found,) = person.execute(
            "SELECT sum(price)::text, min(paid), (max(tags))[2], max(more ->> 'n'), sum(took)::text FROM bills"
        ).fetchall()
    assert found == ("99999999999999999999.31", "red", 'b"\\,}', "[1]", "-3 days +00:00:15")


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Decimal, 0.1, "a float, which is rounded in binary"),
        (Decimal, np.float64(0.1), "a float, which is rounded in binary"),
        (Decimal, "0.1", "a str"),
        (int, np.float64(1.0), "a float"),
        (Decimal, True, "a bool"),
        (Decimal, Decimal("sNaN"), "signaling"),
        (Decimal, Decimal("1E+200000"), "digits before its point"),
        (Decimal, Decimal("1E-20000"), "digits before its point"),
        (Decimal, 1 << 500_000, "digits before its point"),
        (date, datetime(2024, 1, 1, tzinfo=UTC), "of which the time would be lost"),
        (date, "2024-01-01", "a str"),
        (time, time(1, tzinfo=UTC), "in a zone"),
        (timedelta, 5, "a int"),
        (UUID, "x", "a str"),
        (Color, "green", "no member of Color"),
        (Size, "SMALLER", "no member of Size"),
        (dict, [], "a list"),
        (list, {}, "a dict"),
        (dict, {"a": Decimal(1)}, "with a Decimal, which JSON does not have"),
        (dict, {"a": float("nan")}, "a number that JSON does not have"),
        (dict, {1: 2}, "names in JSON are texts"),
        (dict, {"a": ["x\0"]}, "NUL"),
        (dict, {"\ud800": 1}, "no Unicode"),
        (list, [1 << 20_000], "thousands of digits"),
        (list[int], [1, "2"], "in which '2' is a str"),
        (list[int], 5, "a int"),
        (list[Decimal], [0.5], "in which 0.5 is a float"),
        (list[str], ["\0"], "NUL"),
        (list[Color], ["green"], "no member of Color"),
    ],
    ids=shown,
)
def test_what_does_not_fit_is_refused(kind: Any, value: Any, reason: str) -> None:
    """Before anything is written, naming table, column and value."""
    table = TableSpec(name="things", columns={"id": int, "col": kind})

    with pytest.raises(TableRowError) as caught:
        check_rows(table, as_stored(table, [(1, None), (2, value)]))

    assert "a row does not fit table things" in caught.value.fact
    assert "column col" in caught.value.detail
    assert reason in caught.value.detail
    assert caught.value.hint


@pytest.mark.parametrize("kind", [dict, list, list[int]])
def test_json_and_arrays_are_in_no_key(kind: Any) -> None:
    with pytest.raises(df.PipelineError, match="cannot be in the key"):
        df.WriteToPostgres("t", columns={"a": kind}, key="a")


@pytest.mark.parametrize("kind", [list[dict], list[list[int]], complex, "int", list["int"], set])  # type: ignore[type-arg]
def test_other_types_are_refused(kind: Any) -> None:
    with pytest.raises(
        df.PipelineError, match=r"column 'a' has the type .*\n.*use one of int, float"
    ):
        df.WriteToPostgres("t", columns={"a": kind})


def test_nan_and_long_decimals_identify_no_row() -> None:
    table = TableSpec(name="t", columns={"k": Decimal}, key=("k",))
    for value in (Decimal("NaN"), Decimal("1." + "3" * 2_100)):
        with pytest.raises(TableRowError):
            check_rows(table, [(value,)])


PRICES = [("a", "0.10"), ("b", "9" * 20 + ".01"), ("a", "0.20"), ("a", "-0.05"), ("b", "0.02")]


def test_money_is_exact_on_every_runner(make_runner: MakeRunner) -> None:
    """In sums that are emitted, retracted and emitted again."""
    row = {
        "shop": UUID(int=1),
        "day": date(2024, 2, 29),
        "open": time(8),
        "took": timedelta(hours=-1),
    }
    more = {"color": Color.BLUE, "size": Size.LARGE, "tags": ["x", None], "json": {"a": [1, None]}}
    p = df.Pipeline(make_runner())
    always = df.WindowInto(
        df.GlobalWindows(),
        trigger=df.Always(),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )
    sums = (
        p
        | df.Create([(key, Decimal(price)) for key, price in PRICES])
        | always
        | df.CombinePerKey(df.SumCombineFn())
    )
    (
        sums
        | df.MapTuple(lambda key, total: {"key": key, "total": total, **row, **more})
        | df.WriteToPostgres(
            "totals",
            columns={
                "key": str,
                "total": Decimal,
                "shop": UUID,
                "day": date,
                "open": time,
                "took": timedelta,
                "color": Color,
                "size": Size,
                "tags": list[str],
                "json": dict,
            },
            key=("key", "shop", "day"),
        )
    )
    result = p.run()
    result.wait_until_finish()

    read = sorted(result.read_table("totals"), key=lambda found: str(found["key"]))
    stored_more = {**more, "color": Color.BLUE.value, "size": "LARGE"}
    assert [("a", Decimal("0.25")), ("b", Decimal("9" * 20 + ".03"))] == [
        (r["key"], r["total"]) for r in read
    ]
    assert all({**row, **stored_more}.items() <= dict(r).items() for r in read)

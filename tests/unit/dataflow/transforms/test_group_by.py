"""GroupBy: aggregates of fields, of whatever has some."""

import pickle
from datetime import UTC, datetime
from typing import Any, NamedTuple

import attrs
import pytest

import dataflow as df
from dataflow.rows import row_class
from dataflow.testing import assert_that, contains_in_any_order


class Sale(NamedTuple):
    shop: str
    till: int
    amount: int


@attrs.frozen
class Thing:
    shop: str
    till: int
    amount: int


SALES = [("Oslo", 1, 3), ("Oslo", 2, 4), ("Rome", 1, 5), ("Oslo", 1, 6)]


def at(second: int, value: Any) -> df.TimestampedValue:
    return df.TimestampedValue(value, datetime.fromtimestamp(second, UTC))


@pytest.mark.parametrize(
    "kind", [Sale, Thing, lambda *values: dict(zip(Sale._fields, values, strict=True))]
)
def test_fields_of_anything_that_has_some(kind: Any) -> None:
    with df.Pipeline() as p:
        found = (
            p
            | df.Create([kind(*sale) for sale in SALES])
            | df.GroupBy("shop", "till")
            .aggregate_field("amount", sum, "total")
            .aggregate_field("amount", max, "most")
            .aggregate_field("amount", df.MeanCombineFn(), "mean")
        )
        assert_that(
            found,
            contains_in_any_order(
                [("Oslo", 1, 9, 6, 4.5), ("Oslo", 2, 4, 4, 4.0), ("Rome", 1, 5, 5, 5.0)]
            ),
        )
        names = found | df.Map(lambda row: row._fields)
        assert_that(
            names,
            contains_in_any_order([("shop", "till", "total", "most", "mean")] * 3),
            label="names",
        )


def test_functions_in_place_of_fields() -> None:
    with df.Pipeline() as p:
        found = (
            p
            | df.Create([Sale(*sale) for sale in SALES])
            | df.GroupBy(letter=lambda sale: sale.shop[0]).aggregate_field(
                lambda sale: -sale.amount, min, "least"
            )
        )
        assert_that(found, contains_in_any_order([("O", -6), ("R", -5)]))


def test_expressions_in_place_of_fields() -> None:
    with df.Pipeline() as p:
        found = (
            p
            | df.Create([Sale(*sale) for sale in SALES])
            | df.Filter(df.col("amount") != 4)
            | df.Select("shop", twice=df.col("amount") * 2)
            | df.GroupBy("shop", is_large=df.col("twice") > 6).aggregate_field(
                df.col("twice") + 1, sum, "total"
            )
        )
        assert_that(
            found,
            contains_in_any_order([("Oslo", False, 7), ("Oslo", True, 13), ("Rome", True, 11)]),
        )


def test_without_fields_the_aggregates_are_of_all_elements_of_a_window() -> None:
    sales = [at(second, Sale(*sale)) for second, sale in enumerate(SALES)]
    with df.Pipeline() as p:
        found = (
            p
            | df.Create(sales)
            | df.WindowInto(df.FixedWindows(3))
            | df.GroupBy()
            .aggregate_field("amount", sum, "total")
            .aggregate_field("shop", max, "last")
        )
        assert_that(found, contains_in_any_order([(12, "Rome"), (6, "Oslo")]))
        names = found | df.Map(lambda row: row._fields)
        assert_that(names, contains_in_any_order([("total", "last")] * 2), label="names")


def test_an_aggregate_of_several_fields_is_one_of_tuples() -> None:
    with df.Pipeline() as p:
        found = (
            p
            | df.Create([Sale(*sale) for sale in SALES])
            | df.GroupBy("shop")
            .aggregate_field(("till", "amount"), df.ArgMaxCombineFn(), "best")
            .aggregate_field((df.col("amount") % 3, "till"), df.ArgMinCombineFn(), "rest")
            .aggregate_field(("till",), max, "only")
        )
        assert_that(
            found | df.Map(tuple),
            contains_in_any_order([("Oslo", 1, 0, (2,)), ("Rome", 1, 2, (1,))]),
        )


def test_neither_fields_nor_aggregates_are_refused() -> None:
    p = df.Pipeline()
    with pytest.raises(df.PipelineError, match="has neither a field to group by nor an aggregate"):
        p | df.Create([Sale("Oslo", 1, 3)]) | df.GroupBy()


def test_without_aggregates_elements_are_grouped() -> None:
    with df.Pipeline() as p:
        found = (
            p
            | df.Create([Sale(*sale) for sale in SALES])
            | df.GroupBy("shop")
            | df.Map(lambda group: (group[0], sorted(sale.amount for sale in group[1])))
        )
        assert_that(found, contains_in_any_order([("Oslo", [3, 4, 6]), ("Rome", [5])]))


def test_rows_are_retracted_like_other_results() -> None:
    """A second grouping counts the shops by their totals; totals that were emitted early are retracted."""
    with df.Pipeline() as p:
        found = (
            p
            | df.Create([at(second, Sale(*sale)) for second, sale in enumerate(SALES)])
            | df.WindowInto(
                df.FixedWindows(60),
                trigger=df.AfterWatermark(early=df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | "shops" >> df.GroupBy("shop").aggregate_field("amount", sum, "total")
            | "all"
            >> df.GroupBy(everything=lambda row: 0)
            .aggregate_field("total", df.SumCombineFn(), "total")
            .aggregate_field("total", df.CountCombineFn(), "shops")
            | df.WindowStart("start")
        )
        found | df.WriteToPostgres(
            "totals",
            columns={"everything": int, "total": int, "shops": int, "start": datetime},
            key=["everything", "start"],
        )
    assert p.result is not None
    (row,) = p.result.read_table("totals")
    assert (row["total"], row["shops"]) == (18, 2)
    assert row["start"] == datetime(1970, 1, 1, tzinfo=UTC)


def test_bounds_of_windows_are_added_to_rows_and_mappings() -> None:
    with df.Pipeline() as p:
        windowed = (
            p
            | df.Create([at(70, Sale("Oslo", 1, 3)), at(130, {"shop": "Rome"})])
            | df.WindowInto(df.FixedWindows(60))
            | df.WindowStart("start")
            | df.WindowEnd("end")
        )
        start, end = (datetime.fromtimestamp(second, UTC) for second in (60, 120))
        later = datetime.fromtimestamp(180, UTC)
        assert_that(
            windowed,
            contains_in_any_order(
                [("Oslo", 1, 3, start, end), {"shop": "Rome", "start": end, "end": later}]
            ),
        )


def test_a_missing_field_is_named_with_the_element() -> None:
    p = df.Pipeline()
    p | df.Create([Sale("Oslo", 1, 3)]) | df.GroupBy("town").aggregate_field("amount", sum, "total")

    with pytest.raises(df.TransformError, match="town") as raised:
        p.run()
    assert "Sale(shop='Oslo'" in str(raised.value)


def test_a_bound_cannot_be_added_to_anything() -> None:
    p = df.Pipeline()
    p | df.Create([7]) | df.WindowStart("start")

    with pytest.raises(df.TransformError, match="neither a row"):
        p.run()


@pytest.mark.parametrize(
    "build",
    [
        lambda: df.GroupBy("shop", "shop"),
        lambda: df.GroupBy("shop", shop="till"),
        lambda: df.GroupBy("no name"),
        lambda: df.GroupBy(7),  # type: ignore[arg-type]
        lambda: df.GroupBy("shop").aggregate_field("amount", sum, "shop"),
        lambda: df.GroupBy("shop").aggregate_field(7, sum, "total"),  # type: ignore[arg-type]
        lambda: df.WindowStart("_start"),
    ],
)
def test_what_cannot_be_is_refused_when_built(build: Any) -> None:
    with pytest.raises(df.PipelineError):
        build()


def test_rows_that_were_made_are_plain_pickles() -> None:
    row = row_class(("a", "b"))(1, "x")

    again = pickle.loads(pickle.dumps(row))

    assert again == row
    assert type(again) is type(row)

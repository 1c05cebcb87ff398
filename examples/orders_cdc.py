"""Totals of cities and sessions of customers, right at every moment while the tables that they come from are changed.

The shop is two ordinary tables of a Postgres database; whoever writes there knows nothing of this program.  It follows
the changes of both (logical replication), and keeps two tables:

* `city_totals`: of each city the orders of its customers, and what they sum up to.
  A customer who moves takes all their orders along: what was said of both cities is retracted, and said anew.
* `sessions`: of each customer the runs of orders that are less than half an hour apart.
  An order that is deleted can cut a session in two, one that is inserted can join two.

Each is what one query of the shop would say at that moment (`TOTALS_QUERY`, `SESSIONS_QUERY`), and is exactly once,
whatever is killed.  ``python -m examples.orders_cdc --demo`` shows that, with a server of its own.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import dataflow as df
from dataflow.table import ColumnType

#: Two orders are in one session if they are less than this apart.
SESSION_GAP = df.duration("30 minutes")
#: For how long an order may be changed after it was placed; what is changed later is late, and is dropped.
CHANGED_FOR = df.duration("30 days")
#: For how long changes of one customer or city are gathered before the tables change, in seconds.
GATHERED_S = 0.1

TOTAL_COLUMNS: Mapping[str, ColumnType] = {"city": str, "orders": int, "amount": Decimal}
SESSION_COLUMNS: Mapping[str, ColumnType] = {
    "customer": int,
    "first_order": datetime,
    "window_end": datetime,
    "orders": int,
    "amount": Decimal,
}

TOTALS_QUERY = """
SELECT city, count(*) AS orders, sum(amount) AS amount
FROM orders JOIN customers ON customers.id = orders.customer
GROUP BY city"""
_GAP = f"interval '{SESSION_GAP.total_seconds()} s'"
SESSIONS_QUERY = f"""
SELECT customer, min(placed_at) AS first_order, max(placed_at) + {_GAP} AS window_end,
       count(*) AS orders, sum(amount) AS amount
FROM (
    SELECT *, count(*) FILTER (WHERE is_first) OVER (PARTITION BY customer ORDER BY placed_at) AS session
    FROM (
        SELECT *, placed_at - lag(placed_at, 1, '-infinity') OVER (PARTITION BY customer ORDER BY placed_at)
                  >= {_GAP} AS is_first
        FROM orders
    ) AS apart
) AS numbered
GROUP BY customer, session"""


class Customer(NamedTuple):
    """A row of the table `customers`."""

    id: int
    city: str


class Order(NamedTuple):
    """A row of the table `orders`."""

    id: int
    customer: int
    amount: Decimal
    placed_at: datetime


def build(p: df.Pipeline, shop: str) -> None:
    """Add the whole job to a pipeline.

    Args:
        p: the pipeline.
        shop: the address of the database with the tables `customers` and `orders`.
    """
    customers = p | "customers" >> df.ReadFromPostgres(
        "customers", dsn=shop, changes=True, slot="orders_cdc_customers", rows=Customer
    )
    orders = p | "orders" >> df.ReadFromPostgres(
        "orders",
        dsn=shop,
        changes=True,
        slot="orders_cdc_orders",
        rows=Order,
        event_time="placed_at",
        max_disorder=CHANGED_FOR,
    )
    cities = customers | "cities" >> df.Map(city_of) | "of cities" >> at_once()
    amounts = orders | "amounts" >> df.Map(amount_of) | "of amounts" >> at_once()
    (
        (cities, amounts)
        | df.Join()
        | "by city" >> df.Map(count_and_amount)
        | "totals" >> df.CombinePerKey(df.TupleCombineFn(sum, sum))
        | "total rows" >> df.Map(total_row)
        | df.WriteToPostgres("city_totals", columns=TOTAL_COLUMNS, key=["city"])
    )
    (
        orders
        | "by customer" >> df.Map(orders_of)
        | "sessions"
        >> df.WindowInto(
            df.Sessions(SESSION_GAP),
            trigger=df.AfterWatermark(early=df.AfterProcessingTime(GATHERED_S)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "in sessions" >> df.CombinePerKey(df.TupleCombineFn(sum, sum))
        | "session rows" >> df.Map(session_row)
        | df.WriteToPostgres("sessions", columns=SESSION_COLUMNS, key=["customer", "first_order"])
    )


def at_once() -> df.WindowInto:
    """One window for all of time, whose answers are corrected soon after each change."""
    return df.WindowInto(
        df.GlobalWindows(),
        trigger=df.Repeatedly(df.AfterProcessingTime(GATHERED_S)),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )


def city_of(customer: Customer) -> tuple[int, str]:
    """Where a customer lives."""
    return customer.id, customer.city


def amount_of(order: Order) -> tuple[int, Decimal]:
    """What a customer has spent with one order."""
    return order.customer, order.amount


def count_and_amount(pair: tuple[int, tuple[str, Decimal]]) -> tuple[str, tuple[int, Decimal]]:
    """What one order adds to its city."""
    _, (city, amount) = pair
    return city, (1, amount)


def total_row(total: tuple[str, tuple[int, Decimal]]) -> dict[str, Any]:
    """A row of `TOTAL_COLUMNS`."""
    city, (orders, amount) = total
    return {"city": city, "orders": orders, "amount": amount}


def orders_of(order: Order) -> tuple[int, tuple[int, Decimal]]:
    """What one order adds to a session of its customer."""
    return order.customer, (1, order.amount)


def session_row(
    session: tuple[int, tuple[int, Decimal]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of `SESSION_COLUMNS`."""
    customer, (orders, amount) = session
    return {
        "customer": customer,
        "first_order": window.start,
        "window_end": window.end,
        "orders": orders,
        "amount": amount,
    }


if __name__ == "__main__":
    from examples.orders_cli import main

    raise SystemExit(main())

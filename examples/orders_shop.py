"""The shop of `examples.orders_cdc`: two ordinary tables, and people who change them.

Nothing here knows that somebody follows the tables.
"""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Event
from typing import Any

import psycopg

CITIES = ("Bergen", "Cusco", "Kyoto", "Leeds", "Porto", "Tartu")
CUSTOMERS, ORDERS = 60, 1_500

TABLES = """
CREATE TABLE customers (id bigint PRIMARY KEY, city text NOT NULL);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer bigint NOT NULL REFERENCES customers ON DELETE CASCADE,
    amount numeric(10, 2) NOT NULL,
    placed_at timestamptz NOT NULL
);
CREATE INDEX ON orders (customer);
-- So that the log says what a row was before it was changed.
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;"""
_ORDER = "INSERT INTO orders (customer, amount, placed_at) VALUES (%s, %s, %s)"
_ANY_ORDER = "(SELECT id FROM orders WHERE id >= %s ORDER BY id LIMIT 1)"


def open_shop(shop: str, chance: random.Random) -> None:
    """Make the tables, with customers and three days of orders.

    Args:
        shop: the address of a database that has none.
        chance: what decides who orders what.
    """
    now = datetime.now(UTC)
    with psycopg.connect(shop) as connection, connection.cursor() as cursor:
        cursor.execute(TABLES)
        cursor.executemany(
            "INSERT INTO customers VALUES (%s, %s)",
            [(number, chance.choice(CITIES)) for number in range(CUSTOMERS)],
        )
        cursor.executemany(_ORDER, [_order(chance, now) for _ in range(ORDERS)])


class Changes:
    """Inserts, updates and deletes, in transactions of some, one in ten of which is rolled back.

    Args:
        shop: the address of the shop.
        chance: what decides on the changes.
    """

    def __init__(self, shop: str, chance: random.Random) -> None:
        self._shop, self._chance = shop, chance
        self.transactions = 0

    def run(self, stop: Event) -> None:
        """Change the shop until told to stop.

        Args:
            stop: set when it is enough.
        """
        with psycopg.connect(self._shop) as connection:
            while not stop.wait(0.01):
                for _ in range(self._chance.randrange(1, 6)):
                    self._change(connection)
                if self._chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                    self.transactions += 1

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        chance = self._chance
        order, customer = chance.randrange(2 * ORDERS), chance.randrange(CUSTOMERS)
        statement, values = chance.choices(
            (
                (_ORDER, _order(chance, datetime.now(UTC))),
                (
                    f"UPDATE orders SET amount = %s WHERE id = {_ANY_ORDER}",
                    (_amount(chance), order),
                ),
                (f"UPDATE orders SET customer = %s WHERE id = {_ANY_ORDER}", (customer, order)),
                (
                    f"UPDATE orders SET placed_at = placed_at - interval '7 minutes' WHERE id = {_ANY_ORDER}",
                    (order,),
                ),
                (f"DELETE FROM orders WHERE id = {_ANY_ORDER}", (order,)),
                ("UPDATE customers SET city = %s WHERE id = %s", (chance.choice(CITIES), customer)),
                ("DELETE FROM customers WHERE id = %s", (customer,)),
                (
                    "INSERT INTO customers VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (customer, chance.choice(CITIES)),
                ),
            ),
            weights=(30, 15, 10, 10, 20, 5, 1, 9),
        )[0]
        try:
            # A savepoint: an order of a customer who is gone is refused, and the others are made.
            with connection.transaction():
                connection.execute(statement.encode(), values)
        except psycopg.errors.ForeignKeyViolation:
            pass


def _order(chance: random.Random, now: datetime) -> tuple[int, Decimal, datetime]:
    placed_at = now - timedelta(seconds=chance.randrange(3 * 24 * 3600))
    return chance.randrange(CUSTOMERS), _amount(chance), placed_at


def _amount(chance: random.Random) -> Decimal:
    return Decimal(chance.randrange(100, 20_000)) / 100

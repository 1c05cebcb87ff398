"""Draws the pictures of the examples' pages: ``python -m examples.pictures [NAME ...]``, all of them without a name.

Each example is really run, and its picture is what came of that.  Those that run in memory are the same every time; the
others take a minute, and have the times of that run.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

import dataflow as df
from examples import flight_delays, orders_cdc, orders_shop
from examples.ab_test import __main__ as ab_test_command
from examples.ab_test import events
from examples.ab_test import pipeline as ab_test
from examples.backfill_then_live import folder as rides
from examples.backfill_then_live import pipeline as backfill_then_live
from examples.billing import pipeline as billing
from examples.card_fraud import pipeline as card_fraud
from examples.click_sessions import pipeline as click_sessions
from examples.flights_data import flights_csv
from runners.embedded.temporary import FOLLOWED, temporary_postgres
from runners.observability.drawing.labels import Occupied, PixelBox
from runners.observability.drawing.style import CSS
from runners.observability.drawing.svg import XY, SvgDrawing

FOLDER = Path(__file__).parent
_WIDTH, _HEIGHT = 800.0, 420.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 768.0, 76.0, 340.0


class Chart:
    """A chart with a line across at each tick of an axis upwards, which is logarithmic.

    Args:
        title: above it.
        description: what there is to see, for those who cannot see it.
        across: what the axis across is called, and its ticks, as places between 0 and 1 with their texts.
        up: what the axis upwards is called, and its ticks, as values with their texts.
    """

    def __init__(
        self,
        title: str,
        description: str,
        across: tuple[str, Sequence[tuple[float, str]]],
        up: tuple[str, Sequence[tuple[float, str]]],
    ) -> None:
        self.drawing = SvgDrawing(_WIDTH, _HEIGHT, title=title, description=description, style=CSS)
        self._logs = [log10(value) for value, _ in up[1]]
        self.drawing.rect("card", 0.5, 0.5, _WIDTH - 1, _HEIGHT - 1, corner=8)
        self.drawing.text("title", (_LEFT, 40), title)
        for value, text in up[1]:
            y = self.y(value)
            self.drawing.path("grid", [(_LEFT, y), (_RIGHT, y)])
            self.drawing.text("tick end", (_LEFT - 10, y + 5), text)
        for place, text in across[1]:
            self.drawing.text("tick middle", (self.x(place), _BOTTOM + 20), text)
        self.drawing.path("axis", [(_LEFT, _TOP), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)])
        self.drawing.text("axis-name middle", ((_LEFT + _RIGHT) / 2, _BOTTOM + 44), across[0])
        self.drawing.text("axis-name middle", (22, (_TOP + _BOTTOM) / 2), up[0], turned=True)

    def x(self, place: float) -> float:
        """Where a place between 0 and 1 is."""
        return _LEFT + (_RIGHT - _LEFT) * place

    def y(self, value: float) -> float:
        """Where a value is."""
        low, high = min(self._logs), max(self._logs)
        return _BOTTOM - (_BOTTOM - _TOP) * (log10(value) - low) / (high - low)

    def at(self, place: float, value: float) -> XY:
        """Where a value at a place is."""
        return self.x(place), self.y(value)


def draw_click_sessions(path: Path) -> None:
    """The visits of ann: two, of which a late click makes one."""
    p = df.Pipeline(bundle_records=1, lineage="records")
    click_sessions.build(p, FOLDER / "click_sessions" / "clicks.csv")
    _finished(p).plot("ann", transform="visits").save(str(path))


def draw_billing(path: Path) -> None:
    """The bills of acme, one of which is corrected."""
    p = df.Pipeline(bundle_records=1, lineage="records")
    billing.build(p, FOLDER / "billing" / "usage.csv")
    _finished(p).plot("acme", transform="bill").save(str(path))


def draw_card_fraud(path: Path) -> None:
    """The payments of a card through the day, and the case that is opened and closed."""
    card, first_hour, hours = "1111", 7, 14
    source = FOLDER / "card_fraud" / "payments.csv"
    p = df.Pipeline()
    card_fraud.build(p, source)
    (case,) = (
        card_fraud.Case(**row) for row in _finished(p).read_table("cases") if row["card"] == card
    )
    begin = df.instant(f"2026-03-02T{first_hour:02}:00:00Z")
    chart = Chart(
        f"Card {card}: the payments of a day, and a case",
        f"A case from {case.opened:%H:%M} to {case.closed:%H:%M} has {case.payments} payments of far more than usual.",
        ("Event time", [(n / hours, f"{first_hour + n:02}:00") for n in range(0, hours + 1, 2)]),
        ("Amount", [(10.0**n, f"{10**n:,}") for n in range(5)]),
    )

    def place(at: datetime) -> float:
        since = at - begin
        return since.total_seconds() / 3600 / hours

    left, right = chart.x(place(case.opened)), chart.x(place(case.closed or case.opened))
    chart.drawing.rect("pane", left, _TOP, right - left, _BOTTOM - _TOP)
    chart.drawing.text("legend end", (left - 8, chart.y(52)), f"opened {case.opened:%H:%M}:")
    chart.drawing.text("legend end", (left - 8, chart.y(31)), case.reason)
    chart.drawing.text("legend", (right + 8, chart.y(52)), f"closed {case.closed:%H:%M}")
    chart.drawing.text("legend", (right + 8, chart.y(31)), "by its timer")
    payments = [line.split(",") for line in source.read_text("utf-8").splitlines()[1:]]
    shops = {
        chart.at(place(df.instant(at)), int(cents) / 100): shop
        for of_card, shop, cents, at in payments
        if of_card == card
    }
    taken = Occupied()
    for x, y in shops:
        chart.drawing.circle("point late" if left <= x <= right else "point", (x, y), 5)
        taken.add(PixelBox.around((x, y), 12, 12), 5.0)
    for (x, y), shop in shops.items():
        width = 8.0 * len(shop)
        beside = [(x, y + 15), (x, y - 15), (x + width / 2 + 9, y), (x - width / 2 - 9, y)]
        name = taken.place([(PixelBox.around(each, width, 15), 0.0) for each in beside])
        chart.drawing.text("tick middle", ((name.left + name.right) / 2, name.bottom - 3), shop)
    path.write_text(chart.drawing.to_svg(), "utf-8", newline="\n")


def draw_ab_test(path: Path) -> None:
    """The p-values of the first week, from its end on, as late conversions correct it."""
    changes: list[df.Change[ab_test.Result]] = []
    with TemporaryDirectory() as folder, df.Pipeline(bundle_records=1) as p:
        source = events.write_events(Path(folder) / "events.csv", ab_test_command.SEED)
        ab_test.build(p, source) | df.ToChangelog() | "record" >> df.Map(changes.append)
    lines = {
        name: [
            change.value.p_value or 1.0
            for change in changes
            if change.sign > 0
            and (change.value.experiment, change.value.week) == (name, events.MONDAY.date())
        ]
        for name in ab_test.EXPERIMENTS
    }
    most = max(map(len, lines.values())) - 1
    chart = Chart(
        "An A/B test: the verdict on a week, while phones report",
        "; ".join(f"{name}: p from {ps[0]:.2f} to {ps[-1]:.2f}" for name, ps in lines.items()),
        ("Late conversions that have come", [(n / most, str(n)) for n in range(0, most + 1, 2)]),
        ("p-value", [(value, f"{value:g}") for value in (0.01, 0.05, 0.1, 1.0)]),
    )
    chart.drawing.path("taken-back strike", [chart.at(0, 0.05), chart.at(1, 0.05)])
    for name, ps in lines.items():
        points = [chart.at(n / most, p_value) for n, p_value in enumerate(ps)]
        chart.drawing.path("said", points)
        for each in points:
            chart.drawing.circle("point", each, 4)
        chart.drawing.text("sum", (points[0][0] + 10, points[0][1] - 12), name)
    path.write_text(chart.drawing.to_svg(), "utf-8", newline="\n")


def draw_flight_delays(path: Path) -> None:
    """Three days of an aircraft; a flight that leaves five hours late joins two sessions."""
    header, *lines = flights_csv(3).read_text("utf-8").splitlines(keepends=True)
    days = [line for line in lines if line.split(",")[2] in ("26", "27", "28")]
    with TemporaryDirectory() as folder:
        source = Path(folder) / "flights.csv"
        source.write_text("".join([header, *days]), "utf-8")
        p = df.Pipeline(bundle_records=20, lineage="records")
        flight_delays.build(p, source, flight_delays.TableNames())
        _finished(p).plot("N13913", transform="legs").save(str(path))


def draw_backfill_then_live(path: Path) -> None:
    """The trips of a bicycle in twenty hours of history, and in those that come live; a forgotten ride joins two."""
    seed, end = 5, rides.BACKFILL_HOURS + rides.LIVE_HOURS
    with TemporaryDirectory() as name, temporary_postgres() as store:
        folder = Path(name)
        rides.write_hours(folder, rides.BACKFILL_HOURS - 20, rides.BACKFILL_HOURS, seed)
        job = _on_spark("backfill-then-live", store)
        backfill_then_live.build(job, folder)
        result = job.run()
        for hour in range(rides.BACKFILL_HOURS, end):
            rides.write_hours(folder, hour, hour + 1, seed)
            time.sleep(1)
        rides.write_forgotten(folder, seed)
        rides.close(folder)
        result.wait_until_finish()
        result.plot("bicycle-13", transform="trips").save(str(path))


def draw_orders_cdc(path: Path) -> None:
    """The orders of a customer: one is deleted, which cuts a session in two, and placed again."""
    first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    insert = "INSERT INTO orders (customer, amount, placed_at) VALUES (7, %s, %s)"
    between = first + timedelta(minutes=35)
    with temporary_postgres(FOLLOWED) as dsn:
        with psycopg.connect(dsn) as shop:
            shop.execute(orders_shop.TABLES.encode())
            shop.execute("INSERT INTO customers VALUES (7, 'Porto')")
            for minutes, amount in ((10, 20), (35, 35), (55, 12), (110, 50)):
                shop.execute(insert, (amount, first + timedelta(minutes=minutes)))
        job = _on_spark("streaming", dsn)
        orders_cdc.build(job, dsn)
        result = job.run()
        _wait(result, 2)
        for statement, values, sessions in (
            ("DELETE FROM orders WHERE placed_at = %s", (between,), 3),
            (insert, (40, between), 2),
            ("UPDATE orders SET amount = 15 WHERE amount = 12", (), 2),
        ):
            time.sleep(2)
            with psycopg.connect(dsn) as shop:
                shop.execute(statement.encode(), values)
            _wait(result, sessions)
        time.sleep(2)
        result.plot(7, transform="in sessions").save(str(path))
        result.cancel()
        result.wait_until_finish()


def _finished(p: df.Pipeline) -> df.PipelineResult:
    result = p.run()
    result.wait_until_finish()
    return result


def _on_spark(runner: str, store: str) -> df.Pipeline:
    return df.Pipeline(
        runner,
        job="drawn",
        store=store,
        lineage="records",
        master="local[2,4]",
        show_progress=False,
    )


def _wait(result: df.PipelineResult, sessions: int) -> None:
    """Wait until the job has so many sessions, at most two minutes."""
    deadline = time.monotonic() + 120
    while len(_rows(result, "sessions")) != sessions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"there are not {sessions} sessions")
        time.sleep(0.1)


def _rows(result: df.PipelineResult, table: str) -> Sequence[Any]:
    try:
        return result.read_table(table)
    except df.DataflowError:  # the job has not made it yet
        return ()


Draw = Callable[[Path], None]
#: By name, how it is drawn, and where to: what is the same every time, and what has the times of its run.
IN_MEMORY: dict[str, tuple[Draw, str]] = {
    "click_sessions": (draw_click_sessions, "click_sessions/visits.svg"),
    "card_fraud": (draw_card_fraud, "card_fraud/case.svg"),
    "billing": (draw_billing, "billing/bills.svg"),
    "ab_test": (draw_ab_test, "ab_test/p_values.svg"),
    "flight_delays": (draw_flight_delays, "flight_delays.svg"),
}
ON_SPARK: dict[str, tuple[Draw, str]] = {
    "backfill_then_live": (draw_backfill_then_live, "backfill_then_live/trips.svg"),
    "orders_cdc": (draw_orders_cdc, "orders_cdc.svg"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what the command line names."""
    known = {**IN_MEMORY, **ON_SPARK}
    parser = argparse.ArgumentParser(prog="python -m examples.pictures", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(known)}")
    asked = parser.parse_args(arguments).names
    if unknown := set(asked) - set(known):
        parser.error(f"there is no picture of {min(unknown)}")
    for name in asked or known:
        draw, place = known[name]
        draw(FOLDER / place)
        print(f"examples/{place}")


if __name__ == "__main__":
    main(sys.argv[1:])

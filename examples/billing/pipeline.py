"""Bills of what accounts have used, by the month of their time zone, with a journal of every correction.

* `bills`: what each account owes for each month; a row is replaced when usage of that month comes late.
* `bill_journal`: how it came to that.  Nothing is overwritten there: a bill is corrected as accountants do it, by a
  credit note about the bill that was wrong, and another bill.  The amounts of a month add up to its row in `bills`.

With ``lineage="records"`` every bill can be traced to the records that are in it, and the last one that came.
"""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import dataflow as df

PRICES = {"compute": Decimal("0.35"), "storage": Decimal("0.02"), "traffic": Decimal("0.08")}
MONTHS = df.CalendarWindows.months(time_zone="Europe/Berlin")
#: For how long after its end a month may be corrected; what is later is kept as a late record.
CORRECTED_FOR = "60 days"


class Item(NamedTuple):
    """What one record of usage costs."""

    usage: str
    amount: Decimal

    def __repr__(self) -> str:
        """What `explain_row` shows of it."""
        return f"{self.usage}: {self.amount}"


class Bill(NamedTuple):
    """A row of the table `bills`."""

    account: str
    month: str
    amount: Decimal


class Entry(NamedTuple):
    """A row of the table `bill_journal`; ``number`` counts the bills of an account and month from 0."""

    account: str
    month: str
    number: int
    kind: str
    amount: Decimal


def priced(row: dict[str, str]) -> tuple[str, Item]:
    """The account of a record of usage, and what it costs."""
    return row["account"], Item(row["id"], int(row["units"]) * PRICES[row["product"]])


def bills(usage: df.PCollection[tuple[str, Item]]) -> df.PCollection[Bill]:
    """Add the items of each account and month up.

    Args:
        usage: accounts and items, at the time of the usage.
    """
    return (
        usage
        | "months"
        >> df.WindowInto(
            MONTHS,
            allowed_lateness=CORRECTED_FOR,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "bill" >> df.CombinePerKey(total)
        | "bills" >> df.Map(bill)
    )


def total(items: Iterable[Item]) -> Decimal:
    """The sum of the amounts of items."""
    return sum((item.amount for item in items), Decimal(0))


def bill(owed: tuple[str, Decimal], window: df.Window = df.DoFn.WindowParam) -> Bill:
    """The bill of an account; its month is that of the clocks in Berlin."""
    account, amount = owed
    return Bill(account, f"{MONTHS.first_day(window):%Y-%m}", amount)


def journal(bills: df.PCollection[Bill]) -> df.PCollection[Entry]:
    """Make an entry of each change: of what is emitted a bill, of what is retracted a credit note.

    Args:
        bills: as `bills` makes them.
    """
    return bills | "changes" >> df.ToChangelog() | "entries" >> df.Map(entry)


def entry(change: df.Change[Bill]) -> Entry:
    """The entry of a change; a credit note has the number of the bill that was wrong."""
    account, month, amount = change.value
    kind = "bill" if change.sign > 0 else "credit note"
    return Entry(account, month, change.pane.index, kind, change.sign * amount)


def build(p: df.Pipeline, source: Path) -> df.PCollection[Entry]:
    """Add the whole job to a pipeline, and return the entries of the journal.

    Args:
        p: the pipeline.
        source: a CSV file of usage, in the order in which it arrives.
    """
    usage = (
        p
        | "usage" >> df.ReadFromCsv(source, event_time=lambda row: row["at"], max_disorder="1 day")
        | "prices" >> df.Map(priced)
    )
    made = bills(usage)
    made | df.WriteToPostgres(
        "bills", columns={"account": str, "month": str, "amount": Decimal}, key=["account", "month"]
    )
    entries = journal(made)
    entries | df.WriteToPostgres(
        "bill_journal",
        columns={"account": str, "month": str, "number": int, "kind": str, "amount": Decimal},
    )
    return entries

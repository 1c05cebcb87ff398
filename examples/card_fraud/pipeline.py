"""Suspicious payments of cards: a case is opened at once, and closed by a timer when the card has been quiet.

For each card a stateful DoFn keeps what the card usually pays, when it was used lately, and the case that is open.
Two things are suspicious: a payment of far more than usual, and many payments within a few minutes.

A case is a row of the table `cases` from the payment that opens it.  It grows with each payment while it is open, and
has the time of its end when nothing was paid for half an hour.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import dataflow as df

#: So much more than the mean of the card is suspicious, once it has paid so often.
FACTOR, PAYMENTS_KNOWN = 8, 4
#: So many payments within so long are suspicious.
PAYMENTS_MAX, WITHIN = 4, df.duration("3 minutes")
#: A case is closed when the card was not used for so long.
QUIET_FOR = df.duration("30 minutes")

USUAL = df.CombiningValueStateSpec(
    "usual", df.SingleInputTupleCombineFn(df.CountCombineFn(), df.MeanCombineFn())
)
RECENT = df.OrderedListStateSpec("recent", ttl=WITHIN)
CASE = df.ReadModifyWriteStateSpec("case")
QUIET = df.TimerSpec("quiet", df.TimeDomain.EVENT)


class Case(NamedTuple):
    """A row of the table `cases`; ``closed`` is None while it is open."""

    card: str
    opened: datetime
    closed: datetime | None
    reason: str
    payments: int
    amount_cents: int


class FindCases(df.DoFn):
    """From ``(card, cents)`` to cases: each when it is opened, when it grows, and when it is closed."""

    # What is usual depends on what was before, and payments do not come in their order.
    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        at: datetime = df.DoFn.TimestampParam,
        usual: Any = df.DoFn.StateParam(USUAL),
        recent: Any = df.DoFn.StateParam(RECENT),
        open_case: Any = df.DoFn.StateParam(CASE),
        quiet: Any = df.DoFn.TimerParam(QUIET),
    ) -> Iterator[Case]:
        """Open a case, or add to the one that is open; else learn what is usual."""
        card, cents = element
        recent.clear_range(None, at - WITHIN)
        recent.add((at, cents))
        case = open_case.read()
        if case is None:
            reason = suspicion(cents, len(recent.read()), *usual.read())
            if reason is None:
                usual.add(cents)
                return
            case = Case(card, at, None, reason, payments=0, amount_cents=0)
        case = case._replace(payments=case.payments + 1, amount_cents=case.amount_cents + cents)
        open_case.write(case)
        quiet.set(at + QUIET_FOR)
        yield case

    @df.on_timer(QUIET)
    def close(
        self,
        at: datetime = df.DoFn.TimestampParam,
        open_case: Any = df.DoFn.StateParam(CASE),
    ) -> Iterator[Case]:
        """Half an hour without a payment: the case is closed, and the card begins anew."""
        yield open_case.read()._replace(closed=at)
        open_case.clear()


def suspicion(cents: int, lately: int, payments: int, mean_cents: float) -> str | None:
    """Say why a payment is suspicious; None: it is not.

    Args:
        cents: what is paid.
        lately: how many payments there were within some minutes, with this one.
        payments: how many payments the card has made that were not suspicious.
        mean_cents: their mean.
    """
    if payments >= PAYMENTS_KNOWN and cents > FACTOR * mean_cents:
        return "much more than usual"
    if lately >= PAYMENTS_MAX:
        return "many within minutes"
    return None


def cases(payments: df.PCollection[tuple[str, int]]) -> df.PCollection[Case]:
    """Find cases.

    Args:
        payments: the card and the cents of each, at the time of the payment.
    """
    return payments | "find cases" >> df.ParDo(FindCases())


def build(p: df.Pipeline, source: Path) -> df.PCollection[Case]:
    """Add the whole job to a pipeline, and return the cases as they change.

    Args:
        p: the pipeline.
        source: a CSV file of payments, in the order in which they arrive.
    """
    found = cases(
        p
        | "payments"
        >> df.ReadFromCsv(source, event_time=lambda row: row["at"], max_disorder="2 minutes")
        | "amounts" >> df.Map(lambda row: (row["card"], int(row["cents"])))
    )
    found | df.WriteToPostgres(
        "cases",
        columns={
            "card": str,
            "opened": datetime,
            "closed": datetime,
            "reason": str,
            "payments": int,
            "amount_cents": int,
        },
        key=["card", "opened"],
    )
    return found

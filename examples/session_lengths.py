"""How long visits are, by the hour: sessions for each user, then a histogram of their lengths, right at every moment.

The second grouping counts what the first one emits, and a late click changes what the first one has emitted: two
short visits become a long one.  So the first one retracts two sessions, and the histogram follows.
Prints each change of the histogram: + emits a bar, - retracts it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import dataflow as df
from dataflow.testing import TestStream

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


def click(user: str, minute: int) -> df.TimestampedValue:
    """A user's click, at a minute of the hour from noon."""
    return df.TimestampedValue((user, minute), datetime(2024, 5, 1, 12, minute, tzinfo=UTC))


def noon(minute: int) -> datetime:
    """An instant of the hour from noon."""
    return datetime(2024, 5, 1, 12, minute, tzinfo=UTC)


CLICKS = (
    TestStream()
    .add_elements([click("ann", 0), click("ann", 4), click("bob", 1)])
    .add_elements([click("ann", 20), click("bob", 22)])
    .advance_watermark_to(noon(40))
    # It is late, and it bridges ann's two visits.
    .add_elements([click("ann", 12)])
)


def minutes(session: tuple[str, Sequence[int]]) -> tuple[str, int]:
    """The bar of the histogram that a session is in: its length, in steps of five minutes."""
    _, clicks = session
    length = max(clicks) - min(clicks)
    return f"{length // 5 * 5:2} to {length // 5 * 5 + 4:2} minutes", 1


def show(change: df.Change[Any]) -> None:
    """Print a change of a bar."""
    bar, visits = change.value
    print("+" if change.sign > 0 else "-", bar, "*" * visits)


with df.Pipeline() as p:
    (
        p
        | CLICKS
        | df.WindowInto(
            df.Sessions("10 minutes"),
            allowed_lateness="2 hours",
            accumulation_mode=RETRACTING,
        )
        | "visits" >> df.GroupByKey()
        | df.Map(minutes)
        | df.WindowInto(
            df.FixedWindows("1 hour"),
            trigger=df.Always(),
            allowed_lateness="2 hours",
            accumulation_mode=RETRACTING,
        )
        | "histogram" >> df.CombinePerKey(df.CountCombineFn())
        | df.ToChangelog()
        | df.Map(show)
    )

"""Visits of a web shop, and a dashboard of them by the hour, both right at every moment.

* `visits`: for each user the runs of clicks that are less than half an hour apart.
* `dashboard`: for each hour the visits that were over in it, how many of them saw one page only, and their length.

Both are tables with a key, in which rows are replaced.  A click that comes late, when a phone is on line again, can
make one visit of two: both rows are deleted, one takes their place, and the hour has one visit less.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import dataflow as df

#: Clicks that are less than this apart are one visit.
GAP = df.duration("30 minutes")
#: How late a click may be; what is later is kept as a late record.
ALLOWED_LATENESS = "1 day"
CORRECTED = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


class Visit(NamedTuple):
    """A row of the table `visits`."""

    user: str
    began: datetime
    seconds: int
    clicks: int


def visits(clicks: df.PCollection[tuple[str, str]]) -> df.PCollection[Visit]:
    """Make visits of clicks.

    Args:
        clicks: the user and the page of each, at the time of the click.
    """
    return (
        clicks
        | "visit windows"
        >> df.WindowInto(
            df.Sessions(GAP),
            allowed_lateness=ALLOWED_LATENESS,
            accumulation_mode=CORRECTED,
        )
        | "visits" >> df.CombinePerKey(df.CountCombineFn())
        | "visit rows" >> df.Map(visit)
    )


def visit(counted: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> Visit:
    """The row of a visit, whose window ends half an hour after the last click."""
    user, clicks = counted
    length = window.end - GAP - window.start
    return Visit(user, window.start, length // timedelta(seconds=1), clicks)


def dashboard(visits: df.PCollection[Visit]) -> df.PCollection[dict[str, Any]]:
    """Add visits up by the hour; where a visit is retracted, the hour is corrected.

    Args:
        visits: as `visits` makes them.
    """
    return (
        visits
        | "hours"
        >> df.WindowInto(
            df.FixedWindows("1 hour"),
            trigger=df.Always(),
            allowed_lateness=ALLOWED_LATENESS,
            accumulation_mode=CORRECTED,
        )
        | "dashboard"
        >> df.GroupBy()
        .aggregate_field("user", df.CountCombineFn(), "visits")
        .aggregate_field(lambda visit: int(visit.clicks == 1), sum, "bounces")
        .aggregate_field("clicks", sum, "clicks")
        .aggregate_field("seconds", sum, "seconds")
        | "dashboard rows" >> df.Map(hour_row)
    )


def hour_row(totals: Any, window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    """The row of an hour."""
    return {
        "hour": window.start,
        "visits": totals.visits,
        "bounces": totals.bounces,
        "clicks_per_visit": totals.clicks / totals.visits,
        "seconds_per_visit": totals.seconds / totals.visits,
    }


def build(p: df.Pipeline, source: Path) -> df.PCollection[Visit]:
    """Add the whole job to a pipeline, and return the visits.

    Args:
        p: the pipeline.
        source: a CSV file of clicks, in the order in which they arrive.
    """
    clicks = (
        p
        | "clicks"
        >> df.ReadFromCsv(source, event_time=lambda row: row["at"], max_disorder="5 minutes")
        | "pages" >> df.Map(lambda row: (row["user"], row["page"]))
    )
    made = visits(clicks)
    made | df.WriteToPostgres(
        "visits",
        columns={"user": str, "began": datetime, "seconds": int, "clicks": int},
        key=["user", "began"],
    )
    dashboard(made) | df.WriteToPostgres(
        "dashboard",
        columns={
            "hour": datetime,
            "visits": int,
            "bounces": int,
            "clicks_per_visit": float,
            "seconds_per_visit": float,
        },
        key=["hour"],
    )
    return made

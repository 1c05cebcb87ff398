"""Rides of rented bicycles: by station and day, and as trips of each bicycle, from the first file on and for ever.

The history is read in large steps by the batch engine, and what comes after it as a stream.  It is one job with one
pipeline: a day, or a trip, that begins in the history and ends live is one row, and a ride of the history that comes
late corrects what the history had come to.

* `station_days`: for each station and day the rides that began there, and their minutes.
* `trips`: for each bicycle the runs of rides that are less than an hour apart.
"""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dataflow as df
from dataflow.computations import JsonLinesWatcher

#: Rides of a bicycle that are less than this apart are one trip.
GAP = df.duration("1 hour")
#: A file of this name says that no other will come, so that a stream ends too.
LAST = "closed"


def rides(p: df.Pipeline, folder: Path) -> df.PCollection[dict[str, Any]]:
    """Read the rides of a folder, file by file, as they appear there.

    Args:
        p: the pipeline.
        folder: with a file for each hour, ``rides-2026-03-02T08.jsonl``.
    """
    files = JsonLinesWatcher(
        folder / "rides-*.jsonl",
        event_time=lambda ride: ride["began"],
        created=hour_of,
        until=LAST,
        poll="200 ms",
    )
    return p | "rides" >> df.Read(files)


def hour_of(path: Path) -> datetime:
    """When the hour of a file begins; the watermark follows the hours whose files are read."""
    return datetime.fromisoformat(path.stem[6:19]).replace(tzinfo=UTC)


def by_station(rides: df.PCollection[dict[str, Any]]) -> df.PCollection[dict[str, Any]]:
    """Add rides up by station and day.

    Args:
        rides: as `rides` reads them.
    """
    return (
        rides
        | "stations" >> df.Map(lambda ride: (ride["station"], (1, ride["minutes"])))
        | "days" >> corrected(df.CalendarWindows.days(time_zone="UTC"))
        | "station days" >> df.CombinePerKey(df.TupleCombineFn(sum, sum))
        | "station rows" >> df.Map(station_row)
    )


def trips(rides: df.PCollection[dict[str, Any]]) -> df.PCollection[dict[str, Any]]:
    """Make trips of the rides of each bicycle.

    Args:
        rides: as `rides` reads them.
    """
    return (
        rides
        | "bicycles" >> df.Map(lambda ride: (ride["bicycle"], ride["minutes"]))
        | "trip windows" >> corrected(df.Sessions(GAP))
        | "trips" >> df.CombinePerKey(df.SingleInputTupleCombineFn(df.CountCombineFn(), sum))
        | "trip rows" >> df.Map(trip_row)
    )


def corrected(windows: df.WindowFn) -> df.WindowInto:
    """Windows whose results are corrected for two days.

    Args:
        windows: where they are.
    """
    return df.WindowInto(
        windows,
        allowed_lateness=timedelta(days=2),
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )


def station_row(
    total: tuple[str, tuple[int, int]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of the table `station_days`."""
    station, (rides, minutes) = total
    return {"station": station, "day": window.start.date(), "rides": rides, "minutes": minutes}


def trip_row(
    total: tuple[str, tuple[int, int]], window: df.Window = df.DoFn.WindowParam
) -> dict[str, Any]:
    """A row of the table `trips`."""
    bicycle, (rides, minutes) = total
    return {"bicycle": bicycle, "began": window.start, "rides": rides, "minutes": minutes}


def build(p: df.Pipeline, folder: Path, prefix: str = "") -> None:
    """Add the whole job to a pipeline.

    Args:
        p: the pipeline.
        folder: as for `rides`.
        prefix: of the names of both tables, so that two jobs can be compared.
    """
    made = rides(p, folder)
    by_station(made) | df.WriteToPostgres(
        f"{prefix}station_days",
        columns={"station": str, "day": date, "rides": int, "minutes": int},
        key=["station", "day"],
    )
    trips(made) | df.WriteToPostgres(
        f"{prefix}trips",
        columns={"bicycle": str, "began": datetime, "rides": int, "minutes": int},
        key=["bicycle", "began"],
    )

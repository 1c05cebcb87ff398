"""Points by team and minute, of files that arrive in a folder: what deployments run until you have a pipeline."""

import os
from datetime import datetime

import dataflow as df
from dataflow.computations import WatchFiles


def row(total: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, object]:
    """The row of a team and minute."""
    team, points = total
    return {"team": team, "minute": window.start, "points": points}


def stream(p: df.Pipeline) -> None:
    """Follow the folder of the variable SCORES; what is late corrects its row."""
    files = f"{os.environ.get('SCORES', 'data')}/*.csv"
    scores = df.ReadFromCsv(files, event_time=lambda line: line["at"], max_disorder="1 minute")
    (
        p
        | "scores" >> WatchFiles(scores)
        | "parse" >> df.Map(lambda line: (line["team"], int(line["points"])))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows("1 minute"),
            # Where no file comes event time stands, and a sum is to be seen all the same.
            trigger=df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
            allowed_lateness="7 days",
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
        | "points" >> df.CombinePerKey(sum)
        | "rows" >> df.Map(row)
        | df.WriteToPostgres(
            "points",
            columns={"team": str, "minute": datetime, "points": int},
            key=["team", "minute"],
        )
    )

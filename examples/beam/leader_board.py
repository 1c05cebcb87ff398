"""Leader board: totals while they grow, each corrected by retracting what was shown before.

Teams are shown by the hour, early and late, too; users of all time, whenever something new has come.
Whoever adds up what is emitted and subtracts what is retracted has the board as it is now.
"""

import dataflow as df
from examples.beam.game_events import Score, scores
from examples.beam.running import main

_CORRECTED = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


def build(p: df.Pipeline) -> df.PCollection[tuple[int, str, str, int]]:
    """``(sign, "team" or "user", name, points)``: 1 is shown, and -1 is not shown any more."""
    points = scores(p)
    by_hour = df.WindowInto(
        df.FixedWindows("1 hour"),
        trigger=df.AfterWatermark(early=df.AtPeriod("5 minutes"), late=df.AfterCount(1)),
        allowed_lateness="1 day",
        accumulation_mode=_CORRECTED,
    )
    of_all_time = df.WindowInto(
        df.GlobalWindows(), trigger=df.Repeatedly(df.AfterCount(1)), accumulation_mode=_CORRECTED
    )
    boards = [
        points | "teams by the hour" >> by_hour | _Board("team"),
        points | "users of all time" >> of_all_time | _Board("user"),
    ]
    return boards | df.Flatten()


class _Board(df.PTransform[df.PCollection[Score], df.PCollection[tuple[int, str, str, int]]]):
    def __init__(self, field: str) -> None:
        self._field = field

    def default_label(self) -> str:
        return f"board of each {self._field}"

    def expand(self, pcoll: df.PCollection[Score]) -> df.PCollection[tuple[int, str, str, int]]:
        field = self._field
        return (
            pcoll
            | df.GroupBy(field).aggregate_field("points", sum, "points")
            | df.ToChangelog()
            | "shown" >> df.Map(lambda change: (change.sign, field, *change.value))
            | df.WindowInto(df.GlobalWindows())
        )


if __name__ == "__main__":
    main(build)

"""Hourly team score: the points of each team, by the hour in which they were scored."""

import dataflow as df
from examples.beam.game_events import scores
from examples.beam.running import main


def build(p: df.Pipeline) -> df.PCollection[tuple[str, int, str]]:
    """Teams, their points, and the hour."""
    return (
        scores(p)
        | df.WindowInto(df.FixedWindows("1 hour"))
        | df.GroupBy("team").aggregate_field("points", sum, "points")
        | df.WindowStart("hour")
        | df.Map(lambda row: (row.team, row.points, f"{row.hour:%H:%M}"))
    )


if __name__ == "__main__":
    main(build)

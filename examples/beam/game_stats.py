"""Game stats: team scores by the hour without those who score so much that they must be machines.

Who is one is found by a mean that is a side input, and the scores are filtered by another.
"""

import dataflow as df
from examples.beam.game_events import Score, scores
from examples.beam.running import main

#: A user with so many times the mean of all users is a machine.
TOO_MUCH = 2.5


def build(p: df.Pipeline) -> df.PCollection[tuple[str, int, str]]:
    """Teams, the points of their people, and the hour."""
    by_hour = scores(p) | df.WindowInto(df.FixedWindows("1 hour"))
    by_user = by_hour | df.GroupBy("user").aggregate_field("points", sum, "points")
    mean = (
        by_user
        | "points" >> df.Map(lambda row: row.points)
        | df.CombineGlobally(df.MeanCombineFn()).without_defaults()
    )
    machines = (
        by_user
        | "machines"
        >> df.Filter(lambda row, mean: row.points > TOO_MUCH * mean, df.AsSingleton(mean))
        | df.Map(lambda row: row.user)
    )
    return (
        by_hour
        | "people" >> df.Filter(_is_of_none, df.AsList(machines))
        | df.GroupBy("team").aggregate_field("points", sum, "points")
        | df.WindowStart("hour")
        | "shown" >> df.Map(lambda row: (row.team, row.points, f"{row.hour:%H:%M}"))
    )


def _is_of_none(score: Score, machines: list[str]) -> bool:
    return score.user not in machines


if __name__ == "__main__":
    main(build)

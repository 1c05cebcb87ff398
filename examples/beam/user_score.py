"""User score: the points of each user, of all time."""

import dataflow as df
from examples.beam.game_events import scores
from examples.beam.running import main


def build(p: df.Pipeline) -> df.PCollection[tuple[str, int]]:
    """Users and their points."""
    return scores(p) | df.GroupBy("user").aggregate_field("points", sum, "points") | df.Map(tuple)


if __name__ == "__main__":
    main(build)

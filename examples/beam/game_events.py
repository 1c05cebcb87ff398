"""What players of a game have scored, as lines of text: the input of four of the programs.

A line is ``user,team,points,seconds since 1970``; one of them is broken.
"""

from typing import NamedTuple

import dataflow as df

LINES = (
    "ada,red,5,10",
    "bea,red,7,70",
    "cid,blue,4,30",
    "dot,blue,6,3700",
    "ada,red,2,3650",
    "bot,blue,90,40",
    "bot,blue,95,3605",
    "nonsense",
)


class Score(NamedTuple):
    """Points of a user."""

    user: str
    team: str
    points: int
    at: int


class Parse(df.DoFn):
    """Scores, and the lines that are none in the output ``broken``."""

    def process(self, element: str) -> list[Score | df.TaggedOutput]:
        """Read a line."""
        try:
            user, team, points, at = element.split(",")
            return [Score(user, team, int(points), int(at))]
        except ValueError:
            return [df.TaggedOutput("broken", element)]


def scores(p: df.Pipeline) -> df.PCollection[Score]:
    """Scores with their event times."""
    parsed, _ = p | df.Create(LINES) | df.ParDo(Parse()).with_outputs("broken")
    return parsed | df.WithTimestamps(lambda score: score.at)

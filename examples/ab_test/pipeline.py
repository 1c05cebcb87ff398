"""An A/B test: who was shown what, joined with who then did what it was for, and whether the difference is one.

The configuration of the experiments is a side input: which of the variants is the control, and what counts as success.
What is shown to a user and what the user does are joined by week, and a week has one row for each experiment in the
table `experiment_results`: users and conversions of both arms, and how likely it is that chance alone would make them
differ as much.

The row comes once, when the week is over: to look at it again and again before, until it pleases, is how experiments
deceive.  But phones report late, and a conversion that comes late corrects the row, through three groupings.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from math import erfc, sqrt
from pathlib import Path
from typing import NamedTuple

import dataflow as df

WEEKS = df.CalendarWindows.weeks(time_zone="UTC")
#: For how long after its end a week may be corrected.
CORRECTED_FOR = "7 days"


class Experiment(NamedTuple):
    """What is known of an experiment beside its events: what it is compared with, and what counts as success."""

    control: str
    goal: str


EXPERIMENTS = {
    "button": Experiment(control="grey", goal="bought"),
    "headline": Experiment(control="plain", goal="signed up"),
}
Config = Mapping[str, Experiment]


class Event(NamedTuple):
    """Something that happened: to a user is shown a variant of an experiment, or the user does something."""

    user: str
    action: str
    experiment: str = ""
    variant: str = ""


class Result(NamedTuple):
    """A row of the table `experiment_results`; the p-value is None where one of the arms is missing."""

    experiment: str
    week: date
    control_users: int
    control_conversions: int
    treated_users: int
    treated_conversions: int
    p_value: float | None


#: An experiment and a user.
Participant = tuple[str, str]
#: Users, and those of them who converted.
Arm = tuple[int, int]


def results(
    events: df.PCollection[Event], experiments: df.PCollection[tuple[str, Experiment]]
) -> df.PCollection[Result]:
    """Say of each experiment and week what has come of it.

    Args:
        events: as they happened.
        experiments: names and configurations.
    """
    config = df.AsDict(experiments)
    by_week = events | "weeks" >> df.WindowInto(
        WEEKS,
        allowed_lateness=CORRECTED_FOR,
        accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    )
    shown = by_week | "shown" >> df.FlatMap(arm_of, config)
    converted = by_week | "converted" >> df.FlatMap(goals_of, config)
    return (
        {"shown": shown, "converted": converted}
        | "participants" >> df.CoGroupByKey()
        | "outcomes" >> df.FlatMap(outcome)
        | "arms" >> df.CombinePerKey(df.SingleInputTupleCombineFn(df.CountCombineFn(), sum))
        | "by experiment" >> df.MapTuple(lambda arm, counts: (arm[0], (arm[1], counts)))
        | "experiments" >> df.ToDict.PerKey()
        | "results" >> df.Map(result)
    )


def arm_of(event: Event, config: Config) -> Iterator[tuple[Participant, str]]:
    """The arm that a user is in who was shown something: the control, or the treatment."""
    if event.action == "shown" and event.experiment in config:
        is_control = event.variant == config[event.experiment].control
        yield (event.experiment, event.user), "control" if is_control else "treated"


def goals_of(event: Event, config: Config) -> Iterator[tuple[Participant, str]]:
    """The experiments for which it is a success what a user does."""
    for name, experiment in config.items():
        if event.action == experiment.goal:
            yield (name, event.user), event.action


def outcome(
    joined: tuple[Participant, dict[str, list[str]]],
) -> Iterator[tuple[tuple[str, str], int]]:
    """For the arm of a participant a 1 or a 0; nothing of users who were shown nothing, or both."""
    (experiment, _), found = joined
    arms = set(found["shown"])
    if len(arms) == 1:
        yield (experiment, arms.pop()), int(bool(found["converted"]))


def result(found: tuple[str, dict[str, Arm]], window: df.Window = df.DoFn.WindowParam) -> Result:
    """The row of an experiment and week."""
    experiment, arms = found
    control, treated = (arms.get(name, (0, 0)) for name in ("control", "treated"))
    return Result(
        experiment, WEEKS.first_day(window), *control, *treated, p_value=p_value(control, treated)
    )


def p_value(one: Arm, other: Arm) -> float | None:
    """How likely chance alone makes two arms differ as much, or more: the two-proportion z-test, two-sided.

    Args:
        one: users and conversions of an arm.
        other: those of the other; None is returned where there is nothing to compare.
    """
    (users, conversions), (other_users, other_conversions) = one, other
    if not users or not other_users:
        return None
    rate = (conversions + other_conversions) / (users + other_users)
    variance = rate * (1 - rate) * (1 / users + 1 / other_users)
    if not variance:
        return 1.0
    difference = other_conversions / other_users - conversions / users
    return erfc(abs(difference) / sqrt(2 * variance))


def build(p: df.Pipeline, source: Path) -> df.PCollection[Result]:
    """Add the whole job to a pipeline, and return the results as they change.

    Args:
        p: the pipeline.
        source: a CSV file of events, in the order in which they arrive.
    """
    events = (
        p
        | "read" >> df.ReadFromCsv(source, event_time=lambda row: row["at"], max_disorder="1 hour")
        | "events" >> df.Map(event)
    )
    found = results(events, p | "config" >> df.Create(list(EXPERIMENTS.items())))
    found | df.WriteToPostgres(
        "experiment_results",
        columns={
            "experiment": str,
            "week": date,
            "control_users": int,
            "control_conversions": int,
            "treated_users": int,
            "treated_conversions": int,
            "p_value": float,
        },
        key=["experiment", "week"],
    )
    return found


def event(row: dict[str, str]) -> Event:
    """An event of a row of the file."""
    return Event(row["user"], row["action"], row["experiment"], row["variant"])

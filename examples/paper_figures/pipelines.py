"""The pipelines of the paper's figures 6 to 14, one function for each.

All of them sum integers per key; they differ in where in event time, when in processing time, and how later sums relate
to earlier ones.  They do not depend on what they run on: figures 10, 11 and 12 are one pipeline on three engines.

Two arguments are not in the paper.  Its windows never expire; ours do, to free their state, so a pipeline that takes
late data sets how long it waits: ``allowed_lateness``.  And in its figures a window that has emitted everything early
does not fire when the watermark passes; ours, as Beam's, would emit the same sum again in its on-time pane, unless the
``on_time_behavior`` is to fire only if there is something new.

Dataflow Model, section 2.4.
"""

import dataflow as df
from examples.paper_figures.points import MINUTE

Numbers = df.PCollection[tuple[str, int]]


def figure_06(points: Numbers) -> Numbers:
    """Classic batch: one sum, when everything has come."""
    return points | df.CombinePerKey(sum)


def figure_07(points: Numbers) -> Numbers:
    """The sum of everything so far, once a minute."""
    return (
        points
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AtPeriod(MINUTE)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
        | df.CombinePerKey(sum)
    )


def figure_08(points: Numbers) -> Numbers:
    """The sum of each minute of arrival."""
    return (
        points
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AtPeriod(MINUTE)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.CombinePerKey(sum)
    )


def figure_09(points: Numbers) -> Numbers:
    """The sums of two and two, as they arrive."""
    return (
        points
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(2)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.CombinePerKey(sum)
    )


def figure_10(points: Numbers) -> Numbers:
    """The sum of each two minutes of event time, when they are over, and again for what comes late."""
    return (
        points
        | df.WindowInto(
            df.FixedWindows(2 * MINUTE),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=10 * MINUTE,
        )
        | df.CombinePerKey(sum)
    )


#: The same pipeline, in batches of one minute, and as a stream.
figure_11 = figure_12 = figure_10


def figure_13(points: Numbers) -> Numbers:
    """Windows of two minutes as in figure 12, with an early pane once a minute until they are over."""
    return (
        points
        | df.WindowInto(
            df.FixedWindows(2 * MINUTE),
            trigger=df.AfterWatermark(early=df.AtPeriod(MINUTE), late=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            on_time_behavior=df.FiringBehavior.FIRE_IF_NON_EMPTY,
            allowed_lateness=10 * MINUTE,
        )
        | df.CombinePerKey(sum)
    )


def figure_14(points: Numbers) -> Numbers:
    """The sum of each session; the sums of sessions that turn out to be one are retracted."""
    return (
        points
        | df.WindowInto(
            df.Sessions(MINUTE),
            trigger=df.AfterWatermark(early=df.AtPeriod(MINUTE), late=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            on_time_behavior=df.FiringBehavior.FIRE_IF_NON_EMPTY,
            allowed_lateness=10 * MINUTE,
        )
        | df.CombinePerKey(sum)
    )

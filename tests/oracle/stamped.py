"""Laws of groupings in a row whose panes have the event times of records, and are retracted.

Whoever groups the panes again must take every retraction in where the pane was taken in, and have in the end what the
oracle makes of the last panes, each at the event time of a record in it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle.chained import Summarize, emitted_at, number, shared_key
from tests.oracle.evaluator import Arrivals, Record, Windowing, evaluate, regroup
from tests.oracle.laws import Mode, Place, _apply, microseconds, place, window_fn, windowed
from tests.pane_log import PaneLog, run_logged

Combiner = df.TimestampCombiner
CHOSEN: Mapping[Combiner, Callable[[Sequence[int]], int]] = {
    Combiner.EARLIEST: min,
    Combiner.LATEST: max,
}


@attrs.frozen
class Groupings:
    """Three of them: by key, by another key in other windows, and all by the instant at which it was emitted.

    ``more_us``: how much more lateness the second allows than the first.  ``is_sum``: whether the second adds numbers
    up, instead of listing results.
    """

    combiner: Combiner
    trigger: df.Trigger
    second: Windowing
    second_combiner: Combiner
    second_trigger: df.Trigger
    more_us: int = 0
    is_sum: bool = False


def run_stamped(windowing: Windowing, arrivals: Sequence[Arrivals], how: Groupings) -> PaneLog:
    mode = Mode.ACCUMULATING_AND_RETRACTING
    pipeline = df.Pipeline(DirectRunner())
    narrow = (
        windowed(pipeline, windowing, arrivals, mode, how.trigger, how.combiner)
        | "first" >> df.GroupByKey()
        | df.ParDo(Summarize())
        | df.WindowInto(
            window_fn(how.second),
            trigger=how.second_trigger,
            accumulation_mode=mode,
            allowed_lateness=microseconds(windowing.lateness_us + how.more_us),
            timestamp_combiner=how.second_combiner,
        )
    )
    if how.is_sum:
        numbers = narrow | df.Map(lambda pair: (pair[0], number(pair[1])))
        second = numbers | "second" >> df.CombinePerKey(df.SumCombineFn())
    else:
        second = (
            narrow
            | "second" >> df.GroupByKey()
            | df.Map(lambda pair: (pair[0], tuple(sorted(pair[1]))))
        )
    (
        second
        | df.Map(lambda pair: ("all", pair))
        | df.WindowInto(
            df.FixedWindows(microseconds(1)),
            trigger=df.Always(),
            accumulation_mode=mode,
            allowed_lateness=microseconds(windowing.lateness_us + how.more_us),
        )
        | "third" >> df.GroupByKey()
    )
    return run_logged(pipeline)


def check_stamped(windowing: Windowing, arrivals: Sequence[Arrivals], how: Groupings) -> None:
    """Nothing that a grouping emits or retracts is late for the next, and the signed sums are the oracle's answers."""
    log = run_stamped(windowing, arrivals, how)
    late = [row for row in log.late_records() if row["transform"] != "first"]

    assert late == []
    first, second = emitted_at(log, len(log.panes))
    answers = {place(group): group.values for group in evaluate(windowing, arrivals).groups}
    assert answers == {where: sorted(values) for where, values in first.items()}
    wanted = regrouped(windowing, arrivals, how, first)
    assert wanted == {
        where: value if how.is_sum else tuple(sorted(value)) for where, value in second.items()
    }

    third: dict[Place, Any] = {}
    _apply(third, [pane for pane in log.panes if pane.transform == "third"])
    emitted = [each for values in third.values() for each in values]
    assert sorted((key, value) for (key, _, _), value in wanted.items()) == sorted(emitted)


def regrouped(
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    how: Groupings,
    first: Mapping[Place, Sequence[int]],
) -> dict[Place, Any]:
    """What the oracle makes of the last panes of the first grouping."""
    in_time_us = times_in_time_us(arrivals)
    records = []
    for (key, start_us, end_us), values in first.items():
        summary = key, start_us, end_us, tuple(sorted(values))
        at_us = pane_time_us(how.combiner, values, end_us, in_time_us)
        records.append(Record(shared_key(summary), summary, at_us))  # type: ignore[arg-type]
    groups = {
        place(group): tuple(sorted(record.value for record in group.records))
        for group in regroup(how.second, records)
    }
    if not how.is_sum:
        return groups
    return {where: sum(map(number, values)) for where, values in groups.items()}  # type: ignore[arg-type]


def times_in_time_us(arrivals: Sequence[Arrivals]) -> dict[int, int]:
    """The event times of the records that came before the watermark had passed them, by value."""
    times_us: dict[int, int] = {}
    watermark_us = -(1 << 62)
    for arrival in arrivals:
        times_us |= {
            record.value: record.timestamp_us
            for record in arrival.records
            if record.timestamp_us >= watermark_us
        }
        watermark_us = max(watermark_us, arrival.watermark_us)
    return times_us


def pane_time_us(
    combiner: Combiner, values: Sequence[int], end_us: int, in_time_us: Mapping[int, int]
) -> int:
    """The event time of a pane: that of a record that was not late; where all were, the last instant of the window."""
    times_us = [in_time_us[value] for value in values if value in in_time_us]
    if combiner is Combiner.END_OF_WINDOW or not times_us:
        return end_us - 1
    return CHOSEN[combiner](times_us)

"""Laws that tie the direct runner to the oracle, as plain functions: true, or an AssertionError.

They are functions so that `tests/repo/test_mutations.py` can check that a broken core breaks them.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import dataflow as df
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.evaluator import (
    Answer,
    Arrivals,
    Group,
    Windowing,
    evaluate,
    gap_us,
)
from tests.pane_log import LoggedPane, PaneLog, run_logged

Mode = df.AccumulationMode
#: A window of a key as the oracle names it.
Place = tuple[Any, int, int]


def microseconds(count: int) -> timedelta:
    return timedelta(microseconds=count)


def window_fn(windowing: Windowing) -> df.WindowFn:
    if windowing.kind == "fixed":
        return df.FixedWindows(
            microseconds(windowing.size_us), offset=microseconds(windowing.offset_us)
        )
    if windowing.kind == "sessions":
        return df.Sessions(microseconds(windowing.size_us))
    if windowing.kind == "own gaps":
        return df.Sessions(lambda pair: microseconds(gap_us(windowing, pair[1])))
    if windowing.kind == "sliding":
        return df.SlidingWindows(
            microseconds(windowing.size_us),
            period=microseconds(windowing.period_us),
            offset=microseconds(windowing.offset_us),
        )
    if windowing.kind == "days":
        return df.CalendarWindows.days(time_zone=windowing.zone)
    return df.GlobalWindows()


def windowed(
    pipeline: df.Pipeline,
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    mode: Mode,
    trigger: df.Trigger | None = None,
    combiner: df.TimestampCombiner = df.TimestampCombiner.END_OF_WINDOW,
) -> df.PCollection[Any]:
    """The arrivals as ``(key, value)`` pairs, windowed."""
    source = ScriptedSource(
        [
            Batch(
                [(record.key, record.value) for record in arrival.records],
                [record.timestamp_us for record in arrival.records],
                arrival.watermark_us,
            )
            for arrival in arrivals
        ]
    )
    return (
        pipeline
        | df.Read(source)
        | df.WindowInto(
            window_fn(windowing),
            trigger=trigger,
            accumulation_mode=mode,
            allowed_lateness=microseconds(windowing.lateness_us),
            watermark_percentile=windowing.percentile,
            timestamp_combiner=combiner,
        )
    )


def run_grouping(
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    mode: Mode,
    trigger: df.Trigger | None = None,
) -> PaneLog:
    """Group the arrivals' values by key and window on the direct runner."""
    pipeline = df.Pipeline(DirectRunner())
    windowed(pipeline, windowing, arrivals, mode, trigger) | df.GroupByKey()
    return run_logged(pipeline)


def place(group: Group) -> Place:
    return group.key, group.start_us, group.end_us


def pane_place(pane: LoggedPane) -> Place:
    return pane.key, pane.window.start_us, pane.window.end_us


def answers(groups: Sequence[Group]) -> dict[Place, list[int]]:
    """The oracle's final groups by place; a place comes up once."""
    by_place = {place(group): group.values for group in groups}

    assert len(groups) == len(by_place)
    return by_place


def check_discarding(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger | None = None
) -> None:
    """The panes of a lineage, concatenated, are the group: every record in exactly one pane."""
    log = run_grouping(windowing, arrivals, Mode.DISCARDING, trigger)
    answer = evaluate(windowing, arrivals)
    expected = answers(answer.groups)
    emitted: dict[Place, list[int]] = defaultdict(list)
    for pane in log.panes:
        assert pane.sign == 1
        if not pane.value:
            assert pane.pane.timing is df.PaneTiming.ON_TIME, (
                "only the end of a window is news by itself"
            )
            continue
        homes = [
            (key, start_us, end_us)
            for (key, start_us, end_us), values in expected.items()
            if pane.key == key
            and start_us <= pane.window.start_us < pane.window.end_us <= end_us
            and not set(pane.value).isdisjoint(values)
        ]
        assert len(homes) == 1, f"{pane} belongs to no window, or mixes several"
        emitted[homes[0]] += pane.value

    assert expected == {where: sorted(values) for where, values in emitted.items()}
    _check_dropped(answer, log)
    _check_freed(log)


def check_accumulating(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger | None = None
) -> None:
    """The last pane of each final window is the group."""
    log = run_grouping(windowing, arrivals, Mode.ACCUMULATING, trigger)
    answer = evaluate(windowing, arrivals)
    last = {pane_place(pane): sorted(pane.value) for pane in log.panes}
    expected = answers(answer.groups)

    assert expected == {where: last.get(where) for where in expected}
    assert all(pane.sign == 1 for pane in log.panes)
    _check_dropped(answer, log)
    _check_freed(log)


def check_retracting(windowing: Windowing, arrivals: Sequence[Arrivals]) -> None:
    """The signed sum of the panes is the answer; and nothing is emitted twice at one time.

    At every prefix each window has zero or one result, and a retraction retracts exactly what was
    emitted.  After every batch each window that the watermark has passed has emitted exactly what has come.
    """
    log = run_grouping(windowing, arrivals, Mode.ACCUMULATING_AND_RETRACTING)
    emitted: dict[Place, Any] = {}
    done = 0
    for count, step in enumerate(log.steps[:-1], start=1):
        _apply(emitted, log.panes[done:step])
        done = step
        watermark_us = max(arrival.watermark_us for arrival in arrivals[:count])
        for group in evaluate(windowing, arrivals[:count]).groups:
            if group.end_us <= watermark_us:
                assert group.values == sorted(emitted.get(place(group), [])), (
                    "the pane of a past window"
                )
    _apply(emitted, log.panes[done:])
    answer = evaluate(windowing, arrivals)

    assert answers(answer.groups) == {where: sorted(values) for where, values in emitted.items()}
    _check_dropped(answer, log)
    _check_freed(log)


def check_retracting_fold(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger
) -> None:
    """Whenever the trigger fires: nothing is emitted twice, and in the end the signed sum is the answer."""
    log = run_grouping(windowing, arrivals, Mode.ACCUMULATING_AND_RETRACTING, trigger)
    emitted: dict[Place, Any] = {}
    _apply(emitted, log.panes)
    answer = evaluate(windowing, arrivals)

    assert answers(answer.groups) == {where: sorted(values) for where, values in emitted.items()}
    _check_dropped(answer, log)
    _check_freed(log)


def check_on_time(windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger) -> None:
    """When the watermark passes a window, also one that has merged, it emits all that has come, as on time.

    Args:
        windowing: how windows come about.
        arrivals: what comes.
        trigger: fires when the watermark passes the end of a window.
    """
    windowing = windowing._replace(percentile=100)
    log = run_grouping(windowing, arrivals, Mode.ACCUMULATING_AND_RETRACTING, trigger)
    emitted: dict[Place, Any] = {}
    done, before_us = 0, -(1 << 62)
    for count, step in enumerate(log.steps[:-1], start=1):
        panes = log.panes[done:step]
        _apply(emitted, panes)
        done = step
        watermark_us = max(before_us, arrivals[count - 1].watermark_us)
        on_time = places_on_time(panes)
        for group in evaluate(windowing, arrivals[:count]).groups:
            if before_us < group.end_us <= watermark_us:
                assert place(group) in on_time, "the end of a window is news"
                assert group.values == sorted(emitted.get(place(group), [])), "the on-time pane"
        before_us = watermark_us


def places_on_time(panes: Sequence[LoggedPane]) -> set[Place]:
    """The windows for which there is an on-time pane."""
    timing = df.PaneTiming.ON_TIME
    return {pane_place(each) for each in panes if each.sign > 0 and each.pane.timing is timing}


CHECKS: dict[Mode, Callable[[Windowing, Sequence[Arrivals]], None]] = {
    Mode.DISCARDING: check_discarding,
    Mode.ACCUMULATING: check_accumulating,
    Mode.ACCUMULATING_AND_RETRACTING: check_retracting,
}


def check_panes(windowing: Windowing, arrivals: Sequence[Arrivals], mode: Mode) -> None:
    """`PaneInfo` is right: index by lineage, timing by the watermark, last at the end.

    A merged window is early only to retract in time what a window that it absorbed emitted: before that is forgotten
    behind the grouping.
    """
    windowing = windowing._replace(percentile=100)
    log = run_grouping(windowing, arrivals, mode)
    watermarks_us = _watermarks_by_pane(log, arrivals)
    firings: dict[Place, list[LoggedPane]] = defaultdict(list)
    retracted: list[LoggedPane] = []
    early_keys = set()
    for pane, (before_us, after_us) in zip(log.panes, watermarks_us, strict=True):
        if pane.sign < 0:
            retracted.append(pane)
            continue
        info, end_us = pane.pane, pane.window.end_us
        earlier = firings[pane_place(pane)]
        if info.timing is df.PaneTiming.EARLY:
            early_keys.add(pane.key)
            assert end_us > after_us
            assert any(
                each.key == pane.key
                and each.window != pane.window
                and each.window.end_us + windowing.lateness_us <= after_us
                for each in retracted
            ), "the default trigger is never early for another reason"
        else:
            assert end_us <= after_us, "on time or late"
            assert (end_us > before_us) == (info.timing is df.PaneTiming.ON_TIME)
        assert (info.index == 0) == info.is_first
        assert info.index >= len(earlier)
        assert pane.key in early_keys or info.index == info.nonspeculative_index
        assert not any(each.pane.is_last for each in earlier)
        earlier.append(pane)
        retracted.clear()
    for low, high in pairwise([0, *log.steps]):
        ends_us: dict[Any, list[int]] = defaultdict(list)
        for pane in log.panes[low:high]:
            if pane.sign > 0 and pane.pane.timing is df.PaneTiming.ON_TIME:
                ends_us[pane.key].append(pane.window.end_us)

        for each in ends_us.values():
            assert sorted(each) == each, "windows of a key that the watermark passes fire in order"


def check_keyed_table(windowing: Windowing, arrivals: Sequence[Arrivals]) -> None:
    """A keyed table of retracting results is, in the end, the oracle's answer."""
    pipeline = df.Pipeline(DirectRunner())
    (
        windowed(pipeline, windowing, arrivals, Mode.ACCUMULATING_AND_RETRACTING)
        | df.CombinePerKey(sum)
        | df.ParDo(ToRow())
        | df.WriteToPostgres(
            "sums",
            columns={"key": str, "start_us": int, "end_us": int, "total": int},
            key=("key", "start_us", "end_us"),
        )
    )
    result = pipeline.run()
    expected = {place(group): sum(group.values) for group in evaluate(windowing, arrivals).groups}
    rows = result.read_table("sums")

    assert expected == {(row["key"], row["start_us"], row["end_us"]): row["total"] for row in rows}


class ToRow(df.DoFn):
    """A result and its window as a row."""

    def process(self, element: Any, /, window: Any = df.DoFn.WindowParam) -> Any:
        key, total = element
        yield {
            "key": key,
            "start_us": window.start_us,
            "end_us": window.end_us,
            "total": total,
        }


def _apply(emitted: dict[Place, Any], panes: Sequence[LoggedPane]) -> None:
    for pane in panes:
        where = pane_place(pane)
        if pane.sign > 0:
            assert where not in emitted, (
                f"{where} emits a second result without retracting the first"
            )
            emitted[where] = pane.value
        else:
            assert where in emitted, f"{where} retracts what it has not emitted"
            assert emitted.pop(where) == pane.value, "a retraction is exactly what was emitted"


def _check_dropped(answer: Answer, log: PaneLog) -> None:
    """Records in are records in windows and late records, each once, and as it came."""
    dropped = [((each.key, each.value), each.timestamp_us) for each in answer.dropped]
    late = log.late_records()
    elements = [row["element"] for row in late]

    assert all((1, 1) == (row["count"], row["sign"]) for row in late)
    assert None not in elements
    assert sorted(dropped) == sorted((each.value, each.timestamp_us) for each in elements)


def _check_freed(log: PaneLog) -> None:
    assert (0, 0) == (log.cells_left, log.timers_left), "state is left behind"


def _watermarks_by_pane(log: PaneLog, arrivals: Sequence[Arrivals]) -> list[tuple[int, int]]:
    """For each pane the watermarks before and after the batch that brought it."""
    bounds: list[tuple[int, int]] = []
    before_us = -(1 << 62)
    watermarks_us = [*(arrival.watermark_us for arrival in arrivals), 1 << 62]
    for step, watermark_us in zip(log.steps, watermarks_us, strict=True):
        after_us = max(before_us, watermark_us)
        bounds += [(before_us, after_us)] * (step - len(bounds))
        before_us = after_us
    return bounds

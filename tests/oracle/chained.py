"""Laws of two groupings, one after the other, where the first may retract what it emitted.

At every moment the second must have emitted what the oracle makes of what the first has emitted by then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle.evaluator import Arrivals, Group, Record, Windowing, evaluate, regroup
from tests.oracle.laws import (
    Mode,
    Place,
    _apply,
    _check_freed,
    microseconds,
    pane_place,
    place,
    places_on_time,
    window_fn,
    windowed,
)
from tests.pane_log import LoggedPane, PaneLog, run_logged

#: Far more than any stream here lasts, so that the second grouping drops nothing.
LONG_US = 1_000_000
FROZEN = Windowing("frozen")

#: A result of the first grouping as the second sees it: key, bounds, values.
Summary = tuple[Any, int, int, tuple[int, ...]]


@attrs.frozen
class Chain:
    """The parameters of the second grouping.

    ``windowing``: how it windows anew, or `FROZEN`.  ``combine``: None groups; ``answer`` is what the combination of
    some summaries must be.
    """

    windowing: Windowing
    trigger: df.Trigger
    combine: Any = None
    answer: Callable[[Sequence[Summary]], Any] = sorted


def check_chain(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger, chain: Chain
) -> None:
    """Nothing is emitted twice, what is retracted was emitted, and in the end both have the answers of the oracle."""
    log = run_chain(windowing, arrivals, trigger, chain)
    for step in log.steps:
        _check_emitted_once(chain, emitted_at(log, step)[1])
    first, second = emitted_at(log, len(log.panes))
    answers = {place(group): group.values for group in evaluate(windowing, arrivals).groups}

    assert answers == {where: sorted(values) for where, values in first.items()}
    assert expected(chain, first) == normal(chain, second)
    if chain.windowing.kind in ("frozen", "fixed", "sliding", "days"):
        check_numbered([pane for pane in log.panes if pane.transform == "second"])
    _check_freed(log)


def check_numbered(panes: Sequence[LoggedPane]) -> None:
    """Windows that end and do not merge number their panes without a gap, also when they were retracted to nothing."""
    emitted: Counter[Place] = Counter()
    not_early: Counter[Place] = Counter()
    for where, info in [(pane_place(each), each.pane) for each in panes if each.sign > 0]:
        is_early = info.timing is df.PaneTiming.EARLY
        assert (emitted[where], emitted[where] == 0) == (info.index, info.is_first)
        assert info.nonspeculative_index == (-1 if is_early else not_early[where])
        emitted[where] += 1
        not_early[where] += not is_early


def check_every_moment(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger, chain: Chain
) -> None:
    """With a trigger that always fires, the second grouping is right after every step."""
    always = attrs.evolve(chain, trigger=df.Always())
    # What is not windowed anew keeps its trigger too.
    first_trigger = df.Always() if chain.windowing is FROZEN else trigger
    log = run_chain(windowing, arrivals, first_trigger, always)
    for step in log.steps:
        first, second = emitted_at(log, step)

        assert expected(always, first) == normal(always, second)


def check_chain_on_time(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger, chain: Chain
) -> None:
    """When the watermark passes a window of the second grouping, it emits what the first has by then, and is on time.

    Also where it has grown, merged, shrunk or come apart since it fired last.  The second trigger fires at that moment.
    """
    windowing = windowing._replace(percentile=100)
    log = run_chain(windowing, arrivals, trigger, chain)
    done, before_us = 0, -(1 << 62)
    for arrival, step in zip(arrivals, log.steps, strict=False):
        watermark_us = max(before_us, arrival.watermark_us)
        first, second = emitted_at(log, step)
        on_time = places_on_time([p for p in log.panes[done:step] if p.transform == "second"])
        for where, answer in expected(chain, first).items():
            if before_us < where[2] <= watermark_us:
                assert where in on_time, "the end of a window is news"
                assert answer == normal(chain, second).get(where), "the on-time pane"
        for where in second.keys() - expected(chain, first).keys():
            end_us = _emptied_until_us(where, expected(chain, first))
            assert not before_us < end_us <= watermark_us, "what is left of a window is retracted"
        done, before_us = step, watermark_us


def _emptied_until_us(empty: Place, places: Iterable[Place]) -> int:
    """When at the latest an emptied window is retracted: with the first that has taken its place, or at its own end."""
    key, start_us, end_us = empty
    heirs = [each for each in places if each[0] == key and each[1] < end_us and start_us < each[2]]
    return min((each[2] for each in heirs), default=end_us)


def run_chain(
    windowing: Windowing, arrivals: Sequence[Arrivals], trigger: df.Trigger, chain: Chain
) -> PaneLog:
    pipeline = df.Pipeline(DirectRunner())
    first = (
        windowed(pipeline, windowing, arrivals, Mode.ACCUMULATING_AND_RETRACTING, trigger)
        | "first" >> df.GroupByKey()
        | df.ParDo(Summarize())
    )
    if chain.windowing is not FROZEN:
        first = first | df.WindowInto(
            window_fn(chain.windowing),
            trigger=chain.trigger,
            accumulation_mode=Mode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=microseconds(LONG_US),
        )
    if chain.combine is None:
        first | "second" >> df.GroupByKey()
    else:
        (
            first
            | df.Map(lambda pair: (pair[0], number(pair[1])))
            | "second" >> df.CombinePerKey(chain.combine)
        )
    return run_logged(pipeline)


class Summarize(df.DoFn):
    """Emits a result under a key that results of several keys share."""

    def process(self, element: Any, /, window: Any = df.DoFn.WindowParam) -> Any:
        key, values = element
        summary = key, window.start_us, window.end_us, tuple(sorted(values))
        yield shared_key(summary), summary


def shared_key(summary: Summary) -> str:
    return "even" if len(summary[3]) % 2 == 0 else "odd"


def number(summary: Summary) -> int:
    """Something that distinguishes summaries most of the time."""
    return sum(summary[3]) * 7 + summary[1]


def sum_of(summaries: Sequence[Summary]) -> int:
    return sum(map(number, summaries))


def largest_of(summaries: Sequence[Summary]) -> int:
    return max(map(number, summaries))


def emitted_at(log: PaneLog, step: int) -> tuple[dict[Place, Any], dict[Place, Any]]:
    """What each of the groupings has emitted after so many panes; checks every pane on the way."""
    first: dict[Place, Any] = {}
    second: dict[Place, Any] = {}
    panes: Sequence[LoggedPane] = log.panes[:step]
    _apply(first, [pane for pane in panes if pane.transform == "first"])
    _apply(second, [pane for pane in panes if pane.transform == "second"])
    return first, second


def expected(chain: Chain, first: dict[Place, Any]) -> dict[Place, Any]:
    """What the oracle makes of what the first grouping emits."""
    summaries = [
        (key, start_us, end_us, tuple(sorted(values)))
        for (key, start_us, end_us), values in first.items()
    ]
    records = [Record(shared_key(each), each, each[2] - 1) for each in summaries]  # type: ignore[arg-type]
    groups = _frozen(records) if chain.windowing is FROZEN else regroup(chain.windowing, records)
    return {
        place(group): chain.answer([record.value for record in group.records])  # type: ignore[misc]
        for group in groups
    }


def _check_emitted_once(chain: Chain, second: dict[Place, Any]) -> None:
    """What is in one session is not in another, although it may have been in one that came apart."""
    if chain.combine is None and chain.windowing.kind == "sessions":
        emitted = [summary for summaries in second.values() for summary in summaries]

        assert len(emitted) == len(set(emitted))


def check_hard_chain(windowing: Windowing, arrivals: Sequence[Arrivals], count: int) -> None:
    """A chain written by hand, with triggers that wait and triggers that do not."""
    first = df.AfterCount(count)
    for trigger in (df.DefaultTrigger(), df.AfterCount(3), df.Repeatedly(df.AfterCount(2))):
        for second in (FROZEN, Windowing("sessions", 6)):
            for chain in (
                Chain(second, trigger),
                Chain(second, trigger, df.SumCombineFn(), sum_of),
            ):
                check_chain(windowing, arrivals, first, chain)
                check_chain(windowing, arrivals, df.Repeatedly(first), chain)
                check_every_moment(windowing, arrivals, df.Repeatedly(first), chain)


def normal(chain: Chain, second: dict[Place, Any]) -> dict[Place, Any]:
    return {
        where: sorted(value) if chain.combine is None else value for where, value in second.items()
    }


def _frozen(records: Sequence[Record]) -> list[Group]:
    by_place: dict[Place, list[Record]] = {}
    for record in records:
        summary: Any = record.value
        by_place.setdefault((record.key, summary[1], summary[2]), []).append(record)
    return [Group(*where, tuple(those)) for where, those in by_place.items()]

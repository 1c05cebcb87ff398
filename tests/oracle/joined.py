"""Laws of joins: what they emit adds up to the pairs that the oracle makes of its groups, and at no moment to another.

They are functions so that `tests/repo/test_mutations.py` can check that a broken core breaks them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle.chained import LONG_US, shared_key
from tests.oracle.evaluator import Arrivals, Group, Record, Windowing, evaluate, regroup
from tests.oracle.laws import Mode, microseconds, window_fn, windowed
from tests.pane_log import LoggedPane, PaneLog, run_logged

#: A value and its side; several records have the same.
LEFT_OF = {True: "left", False: "right"}
RETRACTING = Mode.ACCUMULATING_AND_RETRACTING
#: What a join emits: key, window, left and right.
Row = tuple[Any, int, int, Any, Any]
Rows = Counter[Row]


def is_left(value: int) -> bool:
    """Whether a value is of the left side."""
    return value % 2 == 0


def shown(value: int) -> int:
    """The text of a value: some values are the same."""
    return value % 5


def oracle_pairs(lefts: Sequence[Any], rights: Sequence[Any], join_type: df.JoinType) -> list[Any]:
    """What a join emits for a group, from the definition of SQL's joins."""
    pairs = [(left, right) for left in lefts for right in rights]
    if join_type in (df.JoinType.LEFT_OUTER, df.JoinType.FULL_OUTER) and not rights:
        pairs += [(left, None) for left in lefts]
    if join_type in (df.JoinType.RIGHT_OUTER, df.JoinType.FULL_OUTER) and not lefts:
        pairs += [(None, right) for right in rights]
    return pairs


def oracle_rows(
    groups: Iterable[Group], join_type: df.JoinType, left_of: Any, value_of: Any
) -> Rows:
    """What a join emits for groups."""
    rows: Rows = Counter()
    for group in groups:
        sides: dict[bool, list[Any]] = defaultdict(list)
        for record in group.records:
            sides[left_of(record.value)].append(value_of(record.value))
        for left, right in oracle_pairs(sides[True], sides[False], join_type):
            rows[group.key, group.start_us, group.end_us, left, right] += 1
    return rows


def sides(
    pairs: df.PCollection[Any], left_of: Callable[[Any], bool], value_of: Callable[[Any], Any]
) -> tuple[df.PCollection[Any], df.PCollection[Any]]:
    """Pairs as a left and a right collection."""
    left, right = (
        pairs
        | f"is {name}" >> df.Filter(lambda pair, side=side: left_of(pair[1]) is side)
        | f"{name} values" >> df.Map(lambda pair: (pair[0], value_of(pair[1])))
        for side, name in LEFT_OF.items()
    )
    return left, right


def rows_of(panes: Iterable[LoggedPane]) -> Counter[tuple[Row, int]]:
    """What a join has emitted after these panes, and at which event times; it retracts nothing that it did not emit."""
    rows: Counter[tuple[Row, int]] = Counter()
    for pane in panes:
        for left, right in pane.value:
            emitted = (pane.key, *pane.window, left, right), pane.timestamp_us
            rows[emitted] += pane.sign

            assert rows[emitted] >= 0, f"{pane} retracts what was not emitted"
    return +rows


def group_rows(panes: Iterable[LoggedPane], join_type: df.JoinType) -> Counter[tuple[Row, int]]:
    """What a CoGroupByKey is expected to emit, which emits whole groups."""
    rows: Counter[tuple[Row, int]] = Counter()
    for pane in panes:
        for left, right in oracle_pairs(pane.value[0], pane.value[1], join_type):
            rows[(pane.key, *pane.window, left, right), pane.timestamp_us] += pane.sign
    return +rows


def _untimed(rows: Counter[tuple[Row, int]]) -> Rows:
    found: Rows = Counter()
    for (row, _), count in rows.items():
        found[row] += count
    return found


def check_join(
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    trigger: df.Trigger | None,
    join_type: df.JoinType,
    combiner: df.TimestampCombiner = df.TimestampCombiner.END_OF_WINDOW,
) -> None:
    """In the end a join has emitted the oracle's pairs, and at every moment those of the groups of a CoGroupByKey."""
    pipeline = df.Pipeline(DirectRunner())
    records = windowed(pipeline, windowing, arrivals, RETRACTING, trigger, combiner)
    left, right = sides(records, is_left, shown)
    (left, right) | "join" >> df.Join(join_type)
    {"left": left, "right": right} | "groups" >> df.CoGroupByKey()
    log = run_logged(pipeline)
    expected = oracle_rows(evaluate(windowing, arrivals).groups, join_type, is_left, shown)

    _check_every_moment(log, join_type)
    assert expected == _untimed(rows_of(_panes(log, "join/join")))
    assert (0, 0) == (log.cells_left, log.timers_left), "state is left behind"


@attrs.frozen
class Summary:
    """What the first grouping emits, as a value of the second."""

    key: Any
    start_us: int
    end_us: int
    values: tuple[int, ...]


class _Summarize(df.DoFn):
    def process(self, element: Any, /, window: Any = df.DoFn.WindowParam) -> Any:
        key, values = element
        summary = Summary(key, window.start_us, window.end_us, tuple(sorted(values)))
        yield _shared(summary), summary


def _shared(summary: Summary) -> str:
    return shared_key((summary.key, summary.start_us, summary.end_us, summary.values))


def _is_left_summary(summary: Summary) -> bool:
    return bool(summary.key == "a")


def _sum(summary: Summary) -> int:
    return sum(summary.values) % 7


def check_join_of_results(
    windowing: Windowing,
    arrivals: Sequence[Arrivals],
    triggers: tuple[df.Trigger, df.Trigger],
    second: Windowing,
    join_type: df.JoinType,
    combiner: df.TimestampCombiner = df.TimestampCombiner.END_OF_WINDOW,
) -> None:
    """What is expected where inputs may be retracted: right of all that the first grouping emits in the end."""
    pipeline = df.Pipeline(DirectRunner())
    summaries = (
        windowed(pipeline, windowing, arrivals, RETRACTING, triggers[0])
        | "first" >> df.GroupByKey()
        | df.ParDo(_Summarize())
        | df.WindowInto(
            window_fn(second),
            trigger=triggers[1],
            accumulation_mode=RETRACTING,
            allowed_lateness=microseconds(LONG_US),
            timestamp_combiner=combiner,
        )
    )
    left, right = sides(summaries, _is_left_summary, _sum)
    (left, right) | "join" >> df.Join(join_type)
    {"left": left, "right": right} | "groups" >> df.CoGroupByKey()
    log = run_logged(pipeline)
    first = [
        Summary(group.key, group.start_us, group.end_us, tuple(group.values))
        for group in evaluate(windowing, arrivals).groups
    ]
    records = [Record(_shared(each), each, each.end_us - 1) for each in first]  # type: ignore[arg-type]
    expected = oracle_rows(regroup(second, records), join_type, _is_left_summary, _sum)

    _check_every_moment(log, join_type)
    assert expected == _untimed(rows_of(_panes(log, "join/join")))
    assert (0, 0) == (log.cells_left, log.timers_left), "state is left behind"


def _check_every_moment(log: PaneLog, join_type: df.JoinType) -> None:
    for step in log.steps:
        pairs = rows_of(_panes(log, "join/join", step))
        groups = group_rows(_panes(log, "groups/group", step), join_type)

        assert groups == pairs


def _panes(log: PaneLog, transform: str, step: int | None = None) -> list[LoggedPane]:
    return [pane for pane in log.panes[:step] if pane.transform == transform]

"""Oracle, direct, batch and streaming come to the same, for windows, triggers, modes and streams that nobody chose.

Many cases are branches of one pipeline, so that a run of Spark is worth its start.
What counts is the fold of the panes: when they come, and how many there are, is each engine's own affair.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from runners.batch import BatchRunner
from runners.direct import DirectRunner
from runners.streaming import StreamingRunner
from tests.oracle.chained import FROZEN, LONG_US, Chain, Summarize, expected
from tests.oracle.evaluator import Arrivals, Windowing, evaluate
from tests.oracle.laws import Mode, Place, answers, microseconds, window_fn, windowed
from tests.strategies import sessions, streams, triggers, windowings

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

CASES = 12
COLUMNS = {
    "number": int, "key": str, "start_us": int, "end_us": int, "value": str, "sign": int, "pane": int
}  # fmt: skip
#: Nothing is late enough to be dropped: then the engines owe each other the same answer.
LATENESS = st.just(LONG_US)
Rows = Sequence[Mapping[str, Any]]


@attrs.frozen
class Case:
    """A stream through a grouping, and perhaps through a second one that follows what the first retracts."""

    windowing: Windowing
    arrivals: list[Arrivals]
    mode: Mode
    trigger: df.Trigger
    chain: Chain | None = None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any windows, any trigger, any mode; some with a second grouping."""
    arrivals, trigger = draw(streams()), draw(triggers())
    if draw(st.booleans()):
        second = draw(st.just(FROZEN) | sessions(LATENESS) | windowings(LATENESS))
        if second.kind != "own gaps":
            first = draw(windowings(LATENESS).filter(lambda windowing: windowing.kind != "global"))
            return Case(first, arrivals, RETRACTING, trigger, Chain(second, draw(triggers())))
    return Case(draw(windowings(LATENESS)), arrivals, draw(st.sampled_from(Mode)), trigger)


RETRACTING = Mode.ACCUMULATING_AND_RETRACTING


def build(pipeline: df.Pipeline, several: Sequence[Case]) -> None:
    """All cases as branches that write what is emitted and retracted into one table."""
    rows = [
        pipeline | f"case {number}" >> _Branch(number, case) for number, case in enumerate(several)
    ]
    rows | df.Flatten() | df.WriteToPostgres("changes", columns=COLUMNS)


class _Branch(df.PTransform[df.Pipeline, df.PCollection[Any]]):
    def __init__(self, number: int, case: Case) -> None:
        self._number, self._case = number, case

    def expand(self, pcoll: df.Pipeline) -> df.PCollection[Any]:
        case = self._case
        groups = windowed(pcoll, case.windowing, case.arrivals, case.mode, case.trigger)
        groups = groups | df.GroupByKey()
        if case.chain is not None:
            groups = groups | df.ParDo(Summarize())
            if case.chain.windowing is not FROZEN:
                groups = groups | df.WindowInto(
                    window_fn(case.chain.windowing),
                    trigger=case.chain.trigger,
                    accumulation_mode=RETRACTING,
                    allowed_lateness=microseconds(LONG_US),
                )
            groups = groups | df.GroupByKey()
        return (
            groups
            | df.ToChangelog()
            | df.Map(_Row(self._number))
            | df.WindowInto(df.GlobalWindows())
        )


@attrs.frozen
class _Row:
    number: int

    def __call__(self, change: df.Change[Any]) -> dict[str, Any]:
        key, values = change.value
        return {
            "number": self.number,
            "key": key,
            "start_us": change.window.start_us,
            "end_us": change.window.end_us,
            "value": json.dumps(sorted(values)),
            "sign": change.sign,
            "pane": change.pane.index,
        }


def fold(case: Case, rows: Rows) -> dict[Place, Any]:
    """What the panes of a case come to."""
    if case.mode is Mode.DISCARDING:
        return _concatenated(case, rows)
    if case.mode is Mode.ACCUMULATING:
        last = {_place(row): row for row in sorted(rows, key=lambda row: int(row["pane"]))}
        finals = answers(evaluate(case.windowing, case.arrivals).groups)
        return {place: json.loads(last[place]["value"]) for place in finals if place in last}
    signed: Counter[tuple[Place, str]] = Counter()
    for row in rows:
        signed[_place(row), row["value"]] += row["sign"]
    left = [place_and_value for place_and_value, count in signed.items() if count]

    assert set(signed.values()) <= {0, 1}, (
        "what is retracted was emitted, and nothing is emitted twice"
    )
    assert len(left) == len({place for place, _ in left}), "a window has one result"
    return {place: json.loads(value) for place, value in left}


def _concatenated(case: Case, rows: Rows) -> dict[Place, Any]:
    emitted: dict[Place, list[int]] = defaultdict(list)
    homes = answers(evaluate(case.windowing, case.arrivals).groups)
    for row in rows:
        values, (key, start_us, end_us) = json.loads(row["value"]), _place(row)
        for home in homes if values else ():
            inside = home[0] == key and home[1] <= start_us < end_us <= home[2]
            if inside and not set(values).isdisjoint(homes[home]):
                emitted[home] += values
    return {home: sorted(values) for home, values in emitted.items()}


def _place(row: Mapping[str, Any]) -> Place:
    return row["key"], row["start_us"], row["end_us"]


def oracle(case: Case) -> dict[Place, Any]:
    """What it must come to, as JSON has it."""
    first = answers(evaluate(case.windowing, case.arrivals).groups)
    final = first if case.chain is None else expected(case.chain, first)
    return {place: json.loads(json.dumps(sorted(values))) for place, values in final.items()}


Run = Callable[[Sequence[Case]], Rows]


def check(several: Sequence[Case], run: Run) -> None:
    """Every case comes to the answer of the oracle."""
    rows = run(several)
    for number, case in enumerate(several):
        mine = [row for row in rows if row["number"] == number]

        assert oracle(case) == fold(case, mine), case


def runner_of(engine: Callable[..., df.Runner], **options: Any) -> Run:
    def run(several: Sequence[Case]) -> Rows:
        pipeline = df.Pipeline(engine(**options))
        build(pipeline, several)
        result = pipeline.run()
        result.wait_until_finish()
        return result.read_table("changes")

    return run


@given(several=st.lists(cases(), min_size=CASES, max_size=CASES))
@settings(max_examples=5)
def test_direct_has_the_answer_of_the_oracle(several: list[Case]) -> None:
    """Its own laws show this, too; here it is in the shape of this test."""
    check(several, runner_of(DirectRunner))


@pytest.mark.parametrize("engine", [partial(BatchRunner, partitions=2), StreamingRunner])
@settings(
    max_examples=max(1, settings().max_examples // 100),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(several=st.lists(cases(), min_size=CASES, max_size=CASES))
def test_spark_has_the_answer_of_the_oracle(
    engine: Any, store_dsn: str, spark_master: str, several: list[Case]
) -> None:
    """Batch and streaming, on real Spark and Postgres."""
    options = {"job": "job", "store": store_dsn, "master": spark_master, "fresh": True}
    check(several, runner_of(engine, show_progress=False, **options))

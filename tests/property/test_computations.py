"""Computations against evaluations from scratch: any input, any bundles, any path of the low watermark."""

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.computations import LOW_WATERMARK, WALL_TIME, Computation, Record, Timer, Topology
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.visit_topology import TABLES, Visit, build, expected
from windowing.timestamps import MAX_TIMESTAMP_US

US = 1_000_000

VISITS = st.lists(
    st.lists(
        st.tuples(st.tuples(st.integers(0, 4), st.integers(0, 2)), st.integers(0, 300)), max_size=6
    ),
    max_size=8,
)


def never_late(script: list[list[tuple[Visit, int]]]) -> ScriptedSource:
    """Batches in any order; the watermark knows what is still to come."""
    batches, soonest_us = [], MAX_TIMESTAMP_US
    for each in reversed(script):
        times_us = [second * US for _, second in each]
        batches.append(Batch([value for value, _ in each], times_us, soonest_us))
        soonest_us = min([soonest_us, *times_us])
    return ScriptedSource(batches[::-1])


@given(VISITS)
def test_a_topology_emits_what_a_sorted_list_has(script: list[list[tuple[Visit, int]]]) -> None:
    """Counts, their maximum, and silences: whatever order and bundles the visits come in."""
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, never_late(script))
    result = pipeline.run()

    tables = {
        name: sorted(tuple(each.values()) for each in result.read_table(name)) for name in TABLES
    }
    assert expected(visit for batch in script for visit in batch) == tables
    assert [] == list(result.late_records())


#: Set a timer, set it as long after the record (negative: before it), or delete it; tag, seconds.
OPERATION = st.one_of(
    st.tuples(st.just("set"), st.sampled_from("abcdefghijkl"), st.integers(-5, 40)),
    st.tuples(st.just("delete"), st.sampled_from("abcdefghijkl"), st.just(0)),
)
#: What a record does, and what the timers that it sets do.
PROGRAM = st.tuples(st.lists(OPERATION, max_size=14), st.lists(OPERATION, max_size=2))
Program = tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]
#: Records as (key, second, program), and how far the low watermark moves after them.
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 30), PROGRAM), max_size=3),
        st.integers(0, 15),
    ),
    max_size=8,
)


class WindowTimers(Computation):
    """Does what its records ask for; the first time that a tag fires it does what the last record left for timers."""

    def process_record(self, record: Record) -> None:
        _, _, (operations, left) = record.value
        self.state = {"left": left, "fired": (self.state or {}).get("fired", [])}
        self._do(operations, record.timestamp.timestamp())

    def process_timer(self, timer: Timer) -> None:
        assert timer.domain is LOW_WATERMARK
        self.produce((timer.key, timer.tag, timer.time.timestamp()), "fired")
        if timer.tag not in self.state["fired"]:
            self.state["fired"].append(timer.tag)
            self._do(self.state["left"], timer.timestamp.timestamp())

    def _do(self, operations: list[tuple[str, str, int]], now: float) -> None:
        for name, tag, second in operations:
            if name == "set":
                self.set_timer(tag, now + second)
                self.set_timer(tag, now + 1000, WALL_TIME)
            else:
                self.delete_timer(tag)
            self.delete_timer(tag, WALL_TIME)


@attrs.define
class Model:
    """One key, one event at a time."""

    #: Tag to when it fires, and when it was set; in the order in which they were set.
    timers: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    left: list[tuple[str, str, int]] = attrs.field(factory=list)
    fired: list[tuple[str, float]] = attrs.field(factory=list)

    def do(self, operations: list[tuple[str, str, int]], now: float) -> None:
        for name, tag, second in operations:
            self.timers.pop(tag, None)
            if name == "set":
                self.timers[tag] = (now + second, now)

    def fire(self, watermark: float) -> None:
        while due := [tag for tag, (at, _) in self.timers.items() if at <= watermark]:
            tag = min(due, key=lambda each: self.timers[each][0])
            at, base = self.timers.pop(tag)
            is_first = tag not in [each for each, _ in self.fired]
            self.fired.append((tag, at))
            if is_first:
                self.do(self.left, max(at, base))


@given(STEPS)
def test_timers_fire_in_order_and_once(steps: list[Any]) -> None:
    """Of any number of tags, set, moved and deleted, also by timers; each key by itself."""
    models = {key: Model() for key in "xy"}
    batches, watermark = [], -1000
    for records, moved in steps:
        for key, second, (operations, left) in records:
            models[key].left = left
            models[key].do(operations, second)
            models[key].fire(watermark)
        watermark = max(watermark, 0) + moved
        for model in models.values():
            model.fire(watermark)
        times_us = [second * US for _, second, _ in records]
        batches.append(Batch(records, times_us, watermark * US))
    for model in models.values():
        model.fire(10**9)

    pipeline = df.Pipeline(DirectRunner())
    streams = pipeline | Topology().injector("in", ScriptedSource(batches)).computation(
        "timers", WindowTimers(), inputs={"in": lambda record: record[0]}, outputs=["fired"]
    )
    seen: list[Any] = []
    streams["fired"] | df.Map(seen.append)
    pipeline.run()

    for key, model in models.items():
        assert model.fired == [(tag, at) for name_of_key, tag, at in seen if name_of_key == key]

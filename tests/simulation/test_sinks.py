"""Relays beside a simulated cluster: whatever dies, the sink has what the table of the same results has."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter
from dataflow.testing.model_sink import ModelLane, ModelSink, ModelWriter, Outcome
from runners.relay.lane_relay import LaneRelay
from runners.relay.outbox import LanePlace
from runners.testing.simulator import Fault
from runners.testing.simulator.cluster import JOB, SimulatedCluster
from runners.testing.simulator.fault import ALL_FAULTS
from runners.testing.simulator.pipelines import COLUMNS, LATENESS, row
from runners.testing.simulator.scripts import truthful
from tests.effort import costly

pytestmark = pytest.mark.slow

#: A store that goes back leaves a sink ahead of it, which ends the job.
FAULTS = [each for each in ALL_FAULTS if each not in (Fault.LOST_COMMITS, Fault.LOST_PART)]
LANES, RELAYS = 2, 2


class _ByKey(ModelSink):
    def lane_key(self, element: Any) -> Any:
        return element["key"]


class _Relays:
    """Some relays for each lane, of which each believes that it is the only one, and which die."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        sink: ModelSink,
        seed: int,
        writer: type[ModelWriter] = ModelWriter,
    ) -> None:
        self._chance = Random(f"relays {seed}")
        self._cluster, self._sink, self._writer = cluster, sink, writer
        sink.fate, sink.between = self._outcome, self._between
        ((label, (table, _)),) = cluster.plan.graph.sinks().items()
        self._places = [
            LanePlace(job=JOB, sink=label, outbox=table, number=number) for number in range(LANES)
        ]
        self._relays = [self._new(place) for place in self._places for _ in range(RELAYS)]
        self._is_calm, self._depth = False, 0
        self._stepping: list[LaneRelay] = []

    def _new(self, place: LanePlace) -> LaneRelay:
        return LaneRelay(self._cluster.store, self._sink, place, self._open, self._cluster.clock)

    def _open(self, sink: Sink[Any], lane: Lane) -> SinkWriter:
        assert isinstance(sink, ModelSink)
        return self._writer(sink, lane)

    def _outcome(self, _: Lane) -> Outcome:
        if self._is_calm or self._chance.random() < 0.7:
            return Outcome.DONE
        return self._chance.choice(list(Outcome))

    def _between(self, _: str) -> None:
        if not self._is_calm and self._depth < 2 and self._chance.random() < 0.2:
            self.act()

    def act(self) -> bool:
        """Let some relay do something, or die."""
        self._depth += 1
        at = self._chance.randrange(len(self._relays))
        if self._chance.random() < 0.1:
            self._relays[at] = self._new(self._relays[at].place)
        elif self._chance.random() < 0.1:
            self._sink.let_land()
        else:
            self._step(self._relays[at])
        self._depth -= 1
        return False

    def _step(self, relay: LaneRelay) -> None:
        # A relay is of one thread: in the middle of a step it begins no other.
        if relay not in self._stepping:
            self._stepping.append(relay)
            with suppress(Exception):
                relay.step()
            self._stepping.remove(relay)

    def settle(self) -> None:
        """Send what is left; nothing fails any more."""
        self._is_calm = True
        for place in self._places:
            relay = self._new(place)
            while self._cluster.store.count_waiting(place):
                relay.step(is_last=True)
        self._sink.let_land()


class _KeepsNoNumber(ModelWriter):
    """Of a sink that keeps neither number nor token; it is sent the number with each change."""

    def fence(self, token: int) -> int:
        return self.lane.delivered

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        known = [
            SinkChange((number, index, change.value), change.sign)
            for index, change in enumerate(changes)
        ]
        super().write(number, known)


def _known_once(lane: ModelLane) -> list[SinkChange]:
    """What a receiver has that knows again what comes twice."""
    first: dict[tuple[int, int], SinkChange] = {}
    for change in lane.changes:
        number, index, value = change.value
        first.setdefault((number, index), SinkChange(value, change.sign))
    return list(first.values())


@costly()
@given(seed=st.integers(0, 10_000), keeps_numbers=st.booleans())
def test_a_sink_has_the_rows_of_the_table(seed: int, *, keeps_numbers: bool) -> None:
    chance = Random(seed)
    large = Batching(max_rows=5, max_delay_ms=chance.choice((500, 60_000)))
    sink = _ByKey(lanes=LANES, batching=large if chance.random() < 0.5 else None)
    p = df.Pipeline()
    sessions = (
        p
        | "read" >> df.Read(truthful(chance))
        | "windows"
        >> df.WindowInto(
            df.Sessions(30),
            trigger=df.AfterWatermark(early=df.Repeatedly(df.AfterCount(2))),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            allowed_lateness=LATENESS,
        )
        | "group" >> df.GroupByKey()
        | "row" >> df.Map(row)
    )
    sessions | "table" >> df.WriteToPostgres("table", columns=COLUMNS, key=["key", "start", "end"])
    sessions | "sink" >> df.Write(sink)
    cluster = SimulatedCluster(p.graph(), seed, faults=FAULTS)
    relays = _Relays(cluster, sink, seed, ModelWriter if keeps_numbers else _KeepsNoNumber)
    cluster.run_until(relays.act)
    relays.settle()
    (table,) = [each for each in cluster.plan.graph.tables() if not each.is_outbox]
    net = Counter[tuple[Any, ...]]()
    for lane in sink.state.values():
        if keeps_numbers:
            assert lane.numbers == list(range(1, len(lane.numbers) + 1))
        for change in lane.changes if keeps_numbers else _known_once(lane):
            values = tuple(change.value[name] for name in COLUMNS)
            net[values] += change.sign
            assert net[values] >= 0, "a row is retracted before it is emitted"
    assert +net == Counter(cluster.store.read_table(table))

"""Which range a key belongs to is remembered, for as long as the ranges are the same."""

from collections.abc import Sequence
from typing import Any

import pytest

import dataflow as df
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.errors import WorkerStoppedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker import key_places
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.router import Router
from runners.stored.partials import decode_partials
from runners.testing.scripted_source import ScriptedSource
from windowing.window import GLOBAL_WINDOW

KEYS = range(40)
LOW, HIGH = RangeId("sum", 0), RangeId("sum", 1)
HALVES = {LOW: KeyRange(0, KEY_SPACE_END // 2), HIGH: KeyRange(KEY_SPACE_END // 2, KEY_SPACE_END)}


def sums() -> ExecutionPlan:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Read(ScriptedSource([])) | "sum" >> df.CombinePerKey(sum)
    return plan(pipeline.graph())


def sent(by: Router) -> dict[RangeId, set[Any]]:
    partials = [(key, GLOBAL_WINDOW, 1, 1) for key in KEYS]
    return {
        range_id: {key for key, *_ in decode_partials(payload, None)}
        for range_id, payload in by.payloads({"sum": partials})
    }


@pytest.mark.parametrize("remembered", [7, 1_000])
def test_what_is_sent_follows_the_last_routing(
    remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_places, "KEYS_MAX", remembered)
    divides = Router(sums())
    divides.follow(Routing(number=1, keys=HALVES))
    halves = sent(divides)
    assert halves == sent(divides)
    assert all(halves[each] for each in (LOW, HIGH))

    divides.follow(Routing(number=2, keys={LOW: HALVES[HIGH], HIGH: HALVES[LOW]}))
    assert sent(divides) == {LOW: halves[HIGH], HIGH: halves[LOW]}
    divides.follow(Routing(number=3, keys={HIGH: KeyRange(0, KEY_SPACE_END)}))
    assert sent(divides) == {HIGH: set(KEYS)}


@pytest.mark.parametrize("remembered", [7, 1_000])
def test_a_key_is_located_in_the_ranges_that_are_owned_now(
    remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_places, "KEYS_MAX", remembered)
    planned, store = sums(), MemoryStore()
    store.open_job(job_spec("job", "streaming", planned, splits_desired=1, ranges_per_grouping=2))
    owner = GroupingComputation("job", planned, planned.stages["sum"], Router(planned), store)

    def take(range_ids: Sequence[RangeId]) -> None:
        for each in store.acquire("job", range_ids, "owner").values():
            owner.take(each)

    take([LOW, HIGH])
    state = owner.state
    places = {key: state.locate(key).range_id for key in KEYS}
    assert set(places.values()) == {LOW, HIGH}
    assert places == {key: state.locate(key).range_id for key in KEYS}

    owner.release(LOW)
    for key, range_id in places.items():
        if range_id == HIGH:
            assert state.locate(key) is state.ranges[HIGH]
        else:
            with pytest.raises(WorkerStoppedError, match="has no range for key"):
                state.locate(key)

    take([LOW])
    assert all(state.locate(key) is state.ranges[places[key]] for key in KEYS)

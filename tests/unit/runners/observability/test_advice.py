"""Advice of a balancer: laws of what it plans for any load, and what it says of workers and of what a change costs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.master.load_policy import (
    LoadPolicy,
    PolicyOptions,
    RangeView,
    planned_changes,
)
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.observability.advice.advise import AdviceKind, advise, median_us
from runners.observability.evidence.snapshot import (
    DriverEvidence,
    Histogram,
    JobSnapshot,
    Phase,
    RangeEvidence,
    RangeState,
    WorkerEvidence,
)

OPTIONS = PolicyOptions()


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, list[RangeView]]:
    """Ranges of two groupings and some splits, in some slots."""
    slots, views = draw(st.integers(1, 5)), []
    for name in ("sum", "count"):
        for index, keys in enumerate(even_ranges(draw(st.integers(1, 4)))):
            # Of few nothing is split, so there are many, or none.
            low, high = keys.low, keys.high - 1
            hashes = draw(st.just([]) | st.lists(st.integers(low, high), min_size=16, max_size=24))
            records, slot = draw(st.integers(0, 100_000)), draw(st.integers(0, slots - 1))
            views.append(
                RangeView(
                    range_id=RangeId(name, index),
                    slot=slot,
                    keys=keys,
                    records=records,
                    hashes=hashes,
                )
            )
    for index in range(draw(st.integers(0, 4))):
        records, slot = draw(st.integers(0, 100_000)), draw(st.integers(0, slots - 1))
        views.append(
            RangeView(range_id=RangeId("read", index), slot=slot, keys=None, records=records)
        )
    return slots, views


@given(loads())
def test_no_plan_makes_the_busiest_worker_busier(found: tuple[int, list[RangeView]]) -> None:
    """Nothing of the load is lost, and a move makes the busiest of all less busy, or one of several that are."""
    slots, views = found
    plan = planned_changes(slots, views, next_indexes={"sum": 8, "count": 8})
    for step in plan:
        assert sum(step.before) == sum(step.after) == sum(each.records for each in views)
        assert max(step.after) <= max(step.before)
    for step, following in pairwise(plan):
        assert step.after == following.before
    names = [each.born for each in plan if each.born is not None]
    assert len(set(names)) == len(names)


@given(loads())
def test_the_first_of_a_plan_is_what_the_balancer_does(found: tuple[int, list[RangeView]]) -> None:
    slots, views = found
    plan = planned_changes(slots, views, next_indexes={"sum": 8, "count": 8}, changes_max=1)
    policy = LoadPolicy(slots)
    decided = [policy.decide(views) for _ in range(max(OPTIONS.patience, OPTIONS.merge_patience))]

    made = [each for each in decided if each is not None]
    assert made[:1] == [each.change for each in plan]


@given(st.integers(1, 5), st.integers(1_000, 100_000))
def test_a_job_that_is_balanced_is_left_alone(slots: int, records: int) -> None:
    views = [
        RangeView(range_id=RangeId("sum", index), slot=index % slots, keys=keys, records=records)
        for index, keys in enumerate(even_ranges(2 * slots))
    ]
    assert planned_changes(slots, views, next_indexes={"sum": 2 * slots}) == []


def snapshot(
    loads_per_s: Sequence[tuple[int, float]], busy: Sequence[float | None], **given_fields: Any
) -> JobSnapshot:
    """Ranges of one grouping with their slots and loads, and as many keys known as are needed."""
    keys = even_ranges(len(loads_per_s))
    driver = DriverEvidence(
        name="d", started_us=0, phase=Phase.RUNNING, workers=len(busy), workers_ready=len(busy)
    )
    made = JobSnapshot(
        job="scores",
        job_version=0,
        taken_us=0,
        driver=driver,
        watermark_us=0,
        slowest_source_us=0,
        stages={},
        ranges={
            f"sum[{index}]": RangeEvidence(
                stage="sum",
                index=index,
                slot=slot,
                state=RangeState.OWNED,
                worker=f"w{slot}",
                output_us=0,
                records_per_s=rate,
                keys=(keys[index].low, keys[index].high - 1),
                hashes=range(
                    keys[index].low, keys[index].high, (keys[index].high - keys[index].low) // 40
                ),
            )
            for index, (slot, rate) in enumerate(loads_per_s)
        },
        workers=[
            WorkerEvidence(slot=slot, worker=f"w{slot}", busy_share=share)
            for slot, share in enumerate(busy)
        ],
        counts={"cache_bytes": 1_000},
    )
    return attrs.evolve(made, **given_fields)


def test_a_hot_range_is_split_and_a_part_moves() -> None:
    driver = snapshot([(0, 1)], [0.9, 0.1]).driver
    moves = Histogram(counts=[0, 0, 0, 0, 0, 9, 3] + [0] * 8, sum_us=1)
    found = advise(
        snapshot(
            [(0, 9_000), (0, 100), (1, 100), (1, 100)],
            [0.9, 0.1],
            driver=attrs.evolve(driver, moves=moves),
        ),
        {"sum": 7},
        {"sum[0]": 5_000, "sum[1]": 70},
    )
    kinds = [each.kind for each in found.steps]

    assert kinds[:2] == [AdviceKind.SPLIT, AdviceKind.MOVE]
    split, move = found.steps[:2]
    assert split.command is not None
    assert split.command.startswith("dataflow split scores 'sum[0]' 0x")
    assert move.command in (
        "dataflow move scores 'sum[0]' 1 --wait",
        "dataflow move scores 'sum[7]' 1 --wait",
    )
    assert (move.cost.pause_us, move.cost.moves) == (10_000, 12)
    assert max(move.after) < 0.7 * max(split.before)


def test_workers_that_are_too_few_or_too_many() -> None:
    even = [(slot, 5_000.0) for slot in (0, 1, 0, 1)]
    few = advise(snapshot(even, [0.95, 0.97]), {"sum": 4}, {})
    assert [each.kind for each in few.steps] == [AdviceKind.MORE_WORKERS]
    assert "with 4 workers" in few.steps[0].text
    spread = [(slot, 1_000.0) for slot in range(6)]
    many = advise(snapshot(spread, [0.2] * 6), {"sum": 6}, {})
    assert [each.kind for each in many.steps] == [AdviceKind.FEWER_WORKERS]
    assert "with 2 workers" in many.steps[0].text
    calm = advise(snapshot(even, [0.1, 0.1], gather_bytes_max=1 << 20), {"sum": 4}, {})
    assert [each.kind for each in calm.steps] == [AdviceKind.GATHER]
    well = advise(snapshot(even, [0.6, 0.5]), {"sum": 4}, {})
    assert (well.steps, well.reason) == ((), "the load is as well spread as it can be")


def test_what_is_not_known_is_not_advised() -> None:
    unknown = [(slot, 5_000.0) for slot in (0, 0, 0, 1)]
    found = snapshot(unknown, [None, None])
    missing = advise(
        attrs.evolve(found, driver=attrs.evolve(found.driver, workers_ready=1)), {"sum": 4}, {}
    )
    assert missing.steps == ()
    assert missing.reason is not None
    assert missing.reason.startswith("1 of 2 workers are not there")
    moving = {
        name: attrs.evolve(each, state=RangeState.MOVING) for name, each in found.ranges.items()
    }
    assert advise(attrs.evolve(found, ranges=moving), {"sum": 4}, {}).steps == ()
    assert median_us(Histogram()) is None

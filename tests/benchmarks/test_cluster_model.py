"""The model of a large cluster: nothing is lost in it, what must take time does, and it repeats itself."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import cluster_model, pages
from benchmarks.latency import percentile
from benchmarks.scale import costs as costs_module
from benchmarks.scale.cluster import Cluster, Outcome, Shape
from benchmarks.scale.costs import Costs
from benchmarks.scale.virtual import Processors

#: The time of the real driver would differ from run to run.
COSTS = Costs(driver_us=100.0)
SMALL = Shape(workers=2, rate=200, seconds=0.3, warm_up_s=0.1)

jobs = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 900)), min_size=1, max_size=30)


def median_ms(outcome: Outcome) -> float:
    return percentile(sorted(outcome.latencies_ms), 50)


@given(jobs, st.integers(1, 4))
def test_processors_do_all_work_and_no_more_than_they_can(
    asked: list[tuple[int, int]], cores: int
) -> None:
    processors = Processors(cores)
    ends_us = [processors.done_us(float(at_us), float(work_us)) for at_us, work_us in asked]

    assert processors.busy_us == sum(work_us for _, work_us in asked)
    for (at_us, work_us), end_us in zip(asked, ends_us, strict=True):
        assert end_us >= at_us + work_us - 1e-6
    first_us = min(at_us for at_us, _ in asked)
    assert sum(work_us for _, work_us in asked) <= cores * (max(ends_us) - first_us) + cores * 100


@given(st.integers(1, 4), st.integers(1, 500))
def test_a_core_too_few_makes_the_last_one_wait(cores: int, work_us: int) -> None:
    processors = Processors(cores)
    at_once = [processors.done_us(1_000.0, 1_000.0) for _ in range(cores)]

    assert at_once == [2_000.0] * cores
    assert processors.done_us(1_000.0, float(work_us)) == 2_000.0 + work_us


@pytest.mark.slow
def test_every_record_comes_through_and_takes_at_least_its_way() -> None:
    outcome = Cluster(SMALL, COSTS).run()

    # A record for a key of the worker that reads it is counted in the same commit.
    least_us = COSTS.read_us + COSTS.count_us + COSTS.step_us + COSTS.commit_us
    assert len(outcome.latencies_ms) == pytest.approx(SMALL.workers * SMALL.rate * 0.3, abs=4)
    assert outcome.committed == pytest.approx(outcome.offered, rel=0.05)
    assert min(outcome.latencies_ms) * 1_000 >= least_us + COSTS.flush_us
    assert 0 < outcome.worker_cores < 1
    assert outcome.postgres_cores > 0
    assert outcome.driver_cores > 0


@pytest.mark.slow
def test_the_same_costs_give_the_same() -> None:
    assert Cluster(SMALL, COSTS).run() == Cluster(SMALL, COSTS).run()


@pytest.mark.slow
def test_a_slow_disk_is_waited_for_twice() -> None:
    """Once where a record is read, once where it arrives, by those that go to another worker."""
    slow = Costs(driver_us=100.0, flush_us=COSTS.flush_us + 4_000)

    waited_ms = median_ms(Cluster(SMALL, slow).run()) - median_ms(Cluster(SMALL, COSTS).run())
    assert 7.5 < waited_ms < 20


@pytest.mark.slow
def test_latency_stays_when_workers_and_servers_grow_together() -> None:
    few = Cluster(Shape(workers=2, rate=100, seconds=0.3, warm_up_s=0.1), COSTS).run()
    many = Cluster(Shape(workers=12, rate=100, seconds=0.3, warm_up_s=0.1), COSTS).run()

    assert median_ms(many) < 2 * median_ms(few)


@pytest.mark.slow
def test_one_core_for_all_is_not_enough() -> None:
    """More is asked of one core than it can do; then some is left, and what is done took long."""
    crowded = Shape(
        workers=2, rate=10_000, seconds=0.2, warm_up_s=0.1, cores=1, is_one_machine=True
    )
    alone = Shape(workers=2, rate=10_000, seconds=0.2, warm_up_s=0.1)
    ours, theirs = Cluster(crowded, COSTS).run(), Cluster(alone, COSTS).run()

    assert ours.committed < 0.9 * ours.offered
    assert median_ms(ours) > 2 * median_ms(theirs)


@given(st.lists(st.integers(0, 300), min_size=3, max_size=3))
def test_costs_that_explain_runs_are_found_again(true_us: list[int]) -> None:
    counts = np.array([[100, 10, 20], [100, 50, 20], [100, 50, 90], [100, 7, 7]], dtype=float)
    took_us = counts @ np.array(true_us) + 1e-3

    found = costs_module.explained(counts, list(took_us / 1e6))

    assert counts @ np.array(found) == pytest.approx(took_us, rel=0.01, abs=0.01)
    assert min(found) >= 0


def test_costs_are_never_less_than_nothing() -> None:
    counts = np.array([[100, 10, 20], [100, 50, 20], [100, 50, 90]], dtype=float)

    found = costs_module.explained(counts, [2e-3, 1e-3, 1e-3])

    assert min(found) >= 0
    assert max(found) > 0


@pytest.mark.slow
def test_page_has_marks_for_the_model() -> None:
    given = cluster_model.parser().parse_args(
        ["--workers", "2", "--rate", "100", "--seconds", "0.2"]
    )
    shapes = list(cluster_model.shapes(given))
    rows = [cluster_model.row(shape, Cluster(shape, COSTS).run()) for shape in shapes]

    assert [row[0] for row in rows] == ["2, on two cores", "2"]
    assert {len(row) for row in rows} == {len(cluster_model.HEADER)}
    page = cluster_model.PAGE.read_text("utf-8")
    assert "a table" in pages.filled_in(page, {"Model": "a table", "Model costs": "costs"})


def test_servers_grow_with_the_workers() -> None:
    given = cluster_model.parser().parse_args([])
    shapes = [each for each in cluster_model.shapes(given) if not each.is_one_machine]

    assert [each.workers for each in shapes] == 2 * [2, 10, 100, 1_000]
    for fewer, more in pairwise(shapes[:4]):
        assert fewer.servers <= more.servers
    assert shapes[3].servers == 50

"""When a job is gathered, by the options of its workers."""

import pytest

from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.streaming.job_thread import placement_options

WEAK = Guarantees(strong_productions=False)
LOOSE = Guarantees(exactly_once=False)


@pytest.mark.parametrize(
    ("guarantees", "is_gathered"),
    [({}, True), ({"sum": WEAK}, True), ({"sum": LOOSE}, False), ({"a": WEAK, "b": LOOSE}, False)],
)
def test_what_may_count_twice_when_it_moves_is_not_moved(
    guarantees: dict[str, Guarantees], is_gathered: bool
) -> None:
    options = placement_options(WorkerOptions(guarantees=guarantees))

    assert (options is not None) is is_gathered


@pytest.mark.parametrize(
    ("cache_bytes", "at_most"), [(0, 0), (4 << 20, 4 << 20), (None, 256 << 20)]
)
def test_state_must_fit_what_one_worker_keeps_in_memory(
    cache_bytes: int | None, at_most: int
) -> None:
    options = placement_options(WorkerOptions(state_cache_bytes=cache_bytes))

    assert options is not None
    assert options.state_bytes_max == at_most

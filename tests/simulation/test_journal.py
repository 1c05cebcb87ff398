"""The journal of state: whatever dies between a change, a compaction and the next, nothing is lost or emitted twice.

The journals here are so short, and compacted in such small steps, that most crashes are in the middle of a compaction.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runners.core.ground.cells import CellId
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.state import journal as journals
from runners.millwheel.worker.state.cell_cache import CellCache
from runners.millwheel.worker.state.journal import Journal
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.simulator import SimulationError, dice, simulate
from runners.testing.simulator.pipelines import PIPELINES
from tests.effort import by_profile, each_third

Patch = pytest.MonkeyPatch
#: Of each pipeline and each length; there are more than twenty of these.
EXAMPLES = by_profile(3, nightly=2_500)


@pytest.fixture(autouse=True, params=[300, 5_000])
def short_journals(monkeypatch: Patch, request: pytest.FixtureRequest) -> None:
    """With the longer one most windows are born and gone between two compactions."""
    monkeypatch.setattr(journals, "JOURNAL_BYTES_MAX", request.param)
    monkeypatch.setattr(dice, "STEPS", (StepLimits(compacted=1),))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 0))
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
@example(seed=38302)  # signals: a range moves at the end of the job, with what is left to do
def test_pipelines_keep_their_promises_for_any_seed(pipeline: str, seed: int) -> None:
    simulate(pipeline, seeds=[seed])


def forget_the_journal_at_takeover(patch: Patch) -> None:
    """A new owner goes by the tables alone."""
    replay = Journal.replay
    patch.setattr(Journal, "replay", lambda journal, owned, _: replay(journal, owned, []))


def apply_only_the_last_entry(patch: Patch) -> None:
    replay = Journal.replay

    def broken(journal: Journal, owned: OwnedRange, entries: Iterable[bytes]) -> object:
        return replay(journal, owned, list(entries)[-1:])

    patch.setattr(Journal, "replay", broken)


def _up_to_now(step: WorkerStep | None) -> WorkerStep | None:
    """The step, deleting also the entries that were noted since the compaction began."""
    if step is None:
        return None
    compacted = {range_id: step.ranges[range_id].bundle for range_id in step.compacted}
    return attrs.evolve(step, compacted=compacted)


def compact_what_is_noted_meanwhile(patch: Patch) -> None:
    """The entries that came while a round was under way go with those that it is about."""
    compact = Journal.compact

    def broken(journal: Journal, **how: bool) -> WorkerStep | None:
        step = compact(journal, **how)
        return _up_to_now(step)

    patch.setattr(Journal, "compact", broken)


def delete_what_was_noted_meanwhile(patch: Patch) -> None:
    """The commits that delete entries bit by bit go on to those that came after the compaction."""
    delete = Journal.delete

    def broken(journal: Journal, bundles: int | None = journals.DELETED_BUNDLES) -> Any:
        step = delete(journal, bundles)
        return _up_to_now(step)

    patch.setattr(Journal, "delete", broken)


def delete_before_all_is_written(patch: Patch) -> None:
    """Entries go while their cells and timers are still written, some at a time."""
    compact = Journal.compact

    def broken(journal: Journal, **how: bool) -> Any:
        step = compact(journal, **how)
        if journal._round is not None:
            journal._unneeded |= journal._round.bundles
        return step

    patch.setattr(Journal, "compact", broken)


def believe_that_nothing_is_stored(patch: Patch) -> None:
    """What is gone is not deleted."""
    patch.setattr(CellCache, "is_stored", lambda *_: False)


def believe_that_all_is_compacted(patch: Patch) -> None:
    """A cell that has changed since it was written may go, too."""
    compact = CellCache.compact

    def broken(cache: CellCache, cell_ids: Iterable[CellId]) -> Callable[[], None]:
        compacted = compact(cache, cell_ids)

        def afterwards() -> None:
            compacted()
            cache._uncommitted.clear()
            cache.trim()

        return afterwards

    patch.setattr(CellCache, "compact", broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "pipeline"),
    [
        (forget_the_journal_at_takeover, "sums"),
        (apply_only_the_last_entry, "sums"),
        (compact_what_is_noted_meanwhile, "sums"),
        (delete_what_was_noted_meanwhile, "sums"),
        (delete_before_all_is_written, "sums"),
        (believe_that_nothing_is_stored, "sums"),
        (believe_that_all_is_compacted, "sums"),
    ],
)
def test_simulator_rejects(
    mutation: Callable[[Patch], None], pipeline: str, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)

    with pytest.raises(SimulationError, match=r"(?s)seed \d+: I.*replay: .* --seed \d+"):
        simulate(pipeline, seeds=range(300))

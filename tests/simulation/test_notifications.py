"""Readers are notified of what is durable, and of nothing else: mutations of who notifies them, and when."""

from typing import Any

import pytest

from runners.core.stages.committed_positions import CommittedPositions
from runners.millwheel.worker.source_computation import SourceComputation
from runners.testing.simulator import SimulationError, simulate
from tests.effort import by_profile

Patch = pytest.MonkeyPatch
SEEDS = by_profile(5, nightly=2_000)
#: More than any of the mutations needs to be found.
SEEDS_MAX = 400


@pytest.mark.slow
def test_readers_are_notified_whatever_dies() -> None:
    simulate("sums", seeds=range(SEEDS))


def notified_too_early(patch: Patch) -> None:
    """When a batch has been read."""
    read = SourceComputation.read

    def reads(self: SourceComputation, range_id: Any, *args: Any, **kwargs: Any) -> Any:
        step, count = read(self, range_id, *args, **kwargs)
        for act in () if step is None else step.when_committed:
            act()
        self.notify()
        return step, count

    patch.setattr(SourceComputation, "read", reads)


def not_notified_by_the_next_owner(patch: Patch) -> None:
    """Of the position at which it opens the split."""
    take = SourceComputation.take

    def takes(self: SourceComputation, taken: Any) -> Any:
        with Patch.context() as here:
            here.setattr(CommittedPositions, "note", lambda *_: None)
            return take(self, taken)

    patch.setattr(SourceComputation, "take", takes)


def given_up_after_a_failure(patch: Patch) -> None:
    """A reader that has failed is not notified again."""
    notify = CommittedPositions._notify

    def notifies(self: CommittedPositions) -> None:
        notify(self)
        self._waiting = None

    patch.setattr(CommittedPositions, "_notify", notifies)


def an_earlier_position(patch: Patch) -> None:
    """The oldest comes last."""
    close = CommittedPositions.close

    def closes(self: CommittedPositions) -> None:
        close(self)
        if self._first is not None:  # type: ignore[attr-defined]
            self._reader.committed(self._first)  # type: ignore[attr-defined]

    def notes(self: CommittedPositions, position: Any) -> None:
        self._waiting = position
        if getattr(self, "_first", None) is None:
            self._first = position  # type: ignore[attr-defined]

    patch.setattr(CommittedPositions, "close", closes)
    patch.setattr(CommittedPositions, "note", notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        notified_too_early,
        not_notified_by_the_next_owner,
        given_up_after_a_failure,
        an_earlier_position,
    ],
)
def test_a_broken_notification_is_found(mutate: Any, monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    with pytest.raises(SimulationError, match="I6"):
        simulate("sums", seeds=range(SEEDS_MAX))

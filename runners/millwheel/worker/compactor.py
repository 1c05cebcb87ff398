"""Compactor: decides when a worker brings cells and timers up to date with their journals."""

from collections.abc import Mapping, Sequence

from dataflow.metric_updates import uncounted
from runners.core.ground.clock import Clock
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.caution import Caution
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.owned_computation import Computation
from runners.millwheel.worker.worker_step import WorkerStep

#: A worker that has had nothing to do for so long compacts, so that readers of the store see its state.
IDLE_MS = 1_000


class Compactor:
    """Decides when one worker compacts its journals.

    Args:
        computations: all of the worker.
        committer: its committer.
        caution: is notified before user code merges what goes into cells.
        clock: for how long it has had nothing to do.
    """

    def __init__(
        self,
        computations: Mapping[str, Computation],
        committer: Committer,
        caution: Caution,
        clock: Clock,
    ) -> None:
        self._computations = {
            name: each
            for name, each in computations.items()
            if isinstance(each, GroupingComputation)
        }
        self._committer, self._caution, self._clock = committer, caution, clock
        self._worked_ms = clock.monotonic_ms()

    def is_compacted(self, *, in_cells: bool) -> bool:
        """Whether no journal is left to compact; ``in_cells``: and no state that only the journal has either."""
        return all(
            each.state.journal.is_compacted and not (in_cells and each.state.windows.owners)
            for each in self._computations.values()
        )

    def relieve(self) -> bool:
        """Between two rounds: begin to compact long journals, and bring windows into cells that have no room elsewhere.

        Returns:
            Whether there is any journal to compact.
        """
        worked = False
        for name, computation in self._computations.items():
            journal = computation.state.journal
            journal.evict()
            if journal.is_full:
                worked = True
                if self._committer.is_weak(name):
                    self._compact(name, computation, is_with_round=True)
                else:
                    # The commit of the round that has just ended is under way; the next ones compact.
                    journal.begin()
            self._relieve(name, computation, computation.state.windows.crowded)
            while journal.is_pressing:
                self._compact(name, computation)
        return worked

    def compact_with_round(self) -> None:
        """Have the commit of a round compact some of what has begun, and delete some entries that are not needed."""
        for name, computation in self._computations.items():
            journal = computation.state.journal
            if self._committer.is_weak(name):
                # What a commit of its ranges has is as of now, and steps that wait are not in it: they go first.
                if journal.has_unneeded:
                    self._committer.flush(name)
                    self._commit_at_once(journal.delete(None))
                continue
            if journal.is_compacting:
                with uncounted():
                    step = journal.compact(is_with_round=True)
                self._committer.commit(step)
            if not self._committer.is_round_empty and (step := journal.delete()) is not None:
                self._committer.commit(step)

    def rest(self, *, worked: bool, is_last: bool, in_cells: bool) -> bool:
        """Compact something after a round if there was nothing else to do for a while; returns whether there was any.

        Args:
            worked: whether the round did anything else.
            is_last: there will be no other work for long, so compact without waiting.
            in_cells: what windows keep elsewhere is brought into cells too, for another owner to go on from.
        """
        if worked:
            self._worked_ms = self._clock.monotonic_ms()
            return False
        if not is_last and self._clock.monotonic_ms() - self._worked_ms < IDLE_MS:
            return False
        for name, each in self._computations.items() if in_cells else ():
            self._relieve(name, each, each.state.windows.owners)
        return any(self._compact(name, each) for name, each in self._computations.items())

    def compact_all(self, name: str) -> None:
        """Compact all of a computation, so that its ranges may be given other keys."""
        computation = self._computations[name]
        self._committer.flush(name)
        self._relieve(name, computation, computation.state.windows.owners)
        while self._compact(name, computation):
            pass

    def _relieve(
        self, name: str, computation: GroupingComputation, range_ids: Sequence[RangeId]
    ) -> None:
        if not range_ids:
            return
        self._committer.flush(name)
        steps = computation.window_steps.relieve(range_ids, self._clock.now_us())
        for step in self._caution.of_steps(computation.state.ranges.values(), steps):
            self._committer.commit_at_once(step)

    def _compact(
        self, name: str, computation: GroupingComputation, *, is_with_round: bool = False
    ) -> bool:
        journal = computation.state.journal
        if journal.is_compacted:
            return False
        # Steps that wait to be committed are older than what is written now, and must not come after it.
        self._committer.flush(name)
        with uncounted():
            step = journal.compact(is_with_round=is_with_round)
        is_committed = self._commit_at_once(step)
        journal.evict()
        return is_committed

    def _commit_at_once(self, step: WorkerStep | None) -> bool:
        if step is not None:
            self._committer.commit_at_once(step)
        return step is not None

"""Layout: which targets the shuffles of a run have, and which of them still need their data.

A *target* is one key range of one grouping; targets are numbered through, groupings of an earlier
level first. The *level* of a stage is the number of groupings in front of it on the longest way;
the stages of one level are one wave.

**Invariant:** every target is fed by stages of earlier levels only, so a wave has all its input
when it starts.
"""

from collections.abc import Callable, Iterable, Mapping

import attrs

from runners.core.stages.plan import ExecutionPlan, Stage
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import RangeRow

#: Ranges by stage.
ByStage = Mapping[str, Iterable[RangeRow]]


@attrs.frozen(kw_only=True)
class Layout:
    """Targets by number.

    Attributes:
        levels: of every stage; 0 reads a source.
        offsets, counts: first target and number of targets of each grouping.
        wanted: ranges with something left to do, by stage; a range that is done and whose outputs no other range needs
            is not among them.
    """

    levels: Mapping[str, int]
    offsets: Mapping[str, int]
    counts: Mapping[str, int]
    wanted: Mapping[str, frozenset[int]]

    @property
    def level_max(self) -> int:
        """The level of the last wave that has something to do."""
        return max(
            (self.levels[name] for name, indexes in self.wanted.items() if indexes), default=0
        )

    def targets(self, level: int) -> range:
        """The targets of this level and later ones: what the shuffle in front of that wave has."""
        starts = [self.offsets[name] for name in self.offsets if self.levels[name] >= level]
        end = sum(self.counts.values())
        return range(min(starts, default=end), end)

    def range_of(self, target: int) -> RangeId:
        """The grouping and the index of its key range."""
        name = max(
            (name for name, offset in self.offsets.items() if offset <= target),
            key=self.offsets.__getitem__,
        )
        return RangeId(name, target - self.offsets[name])

    def wanted_targets(self, level: int) -> list[int]:
        """The targets of this level and later ones that have something to do."""
        return [
            self.offsets[name] + index
            for name in self.offsets
            if self.levels[name] >= level
            for index in sorted(self.wanted[name])
        ]


def layout(
    plan: ExecutionPlan,
    ranges: Mapping[RangeId, RangeRow],
    wanted: Callable[[ByStage], Mapping[str, frozenset[int]]] | None = None,
) -> Layout:
    """Lay the ranges out as the store has them; they win over what this run would have chosen.

    Args:
        plan: of the pipeline.
        ranges: the job's, as the store has them.
        wanted: from the ranges by stage to the indexes of those that have something left to do; by default those that
            are not finished.
    """
    by_stage: dict[str, list[RangeRow]] = {name: [] for name in plan.stages}
    for range_id, row in ranges.items():
        by_stage[range_id.computation].append(row)
    levels = _levels(plan)
    counts = {
        stage.name: len(by_stage[stage.name])
        for stage in sorted(plan.groupings(), key=lambda stage: levels[stage.name])
    }
    offsets, end = {}, 0
    for name, count in counts.items():
        offsets[name] = end
        end += count
    return Layout(
        levels=levels,
        offsets=offsets,
        counts=counts,
        wanted=wanted(by_stage) if wanted else _wanted(plan, by_stage),
    )


def _levels(plan: ExecutionPlan) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name in plan.stages:  # senders come first
        levels[name] = max((levels[sender] + 1 for sender in plan.senders(name)), default=0)
    return levels


def _wanted(plan: ExecutionPlan, by_stage: ByStage) -> dict[str, frozenset[int]]:
    wanted: dict[str, frozenset[int]] = {}
    for stage in reversed(tuple(plan.stages.values())):
        needs_all = any(wanted[group.label] for group in stage.groups) or _is_silent(stage)
        wanted[stage.name] = frozenset(
            row.range_id.index
            for row in by_stage[stage.name]
            if needs_all or (stage.tables and not row.is_finished)
        )
    return wanted


def _is_silent(stage: Stage) -> bool:
    """Whether the stage leaves nothing durable that shows that it has run; its user code may have effects."""
    return not stage.tables and not stage.groups

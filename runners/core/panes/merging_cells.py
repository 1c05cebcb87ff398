"""Windows of one key that merge and, where their input may be retracted, split again.

A cell contains all windows of its key.  Both classes bring it up to date with what has arrived and return what changed;
`GroupAlsoByWindow` fires the windows.

Dataflow Model, section 2.2.2 (window merging) and 2.3 (retractions).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import attrs

from dataflow.combine_fn import CombineFn
from runners.core.ground.active_windows import ActiveWindows
from runners.core.ground.cells import NO_TIMERS, NOTHING, UNTOUCHED, WindowState
from runners.core.partials.partial import Partial
from triggers.clocks import Clocks
from triggers.trigger import Progress
from triggers.windowing_strategy import WindowingStrategy
from windowing.checks import checked_merges
from windowing.window import Window
from windowing.window_fn import MergingWindowFn

#: All windows of a key.
MergingCell = dict[Window, WindowState]


@attrs.frozen
class Merger:
    """Merges the windows of a key."""

    combine_fn: CombineFn
    strategy: WindowingStrategy
    active: ActiveWindows

    def merge(
        self, cell: MergingCell, arrivals: Sequence[Partial], clocks: Clocks
    ) -> tuple[dict[Window, Window], list[tuple[Window, WindowState]]]:
        """Merge the states of the cell where arrivals bridge them.

        Args:
            cell: all windows of the key; changed in place.
            arrivals: partials of the key.
            clocks: the clocks.

        Returns:
            For each window that merged, the window that it merged into; and the states that no longer exist.
        """
        target: dict[Window, Window] = {}
        gone: list[tuple[Window, WindowState]] = []
        if not cell and len(arrivals) == 1:
            return target, gone
        arrived = [arrival[1] for arrival in arrivals]
        for merged, sources, present in self.active.bridged(cell, arrived):
            target.update(dict.fromkeys(sources, merged))
            if not present:
                continue
            states = [cell.pop(source) for source in present]
            gone.extend(zip(present, states, strict=True))
            cell[merged] = state = grown(self.strategy, states, merged, clocks)
            if len(states) > 1:
                full = [each.accumulator for each in states if each.accumulator is not NOTHING]
                state.accumulator = self.combine_fn.merge_accumulators(full) if full else NOTHING
        return target, gone


@attrs.define
class Regrouped:
    """The changes that bringing a cell up to date has made.

    Attributes:
        changed: the windows with new records, in time order, and how many records each.
        split: those of them that must fire now.
        gone: states that no longer exist.
        late: parts that came too late for any window.
    """

    changed: dict[Window, int] = attrs.field(factory=dict)
    split: list[Window] = attrs.field(factory=list)
    gone: list[tuple[Window, WindowState]] = attrs.field(factory=list)
    late: list[Window] = attrs.field(factory=list)


class _Part(NamedTuple):
    """A unit of regrouping, which stays whole: the window that it was in, and accumulators by assigned window."""

    home: Window | None
    contents: dict[Window, Any]


@attrs.frozen
class Regrouper:
    """Merges and splits the windows of a key whose records may be retracted.

    The accumulator of a state has a part for each window that was assigned to a record, so that the retraction of
    records can undo a merge: ``{assigned window: accumulator}``.

    Where a window that has fired is split, the windows that replace it fire in the same step, even if their trigger is
    not ready: what the window emitted cannot be retracted in part.  A window that has fired and has nothing left stays
    until it has retracted what it emitted.

    Attributes:
        combine_fn: a `CombineFn` that also has ``size`` and ``is_void``, as `SignedCombineFn` does.
    """

    window_fn: MergingWindowFn
    combine_fn: Any
    strategy: WindowingStrategy

    def regroup(self, cell: MergingCell, arrivals: Sequence[Partial], clocks: Clocks) -> Regrouped:
        """Add arrivals to a cell and group its parts into windows again.

        Args:
            cell: all windows of the key; changed in place.
            arrivals: partials of the key.
            clocks: the clocks.
        """
        parts, news = self._take_in(cell, arrivals)
        groups = self._groups(list(parts))
        sources = {
            window: list(dict.fromkeys(home for m in members if (home := parts[m].home)))
            for window, members in groups.items()
        }
        _keep_emitted(cell, groups, sources)
        shares = Counter(source for found in sources.values() for source in found)
        result, states = Regrouped(), MergingCell()
        unclaimed = set(cell)
        for window in sorted(groups):
            members, found = groups[window], sources[window]
            if not found and self.strategy.expiry_us(window) <= clocks.watermark_us:
                result.late.extend(members)
                continue
            if found == [window] and shares[window] == 1:
                state = cell[window]
            else:
                state = self._heir(cell, found, window, clocks, unclaimed)
            count = sum(news.get(each, 0) for each in {*members, *found})
            contents = [parts[member].contents for member in members]
            if any(shares[source] > 1 for source in found):
                state.trigger = Progress(self.strategy.trigger.initial_state())
                count = sum(
                    self.combine_fn.size(accumulator)
                    for c in contents
                    for accumulator in c.values()
                )
                if any(cell[source].emitted for source in found):
                    result.split.append(window)
            state.accumulator = _union(contents)
            unclaimed.difference_update(found)
            states[window] = state
            if count or state is not cell.get(window):
                result.changed[window] = count
        result.gone = [each for each in cell.items() if states.get(each[0]) is not each[1]]
        cell.clear()
        cell.update(states)
        return result

    def whole(self, accumulator: Mapping[Window, Any]) -> Any:
        """All parts of a state's accumulator, merged into one accumulator."""
        fresh = self.combine_fn.create_accumulator()
        return self.combine_fn.merge_accumulators([fresh, *accumulator.values()])

    def _take_in(
        self, cell: MergingCell, arrivals: Sequence[Partial]
    ) -> tuple[dict[Window, "_Part"], dict[Window, int]]:
        """The parts to be grouped, and the number of new records in each part and in each window that existed.

        A window from which nothing was retracted is one part, since merging is associative.
        """
        news: dict[Window, int] = defaultdict(int)
        fresh: dict[Window, Any] = {}
        opened: set[Window] = set()
        for _, part, arrived, count in arrivals:
            home = next((w for w, state in cell.items() if part in state.accumulator), None)
            if home is None:
                # An arrival in no window yet stays as it is: it may turn out to be too late.
                accumulator = fresh[part] if part in fresh else self.combine_fn.create_accumulator()
                fresh[part] = self.combine_fn.merge_accumulators((accumulator, arrived))
                news[part] += count
                continue
            contents = cell[home].accumulator
            contents[part] = self.combine_fn.merge_accumulators((contents[part], arrived))
            news[home] += count
            if self.combine_fn.is_void(contents[part]):
                del contents[part]
                opened.add(home)
        parts: dict[Window, _Part] = {}
        for window, state in cell.items():
            if window not in opened:
                if state.accumulator:
                    parts[window] = _Part(window, state.accumulator)
                continue
            for part, accumulator in state.accumulator.items():
                parts[part] = _Part(window, {part: accumulator})
        for part, accumulator in fresh.items():
            if not self.combine_fn.is_void(accumulator):
                parts.setdefault(part, _Part(None, {})).contents[part] = accumulator
        return parts, news

    def _groups(self, parts: Sequence[Window]) -> dict[Window, list[Window]]:
        """The windows that result from merging, each with its parts."""
        groups: dict[Window, list[Window]] = {}
        alone = dict.fromkeys(parts)
        for merged, members in checked_merges(self.window_fn, parts):
            groups.setdefault(merged, []).extend(members)
            for member in members:
                alone.pop(member, None)
        for part in alone:
            groups.setdefault(part, []).append(part)
        return groups

    def _heir(
        self,
        cell: MergingCell,
        sources: Sequence[Window],
        window: Window,
        clocks: Clocks,
        unclaimed: AbstractSet[Window],
    ) -> WindowState:
        if not sources:
            return fresh_state(self.strategy, window, clocks)
        # Copies: a window that is split has several heirs; but what it emitted is retracted once.
        states = [
            attrs.evolve(
                cell[source],
                emitted=cell[source].emitted if source in unclaimed else (),
                timers=NO_TIMERS,
                hold_us=None,
                armed_for=None,
            )
            for source in sources
        ]
        return grown(self.strategy, states, window, clocks)


def _union(contents: Sequence[dict[Window, Any]]) -> dict[Window, Any]:
    """All contents in one mapping: the largest of them, so that a session that grows is not copied with each record."""
    largest = max(contents, key=len, default={})
    for each in contents:
        if each is not largest:
            largest.update(each)
    return largest


def fresh_state(strategy: WindowingStrategy, window: Window, clocks: Clocks) -> WindowState:
    """The state of a window that has received no record.

    Args:
        strategy: of the grouping.
        window: the window.
        clocks: the clocks.
    """
    initial = strategy.trigger.initial_state()
    return WindowState(
        is_past=clocks.for_triggers.watermark_us >= window.end_us,
        trigger=UNTOUCHED if initial is None else Progress(initial),
    )


def grown(
    strategy: WindowingStrategy, states: Sequence[WindowState], window: Window, clocks: Clocks
) -> WindowState:
    """The state of ``window``, into which windows with these states (one or more) have merged; without its accumulator.

    The first state is changed, and may be the one that is returned.

    Args:
        strategy: of the grouping.
        states: those of the windows that merged.
        window: the window that they merged into.
        clocks: the clocks.
    """
    merged = states[0]
    sources = [state.trigger for state in states]
    if len(states) > 1:
        merged = WindowState(
            pending=sum(state.pending for state in states),
            emitted=tuple(emitted for state in states for emitted in state.emitted),
            firings=max(state.firings for state in states),
            nonspeculative_firings=max(state.nonspeculative_firings for state in states),
            is_past=any(state.is_past for state in states),
        )
    # A window whose end has grown past the watermark has its on-time firing ahead of it again.
    merged.is_past = merged.is_past and clocks.for_triggers.watermark_us >= window.end_us
    merged.trigger = strategy.trigger.on_merge(sources, window, clocks.for_triggers)
    return merged


def _keep_emitted(
    cell: MergingCell, groups: dict[Window, list[Window]], sources: dict[Window, list[Window]]
) -> None:
    """Assign windows that have fired and are empty now to an overlapping window, or keep them as they are."""
    claimed = {source for found in sources.values() for source in found}
    for window, state in cell.items():
        if window in claimed or not state.emitted:
            continue
        over = [
            each
            for each in groups
            if each.start_us < window.end_us and window.start_us < each.end_us
        ]
        if over:
            sources[min(over)].append(window)
        else:
            groups[window], sources[window] = [], [window]

"""Panes: what a window emits when it fires, and what it retracts first.  Dataflow Model, section 2.3."""

from collections.abc import Callable
from typing import Any

import attrs

from dataflow.typed_keys import emitted_key
from runners.core.ground.cells import NOTHING, Effects, EmittedPane, WindowState
from runners.core.partials.folding import Accumulation
from triggers.accumulation import AccumulationMode
from triggers.clocks import Clocks
from windowing.pane import NO_FIRING, PaneInfo, PaneTiming
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window


class Panes:
    """Fires the windows of one grouping.

    Args:
        accumulation: how records are folded.
        whole: makes one accumulator of what a state keeps; None where a state keeps one accumulator.
    """

    def __init__(self, accumulation: Accumulation, whole: Callable[[Any], Any] | None) -> None:
        self._accumulation, self._whole = accumulation, whole
        self._is_retracting = accumulation.strategy.is_retracting
        self._mode = accumulation.strategy.accumulation_mode
        #: Whether a pane of which values have gone has no other ones, so that it differs from the one before by what
        #: has gone since.
        self._passes_all = accumulation.passes_on and self._mode is not AccumulationMode.DISCARDING
        self._lateness_us = accumulation.strategy.allowed_lateness_us

    def fire(
        self,
        key: Any,
        window: Window,
        state: WindowState,
        effects: Effects,
        clocks: Clocks,
        *,
        is_last: bool,
    ) -> None:
        """Retract what was emitted and emit the pane that is due, if there is one; or emit only what has changed.

        A window of a grouping that emits changes (`Accumulation.emits_changes`) retracts and emits only the difference.

        Args:
            key: of the window.
            window: the window.
            state: of the window; changed in place.
            effects: receives what is emitted and retracted.
            clocks: the clocks.
            is_last: whether the window expires with this firing.
        """
        if self._accumulation.emits_changes:
            state.is_past |= clocks.for_triggers.watermark_us >= window.end_us
            self._emit_changes(key, window, state, effects)
            return
        pane = _pane_info(window, state, clocks, is_last=is_last)
        for emitted in state.emitted:
            effects.emit_retractable(emitted, -1)
        state.emitted, state.pending = (), 0
        if self._passes_all and self._has_gone(state):
            self.pass_on(key, window, state, effects, 1)
        accumulator = self._accumulator(state)
        if accumulator is NOTHING:
            if self._whole is None and state.accumulator is not NOTHING:
                # Nothing is left that must be retracted at its event time, so the next pane has one of its own.
                state.accumulator = self._accumulation.unstamped(state.accumulator)
            return
        result = (emitted_key(key), self._accumulation.result(accumulator))
        timestamp_us = self._accumulation.timestamp_us(accumulator, window)
        if self._is_retracting:
            state.emitted = (EmittedPane(result, timestamp_us, window, pane),)
            effects.emit_retractable(state.emitted[0])
        else:
            effects.emit(result, timestamp_us, window, pane)
        state.firings += 1
        state.nonspeculative_firings += pane.timing is not PaneTiming.EARLY
        if self._mode is AccumulationMode.DISCARDING:
            state.accumulator = NOTHING
        elif self._mode is AccumulationMode.ACCUMULATING and state.accumulator is not NOTHING:
            # What was emitted is not retracted later, so its event time no longer holds the watermark.
            state.accumulator = self._accumulation.unstamped(state.accumulator)

    def pass_on(
        self, key: Any, window: Window, state: WindowState, effects: Effects, at_least: int
    ) -> None:
        """Emit the values of a window that have not gone, with the number of the pane that they belong to.

        Args:
            key: of the window.
            window: the window.
            state: of the window; changed in place.
            effects: receives what is emitted.
            at_least: if they are so many.
        """
        part, left = self._accumulation.passed_on(state.accumulator)
        if len(part.values) < at_least:
            return
        state.accumulator = left
        pane = attrs.evolve(NO_FIRING, index=state.firings)
        element = emitted_key(key), part
        passed = EmittedPane(element, window.max_timestamp_us, window, pane)
        if self._is_retracting:
            effects.emit_retractable(passed)
        else:
            effects.emit(element, passed.timestamp_us, window, pane)

    def _has_gone(self, state: WindowState) -> bool:
        """Whether values of a window have gone before its pane."""
        accumulator = state.accumulator
        return accumulator is not NOTHING and self._accumulation.gone(accumulator) > 0

    def _emit_changes(self, key: Any, window: Window, state: WindowState, effects: Effects) -> None:
        """Retract what is gone, and emit what has come since the window last fired.

        What stands was emitted for one window at one event time: if either is different now, all of it is retracted and
        emitted again.  These changes have no pane, as none of them would contain the whole result.
        """
        accumulation = self._accumulation
        accumulators = [each for each in (state.accumulator,) if each is not NOTHING]
        stamp_us = accumulation.stamp_of_all_us(
            [*accumulators, *(each.value for each in state.emitted)], window
        )
        timestamp_us = window.max_timestamp_us if stamp_us is None else stamp_us
        standing: EmittedPane | None = None
        for emitted in state.emitted:
            if (emitted.window, emitted.timestamp_us) == (window, timestamp_us):
                standing = emitted
                continue
            _emit_part(effects, key, accumulation.result(emitted.value), emitted, -1)
            accumulators.append(emitted.value)
        state.emitted, state.pending, state.accumulator = (), 0, NOTHING
        merge = accumulation.combine_fn.merge_accumulators
        news = merge(accumulators) if accumulators else accumulation.combine_fn.create_accumulator()
        if standing is None:
            whole, gone, come = news, None, accumulation.result(news)
        else:
            gone, come = accumulation.changes(standing.value, news)
            whole = merge((standing.value, news))
        emitted = EmittedPane(whole, timestamp_us, window, NO_FIRING)
        _emit_part(effects, key, gone, emitted, -1)
        _emit_part(effects, key, come, emitted, +1)
        if accumulation.is_retracted and accumulation.shrinking.size(whole) <= 0:
            # Nothing is left that must be retracted at its event time, so the next pane has one of its own.
            state.accumulator = accumulation.unstamped(whole)
        else:
            state.emitted = (emitted,)
            state.firings += 1

    def retract_standing(self, key: Any, state: WindowState, effects: Effects) -> None:
        """Retract what was emitted and not retracted; the window stays as it is, and may retract it once more.

        Args:
            key: of the window.
            state: of the window; not changed.
            effects: receives what is retracted.
        """
        for each in state.emitted:
            emitted = each.to_retract()
            if self._accumulation.emits_changes:
                _emit_part(effects, key, self._accumulation.result(each.value), emitted, -1)
            else:
                effects.emit_retractable(emitted, -1)

    def hold_us(self, window: Window, state: WindowState) -> int | None:
        """The hold of a window on the watermark behind the grouping, in microseconds; None: no hold.

        The hold is at the event time of the next pane, unless only late records are in it.  Besides, what may be
        retracted, or split again, must not be too late for a later grouping that has received it and allows the same
        lateness.

        Args:
            window: the window.
            state: of the window.
        """
        stamp_of, accumulator = self._accumulation.stamp_us, state.accumulator
        emitted_us = [emitted.timestamp_us for emitted in state.emitted]
        revisable_us = list(emitted_us)
        if self._whole is not None:
            stamps_us = (stamp_of(content, part) for part, content in accumulator.items())
            revisable_us += (stamp_us for stamp_us in stamps_us if stamp_us is not None)
        holds_us = [min(at_us + self._lateness_us, MAX_TIMESTAMP_US) for at_us in revisable_us]
        if state.pending and accumulator is not NOTHING:
            next_us = self._next_stamp_us(window, state)
            if next_us is not None and next_us not in emitted_us:
                holds_us.append(next_us)
        return min(holds_us, default=None)

    def _next_stamp_us(self, window: Window, state: WindowState) -> int | None:
        """The event time of the next pane; None if all records in it came late."""
        accumulator = state.accumulator
        if self._accumulation.emits_changes:
            parts = [accumulator, *(emitted.value for emitted in state.emitted)]
            return self._accumulation.stamp_of_all_us(parts, window)
        whole = accumulator if self._whole is None else self._whole(accumulator)
        return self._accumulation.stamp_us(whole, window)

    def _accumulator(self, state: WindowState) -> Any:
        """The accumulator of the pane that is due, before its result is extracted; `NOTHING` if none is."""
        accumulator = state.accumulator
        if accumulator is NOTHING:
            return NOTHING if self._accumulation.is_retracted else self._of_nothing()
        if self._whole is not None:
            accumulator = self._whole(accumulator)
        if self._accumulation.is_retracted and self._accumulation.shrinking.size(accumulator) <= 0:
            return NOTHING
        return accumulator

    def _of_nothing(self) -> Any:
        """The accumulator of an empty pane; `NOTHING` if the function has no result for no input, as with ``max``."""
        empty = self._accumulation.combine_fn.create_accumulator()
        try:
            self._accumulation.result(empty)
        except Exception:  # noqa: BLE001 - whatever the user's code raises, it has no result
            return NOTHING
        return empty


def _emit_part(effects: Effects, key: Any, part: Any, emitted: EmittedPane, sign: int) -> None:
    """Emit a part of a result, or retract it with a sign of -1, if the part is not empty."""
    if part:
        effects.emit_retractable(attrs.evolve(emitted, value=(emitted_key(key), part)), sign)


#: The first pane of a window that is neither early nor late, by whether it is the last.
_ON_TIME = {is_last: attrs.evolve(NO_FIRING, is_last=is_last) for is_last in (False, True)}


def _pane_info(window: Window, state: WindowState, clocks: Clocks, *, is_last: bool) -> PaneInfo:
    if clocks.for_triggers.watermark_us < window.end_us:
        timing = PaneTiming.EARLY
    else:
        timing = PaneTiming.LATE if state.is_past else PaneTiming.ON_TIME
        state.is_past = True
        if timing is PaneTiming.ON_TIME and not state.firings:
            return _ON_TIME[is_last]
    return PaneInfo(
        index=state.firings,
        timing=timing,
        is_first=state.firings == 0,
        is_last=is_last,
        nonspeculative_index=-1 if timing is PaneTiming.EARLY else state.nonspeculative_firings,
    )

"""AfterSignal: a trigger that fires on request from outside.

Dataflow Model, section 2.3: triggers respond to data, to time, and to external signals, such as an injection request, a
progress metric or the completion of a remote call.  A signal is a name that is sent to a running job.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from triggers.awaited import Awaited, AwaitedKind
from triggers.checks import check_signal_name
from triggers.clocks import Clocks
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


@attrs.frozen
class AfterSignal(Trigger):
    """Fires once, when a signal of that name reaches the job; its state is whether one has.

    A signal concerns the records that came before it: every open window receives it, later windows do not.
    ``Repeatedly(AfterSignal("flush"))`` emits what is new on request.  A window with nothing new emits nothing then.
    In batch no signal can be sent while the input is replayed, so everything is emitted at the end.

    Args:
        name: not empty.
    """

    name: str = attrs.field()

    @name.validator
    def _check(self, _: object, name: object) -> None:
        check_signal_name("AfterSignal", name)

    @property
    def signals(self) -> frozenset[str]:
        """The name of its signal."""
        return frozenset({self.name})

    @property
    def early_firings(self) -> EarlyFirings:
        """It fires once, and has then finished."""
        return EarlyFirings.THEN_FINISHES

    def initial_state(self) -> bool:
        """The signal has not come."""
        return False

    def on_elements(self, state: Any, window: Window, elements: Elements, clocks: Clocks) -> Any:
        """The state does not change."""
        return state

    def on_signal(self, state: Any, window: Window, name: str, clocks: Clocks) -> bool:
        """The signal has come, if it has this name."""
        return state or name == self.name

    def should_fire(self, state: Any, window: Window, clocks: Clocks) -> bool:
        """Whether the signal has come."""
        return bool(state)

    def on_fire(self, state: Any, window: Window, clocks: Clocks) -> Progress:
        """It fires once, and has then finished."""
        return Progress(self.initial_state(), is_finished=True)

    def next_timers(self, state: Any, window: Window, clocks: Clocks) -> TriggerTimers:
        """No timers: it does not depend on time."""
        return TriggerTimers()

    def merge_states(self, states: Sequence[bool], window: Window) -> bool:
        """Whether the signal has come to any of the merged windows."""
        return any(states)

    def awaited(self, state: Any, window: Window, clocks: Clocks) -> Awaited:
        """The signal."""
        return Awaited(kind=AwaitedKind.SIGNAL, is_met=bool(state), name=self.name)

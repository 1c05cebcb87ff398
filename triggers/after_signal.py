"""AfterSignal: firing on request from outside.

Dataflow Model, section 2.3: triggers respond to data, to time, and to external signals, such as an injection request, a
progress metric or the completion of a remote call.  A signal is a name that is sent to a running job.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from triggers.checks import check_signal_name
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from windowing.window import Window


@attrs.frozen
class AfterSignal(Trigger):
    """Fire once, when a signal of that name reaches the job; its state is whether one has.

    A signal is about what has come before it: every window that is open hears it, one that opens later does not.
    ``Repeatedly(AfterSignal("flush"))`` says on request what is new.  Where nothing is new the moment passes in
    silence.  In batch nobody can send a signal while the input is replayed, so everything is said at the end.

    Args:
        name: not empty.
    """

    name: str = attrs.field()

    @name.validator
    def _check(self, _: object, name: object) -> None:
        check_signal_name("AfterSignal", name)

    @property
    def signals(self) -> frozenset[str]:
        """This one."""
        return frozenset({self.name})

    @property
    def early_firings(self) -> EarlyFirings:
        """One."""
        return EarlyFirings.THEN_FINISHES

    def initial_state(self) -> bool:
        """It has not come."""
        return False

    def on_elements(
        self, state: Any, window: Window, elements: Elements, *, watermark_us: int, now_us: int
    ) -> Any:
        """Records make no difference."""
        return state

    def on_signal(
        self, state: Any, window: Window, name: str, *, watermark_us: int, now_us: int
    ) -> bool:
        """It has come, if it is this one."""
        return state or name == self.name

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Once it has come."""
        return bool(state)

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """Once."""
        return Progress(self.initial_state(), is_finished=True)

    def next_timers(
        self, state: Any, window: Window, *, watermark_us: int, now_us: int
    ) -> TriggerTimers:
        """Time has no part in it."""
        return TriggerTimers()

    def merge_states(self, states: Sequence[bool], window: Window) -> bool:
        """What has come to either has come to both."""
        return any(states)

"""AfterCount, Always and Never: firing by how much has come."""

from collections.abc import Sequence
from typing import Any

import attrs

from triggers.trigger import Progress, Trigger, Wakeup
from windowing.errors import WindowError
from windowing.window import Window


@attrs.frozen
class AfterCount(Trigger):
    """Fire once when at least ``count`` records have come; its state is how many have.

    Records that arrive in one bundle are counted together, so a pane may hold more than ``count``.
    """

    count: int = attrs.field()

    @count.validator
    def _check(self, _: object, count: int) -> None:
        if count < 1:
            raise WindowError(f"AfterCount needs a positive count, not {count!r}")

    def initial_state(self) -> int:
        """None have come."""
        return 0

    def on_elements(
        self, state: int, window: Window, count: int, *, watermark_us: int, now_us: int
    ) -> int:
        """Count."""
        return state + count

    def should_fire(self, state: int, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Whether enough have come."""
        return state >= self.count

    def on_fire(self, state: int, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """Once."""
        return Progress(0, is_finished=True)

    def next_wakeup(self, state: int, window: Window, *, watermark_us: int, now_us: int) -> Wakeup:
        """Time has no part in it."""
        return Wakeup()

    def merge_states(self, states: Sequence[int], window: Window) -> int:
        """What has come to either has come to both."""
        return sum(states)


@attrs.frozen
class Always(Trigger):
    """Fire whenever a bundle brings something."""

    def on_elements(
        self, state: Any, window: Window, count: int, *, watermark_us: int, now_us: int
    ) -> Any:
        """Nothing to remember."""
        return state

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """Yes."""
        return True

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """It never finishes."""
        return Progress(state)

    def next_wakeup(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Wakeup:
        """Time has no part in it."""
        return Wakeup()


@attrs.frozen
class Never(Trigger):
    """Do not fire: everything is said in one pane when the window expires."""

    def on_elements(
        self, state: Any, window: Window, count: int, *, watermark_us: int, now_us: int
    ) -> Any:
        """Nothing to remember."""
        return state

    def should_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> bool:
        """No."""
        return False

    def on_fire(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Progress:
        """Never called."""
        raise AssertionError("Never does not fire")

    def next_wakeup(self, state: Any, window: Window, *, watermark_us: int, now_us: int) -> Wakeup:
        """Time has no part in it."""
        return Wakeup()

"""Outages: an input that cannot be read is tried again, ever more seldom, and is named meanwhile.

Nobody sleeps, as other inputs are read meanwhile: a reader that pauses has nothing to read.
"""

from __future__ import annotations

import logging
import re
import time

from dataflow.source import Outage
from windowing.errors import error_text

#: The first and the longest pause before an input that is away is tried again, in seconds.
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
#: How often an input has to refuse in a row, with the longest pause between, for that to be believed: one that is just
#: coming back says such things, too.
REFUSALS_MAX = 3
#: How often a pause is doubled at most: a number that grows for days has no float any more.
_DOUBLINGS_MAX = 16
#: What libraries paint their errors with, for terminals.
_PAINT = re.compile(r"\x1b\[[0-9;]*m\S?")
_LOG = logging.getLogger(__name__)


class Outages:
    """The tries to read one input that have failed one after the other.

    Args:
        what: is read, for people; the same text however it fails.
        pause_max_s: the longest pause, in seconds; `PAUSE_MAX_S` where that is less, or it is None.

    Attributes:
        outage: what a batch says of it (`SourceBatch.outage`); None: the last try has not failed.
    """

    def __init__(self, what: str, *, pause_max_s: float | None = None) -> None:
        self._what, self._pause_max_s = what, pause_max_s
        self._failures = self._refusals = 0
        self._until_s = 0.0
        self.outage: Outage | None = None

    @property
    def is_pausing(self) -> bool:
        """Whether the next try is still to wait."""
        return steady_s() < self._until_s

    def pause(self, pause_s: float) -> None:
        """Pause without a failure.

        Args:
            pause_s: for so many seconds.
        """
        self._until_s = steady_s() + pause_s

    def failed(self, error: BaseException, *, is_refused: bool = False) -> None:
        """Note that a try has failed, and pause.

        Args:
            error: of the try.
            is_refused: whether the input has answered, and refuses; that is believed when it has come `REFUSALS_MAX`
                times in a row.

        Raises:
            BaseException: the error, if it is believed.
        """
        self._refusals = self._refusals + 1 if is_refused else 0
        if self._refusals >= REFUSALS_MAX:
            raise error
        self._failures += 1
        longest_s = min(
            PAUSE_MAX_S, PAUSE_MAX_S if self._pause_max_s is None else self._pause_max_s
        )
        grown_s = PAUSE_S * (1 << min(self._failures, _DOUBLINGS_MAX))
        self.pause(longest_s if is_refused else min(grown_s, longest_s))
        text = in_one_line(f"{type(error).__name__}: {error_text(error)}")
        self.outage = Outage(what=self._what, error=text)
        if self._failures & (self._failures - 1) == 0:
            _LOG.warning(
                "%s cannot be read, %s times by now: %s; it is tried again, and nothing is lost",
                self._what,
                self._failures,
                text,
            )

    def over(self) -> None:
        """Note that the input was read."""
        self._failures = self._refusals = 0
        self.outage = None


def in_one_line(text: str) -> str:
    """The text of an error without line ends, and without what is for terminals.

    Args:
        text: as a library gives it.
    """
    return " ".join(_PAINT.sub("", text).split())


def steady_s() -> float:
    """Seconds on a clock that nobody sets: for pauses, never for event times."""
    return time.monotonic()  # noqa: TID251 - how long an input is waited for is no part of what is computed

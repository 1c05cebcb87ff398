"""Trace: what happened in a run, in order; as a digest always, as a story when a person wants to read it."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import attrs

from dataflow.source import SourceBatch
from runners.testing.manual_clock import ManualClock

#: Lines of a story that are shown.
STORY_LINES_MAX = 120


@attrs.frozen
class Event:
    """One line of the story.

    Attributes:
        keys: the keys that it is about, as text; none where it is about all of them, such as a crash.
    """

    at_ms: int
    who: str
    what: str
    keys: frozenset[str]

    def __str__(self) -> str:
        return f"{self.at_ms / 1_000:9.3f} s  {self.who:<12} {self.what}"


def _batch_line(batch: SourceBatch) -> str:
    return f"  reads {list(batch.values)!r}, watermark {batch.watermark_us} us"


class Trace:
    """The trace of one run.

    Args:
        clock: the virtual time.
        is_detailed: whether the story is wanted; it costs more than the run itself.
    """

    def __init__(self, clock: ManualClock, *, is_detailed: bool = False) -> None:
        self._clock, self.is_detailed = clock, is_detailed
        self._digest = hashlib.blake2b(digest_size=8)
        self._events: list[Event] = []

    def note(self, who: str, what: str) -> None:
        """Record something that is part of the run: the same seed records the same.

        Args:
            who: the process, or "store", "driver" or "user".
            what: continues a sentence that begins with this name.
        """
        at_ms = self._clock.monotonic_ms()
        self._digest.update(f"{at_ms} {who} {what}\n".encode())
        if self.is_detailed:
            self._events.append(Event(at_ms, who, what, frozenset()))

    def detail(self, who: str, details: Callable[[], Iterable[tuple[str, frozenset[str]]]]) -> None:
        """Record something that only the story needs.

        Args:
            who: as for `note`.
            details: called only if the story is wanted; gives lines, and the keys that each is about (none: it is about
                all).
        """
        if self.is_detailed:
            at_ms = self._clock.monotonic_ms()
            self._events.extend(Event(at_ms, who, what, keys) for what, keys in details())

    def read(self, who: str, batch: SourceBatch) -> None:
        """Record what a poll of a source split has found.

        Args:
            who: the worker.
            batch: what was read.
        """
        self.note(who, f"reads {len(batch.values)} records, {batch.status.value}")
        self.detail(who, lambda: [(_batch_line(batch), frozenset())])

    @property
    def digest(self) -> str:
        """A digest, equal for two runs in which the same happened in the same order."""
        return self._digest.hexdigest()

    def story(self, keys: frozenset[str] = frozenset()) -> Sequence[str]:
        """The lines about these keys (all, if none are given), and those about everybody; the last ones if too many."""
        lines = [
            str(each) for each in self._events if not keys or not each.keys or each.keys & keys
        ]
        left_out = len(lines) - STORY_LINES_MAX
        if left_out <= 0:
            return lines
        head = STORY_LINES_MAX // 4
        return [
            *lines[:head],
            f"           ... {left_out} lines left out ...",
            *lines[head + left_out :],
        ]

"""WindowFn: the paper's two verbs, assign and merge.

``assign_windows`` says which windows a record is in by its event time (and value); ``merge_windows`` says, when
grouping happens, which windows of one key belong together.

**Laws** a merging WindowFn obeys, whatever order records come in:
merging is associative, commutative and idempotent, a merged window covers all of its sources, and every window that
`assign_windows` returns contains the record's event time.

Dataflow Model, section 2.2.  Pure: no clock, no state.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from windowing.window import Window


class Merge(NamedTuple):
    """``sources`` (two or more, or one that changed) become ``merged``."""

    merged: Window
    sources: tuple[Window, ...]


class WindowFn(ABC):
    """Assigns records to windows.  Instances are frozen values: equal configuration, equal function.

    What one of your own answers is checked (`windowing.checks`).
    How to write one: docs/how-to/write-a-window-fn.md.
    """

    #: Whether a record at the beginning of time, which is one without an event time, is refused.
    needs_event_time: ClassVar[bool] = True

    @abstractmethod
    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The windows that a record is in; an empty sequence drops the record from grouping."""

    def assign_bundle(
        self, timestamps_us: Sequence[int], values: Sequence[Any]
    ) -> Sequence[Sequence[Window]]:
        """`assign_windows` for a whole bundle; override where a loop over a list can be cheaper."""
        assign = self.assign_windows
        return [assign(t, v) for t, v in zip(timestamps_us, values, strict=True)]


class MergingWindowFn(WindowFn):
    """A WindowFn whose windows are only known once the records of a key are together."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        """Which of one key's windows merge, and into what; windows not mentioned stay as they are."""


class FrozenWindows(WindowFn):
    """The windows of a PCollection that has been grouped: kept as they are, never assigned or merged again.

    Without it, regrouping by another key would merge the sessions of different users.
    """

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """Never called: frozen windows travel with the records."""
        raise AssertionError("records of a grouped PCollection already have their windows")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenWindows)

    def __hash__(self) -> int:
        return hash(FrozenWindows)

    def __repr__(self) -> str:
        return "FrozenWindows()"

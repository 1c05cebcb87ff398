"""WindowFn: assigns and merges windows, as AssignWindows and MergeWindows of the paper.

``assign_windows`` returns the windows of a record by its event time (and value); ``merge_windows`` returns, when
records are grouped, which windows of one key merge.

**Laws** that a merging WindowFn obeys, in whatever order records come:
merging is associative, commutative and idempotent, a merged window covers all of its sources, and every window that
`assign_windows` returns contains the record's event time.

Dataflow Model, section 2.2.  Pure: no clock, no state.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from windowing.overriding import stands_for
from windowing.window import Window
from windowing.window_columns import Int64s, WindowColumns


class Merge(NamedTuple):
    """A merge of ``sources`` (two or more, or one that changed) into ``merged``."""

    merged: Window
    sources: tuple[Window, ...]


class WindowFn(ABC):
    """Assigns records to windows.  Instances are frozen values: equal configuration, equal function.

    The results of users' own functions are checked (`windowing.checks`).
    How to write one: docs/how-to/write-a-window-fn.md.

    Attributes:
        needs_event_time: whether a record at the minimum timestamp, which means one without an event time, is refused.
    """

    needs_event_time: ClassVar[bool] = True

    @abstractmethod
    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        """The windows that a record is in; an empty sequence drops the record from grouping.

        Args:
            timestamp_us: the event time, in microseconds since the epoch.
            value: of the record.
        """

    def assign_bundle(
        self, timestamps_us: Sequence[int], values: Sequence[Any]
    ) -> Sequence[Sequence[Window]]:
        """Assign windows to the elements of a bundle; override it if that can be faster than `assign_windows` for each.

        Args:
            timestamps_us: event times, in microseconds since the epoch.
            values: as many.
        """
        assign = self.assign_windows
        return [assign(t, v) for t, v in zip(timestamps_us, values, strict=True)]

    def assign_columns(self, timestamps_us: Int64s) -> WindowColumns | None:
        """Assign windows to a whole column of event times; optional, for functions that do not read the elements.

        **Law**: the windows are those of `assign_windows`, in the same order; or it returns None, and the elements are
        assigned their windows by `assign_bundle`.  `dataflow.testing.laws.check_window_columns` tests it.

        It is not used where a subclass overrides `assign_windows` or `assign_bundle` and not this.

        Args:
            timestamps_us: the event times, at least one, as 64-bit integers of microseconds since the epoch; an array
                that cannot be written to.

        Returns:
            The windows, which are of the class `Window` and not of one of your own; None: not for these event times.
        """
        return None

    def assign_element_columns(
        self, timestamps_us: Int64s, values: Sequence[Any]
    ) -> WindowColumns | None:
        """Assign windows to a whole column of elements; optional, for functions that read them in columns.

        **Law** and result: as of `assign_columns`.  Where both may be used, this one is, if there are elements.

        Args:
            timestamps_us: as of `assign_columns`.
            values: the elements, as many.
        """
        return None

    def slice_fn(self) -> "WindowFn | None":
        """A function that assigns each element to one window, its *slice*; instants of a slice are in the same windows.

        Optional, for functions that assign several windows to an element and do not read it.
        Where all input is there before a window fires, elements are folded once into their slice, and each window is
        combined of its slices, instead of folding each element once for each of its windows.

        **Law**: the windows of an event time are those of any other instant of its slice, and its slice contains it.
        `dataflow.testing.laws.check_window_fn` tests it.

        It is not used where a subclass overrides `assign_windows` or `assign_bundle` and not this.

        Returns:
            The function; None: there is none, or nothing is gained by it.
        """
        return None


class MergingWindowFn(WindowFn):
    """A WindowFn whose windows are known only when the records of a key are together."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        """The merges of one key's windows; windows that are in no merge stay as they are."""


class FrozenWindows(WindowFn):
    """The windows of a PCollection that has been grouped: they stay as they are, and are never assigned or merged.

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


def assigns_columns(window_fn: WindowFn) -> bool:
    """Whether `WindowFn.assign_columns` may be used: its class has one, or a base that assigns the same windows."""
    return type(window_fn).assign_columns is not WindowFn.assign_columns and stands_for(
        window_fn, "assign_columns", ("assign_windows", "assign_bundle")
    )


def assigns_element_columns(window_fn: WindowFn) -> bool:
    """Whether `WindowFn.assign_element_columns` may be used; as `assigns_columns`."""
    own, base = type(window_fn).assign_element_columns, WindowFn.assign_element_columns
    return own is not base and stands_for(
        window_fn, "assign_element_columns", ("assign_windows", "assign_bundle", "assign_columns")
    )


def slice_fn_of(window_fn: WindowFn) -> WindowFn | None:
    """The function that assigns slices (`WindowFn.slice_fn`); None: there is none.

    It is there where the class of the window function has one, or a base that assigns the same windows.

    Args:
        window_fn: assigns the windows.
    """
    if isinstance(window_fn, MergingWindowFn) or not stands_for(
        window_fn, "slice_fn", ("assign_windows", "assign_bundle")
    ):
        return None
    return window_fn.slice_fn()

"""Wrong answers of a user's window function are refused in words, and right ones pass as they are."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import pytest

import dataflow as df
from windowing.checks import checked_assignment, checked_merges
from windowing.timestamps import MAX_TIMESTAMP_US
from windowing.window import Window


@attrs.frozen
class Answering(df.MergingWindowFn):
    """Assigns and merges as a test asks it to."""

    windows: Callable[[int, Any], Any] = lambda timestamp_us, _: [Window(timestamp_us, 100)]
    merges: Callable[[Sequence[Window]], Any] = lambda windows: []

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[Window]:
        windows: Sequence[Window] = self.windows(timestamp_us, value)
        return windows

    def merge_windows(self, windows: Iterable[Window]) -> Sequence[df.Merge]:
        merges: Sequence[df.Merge] = self.merges(list(windows))
        return merges


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (lambda t, _: [Window(t + 1, 50)], "does not contain the element"),
        (lambda t, _: [Window(0, t)], "does not contain the element"),
        (lambda t, _: [Window(0, 50), Window(t, t)], "nothing in it"),
        (lambda t, _: [Window(t + 1, t - 1)], "nothing in it"),
        (lambda t, _: [Window(0, 50), Window(0, 50)], "the same window twice"),
        (lambda t, _: Window(0, 50), "a list of windows"),
        (lambda t, _: iter([Window(0, 50)]), "a list of windows"),
        (lambda t, _: None, "a list of windows"),
        (lambda t, _: [(0, 50)], "something else than a window"),
        (lambda t, _: [Window(0, 50), (0, 50)], "something else than a window"),
        (lambda t, _: [Window(t / 1, 50)], "not whole microseconds"),
        (lambda t, _: [Window(0, MAX_TIMESTAMP_US + 1)], "outside the years 1 to 9999"),
        (
            lambda t, value: [Window(0, value["end"])],
            "raised TypeError: .*\n.* element 'x' at 1970",
        ),
    ],
)
def test_wrong_windows_are_refused(windows: Any, message: str) -> None:
    with pytest.raises(df.WindowError, match=rf"^Answering .*{message}") as refused:
        checked_assignment(Answering(windows=windows), [7], ["x"])
    assert refused.value.detail
    assert refused.value.hint


def test_the_failing_element_is_named() -> None:
    fn = df.Sessions(lambda value: 10 // value)

    with pytest.raises(df.WindowError, match=r"Sessions raised Zero.*\n.*element 0 at 1970"):
        checked_assignment(fn, [1, 2, 3], [1, 0, 2])


def test_a_bundle_is_answered_once_for_each_element() -> None:
    class Forgetful(Answering):
        def assign_bundle(self, timestamps_us: Any, values: Any) -> Sequence[Sequence[Window]]:
            return list(super().assign_bundle(timestamps_us, values))[1:]

    with pytest.raises(df.WindowError, match="does not answer once for each element"):
        checked_assignment(Forgetful(), [1, 2], ["x", "y"])


def test_right_windows_pass() -> None:
    """Also none, several, and those of a subclass."""

    class Named(Window):
        """A window of the user's own."""

    answers: list[list[Window]] = [[], [Window(0, 9), Window(1, 9)], [Named(1, 3)]]
    fn = Answering(windows=lambda _, value: answers[value])

    assert answers == list(checked_assignment(fn, [1, 1, 1], [0, 1, 2]))


A, B, C, AB = Window(0, 10), Window(5, 15), Window(30, 40), Window(0, 15)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([(Window(0, 14), (A, B))], "does not cover them"),
        ([(Window(1, 15), (A, B))], "does not cover them"),
        ([(AB, (A, B)), (Window(5, 40), (B, C))], "not there, or not any more"),
        ([(AB, (A, A))], "not there, or not any more"),
        ([(AB, (A, Window(6, 7)))], "not there, or not any more"),
        ([(AB, ())], "not there, or not any more"),
        ([(AB, (A,)), (AB, (B,))], "one that is there already"),
        ([(Window(5, 15), (Window(6, 8),))], "one that is there already"),
        ([(Window(-9, -9), (A, B))], "nothing in it"),
        ([((0, 15), (A, B))], "something else than a window"),
        ([(AB, A, B)], "raised ValueError"),
        (None, "raised TypeError"),
        (AB, "raised TypeError"),
    ],
)
def test_wrong_merges_are_refused(merges: Any, message: str) -> None:
    fn = Answering(merges=lambda _: merges)
    windows = [A, B, C, Window(6, 8)]

    with pytest.raises(df.WindowError, match=rf"^Answering .*{message}") as refused:
        checked_merges(fn, windows)
    assert refused.value.detail
    assert refused.value.hint


def test_a_target_is_not_the_source_of_another_merge() -> None:
    """Whoever applies merges one after the other would lose the first."""
    merges = [(B, (Window(6, 8),)), (AB, (A, B))]

    with pytest.raises(df.WindowError, match="one that is there already"):
        checked_merges(Answering(merges=lambda _: merges), [A, B, Window(6, 8)])


def test_right_merges_pass() -> None:
    """Into a new window, of one that changed, and of one that did not."""
    late = Window(50, 90)
    merges = [
        df.Merge(AB, (A, B)),
        df.Merge(Window(29, 40), (C,)),
        df.Merge(late, (late,)),
    ]

    assert merges == checked_merges(Answering(merges=lambda _: iter(merges)), [A, B, C, late])
    assert [df.Merge(AB, (A, B))] == df.merge_overlapping([C, B, A])


@pytest.mark.parametrize("gap", [0, -1, "soon", None, float("nan")])
def test_gaps_of_elements_are_positive_durations(gap: Any) -> None:
    fn = df.Sessions(lambda value: value["gap"])

    with pytest.raises(df.WindowError, match=r"positive gap, not .*\n.*element {'gap'"):
        fn.assign_windows(0, {"gap": gap})


def test_what_is_shipped_is_not_looked_at_twice() -> None:
    """Its answers pass by identity; a subclass of it is the user's own again."""

    class Mine(df.FixedWindows):
        def assign_bundle(self, timestamps_us: Any, values: Any) -> Sequence[Sequence[Window]]:
            return [[Window(9, 1)] for _ in timestamps_us]

    with pytest.raises(df.WindowError, match="Mine returns a window with nothing in it"):
        checked_assignment(Mine(60), [1], ["x"])
    checked_assignment(df.FixedWindows(60), [MAX_TIMESTAMP_US + 1], ["x"])

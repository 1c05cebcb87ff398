"""df.CountWindows: its results one by one, what it keeps, and what it refuses; the law is in tests/property."""

from typing import Any

import pytest

import dataflow as df
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.stateful_programs import Engine
from tests.unit.dataflow.test_refused_state import refused
from tests.unit.dataflow.test_user_state import retracting, run, run_all
from windowing.window import GLOBAL_WINDOW

US = 1_000_000
TEN = [("a", value) for value in range(1, 11)]


@pytest.mark.parametrize(
    ("transform", "results"),
    [
        (df.CountWindows(4), [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]),
        (df.CountWindows(5), [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]),
        (
            df.CountWindows(4, period=3),
            [[1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [9, 10]],
        ),
        (df.CountWindows(2, period=4), [[3, 4], [7, 8]]),
        (df.CountWindows(4, combine_fn=sum), [10, 26, 19]),
        (df.CountWindows(4, combine_fn=df.MeanCombineFn()), [2.5, 6.5, 9.5]),
    ],
)
def test_after_every_period_the_last_ones(transform: Any, results: list[Any]) -> None:
    assert [("a", result) for result in results] == run(transform, values=TEN)


def test_a_record_that_is_too_late_is_not_counted() -> None:
    """It is a late record, and the windows go on without it."""
    script = [
        Batch([("a", 1), ("a", 2)], [US, 2 * US], 0),
        Batch([("a", 3)], [11 * US], 10 * US),
        Batch([("a", 4), ("a", 5)], [3 * US, 12 * US], 10 * US),
    ]
    emitted, late = run_all(
        df.WindowInto(df.FixedWindows(10)),
        df.CountWindows(3),
        source=df.Read(ScriptedSource(script)),
    )

    assert [("a", [1, 2]), ("a", [3, 5])] == emitted
    assert [1] == [each["count"] for each in late]


def test_nothing_is_kept_between_two_windows() -> None:
    """So a key that does not come back costs nothing, although the global window does not end."""
    engine = Engine.of(df.CountWindows(2)._fn)
    for value in range(3):
        engine.add(("a", GLOBAL_WINDOW, value, US))
        assert (value + 1) % 2 == len(engine.cells) == len(engine.timers)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, "3"])
def test_numbers_of_elements_are_positive_integers(wrong: Any) -> None:
    with pytest.raises(df.PipelineError, match=f"need a positive size, not {wrong!r}"):
        df.CountWindows(wrong)
    with pytest.raises(df.PipelineError, match=f"need a positive period, not {wrong!r}"):
        df.CountWindows(2, period=wrong)


def test_windows_that_merge_and_input_that_is_retracted_are_refused() -> None:
    assert "may merge" in refused(df.CountWindows(2), df.WindowInto(df.Sessions(60))).fact
    assert "may be retracted" in refused(df.CountWindows(2), *retracting()).fact

"""Programs of windows, triggers and event times for `runners.testing.runner_conformance`."""

from typing import Any

import dataflow as df

_HOUR_S = 3_600
#: The night in which Berlin's clocks go back: its day has 25 hours.
_NIGHT = "2024-10-26T23:30:00Z", "2024-10-27T22:30:00Z", "2024-10-27T23:30:00Z"


def _per_window(pairs: Any, name: str, window_fn: df.WindowFn) -> Any:
    """``(name, start in seconds, key, sum)`` of each window."""
    sums = pairs | name >> df.WindowInto(window_fn) | f"sum {name}" >> df.CombinePerKey(sum)
    return (
        sums
        | f"start {name}" >> df.Reify.Window()
        | f"row {name}"
        >> df.MapTuple(lambda pair, _, window: (name, window.start.timestamp(), *pair))
        | f"once {name}" >> df.WindowInto(df.GlobalWindows())
    )


def windows(p: df.Pipeline) -> df.PCollection[Any]:
    """Windows that overlap, have gaps, follow a calendar, or begin for each key at another time."""
    stamps: Any = p | "stamps" >> df.Create([1, 5, 12])
    pairs = stamps | df.WithTimestamps(lambda at: at) | "one key" >> df.WithKeys("k")
    nights: Any = p | "nights" >> df.Create([(at, 1) for at in _NIGHT])
    days = nights | "at night" >> df.WithTimestamps(lambda pair: pair[0]) | df.Values()
    shifted = df.PhaseShiftedWindows(_HOUR_S)
    found: list[Any] = [
        _per_window(pairs, "sliding", df.SlidingWindows(10, period=5)),
        _per_window(pairs, "sampled", df.SlidingWindows(2, period=10)),
        _per_window(pairs, "sessions", df.Sessions(5)),
        _per_window(
            days | "one" >> df.WithKeys("k"),
            "days",
            df.CalendarWindows.days(time_zone="Europe/Berlin"),
        ),
        _per_window(pairs, "shifted", shifted)
        | df.MapTuple(lambda name, start, *pair: (name, (start * 1e6) % shifted.size_us, *pair)),
    ]
    counted: Any = pairs | df.CountWindows(2)
    return [*found, counted | "lists" >> df.MapTuple(lambda _, values: values)] | df.Flatten()


WINDOWS: tuple[Any, ...] = (
    ("sliding", -5.0, "k", 1),
    ("sliding", 0.0, "k", 6),
    ("sliding", 5.0, "k", 17),
    ("sliding", 10.0, "k", 12),
    ("sampled", 0.0, "k", 1),
    ("sessions", 1.0, "k", 6),
    ("sessions", 12.0, "k", 12),
    ("days", 1_729_980_000.0, "k", 2),
    ("days", 1_730_070_000.0, "k", 1),
    ("shifted", float(df.PhaseShiftedWindows(_HOUR_S).shift_us("k")), "k", 18),
    [1, 5],
    [12],
)

#: Each with another moment to fire; what is there in the end is the same.
TRIGGERS: dict[str, df.Trigger] = {
    "default": df.DefaultTrigger(),
    "never": df.Never(),
    "always": df.Always(),
    "all": df.Repeatedly(df.AfterAll(df.AfterCount(1), df.AfterProcessingTime(0.01))),
    "any": df.Repeatedly(df.AfterAny(df.AfterCount(2), df.AfterProcessingTime(0.01))),
    "each": df.AfterEach(df.AfterCount(1), df.Repeatedly(df.AfterCount(2))),
    "finally": df.OrFinally(df.Repeatedly(df.AfterCount(1)), df.AfterWatermark()),
    "period": df.AfterWatermark(early=df.AtPeriod(1), late=df.AfterCount(1)),
    "bytes": df.Repeatedly(df.AfterBytes(40)),
}


def triggers(p: df.Pipeline) -> df.PCollection[Any]:
    """Panes that retract each other: whenever they fire, in the end there is the whole of each window."""
    numbers = [df.TimestampedValue(("k", each), each) for each in (1, 2, 3, 61)]
    pairs: Any = p | df.Create(numbers)
    found: list[Any] = []
    for name, trigger in TRIGGERS.items():
        totals = (
            pairs
            | name
            >> df.WindowInto(
                df.FixedWindows(60),
                trigger=trigger,
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | f"sum {name}" >> df.CombinePerKey(sum)
            | f"name {name}" >> df.MapTuple(lambda _, total, name: (name, total), name)
        )
        changes = totals | f"changes {name}" >> df.ToChangelog()
        signs = changes | f"sign {name}" >> df.Map(lambda change: (change.value, change.sign))
        found.append(signs | f"once {name}" >> df.WindowInto(df.GlobalWindows()))
    net: Any = found | df.Flatten() | "net" >> df.CombinePerKey(sum)
    return net | df.FlatMapTuple(lambda value, number: [value] * number)  # type: ignore[no-any-return]


TRIGGERED: tuple[Any, ...] = tuple((name, total) for name in TRIGGERS for total in (6, 61))


def event_times(p: df.Pipeline) -> df.PCollection[Any]:
    """The event time of a result: the earliest, the latest, or the end of its window."""
    pairs: Any = p | df.Create([df.TimestampedValue(("k", 1), at) for at in (5, 3, 50)])
    found = [
        pairs
        | f"windows {each.name}" >> df.WindowInto(df.FixedWindows(60), timestamp_combiner=each)
        | f"sum {each.name}" >> df.CombinePerKey(sum)
        | f"time {each.name}" >> df.Reify.Timestamp()
        | f"row {each.name}" >> df.Map(lambda result, name: (name, result.timestamp_us), each.name)
        for each in (
            df.TimestampCombiner.EARLIEST,
            df.TimestampCombiner.LATEST,
            df.TimestampCombiner.END_OF_WINDOW,
        )
    ]
    once = [each | f"once {n}" >> df.WindowInto(df.GlobalWindows()) for n, each in enumerate(found)]
    return once | df.Flatten()


EVENT_TIMES: tuple[Any, ...] = (
    ("EARLIEST", 3_000_000),
    ("LATEST", 50_000_000),
    ("END_OF_WINDOW", 59_999_999),
)

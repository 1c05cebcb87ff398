"""A key's elements and timers are seen in the same order on every runner, where input ends or it is asked for."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from tests.conformance.conftest import MakeRunner
from tests.deduplication import Deduplicated, DeduplicatedInOrder, expected

COLUMNS = {"key": str, "value": int}
LINES = {"key": str, "start": int, "number": int, "line": str}
NUMBER = df.CombiningValueStateSpec("number", df.CountCombineFn())
LAST = df.ReadModifyWriteStateSpec("last", ttl=15)
SILENCE = df.TimerSpec("silence", df.TimeDomain.EVENT)
#: Out of order: y at 5 and 6 in one minute, x at 0 and at 200 and 230.
FOUND = [
    ("x", 1, 0), ("y", 2, 5), ("x", 3, 10), ("x", 4, 59), ("x", 5, 200), ("y", 6, 6), ("x", 7, 230),
]  # fmt: skip
SEED = 5
DRAWN = [
    (chance.choice("abcdefgh"), chance.randrange(99), chance.randrange(600))
    for chance in [random.Random(SEED)]
    for _ in range(200)
]


def stamped(elements: list[tuple[str, int, int]]) -> list[df.TimestampedValue]:
    return [df.TimestampedValue((key, value), second) for key, value, second in elements]


def scripted(elements: list[tuple[str, int, int]]) -> Any:
    """A stream of the elements: in two halves, with a watermark that keeps its word in between."""
    half = len(elements) // 2
    soonest = min(second for _, _, second in elements[half:])
    stream = TestStream().add_elements(stamped(elements[:half])).advance_watermark_to(soonest)
    return stream.add_elements(stamped(elements[half:]))


def row(pair: tuple[str, int]) -> dict[str, Any]:
    return {"key": pair[0], "value": pair[1]}


@pytest.mark.parametrize("elements", [FOUND, DRAWN], ids=["found", f"drawn with seed {SEED}"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["list", "stream"])
def test_all_emit_what_is_right_in_the_order_of_event_times(
    elements: list[tuple[str, int, int]], is_stream: bool, make_runner: MakeRunner
) -> None:
    p = df.Pipeline(make_runner())
    source: Any = scripted(elements) if is_stream else df.Create(stamped(elements))
    fn = DeduplicatedInOrder() if is_stream else Deduplicated()
    kept: Any = p | "read" >> source | "deduplicate" >> df.ParDo(fn)
    kept | df.Map(row) | df.WriteToPostgres("kept", columns=COLUMNS)
    result = p.run()
    result.wait_until_finish()

    rows = sorted((each["key"], each["value"]) for each in result.read_table("kept"))
    assert expected(elements) == rows


class Diary(df.DoFn):
    """Numbers all that happens to a key in a window: elements, with the last one remembered; timers; its end."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        /,
        at: datetime = df.DoFn.TimestampParam,
        number: Any = df.DoFn.StateParam(NUMBER),
        last: Any = df.DoFn.StateParam(LAST),
        silence: Any = df.DoFn.TimerParam(SILENCE),
    ) -> Iterator[Any]:
        number.add(1)
        yield element[0], number.read(), f"{element[1]} after {last.read()}"
        last.write(element[1])
        silence.set(at + timedelta(seconds=20))

    @df.on_timer(SILENCE)
    def silent(
        self,
        key: str = df.DoFn.KeyParam,
        fired: datetime = df.DoFn.FireTimestampParam,
        number: Any = df.DoFn.StateParam(NUMBER),
    ) -> Iterator[Any]:
        number.add(1)
        yield key, number.read(), f"silent at {fired.timestamp():.0f}"

    @df.on_window_expiration
    def ended(
        self,
        key: str = df.DoFn.KeyParam,
        number: Any = df.DoFn.StateParam(NUMBER),
        last: Any = df.DoFn.StateParam(LAST),
    ) -> Iterator[Any]:
        number.add(1)
        yield key, number.read(), f"ended after {last.read()}"


def line(found: tuple[str, int, str], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    key, number, text = found
    return {"key": key, "start": window.start_us // 1_000_000, "number": number, "line": text}


def diaries(elements: Iterable[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    """What a diary has of each key and minute, worked out from the sorted elements."""
    by_window = defaultdict[tuple[str, int], list[tuple[int, int]]](list)
    for key, value, second in sorted(elements, key=lambda each: (each[2], each[1])):
        by_window[key, second - second % 60].append((second, value))
    found = []
    for (key, start), inside in by_window.items():
        lines = list[str]()
        last: int | None = None
        until = silent = 0
        for second, value in inside:
            if silent and silent <= second:
                lines.append(f"silent at {silent}")
            lines.append(f"{value} after {last if second < until else None}")
            last, until, silent = value, second + 15, second + 20
        # What still lives at the end of the window is there for the last call.
        lines += [f"silent at {silent}", f"ended after {last if until >= start + 60 else None}"]
        found += [(key, start, number, text) for number, text in enumerate(lines, 1)]
    return sorted(found)


@pytest.mark.parametrize("is_stream", [False, True], ids=["list", "stream"])
def test_all_see_elements_timers_ends_of_lives_and_of_windows_in_one_order(
    is_stream: bool, make_runner: MakeRunner
) -> None:
    p = df.Pipeline(make_runner())
    source: Any = scripted(DRAWN) if is_stream else df.Create(stamped(DRAWN))
    pairs: Any = p | "read" >> source | df.WindowInto(df.FixedWindows(60))
    lines = pairs | "diary" >> df.ParDo(Diary())
    lines | df.Map(line) | df.WriteToPostgres("lines", columns=LINES)
    result = p.run()
    result.wait_until_finish()

    assert diaries(DRAWN) == sorted(tuple(each.values()) for each in result.read_table("lines"))

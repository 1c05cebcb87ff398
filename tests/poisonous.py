"""A pipeline into which poison of many kinds goes (fault F17), for tests that compare runners."""

import math
import random
from collections.abc import Sequence
from typing import Any

import attrs

import dataflow as df

#: A key as long as keys may be, of what cannot be compressed: three bytes a letter.
LONGEST = "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x9000), k=665)))
#: What is left out when it is read, and the error in its dead letter.
POISON: Sequence[tuple[Any, str]] = [
    (("divide", 0, 5.0), "ZeroDivisionError"),
    (("stop", 1, 5.0), "StopIteration"),
    (("text", "one", 5.0), "TypeError"),
    (("words", 1, 5.0), "\\x00 \\ud800"),
    ((["list"], 1, 5.0), "cannot be hashed"),
    ((1 + 2j, 1, 5.0), "no deterministic encoding"),
    ((math.nan, 1, 5.0), "NaN"),
    (("huge", "y" * 1_000_000, 5.0), "TypeError"),
    (("x" * 1_000_000, 1, 5.0), "1,000,005 bytes is too long"),
    (("half \ud800", 1, 5.0), "surrogate"),
    (("year 0", 1, -62_135_596_801.0), "9999"),
    (("year 10000", 1, 253_402_300_800.0), "9999"),
    (("no time", 1, math.nan), "nan is not"),
    (("endless", 1, math.inf), "inf"),
    (("back", 1, 1.0), "allowed_timestamp_skew"),
    ("no tuple", "ValueError"),
    (None, "TypeError"),
]
#: What is strange and no poison.
STRANGE: Sequence[Any] = [
    ("far", 1, 253_402_300_799.0),
    ("zero", 0.0, 5.0),
    ("huge", 10**30, 5.0),
    (LONGEST, 1, 5.0),
    ("nul \0", 1, 5.0),
]
GOOD: Sequence[Any] = [(f"key {number % 7}", number % 5, 5.0 + number) for number in range(100)]
COLUMNS = {"key": str, "total": int}


def parse(record: Any) -> Any:
    """A record with its event time, if it has one."""
    key, value, at = record
    if key == "divide":
        return 1 // value
    if key == "stop":
        raise StopIteration
    if key == "words":
        raise ValueError("\0 \ud800")
    return df.TimestampedValue((key, value + 0), at)


class RunningTotal(df.DoFn):
    """Sums each key; of "key 3" an element is poison, of "key 4" the timer."""

    TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
    END = df.TimerSpec("end", df.TimeDomain.EVENT)

    def process(
        self,
        element: tuple[str, int],
        /,
        total: Any = df.DoFn.StateParam(TOTAL),
        end: Any = df.DoFn.TimerParam(END),
    ) -> None:
        """Add it, and wait for the end of the hour."""
        total.add(element[1])
        end.set(3600)
        if element == ("key 3", 4):
            raise ValueError("three and four")

    @df.on_timer(END)
    def emit(self, key: str = df.DoFn.KeyParam, total: Any = df.DoFn.StateParam(TOTAL)) -> Any:
        """The total of the key."""
        if key == "key 4":
            raise ValueError("four")
        yield key, total.read()


def row(pair: tuple[str, int]) -> dict[str, Any]:
    """A row that may not fit."""
    key, total = pair
    if key == "key 2":
        raise ValueError("two")
    return {"key": key, "total": total}


def build(pipeline: df.Pipeline) -> None:
    """Poison in a read, behind a grouping, in a table, and in a stateful DoFn."""
    pairs = (
        pipeline
        | "read" >> df.Create([df.TimestampedValue(each, 5) for each in records()])
        | "parse" >> df.Map(parse)
    )
    hours = pairs | "hours" >> df.WindowInto(df.FixedWindows(3600))
    sums = hours | "sum" >> df.CombinePerKey(sum)
    sums | "row" >> df.Map(row) | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS, key=["key"])
    (
        hours
        | "small" >> df.Filter(lambda pair: str(pair[0]).startswith("key"))
        | "running" >> df.ParDo(RunningTotal())
        | "running row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "totals" >> df.WriteToPostgres("totals", columns=COLUMNS)
    )


def records() -> list[Any]:
    """Poison among the others."""
    mixed = list(GOOD)
    for number, each in enumerate([*(poison for poison, _ in POISON), *STRANGE]):
        mixed.insert(number * 5, each)
    return mixed


@attrs.frozen
class Outcome:
    """What a run has left: rows by table, and dead letters, all as sorted text."""

    rows: dict[str, list[str]]
    letters: list[tuple[str, ...]]


def outcome(result: df.PipelineResult) -> Outcome:
    """The outcome of a run that has ended; of a letter only what does not depend on how often it is run."""
    result.wait_until_finish()
    return Outcome(
        {
            name: sorted(repr(sorted(each.items())) for each in result.read_table(name))
            for name in ("sums", "totals")
        },
        sorted(
            (
                letter["stage"],
                letter["text"],
                repr(letter["element"].value)[:500],
                letter["error"],
                str(letter["tries"]),
                str(letter["timestamp_us"]),
                str((letter["window_start_us"], letter["window_end_us"], letter["sign"])),
            )
            for letter in result.dead_letters()
        ),
    )

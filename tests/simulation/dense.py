"""Dense pipelines: something is on its way at every moment, and event time moves all the while, so faults meet it.

The pipelines that the simulator comes with draw everything from chance, and much of what they draw is short; windows
allow hours of lateness.  Here every batch ends a window for good, so what is out of its order by a step is wrong.
"""

from random import Random
from typing import Any

import attrs

import dataflow as df
from dataflow.source import SplitStatus
from runners.testing.scripted_source import Batch, ScriptedSource

US_PER_S = 1_000_000
WINDOW_S = 10
KEYS = 7
COLUMNS = {"key": int, "end": float, "total": int}


def chain(p: df.Pipeline, random: Random) -> None:
    """Three groupings, through which a window goes with each batch."""
    scripts = [_in_time(random, split, batches=25) for split in range(2)]
    sums = _summed(p | "read" >> df.Read(ScriptedSource(*scripts)))
    fewer = sums | "fewer" >> df.Map(lambda pair: (pair[0] % 3, pair[1])) | "few" >> _sum()
    total = fewer | "all" >> df.Map(lambda pair: (0, pair[1])) | "one" >> _sum()
    _write(fewer, "few rows")
    _write(total, "one row")


def pausing(p: df.Pipeline, random: Random) -> None:
    """Two groupings, and between the batches of the only split there is time for all that they emit to arrive."""
    script = []
    for batch in _in_time(random, 0, batches=12):
        script += [batch, *[attrs.evolve(batch, values=[], timestamps_us=[])] * 12]
    sums = _summed(p | "read" >> df.Read(ScriptedSource(script)))
    few = sums | "fewer" >> df.Map(lambda pair: (pair[0] % 3, pair[1])) | "few" >> _sum()
    _write(few, "few rows")


def always_sending(p: df.Pipeline, random: Random) -> None:
    """Two groupings, the first of which emits whenever it is given something."""
    windows = df.WindowInto(
        df.FixedWindows(WINDOW_S),
        trigger=df.Repeatedly(df.AfterCount(1)),
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )
    scripts = [_in_time(random, split, batches=25) for split in range(2)]
    pairs = p | "read" >> df.Read(ScriptedSource(*scripts))
    sums = pairs | "windows" >> windows | "sum" >> _sum()
    fewer = sums | "fewer" >> df.Map(lambda pair: (pair[0] % 3, pair[1]))
    whole = df.WindowInto(
        df.FixedWindows(WINDOW_S), accumulation_mode=df.AccumulationMode.DISCARDING
    )
    _write(fewer | "whole" >> whole | "few" >> _sum(), "few rows")


def silent(p: df.Pipeline, random: Random) -> None:
    """A split goes on and on, and another one has something only now and then."""
    silence = [Batch([], [], 0, SplitStatus.IDLE)] * 40
    late = _in_time(random, 1, batches=2)
    source = ScriptedSource(_in_time(random, 0, batches=60), [*silence, *late])
    _write(_summed(p | "read" >> df.Read(source)), "sums")


def resting(p: df.Pipeline, random: Random) -> None:
    """For a minute and more nothing comes; then the rest."""
    first, *rest = _in_time(random, 0, batches=4)
    silence = [Batch([], [], first.watermark_us, SplitStatus.IDLE)] * 80
    windows = df.WindowInto(
        df.FixedWindows(WINDOW_S),
        trigger=df.AfterWatermark(early=df.AfterSignal("flush")),
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )
    sums = p | "read" >> df.Read(ScriptedSource([first, *silence, *rest])) | windows | _sum()
    _write(sums, "sums")


def _in_time(random: Random, split: int, batches: int) -> list[Batch]:
    """Batches each of which has the records of a window, and then it is over."""
    script = []
    for index in range(batches):
        pairs = [(random.randrange(KEYS), 1 + split) for _ in range(3)]
        start_us = index * WINDOW_S * US_PER_S
        script.append(Batch(pairs, [start_us] * len(pairs), start_us + WINDOW_S * US_PER_S))
    return script


def _summed(pairs: Any) -> Any:
    windows = df.WindowInto(
        df.FixedWindows(WINDOW_S), accumulation_mode=df.AccumulationMode.DISCARDING
    )
    return pairs | "windows" >> windows | "sum" >> _sum()


def _sum() -> Any:
    return df.CombinePerKey(sum)


def _write(pairs: Any, name: str) -> None:
    rows = pairs | f"{name} row" >> df.Map(_row)
    rows | name >> df.WriteToPostgres(name.replace(" ", "_"), columns=COLUMNS, key=["key", "end"])


def _row(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"key": pair[0], "end": window.end.timestamp(), "total": pair[1]}

"""A day that is there already is worked off as fast as it can be read, and nothing of it is late, whoever dies."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import dataflow as df
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import ALL_FAULTS
from runners.testing.simulator.simulation import Simulation
from windowing.timestamps import US_PER_SECOND

pytestmark = pytest.mark.slow

DAY_US = 86_400 * US_PER_SECOND
DISORDER_US = 360 * US_PER_SECOND
WINDOW_S = 600
RECORDS, RECORDS_PER_BATCH = 400, 20
SEEDS = 6
COLUMNS = {"key": int, "start_us": int, "index": int, "timing": str, "values": str}


def day(seed: int, bound_us: int) -> ScriptedSource:
    """Two splits over the same day; a watermark stays so far behind the newest record."""
    chance, scripts = Random(seed), []
    for split in range(2):
        newest_us, batches = 0, []
        for first in range(0, RECORDS, RECORDS_PER_BATCH):
            numbers = range(first, first + RECORDS_PER_BATCH)
            times_us = [
                max(0, number * DAY_US // RECORDS - chance.randrange(DISORDER_US))
                for number in numbers
            ]
            values = [(chance.randrange(4), 2 * number + split) for number in numbers]
            newest_us = max(newest_us, *times_us)
            batches.append(Batch(values, times_us, newest_us - bound_us))
        scripts.append(batches)
    return ScriptedSource(*scripts)


def row(
    pair: tuple[int, Any],
    window: df.Window = df.DoFn.WindowParam,
    pane: df.PaneInfo = df.DoFn.PaneParam,
) -> dict[str, Any]:
    """The values of a pane, and its `PaneInfo`."""
    return {
        "key": pair[0],
        "start_us": window.start_us,
        "index": pane.index,
        "timing": pane.timing.value,
        "values": " ".join(map(str, sorted(pair[1]))),
    }


def build(seed: int, bound_us: int) -> Callable[[df.Pipeline], None]:
    """A pane again for each record that is late."""

    def inner(p: df.Pipeline) -> None:
        (
            p
            | "read" >> df.Read(day(seed, bound_us))
            | "window"
            >> df.WindowInto(
                df.FixedWindows(WINDOW_S),
                trigger=df.AfterWatermark(late=df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode.ACCUMULATING,
                allowed_lateness=3_600,
            )
            | "group" >> df.GroupByKey()
            | "row" >> df.Map(row)
            | "panes"
            >> df.WriteToPostgres("panes", columns=COLUMNS, key=["key", "start_us", "index"])
        )

    return inner


def panes(seed: int, bound_us: int) -> list[dict[str, Any]]:
    """What is emitted through all faults; what else must be so of it the simulator checks."""
    simulation = Simulation(build(seed, bound_us), seed, faults=ALL_FAULTS)
    simulation.run()
    (table,) = (each for each in simulation.pipeline.graph().tables() if each.name == "panes")
    found = simulation.cluster.store.read_table(table)
    return [dict(zip(COLUMNS, each, strict=True)) for each in found]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_day_of_backlog_is_on_time(seed: int) -> None:
    emitted = panes(seed, DISORDER_US)

    assert {(each["timing"], each["index"]) for each in emitted} == {("on_time", 0)}
    numbers = sorted(int(number) for each in emitted for number in each["values"].split())
    assert numbers == list(range(2 * RECORDS))
    assert len({(each["key"], each["start_us"]) for each in emitted}) == len(emitted)


def test_a_watermark_that_breaks_its_word_would_be_seen() -> None:
    """Half an hour ahead of the newest record, so that some are late; then the test before fails."""
    timings = set[str]()
    for seed in range(SEEDS):
        timings |= {each["timing"] for each in panes(seed, -1_800 * US_PER_SECOND)}
        if {"on_time", "late"} <= timings:
            return
    raise AssertionError(f"nothing is late: {timings}")

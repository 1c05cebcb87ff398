"""The job that faults are thrown at: a slow stream with ids, and tables of every pane that it emits.

Run as a program it is the driver of a streaming job:
``python -m tests.fault_job --store DSN --job NAME --records 2000 --gate PATH``.
"""

import argparse
import random
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dataflow as df
from dataflow.errors import DataflowError
from runners.streaming import StreamingRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.gated_sources import Gate

#: Records come in batches of this many, and the watermark moves after each.
BATCH_RECORDS = 10
SPLITS = 2

_SECOND_US = 1_000_000
#: Event time between records of a split.
_STEP_US = _SECOND_US // 5
_DISORDER_US = 3 * _SECOND_US
_LATENESS = timedelta(hours=10)
_USERS = 12
#: Users that are active at a time, so that the others' sessions end.
_ACTIVE = 4
_SHIFT_US = 25 * _SECOND_US
#: One record in so many is late, by up to a minute.
_LATE_EVERY = 20

PANE = {"user": str, "start": datetime, "end": datetime, "value": str, "index": int, "timing": str}
CHANGE = {**PANE, "sign": int}
TOTAL = {"user": str, "start": datetime, "value": str}
VISIT = {**TOTAL, "end": datetime}

#: Tables of panes, with no key: what is emitted once too often is in them for ever.
PANE_TABLES = {"exact_panes": PANE, "total_panes": PANE, "visit_panes": CHANGE}
#: Tables of answers.
ANSWER_TABLES = {"totals": TOTAL, "visits": VISIT}


def gate_at(path: Path) -> Gate:
    """A gate that makes reading slow until there is such a file: a minute and more, however long the faults take."""
    return Gate(path=path, records=1 << 60, records_per_second=40)


def scripts(records: int, seed: int = 7) -> list[list[Batch]]:
    """What each split hands over: ``(user, (id, is late))``, in batches whose watermark only the late ones break."""
    return [_script(split, records, random.Random(seed + split)) for split in range(SPLITS)]


def _script(split: int, records: int, chance: random.Random) -> list[Batch]:
    batches = []
    now_us = 0
    for first in range(0, records, BATCH_RECORDS):
        values: list[Any] = []
        times_us: list[int] = []
        for number in range(first, min(first + BATCH_RECORDS, records)):
            now_us += _STEP_US
            user = f"user{(now_us // _SHIFT_US + chance.randrange(_ACTIVE)) % _USERS:02d}"
            is_late = chance.randrange(_LATE_EVERY) == 0
            back_us = 60 * _SECOND_US if is_late else _DISORDER_US
            values.append((user, (number * SPLITS + split, is_late)))
            times_us.append(max(0, now_us - chance.randrange(back_us)))
        batches.append(Batch(values, times_us, now_us - _DISORDER_US))
    return batches


def pipeline(records: int) -> Callable[[df.Pipeline], None]:
    """Fixed windows with one pane each, fixed windows corrected early and late, and sessions that retract."""

    def build(p: df.Pipeline) -> None:
        records_read = p | "read" >> df.Read(ScriptedSource(*scripts(records)))
        (
            records_read
            | "on time" >> df.Filter(lambda pair: not pair[1][1])
            | "exact id" >> df.Map(_pair_id)
            | "exact windows" >> df.WindowInto(df.FixedWindows(10))
            | "exact" >> df.GroupByKey()
            | "exact pane" >> df.Map(pane_row)
            | df.WriteToPostgres("exact_panes", columns=PANE)
        )
        ids = records_read | "id" >> df.Map(_pair_id)
        early_and_late = df.AfterWatermark(early=df.AfterCount(3), late=df.AfterCount(1))
        totals = (
            ids
            | "total windows"
            >> df.WindowInto(
                df.FixedWindows(10),
                trigger=early_and_late,
                accumulation_mode=df.AccumulationMode.ACCUMULATING,
                allowed_lateness=_LATENESS,
            )
            | "total" >> df.GroupByKey()
            | "total pane" >> df.Map(pane_row)
        )
        totals | df.WriteToPostgres("total_panes", columns=PANE)
        totals | df.WriteToPostgres("totals", columns=TOTAL, key=["user", "start"])
        visits = (
            ids
            | "visit windows"
            >> df.WindowInto(
                df.Sessions(1),
                trigger=early_and_late,
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
                allowed_lateness=_LATENESS,
            )
            | "visit" >> df.GroupByKey()
            | "visit pane" >> df.Map(pane_row)
        )
        visits | df.WriteToPostgres("visits", columns=VISIT, key=["user", "start", "end"])
        (
            visits
            | df.ToChangelog()
            | "change" >> df.Map(lambda change: {**change.value, "sign": change.sign})
            | df.WriteToPostgres("visit_panes", columns=CHANGE)
        )

    return build


def _pair_id(pair: tuple[str, tuple[int, bool]]) -> tuple[str, int]:
    return pair[0], pair[1][0]


def pane_row(
    pair: tuple[str, Any],
    window: df.Window = df.DoFn.WindowParam,
    pane: df.PaneInfo = df.DoFn.PaneParam,
) -> dict[str, Any]:
    """A pane as a row: ``value`` lists the ids that it counts."""
    user, ids = pair
    return {
        "user": user,
        "start": window.start,
        "end": window.end,
        "value": " ".join(map(str, sorted(ids))),
        "index": pane.index,
        "timing": pane.timing.value,
    }


def main() -> None:
    """Drive the job until it has ended; an error of the SDK is printed in one line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--gate", type=Path, required=True)
    options = parser.parse_args()
    runner = StreamingRunner(
        job=options.job, store=options.store, master="local[2,4]", gather=False, show_progress=False
    )
    p = df.Pipeline(gate_at(options.gate).gated(runner))
    pipeline(options.records)(p)
    try:
        p.run().wait_until_finish()
    except DataflowError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print("finished")


if __name__ == "__main__":
    main()

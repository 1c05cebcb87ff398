"""What one element of a backfill causes for later groupings waits in a file, and is the same for all attempts."""

from typing import Any

import pytest

import dataflow as df
from runners.batch import gather
from runners.batch.overflow import Overflow
from runners.core.stages import stage_executor
from runners.core.user_code import do_fn_invoker
from runners.direct import DirectRunner
from runners.millwheel.store.memory.store import MemoryStore
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.backfill_jobs import LocalBackfill

MANY = 1_000
TEN_MINUTES_US = 600_000_000
BOUNDS = [
    (stage_executor, "OVERFLOW_RECORDS", 100),
    (do_fn_invoker, "PART_OUTPUTS", 50),
    (gather, "RECORDS_FIRST", 70),
    (gather, "PACKED_BYTES", 200),
]


def graph() -> df.Pipeline:
    """One element at the source, and one group behind it, that each cause many."""
    p = df.Pipeline(DirectRunner())
    (
        p
        | "read" >> df.Read(ScriptedSource([Batch([MANY], [0], TEN_MINUTES_US)]))
        | "many" >> df.FlatMap(lambda number: [(0, n) for n in range(number)])
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "first" >> df.GroupByKey()
        | "again" >> df.FlatMap(lambda pair: [(value % 7, value) for value in pair[1]])
        | "second" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("sums", columns={"key": int, "total": int})
    )
    return p


@pytest.mark.parametrize("seed", range(4))
def test_it_is_all_there_after_it_was_in_a_file(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, bound, value in BOUNDS:
        monkeypatch.setattr(module, bound, value)
    taken: list[Any] = []
    take = Overflow._take

    def noted(overflow: Overflow, groups: Any) -> None:
        taken.append(groups)
        take(overflow, groups)

    monkeypatch.setattr(Overflow, "_take", noted)
    store, pipeline = MemoryStore(), graph().graph()
    LocalBackfill(pipeline, store, seed, until_us=None).run()

    # Of the source once or twice, as attempts are repeated, and of the one group.
    assert len(taken) >= 2 * MANY // 100 - 5
    (table,) = pipeline.tables()
    sums = [(key, sum(range(key, MANY, 7))) for key in range(7)]
    assert sorted(map(tuple, store.read_table(table))) == sums

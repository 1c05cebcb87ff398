"""Poison records over the real master and workers, some of which die: the others are not delayed, and none is lost."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.poison import stored_dead_mapping
from runners.direct import DirectRunner
from runners.millwheel.worker.worker_options import WorkerOptions
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, batches, row, scripted


def careful(value: int) -> int:
    if value % 7 == 3:
        raise ValueError(f"{value} is poison")
    return value


def small(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[1] > 150:
        raise ValueError("too much")
    return pair


@costly()
@given(
    batches=batches,
    disorder=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    crash_rate=st.sampled_from([0.0, 0.1]),
)
def test_a_record_is_in_a_result_or_a_dead_letter(
    batches: list[list[tuple[int, int]]], disorder: int, seed: int, crash_rate: float
) -> None:
    """Exactly once, whether it fails when it is read or in what a window says; and the job ends."""
    pipeline = df.Pipeline(DirectRunner(tries_per_record=2))
    (
        pipeline
        | "read" >> df.Read(scripted(batches, disorder))
        | "careful" >> df.Map(careful)
        | "pair" >> df.Map(lambda value: (value % 5, value))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=7200,
        )
        | "sum" >> df.CombinePerKey(sum)
        | "small" >> df.Map(small)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=WorkerOptions(tries=2))
    cluster.run()
    (table,) = pipeline.graph().tables()
    letters = [stored_dead_mapping(each) for each in cluster.store.read_dead_letters("sim")]
    elements: dict[str, list[Any]] = {"read": [], "sum": []}
    for letter in letters:
        elements[letter["stage"]].append(letter["element"].value)
    said = sum(int(each[3]) for each in cluster.store.read_table(table))
    sent = [value for batch in batches for value, _ in batch]

    assert sorted(value for value in sent if value % 7 == 3) == sorted(elements["read"])
    assert all(total > 150 for _, total in elements["sum"])
    good = sum(value for value in sent if value % 7 != 3)
    assert good == said + sum(total for _, total in elements["sum"]), f"seed={seed}"
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))

"""Records of a batch that end or hang the process that works on them: dead letters as of a stream, or a clear error."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import TransformError
from runners.batch import BackfillRunner
from tests.batch_jobs import Batch
from tests.integration.test_worker_deaths import (
    ask_to_leave,
    crash,
    leave,
    leave_as_if_all_were_well,
    never_return,
)

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(300)]

#: More than a bundle.
RECORDS = 2_500
BAD = 1_717
COLUMNS = {"key": int, "total": int}
Strike = Callable[[int], None]
SEEN = df.BagStateSpec("seen")


def strikes(end: Callable[[], None], bad: int = BAD) -> Strike:
    def strike(value: int) -> None:
        if value == bad:
            end()

    return strike


def written(sums: Any) -> None:
    (
        sums
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns=COLUMNS, key=["key"])
    )


def behind_the_source(strike: Strike) -> Callable[[df.Pipeline], None]:
    def pair(value: int) -> tuple[int, int]:
        strike(value)
        return value % 3, value

    def build(p: df.Pipeline) -> None:
        values = p | "create" >> df.Create(range(RECORDS))
        written(values | "strike" >> df.Map(pair) | "sum" >> df.CombinePerKey(sum))

    return build


def behind_a_grouping(strike: Strike) -> Callable[[df.Pipeline], None]:
    def pair(one: tuple[int, int]) -> tuple[int, int]:
        strike(one[0])
        return one[0] % 3, one[1]

    def build(p: df.Pipeline) -> None:
        each = p | "create" >> df.Create(range(RECORDS)) | "pair" >> df.Map(lambda n: (n, n))
        singles = each | "single" >> df.CombinePerKey(sum)
        written(singles | "strike" >> df.Map(pair) | "sum" >> df.CombinePerKey(sum))

    return build


class Counting(df.DoFn):
    def __init__(self, strike: Strike) -> None:
        self._strike = strike

    def process(
        self, element: tuple[int, int], /, seen: Any = df.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[int, int]]:
        self._strike(element[1])
        seen.add(element)
        yield element


def in_a_stateful_do_fn(strike: Strike) -> Callable[[df.Pipeline], None]:
    def build(p: df.Pipeline) -> None:
        pairs = p | "create" >> df.Create(range(RECORDS)) | "pair" >> df.Map(lambda n: (n % 30, n))
        counted = pairs | "strike" >> df.ParDo(Counting(strike))
        thirds = counted | "third" >> df.Map(lambda pair: (pair[0] % 3, pair[1]))
        written(thirds | "sum" >> df.CombinePerKey(sum))

    return build


def expected(*bad: int) -> dict[int, int]:
    return {
        key: sum(n for n in range(RECORDS) if n % 3 == key and n not in bad) for key in range(3)
    }


def totals(result: df.PipelineResult) -> dict[int, int]:
    return {row["key"]: row["total"] for row in result.read_table("totals")}


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (leave, "exit code 3"),
        pytest.param(leave_as_if_all_were_well, "exit code 0", marks=pytest.mark.nightly),
        (crash, "signal 11 (SIGSEGV)"),
        pytest.param(ask_to_leave, "exit code 4", marks=pytest.mark.nightly),
        (never_return, "took longer than 3 seconds"),
    ],
)
def test_a_record_that_ends_its_process_is_a_dead_letter(
    batch: Batch, end: Callable[[], None], why: str
) -> None:
    """And all others count."""
    build = behind_the_source(strikes(end))
    result = batch.run(build, tries_per_record=2, step_timeout=3.0)

    assert totals(result) == expected(BAD)
    [letter] = result.dead_letters()
    assert letter["element"].value == BAD
    assert letter["tries"] == 2
    assert why in letter["error"]


@pytest.mark.nightly
@pytest.mark.parametrize("build", [behind_a_grouping, in_a_stateful_do_fn])
def test_so_it_is_wherever_the_record_is(batch: Batch, build: Any) -> None:
    result = batch.run(build(strikes(crash)), tries_per_record=1)

    assert totals(result) == expected(BAD)
    [letter] = result.dead_letters()
    assert BAD in (letter["element"].value[0], letter["element"].value[1])
    assert "signal 11 (SIGSEGV)" in letter["error"]


def test_without_tries_the_error_has_the_end_of_the_process(batch: Batch) -> None:
    """After as many attempts as Spark makes; what ended them is no mystery."""
    with pytest.raises(TransformError) as failed:
        batch.run(behind_the_source(strikes(crash)))

    assert "signal 11 (SIGSEGV)" in str(failed.value)


def test_a_backfill_isolates_them_too(store_dsn: str, spark_master: str) -> None:
    runner = BackfillRunner(
        job="history",
        store=store_dsn,
        master=spark_master,
        tries_per_record=1,
        show_progress=False,
    )
    pipeline = df.Pipeline(runner)
    behind_the_source(strikes(crash))(pipeline)
    result = pipeline.run()

    [letter] = result.dead_letters()
    assert letter["element"].value == BAD
    assert "signal 11 (SIGSEGV)" in letter["error"]


def test_slow_input_is_not_taken_for_code_that_hangs(batch: Batch) -> None:
    """Whoever waits for what others send may wait: only user code is timed."""

    def slow(value: int) -> tuple[int, int]:
        time.sleep(0.01)
        return value % 3, value

    def build(p: df.Pipeline) -> None:
        values = p | "create" >> df.Create(range(300))
        written(values | "slow" >> df.Map(slow) | "sum" >> df.CombinePerKey(sum))

    result = batch.run(build, step_timeout=60)

    assert sum(totals(result).values()) == sum(range(300))

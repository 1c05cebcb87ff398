"""A topology of computations on real Spark and Postgres: its rows are those worked out from scratch."""

import random
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import JsonLinesInjector
from runners.batch import BatchRunner
from runners.registry import open_store
from runners.streaming import StreamingRunner
from tests.visit_topology import TABLES, Visit, build_on, expected

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

VISITS, DISORDER, LOGS = 4_000, 60, 3


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Visit, int]]]:
    """Several logs of visits, one a second, out of order; and what is in them."""
    chance = random.Random(5)
    folder = tmp_path_factory.mktemp("visits")
    made: list[tuple[Visit, int]] = []
    for number in range(VISITS):
        visit = (chance.randrange(20), chance.randrange(7))
        made.append((visit, DISORDER + number - chance.randrange(DISORDER)))
    for log in range(LOGS):
        lines = [f'{{"visit": {list(visit)}, "time": {at}}}\n' for visit, at in made[log::LOGS]]
        (folder / f"{log}.jsonl").write_text("".join(lines))
    return folder / "*.jsonl", made


def time_of(line: dict[str, Any]) -> float:
    return float(line["time"])


@pytest.mark.parametrize(
    "engine",
    [partial(BatchRunner, partitions=3), partial(StreamingRunner, records_per_second=1_000)],
    ids=["batch", "streaming"],
)
def test_rows_are_those_of_a_sorted_list(
    engine: Callable[..., df.Runner],
    store_dsn: str,
    spark_master: str,
    visits: tuple[Path, list[tuple[Visit, int]]],
) -> None:
    pattern, made = visits
    pipeline = df.Pipeline(
        engine(job="job", store=store_dsn, master=spark_master, show_progress=False)
    )
    logs = JsonLinesInjector(pattern, event_time=time_of, max_disorder=DISORDER)
    lines: Any = pipeline | "logs" >> df.Read(logs)
    build_on(pipeline, lines | "visit" >> df.Map(lambda line: tuple(line["visit"])))
    result = pipeline.run()
    result.wait_until_finish()

    tables = {
        name: sorted(tuple(each.values()) for each in result.read_table(name)) for name in TABLES
    }
    assert expected(made) == tables
    assert [] == list(result.late_records())
    with closing(open_store(store_dsn)) as store:
        left = store.statistics("job")
    assert (0, 0, 0) == (left["cells"], left["timers"], left["checkpoints"])

"""The environment of our runs: Spark, started and used once before the clock starts, and a store with its tables."""

from contextlib import closing

from runners.registry import open_store
from runners.spark.session import spark_context

CORES = 2
#: Four attempts for each task, which ``local[2]`` alone does not give.
MASTER = f"local[{CORES},4]"


def warm_context() -> None:
    """Start it; the runners find it by its settings."""
    spark_context("dataflow", master=MASTER).parallelize(range(CORES), CORES).map(abs).count()


def prepare_store(dsn: str) -> None:
    """Have a new database get the store's tables, as only the first job of a store has to."""
    with closing(open_store(dsn)) as store:
        store.incarnation()

"""Spark for our runs: the context that the runners ask for, started and used once before anything is measured."""

from runners.spark.session import spark_context

CORES = 2
#: Four attempts for each task, which ``local[2]`` alone does not give.
MASTER = f"local[{CORES},4]"


def warm_context() -> None:
    """Start it; the runners find it by its settings."""
    spark_context("dataflow", master=MASTER).parallelize(range(CORES), CORES).map(abs).count()

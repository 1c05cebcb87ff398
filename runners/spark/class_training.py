"""Program that `runners.spark.class_archive` runs: Spark does once what every job of ours has it do, and ends.

``python -m runners.spark.class_training OPTIONS``: the options of Java with which it writes the archive as it ends.
"""

import sys

from runners.spark.session import JAVA_OPTIONS, shut_down, spark_context
from runners.spark.session import java_options as usual_options

_MASTER = "local[2,4]"
_EXIT_TIMEOUT_S = 240.0


def train(options: str) -> None:
    """Run tasks before and behind a shuffle, with a broadcast and an accumulator, and end Java.

    Args:
        options: of Java, more than the usual ones.
    """
    every = f"{usual_options(_MASTER)} {options}"
    context = spark_context("dataflow", master=_MASTER, settings={JAVA_OPTIONS: every})
    shipped, counted = context.broadcast(b"plan"), context.accumulator(0)

    def read(pairs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - Spark's own types of it are vague
        counted.add(len(shipped.value))
        return iter(pairs)

    context.setJobGroup("training", "training")
    pairs = context.parallelize([(number, b"content") for number in range(8)], 4)
    pairs.mapPartitions(read).partitionBy(4).mapPartitions(read).collect()
    for job in context.statusTracker().getJobIdsForGroup("training"):
        context.statusTracker().getJobInfo(job)
    context.cancelJobGroup("training")
    shipped.destroy()
    shut_down(_EXIT_TIMEOUT_S)


if __name__ == "__main__":
    train(sys.argv[1])

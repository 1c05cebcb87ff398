"""A Spark session for the peers that run on Spark: two cores, and warm, so that its start is not measured."""

import sys
from os import environ

from pyspark.sql import SparkSession

from benchmarks.task import Task
from runners.embedded.java import ensure_java_home

CORES = 2


def warm_session(task: Task, **settings: str) -> SparkSession:
    """Started, and used once."""
    environ["PYSPARK_PYTHON"] = sys.executable
    environ["JAVA_HOME"] = str(ensure_java_home())
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(task.scratch))
    )
    for name, value in settings.items():
        builder = builder.config(f"spark.sql.{name.replace('__', '.')}", value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.parallelize(range(CORES), CORES).map(abs).count()
    session.range(10).count()
    return session

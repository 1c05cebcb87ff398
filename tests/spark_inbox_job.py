"""A streaming query of Spark into an inbox, that tests may kill: ``python -m tests.spark_inbox_job INPUT INBOX STATE``.

Each file of the input is a micro-batch.  It runs until it is killed.
"""

import sys

from pyspark.sql import SparkSession

import dataflow as df
from runners.spark.session import spark_context


def main() -> None:
    """Run the query."""
    files, inbox, state = sys.argv[1:]
    session = SparkSession(spark_context("query", master="local[1,4]"))
    session.conf.set("spark.sql.shuffle.partitions", "1")
    frame = (
        session.readStream.schema("number long, at timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(files)
    )
    query = frame.writeStream.foreachBatch(df.SparkInbox(inbox)).option("checkpointLocation", state)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()

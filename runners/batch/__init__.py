"""The batch runner: bounded input, on Spark, with results in the store exactly once."""

from runners.batch.runner import BatchRunner

__all__ = ["BatchRunner"]

"""The batch runner: bounded input, on Spark, with results in the store exactly once."""

from runners.batch.backfill.runner import BackfillRunner
from runners.batch.runner import BatchRunner

__all__ = ["BackfillRunner", "BatchRunner"]

"""One Spark for all tests that run pipelines in this process: Spark allows one context in each."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.batch_jobs import Batch

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def spark_master() -> Iterator[str]:
    """Two cores, four attempts a task; stopped after the last test."""
    with pytest.MonkeyPatch.context() as patch:
        # Its workers are processes of their own and look for the packages again.
        inherited = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), inherited])))
        yield "local[2,4]"
        context = SparkContext._active_spark_context
        if context is not None:
            context.stop()


@pytest.fixture
def batch(store_dsn: str, spark_master: str) -> Batch:
    """The batch runner, on a database of this test's own."""
    return Batch(store_dsn, spark_master)

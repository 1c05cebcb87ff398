"""One Spark at a time for all tests that run pipelines in this process: Spark allows one context in each.

Most share the local one.  A module that asks for another has it to itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark import SparkContext

from tests.batch_jobs import Batch
from tests.networks import network
from tests.spark_cluster import StandaloneCluster, standalone_cluster

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def spark_master() -> Iterator[str]:
    """Two cores, four attempts a task; stopped after the last test."""
    with _importable():
        yield "local[2,4]"
        _stop_spark()


@pytest.fixture
def batch(store_dsn: str, spark_master: str) -> Batch:
    """The batch runner, on a database of this test's own."""
    return Batch(store_dsn, spark_master)


@contextmanager
def _importable() -> Iterator[None]:
    """Put the packages on the path of Spark's workers, which are processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        inherited = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), inherited])))
        yield


def _stop_spark() -> None:
    context = SparkContext._active_spark_context
    if context is not None:
        context.stop()


@contextmanager
def _only_spark() -> Iterator[None]:
    """Stop a context of another master before, and that of this one after."""
    with _importable():
        _stop_spark()
        try:
            yield
        finally:
            _stop_spark()


@pytest.fixture(scope="module")
def spark_alone() -> Iterator[None]:
    """Leave Spark to a module that starts it as it likes."""
    with _only_spark():
        yield


@pytest.fixture(scope="module")
def local_cluster(spark_alone: None) -> str:
    """Two executors of one core: real processes, of the Java of this one."""
    return "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def standalone(
    spark_alone: None, postgres_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneCluster]:
    """A master here, and the workers of two hosts."""
    directory = tmp_path_factory.mktemp("cluster")
    # A socket in the file system is reached from everywhere, a server on loopback from here only.
    is_separate = str(conninfo_to_dict(postgres_dsn).get("host")).startswith("/")
    with network(is_separate=is_separate) as made, standalone_cluster(directory, made) as cluster:
        yield cluster

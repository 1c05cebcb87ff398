"""A standalone Spark cluster for tests: a master and workers as processes, each on a host of its own (networks.py).

PySpark's wheel has all that it takes but the scripts
that start daemons, so the processes are started directly, and ended by their ids.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import psutil
import pyspark

from runners.embedded.java import ensure_java_home
from tests.networks import Host, Network
from tests.processes import descendants, kill
from tests.waiting import until

ROOT = Path(__file__).parents[1]
#: These Javas live for seconds, and there are five of them.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SPARK_HOME = Path(pyspark.__file__).parent


@attrs.frozen
class StandaloneCluster:
    """One that is up; ``url`` is what a runner takes as master."""

    url: str
    network: Network
    workers: Sequence[psutil.Process]

    def executors(self) -> list[psutil.Process]:
        """The executors of all applications."""
        return [each for worker in self.workers for each in executors_below(worker)]


def executors_below(process: psutil.Process) -> list[psutil.Process]:
    """Spark's executors among the descendants of a process, which may be a driver of a `local-cluster`."""
    return [each for each in descendants(process) if "CoarseGrainedExecutor" in _command(each)]


def cluster_settings(driver: Host) -> Mapping[str, str]:
    """Settings for a driver, with two small executors."""
    return {
        "spark.driver.host": driver.address,
        "spark.driver.bindAddress": driver.address,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": _QUICK_START,
        "spark.cores.max": "2",
    }


@contextmanager
def standalone_cluster(
    directory: Path, network: Network, cores: int = 1
) -> Iterator[StandaloneCluster]:
    """Start a master, and a worker on each of the hosts; end them all."""
    with ExitStack() as started:
        log = directory / "master.log"
        started.enter_context(_daemon(network.here, "master.Master", [], log))
        url = _await_match(log, r"Starting Spark master at (spark://\S+)")
        logs = [directory / f"worker{number}.log" for number in range(len(network.hosts))]
        found = []
        for host, log in zip(network.hosts, logs, strict=True):
            options = [
                "--cores",
                str(cores),
                "--memory",
                "1g",
                "--work-dir",
                str(log.with_suffix("")),
                url,
            ]
            found.append(started.enter_context(_daemon(host, "worker.Worker", options, log)))
        for log in logs:
            _await_match(log, r"Successfully registered with (master)")
        yield StandaloneCluster(url, network, found)


@contextmanager
def _daemon(host: Host, name: str, options: Sequence[str], log: Path) -> Iterator[psutil.Process]:
    places = ["--host", host.address, "--port", "0", "--webui-port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *host.prefix,
                str(_SPARK_HOME / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{name}",
                *places,
                *options,
            ],
            # A host of its own: nothing of what is here is found by being here.
            cwd=log.parent,
            env=_environment(host),
            stdout=output,
            stderr=output,
        )
    family = psutil.Process(process.pid)
    try:
        yield family
    finally:
        kill([*descendants(family), family])
        process.wait()


def _environment(host: Host) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(_SPARK_HOME),
        "JAVA_HOME": str(ensure_java_home()),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_START,
        # It would listen on a fixed port, which is somebody else's on the same machine.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


def _await_match(log: Path, pattern: str) -> str:
    until(lambda: re.search(pattern, log.read_text("utf-8")), lambda: log.read_text("utf-8"))
    found = re.search(pattern, log.read_text("utf-8"))
    assert found is not None
    return found[1]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""

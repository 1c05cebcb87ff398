"""The process that Python workers are forked from: which of two pysparks it takes."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import py4j
import pyspark
import pytest

from runners.python_daemon import until_java_ends, without_archives

INSTALLED = Path(pyspark.__file__).parent
ARCHIVES = [
    str(each)
    for pattern in ("python/lib/*.zip", "jars/spark-core_*.jar")
    for each in sorted(INSTALLED.glob(pattern))
]
SITE = str(INSTALLED.parent)


def test_what_is_installed_goes_before_the_archives_beside_it() -> None:
    assert len(ARCHIVES) == 3
    assert Path(py4j.__file__).is_relative_to(SITE)
    assert without_archives(["", *ARCHIVES, "/more", SITE]) == ["", "/more", SITE]


def test_an_environment_may_be_known_by_several_paths(tmp_path: Path) -> None:
    """Spark's scripts resolve links; who starts Python need not."""
    linked = tmp_path / "linked"
    linked.symlink_to(SITE)
    resolved = [str(Path(each).resolve()) for each in ARCHIVES]
    assert without_archives([*resolved, str(linked)]) == [str(linked)]


def test_archives_of_another_spark_stay(tmp_path: Path) -> None:
    """Its Java talks to its own Python code only."""
    for archive in ARCHIVES:
        shutil.copy(archive, tmp_path)
    others = sorted(map(str, tmp_path.iterdir()))

    assert without_archives([*others, SITE]) == [*others, SITE]


@pytest.mark.parametrize("missing", ["pyspark", "py4j"])
def test_archives_stay_where_nothing_is_installed(missing: str, tmp_path: Path) -> None:
    (other,) = {"pyspark", "py4j"} - {missing}
    (tmp_path / other).mkdir()
    (tmp_path / other / "__init__.py").touch()

    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]


def test_archives_of_users_stay(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pyspark_helpers.zip", "w") as archive:
        archive.writestr("helpers.py", "")
    mine = str(tmp_path / "pyspark_helpers.zip")

    assert without_archives([mine, *ARCHIVES, SITE]) == [mine, SITE]


def test_it_begins_with_nothing_but_the_standard_library() -> None:
    """Anything else, imported before it has looked for archives, would come from them."""
    code = "import sys, runners.python_daemon; print('pyspark' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.split() == ["False", "False"]


def test_no_importer_of_an_archive_is_left() -> None:
    """Before the first task of a worker Spark has all of them look anew."""
    code = (
        "import sys; from runners.python_daemon import leave_archives; had = {*sys.path_importer_cache}; "
        "leave_archives(); print(len(had), *sys.path_importer_cache)"
    )
    begun = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*ARCHIVES, *sys.path])},
    )

    had, *left = begun.stdout.split()
    assert int(had) >= len(left) + len(ARCHIVES)
    assert left
    assert not {*ARCHIVES} & {*left}


@pytest.mark.parametrize("error", [ConnectionResetError, BrokenPipeError])
def test_a_worker_ends_without_a_word_when_java_is_gone(error: type[Exception]) -> None:
    """Spark's daemon would print the exception, or, as it ends, the first line of it."""

    def worker(*_: object) -> int:
        raise error

    assert until_java_ends(worker)(None, True) == 1


def test_what_else_goes_wrong_in_a_worker_is_raised() -> None:
    def worker(*arguments: object) -> int:
        assert arguments == (None, False)
        raise EOFError

    with pytest.raises(EOFError):
        until_java_ends(worker)(None, False)
    assert until_java_ends(lambda *_: 3)(None, True) == 3

"""Code on its way to executors, as far as no Spark is needed to look at it."""

import re
import tomllib
import zipfile
from pathlib import Path

from runners.errors import CodeMissingError, JobFailedError
from runners.spark.shipped_code import code_missing, ship_code, spark_gave_up

JAVA = (
    "org.apache.spark.SparkException: Job aborted\n"
    "Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "    process()\n"
    "{raised}\n"
    "\n\tat org.apache.spark.api.python.BasePythonRunner\n"
)


class Context:
    """What `ship_code` asks of Spark."""

    def __init__(self, application: str) -> None:
        self.applicationId = application
        self.added: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.added.append(path)


def shipped(context: Context, *code: Path) -> list[Path]:
    ship_code(context, list(map(str, code)))  # type: ignore[arg-type]
    return [Path(path) for path in context.added]


def test_a_package_is_importable_from_its_archive(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    (package / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "a.py", "__pycache__/a.pyc"):
        (package / name).touch()

    (archive,) = shipped(Context("one"), package)

    assert archive.name.startswith("lib-")
    with zipfile.ZipFile(archive) as opened:
        assert sorted(opened.namelist()) == ["lib/__init__.py", "lib/a.py"]


def test_same_content_is_shipped_once_and_another_beside_it(tmp_path: Path) -> None:
    for folder, text in (("x", "1"), ("y", "1"), ("z", "2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helpers.py").write_text(text)
    context = Context("two")

    added = shipped(context, *(tmp_path / folder / "helpers.py" for folder in "xyzx"))

    assert len(added) == 2
    assert len({path.name for path in added}) == 2
    assert len(shipped(Context("three"), tmp_path / "x" / "helpers.py")) == 1


def test_what_spark_can_fetch_is_left_to_it(tmp_path: Path) -> None:
    context = Context("four")
    ship_code(context, ["hdfs://host/lib.zip"])  # type: ignore[arg-type]

    assert context.added == ["hdfs://host/lib.zip"]


def test_the_end_of_a_spark_job_has_the_message_of_python() -> None:
    missing = RuntimeError(JAVA.format(raised="ModuleNotFoundError: No module named 'helpers'"))
    other = RuntimeError(JAVA.format(raised="OSError: disk on holiday"))

    assert isinstance(spark_gave_up(missing), CodeMissingError)
    assert "'helpers'" in str(spark_gave_up(missing))
    assert isinstance(spark_gave_up(other), JobFailedError)
    assert "disk on holiday" in str(spark_gave_up(other))
    assert "Job aborted" in str(spark_gave_up(other))


#: What users import too, what tasks never import by themselves, and what is no module.
_NOT_ASKED_FOR = frozenset({"numpy", "pyarrow", "pyspark", "tzdata"})
_MODULES = {"psycopg[binary]": "psycopg", "pyzmq": "zmq"}


def test_a_python_that_lacks_what_this_package_needs_lacks_this_package() -> None:
    """Not a module of the pipeline: it is not the user who has imported it."""
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    names = {re.split("[~=<>]", each)[0] for each in project["dependencies"]} - _NOT_ASKED_FOR

    assert len(names) > 5
    for name in names:
        error = code_missing(_MODULES.get(name, name))
        assert "do not have dataflow-model" in str(error), name

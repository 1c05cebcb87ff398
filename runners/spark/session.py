"""Start Spark, or find the one that we started: one context in a process, and nothing printed.

Contract: messages of Java below the level ERROR are not shown; there is no banner, progress bar or
web page.
Java is found by `runners.embedded.java`, so none needs to be installed.
A context that somebody else started is never taken over: its settings are not ours to rely on.

The variables set for the start are put back before the call returns.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from runners.embedded.java import ensure_java_home
from runners.errors import EmbeddedServiceError
from runners.spark.class_archive import archive_options
from runners.temporary_dirs import clear_abandoned_dirs, make_temporary_dir, remove_temporary_dir

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine; four attempts a task, as plain `local[*]` gives only one."""

#: The setting with the options of the Java that the context is in.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_JVM_EXIT_TIMEOUT_S = 10.0
_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties").as_uri()

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Forking a Python process for every task would cost more than most tasks.
    "spark.python.worker.reuse": "true",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Internal to Spark; there since 2.4, and in 4 still the only way to have workers forked from something else.
_FORK_SETTINGS = {"spark.python.daemon.module": "runners.python_daemon"}
#: Java and its workers talk over sockets in a directory of ours.  Over TCP the end of a small input waits for an
#: acknowledgement of what came before it, 40 ms.
_SOCKETS_SETTING = "spark.python.unix.domain.socket.enabled"
_SOCKETS_DIR_SETTING = "spark.python.unix.domain.socket.dir"
_SOCKETS_PREFIX = "dataflow-sockets-"
#: Of the directory.  Spark adds 43 characters, and macOS allows 103.
_SOCKETS_PATH_MAX = 60
# On this machine Java only moves bytes, for as long as the job takes: to compile better costs it more than it gains.
_COMPILER = "-XX:TieredStopAtLevel=1"
#: So many tasks write the first shuffle of a process, and read it.
_SHUFFLED_PARTS = 2
# Without these Spark looks the host's name up, and warns if that is a loopback address.
_LOCAL_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}


@attrs.frozen(kw_only=True)
class _Started:
    context: SparkContext
    master: str
    settings: Mapping[str, str]


_started: _Started | None = None
_lock = threading.Lock()


def spark_context(
    app_name: str,
    *,
    master: str = LOCAL_MASTER,
    driver_memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkContext:
    """Return the Spark context of this process, started with these settings.

    Starting takes some five seconds; asking again with the same settings returns the same context.
    The caller may stop it; otherwise it is stopped when the process exits, and its Java with it.

    Args:
        app_name: shown by a cluster's own pages; not compared when a context is reused.
        master: any that Spark knows. Write `local[n,4]`: with `local[n]` a task is never retried.
        driver_memory: of Java, as Spark writes it (`1g`); fixed by the first call in a process.
        settings: more `spark.*` settings; they win over the ones made here.

    Raises:
        EmbeddedServiceError: Java is missing, Spark does not start, or this process has a context
            with other settings or of somebody else.
    """
    global _started  # noqa: PLW0603 - Spark itself allows one for each process
    wanted = _settings(master, driver_memory, settings or {})
    with _lock:
        active = SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to ask
        if active is not None:
            return _reused(active, master, wanted)
        atexit.unregister(shut_down)
        atexit.register(shut_down)  # once, and before the services that were started earlier
        with _environment(master, wanted):
            context = _start(app_name, master, wanted)
        _started = _Started(context=context, master=master, settings=wanted)
        return context


def driver_host(context: SparkContext) -> str:
    """The host by which executors reach this process."""
    return setting_of(context, "spark.driver.host") or "127.0.0.1"


def setting_of(context: SparkContext, name: str) -> str | None:
    """A setting that Spark runs with; None where it was not set.

    PySpark's `getConf` copies all settings out of Java, which takes some 30 ms of each job.

    Args:
        context: of Spark.
        name: of the setting, e.g. ``spark.driver.host``.
    """
    return context._conf.get(name)  # noqa: SLF001 - there is no public way to ask for one alone


def local_master(workers: int) -> str:
    """All cores, or more threads than cores where there are more workers: every worker must run at once."""
    return LOCAL_MASTER if workers <= (os.cpu_count() or 1) else f"local[{workers},4]"


def java_options(master: str) -> str:
    """Options of the Java that a context is in, unless a setting replaces them.

    Args:
        master: of Spark.
    """
    options = [f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION}"]
    return " ".join([*options, _COMPILER] if _is_in_driver(master) else options)


def _settings(master: str, driver_memory: str, more: Mapping[str, str]) -> dict[str, str]:
    return {
        **_SETTINGS,
        **(_LOCAL_SETTINGS if _is_local(master) else {}),
        **(_FORK_SETTINGS if _is_in_driver(master) else {}),
        "spark.driver.memory": driver_memory,
        JAVA_OPTIONS: java_options(master),
        **more,
    }


def _is_local(master: str) -> bool:
    return master.startswith("local")  # also local-cluster[...]: its executors are here


def _is_in_driver(master: str) -> bool:
    return _is_local(master) and not master.startswith("local-cluster")


def _reused(active: SparkContext, master: str, wanted: Mapping[str, str]) -> SparkContext:
    if _started is None or active is not _started.context:
        raise EmbeddedServiceError(
            "this process already has a Spark context that dataflow-model did not start",
            detail=f"its name is {active.appName!r}, its master {active.master!r}",
            hint="stop it first (context.stop()), or run the pipeline in a process of its own",
        )
    if (_started.master, _started.settings) != (master, wanted):
        theirs, ours = _started.settings.items(), wanted.items()
        differing = sorted({name for name, _ in theirs ^ ours})
        raise EmbeddedServiceError(
            "Spark is already running in this process, with other settings",
            detail=f"master {_started.master!r}, wanted {master!r}; differing: {differing}",
            hint="stop the other run first: Spark allows one context in a process",
        )
    return active


def _start(app_name: str, master: str, settings: Mapping[str, str]) -> SparkContext:
    on_interrupt = signal.getsignal(signal.SIGINT)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if _is_in_driver(master):
        # Ours are first: of two options Java follows the last.
        conf.set(JAVA_OPTIONS, " ".join([*archive_options(), settings[JAVA_OPTIONS]]))
        _use_unix_sockets(conf)
    try:
        context = SparkContext(master=master, appName=app_name, conf=conf)
    except (PySparkException, Py4JJavaError, OSError) as error:
        # Java's own message is the first line; the rest is its stack.
        message = str(getattr(error, "java_exception", error)).split("\n", 1)[0]
        raise EmbeddedServiceError(
            "Spark did not start",
            detail=f"{message} (master {master!r})",
            hint="what Java printed above has the details; is there enough memory, is the master URL right?",
        ) from error
    if _is_in_driver(master):
        threading.Thread(target=_load_shuffle, args=(context,), daemon=True).start()
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler calls Java in the middle of whatever call is under way; our runners end their jobs.
        signal.signal(signal.SIGINT, on_interrupt)
    return context


def _use_unix_sockets(conf: SparkConf) -> None:
    """Have Java talk to Python by Unix sockets, unless somebody has decided that, or their paths are too long."""
    if conf.contains(_SOCKETS_SETTING):
        return
    # Spark deletes each as it ends, and those of a process that was killed would stay.
    clear_abandoned_dirs(_SOCKETS_PREFIX)
    directory = make_temporary_dir(_SOCKETS_PREFIX)
    if len(os.fsencode(directory)) <= _SOCKETS_PATH_MAX:
        conf.set(_SOCKETS_SETTING, "true").set(_SOCKETS_DIR_SETTING, str(directory))
    else:
        remove_temporary_dir(directory)


def _load_shuffle(context: SparkContext) -> None:
    """Load what Java takes for a shuffle like ours, by a small one, beside what the driver does meanwhile.

    It takes a quarter of a second, once in a process: Kryo looks up classes of Spark's SQL and of its machine learning,
    Hadoop reads its settings, and hundreds of lambdas get a class.  Otherwise the first tasks that write a shuffle do
    it, while all others wait.
    """
    # Whoever stops Spark meanwhile needs none; and the first shuffle reports what is wrong with it.
    with contextlib.suppress(Py4JError, OSError):
        shuffle_in_java(context)


def shuffle_in_java(context: SparkContext) -> int:
    """Shuffle a few bytes as a batch does, without Python's workers; returns how many contents have arrived.

    Args:
        context: of Spark.
    """
    java = context._jvm  # noqa: SLF001 - there is no public way to Spark's Java
    assert java is not None
    # What a task in Python would write: the target of each content, and that.
    written = [bytes(8), b"content"] * _SHUFFLED_PARTS
    contents = context._jsc.parallelize(written, _SHUFFLED_PARTS)  # noqa: SLF001 - as above
    pairs = java.PairwiseRDD(contents.rdd()).asJavaPairRDD()
    shuffled = pairs.partitionBy(java.PythonPartitioner(_SHUFFLED_PARTS, 0))
    return int(java.PythonRDD.valueOfPair(shuffled).count())


@contextlib.contextmanager
def _environment(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Give Spark its variables while it starts, and then put everything back."""
    wanted = {
        "JAVA_HOME": str(ensure_java_home()),
        "PYSPARK_PYTHON": _executors_python(master, settings),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **(_LOCAL_ENVIRONMENT if _is_local(master) else {}),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _executors_python(master: str, settings: Mapping[str, str]) -> str:
    """The Python that runs tasks: ours on this machine; elsewhere the user may name another place."""
    given = settings.get("spark.pyspark.python")
    if given is None and not _is_local(master):
        given = os.environ.get("PYSPARK_PYTHON")
    return given or sys.executable


def _silence_java() -> None:
    """Have Java print nothing from now on: it reports each task that it ends, with a stack."""
    java = SparkContext._jvm  # noqa: SLF001 - there is no public way to ask
    if java is not None:
        with contextlib.suppress(Py4JError, OSError):
            java.org.apache.spark.util.Utils.setLogLevel(java.org.apache.logging.log4j.Level.OFF)
            nowhere = java.java.io.OutputStream.nullOutputStream()
            java.java.lang.System.setErr(java.java.io.PrintStream(nowhere))


def shut_down(exit_timeout_s: float = _JVM_EXIT_TIMEOUT_S) -> None:
    """Stop what was started here, and wait for Java to end, which it would do only after this process.

    Args:
        exit_timeout_s: how long to wait for Java, in seconds.
    """
    if _started is not None:
        _silence_java()
        _started.context.stop()
    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way to ask
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or java is None or java.stdin is None:
        return
    # Python's references to Java objects may outlive Java; without this each notifies it of its end.
    gateway._gateway_client.is_connected = False  # noqa: SLF001 - there is no public way to ask
    java.stdin.close()  # what Java waits for
    with contextlib.suppress(subprocess.TimeoutExpired):
        java.wait(timeout=exit_timeout_s)

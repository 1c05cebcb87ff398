"""What a job and its Postgres have at a moment, by name, and whether it grows."""

import contextlib
import math
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import attrs
import psutil
import psycopg
from psycopg import sql

from benchmarks.latency import percentile
from benchmarks.processes import family

Sample = Mapping[str, float]
_MIB = 1 << 20
#: What the names of the rows of single tables begin with.
_IN_TABLE = "rows in "
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
_TABLES = """
SELECT relname, coalesce(pg_total_relation_size(oid), 0) FROM pg_class
WHERE relnamespace = 'dataflow'::regnamespace AND relkind = 'r'"""
#: Counted, and not as Postgres estimates them: a server that was killed forgets its estimates.
_ROWS = "SELECT count(*) FROM ONLY dataflow.{}"
#: Tables that never have so many rows are not named, and are in the sum alone.
_NAMED_ROWS = 1_000
#: Of the samples of a part of the time, so many percent are at or below what is compared.
_PERCENT = 90


def in_sessions(sessions: Container[int]) -> Iterator[psutil.Process]:
    """All processes that live now in some sessions, also those whose parents are gone."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) in sessions:
                yield psutil.Process(pid)


def of_processes(driver: int, sessions: Container[int], server: int) -> Sample:
    """Memory in MiB (pages that processes share are divided among them), files, threads and processes.

    Args:
        driver: the process id of the job's driver.
        sessions: those of all drivers so far: what a killed one has left behind counts too.
        server: the main process of Postgres.
    """
    found = dict.fromkeys(
        ("driver MiB", "Java MiB", "workers MiB", "Postgres MiB", "files", "threads", "processes"),
        0.0,
    )
    for process in in_sessions(sessions):
        with contextlib.suppress(psutil.Error), process.oneshot():
            of = (
                "driver"
                if process.pid == driver
                else "Java"
                if process.name() == "java"
                else "workers"
            )
            found[f"{of} MiB"] += process.memory_full_info().pss / _MIB
            found["files"] += process.num_fds()
            found["threads"] += process.num_threads()
            found["processes"] += 1
    for process in family(server):
        with contextlib.suppress(psutil.Error):
            found["Postgres MiB"] += process.memory_full_info().pss / _MIB
    return found


def of_store(dsn: str) -> Sample:
    """Connections, and the tables of the schema with their MiB and rows; nothing while the server cannot be reached."""
    try:
        with closing(psycopg.connect(dsn, autocommit=True, connect_timeout=2)) as connection:
            ((connections,),) = connection.execute(_CONNECTIONS)
            sizes: dict[str, int] = dict(connection.execute(_TABLES).fetchall())
            rows = dict[str, float]()
            for table in sizes:
                statement = sql.SQL(_ROWS).format(sql.Identifier(table))
                ((rows[_IN_TABLE + table],),) = connection.execute(statement)
    except psycopg.Error:
        return {}
    # One of the connections is this one.
    return {
        "connections": connections - 1,
        "tables": len(sizes),
        "tables MiB": sum(sizes.values()) / _MIB,
        "rows": sum(rows.values()),
        **rows,
    }


def of_folder(folder: Path) -> Sample:
    """Temporary folders of the framework and of Spark, and how much is in all of them."""
    folders, size = 0, 0
    # Passes over what is deleted meanwhile: a driver that starts deletes what a killed one has left.
    for place, names, files in os.walk(folder):
        folders += len(names) if Path(place) == folder else 0
        for name in files:
            with contextlib.suppress(OSError):
                size += Path(place, name).stat().st_size
    return {"temporary folders": folders, "temporary MiB": size / _MIB}


@attrs.frozen(kw_only=True)
class Growth:
    """The use of one thing in the second and in the last third of the time; NaN where nobody has looked."""

    name: str
    before: float
    after: float
    slack: float

    @property
    def is_bounded(self) -> bool:
        """Whether it is at most a fifth more later, and the slack; False where nobody has looked."""
        return self.after <= 1.2 * self.before + self.slack


#: What one thing more or less comes to: a page of a table's file, a worker that is just being replaced.
SLACK: Mapping[str, float] = {
    "driver MiB": 20,
    "Java MiB": 100,
    "workers MiB": 60,
    "Postgres MiB": 60,
    "files": 60,
    "threads": 40,
    "processes": 4,
    "connections": 6,
    "tables": 0,
    "tables MiB": 24,
    "rows": 5_000,
    "temporary folders": 4,
    "temporary MiB": 30,
}


def growth(samples: Sequence[tuple[float, Sample]]) -> list[Growth]:
    """Compare the last third of the time with the one before.

    Args:
        samples: each with when it was taken, in seconds from the beginning.

    Returns:
        All of `SLACK`, and the rows of each table that has had a thousand.
    """
    end_s = max((at_s for at_s, _ in samples), default=0.0)
    thirds: Sequence[Callable[[float], bool]] = (
        lambda at_s: end_s / 3 <= at_s < 2 * end_s / 3,
        lambda at_s: at_s >= 2 * end_s / 3,
    )
    tables = {
        name
        for _, each in samples
        for name, count in each.items()
        if name.startswith(_IN_TABLE) and count >= _NAMED_ROWS
    }
    slacks = {**SLACK, **dict.fromkeys(sorted(tables), SLACK["rows"])}
    return [
        Growth(
            name=name,
            before=_most(samples, name, thirds[0]),
            after=_most(samples, name, thirds[1]),
            slack=slack,
        )
        for name, slack in slacks.items()
    ]


def _most(
    samples: Iterable[tuple[float, Sample]], name: str, is_in: Callable[[float], bool]
) -> float:
    found = sorted(each[name] for at_s, each in samples if is_in(at_s) and name in each)
    return percentile(found, _PERCENT) if found else math.nan

"""Rows are read in key chunks from a standby, through a pooler that lends sessions out by the transaction."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.test_postgres_key_chunks import source_of
from tests.integration.test_postgres_rows import read_to_the_end
from tests.replicated_postgres import ReplicatedServer, pooler
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

ROWS = 2_000


@pytest.fixture
def servers() -> Iterator[tuple[ReplicatedServer, ReplicatedServer]]:
    """A primary with a table, and a standby that follows it and puts up with no query that is in its way."""
    with (
        tempfile.TemporaryDirectory(
            prefix="dataflow-pg-"
        ) as folder,  # not tmp_path: a socket's path must be short
        ExitStack() as made,
    ):
        Path(folder).chmod(0o755)
        (Path(folder) / "a").mkdir()
        (Path(folder) / "b").mkdir()
        primary, standby = (
            ReplicatedServer(Path(folder) / "a"),
            ReplicatedServer(Path(folder) / "b"),
        )
        made.callback(primary.stop, signal.SIGQUIT)
        made.callback(standby.stop, signal.SIGQUIT)
        primary.initialise()
        primary.start()
        primary.ask(
            "CREATE TABLE events AS SELECT n, timestamptz '2026-01-01Z' + n * interval '1 ms' AS at, n / 4.0 AS x "
            f"FROM generate_series(1, {ROWS}) n"
        )
        primary.ask("ALTER TABLE events ADD PRIMARY KEY (at, n)")
        standby.back_up(primary, as_standby=True)
        standby.start()
        standby.configure("max_standby_streaming_delay", "0")
        yield primary, standby


def replayed(primary: ReplicatedServer, standby: ReplicatedServer) -> None:
    ((lsn,),) = primary.ask("SELECT pg_current_wal_lsn()")
    standby.wait_for(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'", "the standby does not follow")


def test_a_standby_behind_a_pooler_is_read_though_it_replays_and_is_killed(
    servers: tuple[ReplicatedServer, ReplicatedServer],
) -> None:
    primary, standby = servers
    with pooler(standby, "transaction") as dsn:
        source = source_of(dsn, "events", "at", "n")
        source.check()
        reader = source.open(source.splits(1)[0], None, fence=0)
        found = [row["n"] for row in reader.read(500).values]
        # What a snapshot would be in the way of: rows that are gone for the primary are removed here too.
        primary.ask("DELETE FROM events WHERE n <= 400")
        primary.ask("VACUUM events")
        replayed(primary, standby)
        found += [row["n"] for row in reader.read(500).values]
        standby.stop()
        until(lambda: reader.read(500).values == [])
        standby.start()
        found += [row["n"] for row in read_to_the_end(reader)]
    assert found == list(range(1, ROWS + 1))

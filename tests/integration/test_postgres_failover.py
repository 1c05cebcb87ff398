"""A standby takes over from the server whose changes are read: read on, or an error that says what is missing."""

import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import attrs
import pytest

import dataflow as df
from runners.embedded.locate import find_programs
from runners.embedded.temporary import FOLLOWED
from runners.embedded.unprivileged import server_account
from tests.integration.test_postgres_changes import (
    Following,
    make_table,
    read_until_refused,
    refusal,
    rows_of,
    run,
    source_of,
)
from tests.replicated_postgres import ReplicatedServer
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SLOT, STANDBY = "a_slot", "standby"
SETTINGS = {
    **FOLLOWED,
    # So that it takes as long as it has to, and no longer.
    "wal_receiver_status_interval": "1",
    "hot_standby_feedback": "on",
}
IS_KEPT = (
    "SELECT count(*) = 1 FROM pg_replication_slots "
    f"WHERE slot_name = '{SLOT}' AND synced AND NOT temporary AND invalidation_reason IS NULL"
)


@attrs.define
class Pair:
    """A primary with a table, and a standby that synchronizes slots."""

    primary: ReplicatedServer
    standby: ReplicatedServer

    @property
    def dsn(self) -> str:
        """Leads to whichever server takes writes."""
        hosts = f"host={self.primary.home},{self.standby.home} port=5432,5432"
        return f"{hosts} user=postgres dbname=postgres target_session_attrs=read-write"

    def fail_over(self) -> None:
        self.primary.stop()
        self.standby.promote()


def server(home: Path, **settings: str) -> ReplicatedServer:
    home.mkdir()
    programs_dir = find_programs(home / "data", server_account())
    return ReplicatedServer(home, programs_dir=programs_dir, settings={**SETTINGS, **settings})


@pytest.fixture
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="dataflow-pg-") as folder, ExitStack() as made:
        Path(folder).chmod(0o755)  # not tmp_path: a socket's path must be short
        found = Pair(
            server(Path(folder) / "a"),
            server(Path(folder) / "b", sync_replication_slots="on"),
        )
        for each in (found.primary, found.standby):
            made.callback(each.stop, signal.SIGQUIT)
        found.primary.initialise()
        found.primary.start()
        make_table(found.primary.dsn)
        found.standby.back_up(found.primary, as_standby=True, slot=STANDBY)
        found.standby.start()
        yield found


@pytest.fixture
def follow(pair: Pair) -> Iterator[Callable[..., Following]]:
    """Opens readers of the table, which are closed afterwards."""
    opened: list[Following] = []

    def make(former: Following | None = None, *, failover: bool = True) -> Following:
        source = attrs.evolve(source_of(pair.dsn), failover=failover)
        opened.append(Following(source, former and former.batch and former.batch.position))
        if former is not None:
            opened[-1].rows.update(former.rows)
            opened[-1]._names.update(former._names)
        return opened[-1]

    yield make
    for each in opened:
        each.reader.close()


def amount_of(row: str) -> Decimal:
    """Of a row as `Following` remembers it."""
    found = re.search(r"'amount', Decimal\('(\S+)'\)", row)
    assert found is not None
    return Decimal(found[1])


def until_kept(pair: Pair, reader: Following) -> None:
    """Read until the standby has the slot: its place has to move for that."""
    until(lambda: reader.read() and pair.standby.ask(IS_KEPT) == [(True,)])


@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_changes_are_read_on_where_a_standby_takes_over(
    pair: Pair, follow: Callable[..., Following], is_opened_anew: bool
) -> None:
    pair.primary.configure("synchronized_standby_slots", STANDBY)
    reader = follow()
    reader.until_names("tea", "Cake", "milk")
    until_kept(pair, reader)
    run(pair.dsn, "INSERT INTO t VALUES ('salt', now(), 1)", "DELETE FROM t WHERE name = 'tea'")
    reader.until_names("Cake", "milk", "salt")
    # Neither read nor acknowledged before the primary is gone.
    run(pair.dsn, "INSERT INTO t VALUES ('oil', now(), 1)", "UPDATE t SET amount = 7")
    ((lsn,),) = pair.primary.ask("SELECT pg_current_wal_lsn()")
    pair.standby.wait_for(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'", "it does not follow")
    pair.fail_over()
    run(pair.dsn, "INSERT INTO t VALUES ('rice', now(), 1)", "DELETE FROM t WHERE name = 'Cake'")
    if is_opened_anew:
        reader.reader.close()
        reader = follow(reader)
    reader.until_names("milk", "salt", "oil", "rice")
    right = sorted((row["name"], row["amount"]) for row in rows_of(pair.dsn))
    left = (row for row, count in reader.rows.items() if count)
    assert sorted((reader._names[row], amount_of(row)) for row in left) == right
    assert set(reader.rows.values()) <= {0, 1}


def test_a_standby_that_has_not_received_what_was_read_is_refused(
    pair: Pair, follow: Callable[..., Following]
) -> None:
    """Nobody waits for the standby, and it takes over without what was read."""
    reader = follow()
    reader.until_names("tea", "Cake", "milk")
    until_kept(pair, reader)
    pair.standby.configure("primary_conninfo", "")
    query = "SELECT count(*) = 0 FROM pg_stat_replication WHERE application_name <> 'dataflow'"
    pair.primary.wait_for(query, "it still follows")
    run(pair.dsn, "INSERT INTO t VALUES ('salt', now(), 1)")
    reader.until_names("tea", "Cake", "milk", "salt")
    pair.fail_over()
    words = read_until_refused(reader)
    assert "does not have all that was read" in words
    assert "it is on timeline 2; read was timeline 1" in words
    assert "synchronized_standby_slots" in words
    # Whoever is given the position has the same error.
    reader.reader.close()
    assert "does not have all that was read" in read_until_refused(follow(reader))


def test_a_slot_that_was_not_kept_is_an_error_and_a_new_one_reads_all(
    pair: Pair, follow: Callable[..., Following]
) -> None:
    reader = follow(failover=False)
    reader.until_names("tea", "Cake", "milk")
    ((lsn,),) = pair.primary.ask("SELECT pg_current_wal_lsn()")
    pair.standby.wait_for(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'", "it does not follow")
    pair.fail_over()
    words = read_until_refused(reader)
    assert "the replication slot 'a_slot' is gone" in words
    assert "a standby taken over on which it was not kept (failover=True)" in words
    run(pair.dsn, "DELETE FROM t WHERE name = 'tea'")
    anew = follow()
    anew.until_names("Cake", "milk")


def test_a_slot_that_is_there_is_kept_from_now_on(
    pair: Pair, follow: Callable[..., Following]
) -> None:
    former = follow(failover=False)
    former.until_names("tea", "Cake", "milk")
    query = f"SELECT failover FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
    assert run(pair.dsn, query) == [(False,)]
    # The former reader still has the slot.
    until(lambda: former.read().watermark_us > 0)
    reader = follow(former)
    until(lambda: reader.read().watermark_us > 0)
    assert run(pair.dsn, query) == [(True,)]


def test_a_server_that_keeps_no_slots_is_refused() -> None:
    with tempfile.TemporaryDirectory(prefix="dataflow-pg-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "a"
        home.mkdir()
        (home / "data").mkdir()
        version = home / "data" / "PG_VERSION"
        version.write_text("16")
        programs_dir = find_programs(home / "data", server_account())
        version.unlink()
        (home / "data").rmdir()
        old = ReplicatedServer(home, programs_dir=programs_dir, settings=FOLLOWED)
        old.initialise()
        old.start()
        try:
            make_table(old.dsn)
            source_of(old.dsn).check()
            words = refusal(attrs.evolve(source_of(old.dsn), failover=True).check)
            assert "it is of version 16, and that came with 17" in words
            reader = Following(source_of(old.dsn))
            reader.until_names("tea", "Cake", "milk")
            reader.reader.close()
        finally:
            old.stop(signal.SIGQUIT)


def test_it_is_of_changes_alone() -> None:
    with pytest.raises(df.PipelineError, match="failover=True without changes=True"):
        df.ReadFromPostgres("t", dsn="host=/nowhere", failover=True)

"""A session that holds a snapshot of the database: commits look at as few pages as without it."""

from contextlib import closing

import psycopg
import pytest

from benchmarks import held_snapshot, stores
from runners.millwheel.store.postgres import PostgresStore

pytestmark = pytest.mark.postgres

#: So many that each row which is updated in place would be spread over several pages, again and again.
COMMITS, WINDOW = 1_600, 200
#: Pages of a table that a commit may look at in addition, as where versions of a generation are on several.
MORE_PAGES = 5.0


@pytest.mark.parametrize("shape", ["entry", "sent"])
def test_commits_do_not_look_through_what_a_snapshot_keeps(shape: str) -> None:
    """Pages are counted by the server, so it does not matter what else the machine does."""
    with (
        stores.server_at(None) as server,
        stores.database(server, "free") as free,
        stores.database(server, "snapshot") as other,
    ):
        found = held_snapshot.measure((free, other), shape, COMMITS, WINDOW, rate=0)

    for table, pages in found.snapshot_pages.items():
        # Cells are overwritten in place, by a compaction of the journal now and then.
        if table != "cells":
            assert pages <= found.free_pages[table] + MORE_PAGES, (table, found)


def test_a_row_whose_key_moves_on_stays_one_row(store_dsn: str) -> None:
    """Several generations of fences and of both ends of a channel, of which no index says that they are one."""
    committer = held_snapshot.Committer(store_dsn, "sent")
    with closing(committer.store) as store:
        committer.commit(200, rate=0)
        rows = {
            table: store.connect().execute(
                f"SELECT count(*), min(generation) FROM dataflow.{table}".encode()
            )
            for table in ("fences", "deliveries", "acknowledgements")
        }

        found = {table: each.fetchall() for table, each in rows.items()}
    assert found == {
        "fences": [(2, 200 >> 6)],
        "deliveries": [(1, 200 >> 6)],
        "acknowledgements": [(1, 199 >> 6)],
    }


def test_what_a_driver_does_every_minute_does_not_look_through_former_fences(
    store_dsn: str,
) -> None:
    """Its witness reads the job, and it deletes what is old; people ask for the list of jobs when they like."""
    committer = held_snapshot.Committer(store_dsn, "fences")

    def pages_of_a_minute() -> int:
        before = committer.pages()["fences"]
        assert committer.store.read_job("job") is not None
        assert len(committer.store.read_jobs()) == 1
        assert not any(committer.store.prune("job", older_than_s=3_600).values())
        return committer.pages()["fences"] - before

    with closing(committer.store), stores.open_snapshot(store_dsn):
        committer.commit(WINDOW, rate=0)
        # As the server does it by itself at some moment; plans are made anew then.
        committer.store.connect().execute("VACUUM (ANALYZE) dataflow.fences, dataflow.reigns")
        first = pages_of_a_minute()
        committer.commit(COMMITS, rate=0)
        last = pages_of_a_minute()

    assert last <= first + 2 * MORE_PAGES, (first, last)


def test_a_vacuum_of_what_a_snapshot_keeps_is_paced(store_dsn: str) -> None:
    """Every few seconds it would read all of it, and free nothing.

    And nobody pauses with a page locked that every commit changes, as collecting statistics does.
    """
    committer = held_snapshot.Committer(store_dsn, "sent")
    with closing(committer.store) as store:
        found = store.connect().execute(
            "SELECT c.relname, array_to_string(c.reloptions, ' ') FROM pg_class c "
            "WHERE c.relnamespace = 'dataflow'::regnamespace AND c.relkind = 'r' AND c.relname ~ "
            "'^(fences|journal|productions|deliveries|acknowledgements)(_[0-9]+)?$'"
        )
        options = dict(found.fetchall())

    # The parents, and all but the first have one table for the job.
    assert len(options) == 5 + 4
    for name in ("autovacuum_vacuum_cost_delay=", "autovacuum_analyze_threshold=2000000000"):
        assert all(name in each for each in options.values()), options


def test_whoever_keeps_old_versions_of_rows_is_named(store_dsn: str) -> None:
    """A reader with a snapshot, and a writer that has not ended; not a session that waits for work, nor the store's."""
    with closing(PostgresStore(store_dsn)) as store, psycopg.connect(store_dsn) as idle:
        assert store.old_snapshots(0) == []
        idle.execute("SELECT 1")
        idle.commit()
        with (
            stores.open_snapshot(store_dsn) as reader,
            psycopg.connect(store_dsn, application_name="a writer") as writer,
        ):
            writer.execute("SELECT pg_current_xact_id()")
            found = store.old_snapshots(0)
            assert [each.holder for each in found] == [
                f"session {reader.info.backend_pid}",
                f"session {writer.info.backend_pid}",
            ]
            assert [each.application for each in found] == ["held_snapshot", "a writer"]
            assert {each.state for each in found} == {"idle in transaction"}
            assert found[0].age_s >= found[1].age_s > 0
            assert store.old_snapshots(3_600) == []


def test_a_compaction_does_not_look_through_former_entries(store_dsn: str) -> None:
    committer, every = held_snapshot.Committer(store_dsn, "entry"), held_snapshot.COMPACT_EVERY

    def pages_of_a_compaction() -> int:
        committer.commit(every - 1, rate=0)
        before = committer.pages()["journal"]
        committer.commit(1, rate=0)
        return committer.pages()["journal"] - before

    with closing(committer.store), stores.open_snapshot(store_dsn):
        first = pages_of_a_compaction()
        committer.commit(14 * every, rate=0)
        last = pages_of_a_compaction()

    # The first deletes one entry less.
    assert last <= first + 20, (first, last)

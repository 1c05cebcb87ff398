"""PostgresStore when connections, locks and servers misbehave.

What every store must do is in tests/conformance; here is what only a server can do to one.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import psycopg
import pytest

from dataflow.table import TableSpec, TableWrite
from runners.errors import JobRunningError, StoreError
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Checkpoint, Production, TimerWrite
from runners.millwheel.store.port import Committed, Fenced, Indeterminate, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore, session
from runners.millwheel.store.postgres.job_lock import JobLock
from runners.millwheel.store.postgres.pipeline_mode import StatementPipeline
from tests.fix_proxy import PostgresProxy
from tests.waiting import LONG_MS, Background, blocked_sessions, until

pytestmark = pytest.mark.postgres

JOB = "job"
LOW, HIGH = RangeId("count", 0), RangeId("count", 1)
SCORES = TableSpec(name="scores", columns={"team": str, "total": int}, key=("team",))
SPEC = JobSpec(
    job=JOB,
    mode="streaming",
    fingerprint="f",
    ranges=[
        RangeSpec(range_id=range_id, keys=keys)
        for range_id, keys in zip((LOW, HIGH), even_ranges(2), strict=True)
    ],
    tables=[SCORES],
)

Connect = Callable[..., PostgresStore]


@pytest.fixture
def connect(store_dsn: str) -> Iterator[Connect]:
    """Make stores on the test's database; they are closed at the end."""
    stores: list[PostgresStore] = []

    def make(dsn: str = store_dsn, **settings: Any) -> PostgresStore:
        stores.append(PostgresStore(dsn, **settings))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A person with psql."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


def owned(store: PostgresStore, ranges: Sequence[RangeId] = (LOW,)) -> Callable[..., Production]:
    """Open the job, take ranges, and return what makes their bundle of a given number."""
    store.open_job(SPEC)
    taken = store.acquire(JOB, ranges, "worker")
    tokens = {range_id: taken[range_id].row.token for range_id in ranges}

    def bundle(number: int, value: bytes = b"v", **parts: Any) -> Production:
        fences = [Fence(range_id=r, token=t, bundle=number) for r, t in tokens.items()]
        row = (value.decode(), number)
        production = Production(
            job=JOB,
            fences=fences,
            cells=[CellWrite("count", 1, b"k", value)],
            tables=[TableWrite(table=SCORES, upserts=[row])],
        )
        return attrs.evolve(production, **parts)

    return bundle


# The answer that never comes


def test_lost_request_is_indeterminate_and_resolves_to_fenced(
    connect: Connect, proxy: PostgresProxy
) -> None:
    store = connect(proxy.dsn)
    bundle = owned(store, (LOW, HIGH))
    assert store.commit(bundle(1)) == Committed()

    proxy.lose_request()
    lost = bundle(2, b"lost")
    assert isinstance(store.commit(lost), Indeterminate)
    assert isinstance(store.resolve(lost), Fenced)
    assert isinstance(store.commit(lost), Fenced)

    assert store.read_table(SCORES) == [("v", 1)]
    assert owned(store)(2).fences[0].bundle == store.acquire(JOB, [LOW], "w")[LOW].row.bundle + 1


def test_lost_answer_is_indeterminate_and_resolves_to_committed(
    connect: Connect, proxy: PostgresProxy
) -> None:
    store = connect(proxy.dsn)
    bundle = owned(store, (LOW, HIGH))
    assert store.commit(bundle(1)) == Committed()

    proxy.lose_answer()
    landed = bundle(2, b"landed")
    assert isinstance(store.commit(landed), Indeterminate)
    assert store.resolve(landed) == Committed()

    assert sorted(store.read_table(SCORES)) == [("landed", 2), ("v", 1)]
    assert store.commit(bundle(3)) == Committed()


def test_lost_answer_resolves_exactly_after_a_takeover(
    connect: Connect, proxy: PostgresProxy
) -> None:
    store, other = connect(proxy.dsn), connect()
    bundle = owned(store)
    proxy.lose_answer()
    landed = bundle(1, b"landed")
    assert isinstance(store.commit(landed), Indeterminate)
    assert store.resolve(landed) == Committed()
    proxy.lose_request()
    assert isinstance(store.commit(bundle(2, b"lost")), Indeterminate)

    assert other.commit(owned(other)(2, b"successor")) == Committed()

    assert store.resolve(landed) == Committed()
    assert isinstance(store.resolve(bundle(2, b"lost")), Fenced)
    assert sorted(store.read_table(SCORES)) == [("landed", 1), ("successor", 2)]


def test_resolve_stays_indeterminate_while_the_server_is_out_of_reach(
    connect: Connect, proxy: PostgresProxy
) -> None:
    store = connect(proxy.dsn, connect_timeout_s=0.3)
    bundle = owned(store)
    proxy.lose_answer()
    assert isinstance(store.commit(bundle(1)), Indeterminate)

    proxy.close()
    proxy.socket_path.unlink()

    assert isinstance(store.resolve(bundle(1)), Indeterminate)


def test_rare_verbs_are_repeated_on_a_new_connection(
    connect: Connect, proxy: PostgresProxy
) -> None:
    store = connect(proxy.dsn)
    store.open_job(SPEC)
    before = store.acquire(JOB, [LOW], "one")[LOW].row.token

    proxy.lose_request()
    assert store.read_job(JOB) is not None
    proxy.lose_answer()
    assert store.acquire(JOB, [LOW], "two")[LOW].row.token > before
    proxy.lose_answer()
    assert store.open_job(SPEC).job == JOB
    proxy.lose_answer()
    store.reset_job(JOB)

    assert store.read_job(JOB) is None


def test_session_ended_during_a_commit(connect: Connect, admin: psycopg.Connection[Any]) -> None:
    store = connect(lock_timeout_ms=LONG_MS)
    bundle = owned(store)
    with admin.transaction():
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        outcome = Background(lambda: store.commit(bundle(1)))
        admin.execute("SELECT pg_terminate_backend(%s)", blocked_sessions(admin, outcome))
        assert isinstance(outcome(), Indeterminate)

    assert isinstance(store.resolve(bundle(1)), Fenced)
    assert store.statistics(JOB)["cells"] == 0


def test_interrupted_commit_sends_no_more(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = connect()
    bundle = owned(store)

    def interrupt(pipeline: StatementPipeline, statements: object) -> Callable[[], None]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StatementPipeline, "begin", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.commit(bundle(1))

    assert store.commit(bundle(1)) == Committed()


def test_a_commit_is_under_way_until_the_server_has_done_it(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    store = connect(lock_timeout_ms=LONG_MS)
    bundle = owned(store)
    with admin.transaction():
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        under_way = store.submit(bundle(1))
        assert not under_way.is_answered
    until(lambda: under_way.is_answered)

    assert under_way.outcome() == Committed()
    assert store.submit(bundle(2)).outcome() == Committed()


def test_session_ended_while_a_commit_is_under_way(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    """Whatever else is asked of the store meanwhile is asked on another connection, and does not hide the loss."""
    store = connect(lock_timeout_ms=LONG_MS)
    bundle = owned(store)
    ended = store.connect().info.backend_pid
    with admin.transaction():
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        under_way = store.submit(bundle(1))
        admin.execute("SELECT pg_terminate_backend(%s, 60000)", [ended])
    assert store.statistics(JOB)["cells"] == 0

    assert isinstance(under_way.outcome(), Indeterminate)
    assert isinstance(store.resolve(bundle(1)), Fenced)


def test_a_commit_under_way_that_gives_way_to_a_lock_is_repeated(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    store = connect(lock_timeout_ms=100, waits=lambda _: admin.rollback())
    bundle = owned(store)
    admin.execute("BEGIN")
    admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
    under_way = store.submit(bundle(1))
    until(lambda: under_way.is_answered)

    assert store.read_table(SCORES) == [("v", 1)]
    assert under_way.outcome() == Committed()


def test_small_commit_is_one_write(connect: Connect, proxy: PostgresProxy) -> None:
    store = connect(proxy.dsn)
    bundle = owned(store)
    parts: dict[str, Any] = {
        "timers": [TimerWrite("count", 1, b"k", b"w", "event", 5)],
        "checkpoints": [Checkpoint(Channel(LOW, HIGH), 1, 0, b"p" * 500)],
        "delivered": {Channel(HIGH, LOW): 1},
        "watermarks_us": {LOW: 1},
    }
    assert store.commit(bundle(1, **parts)) == Committed()

    del proxy.requests_bytes[:]
    parts["checkpoints"] = [Checkpoint(Channel(LOW, HIGH), 2, 0, b"p" * 500)]
    parts["acknowledged"] = {Channel(LOW, HIGH): 1}
    assert store.commit(bundle(2, **parts)) == Committed()

    assert len(proxy.requests_bytes) == 1


# Locks


def test_half_sent_commit_of_a_stopped_process_does_not_stop_a_takeover(
    connect: Connect, admin: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    stopped, successor = connect(idle_timeout_ms=LONG_MS), connect(lock_timeout_ms=200)
    fence = owned(stopped)(1).fences[0]
    holder = stopped.connect()
    holder.execute("BEGIN")
    holder.execute(
        """SELECT dataflow.take_fences(ARRAY[range_id], ARRAY[%s]::bigint[], ARRAY[1]::bigint[],
                  ARRAY[7]::bigint[], ARRAY[NULL]::bytea[], ARRAY[FALSE], '{}', '{}', '{}')
           FROM dataflow.ranges WHERE range_index = 0""",
        (fence.token,),
    )

    with caplog.at_level(logging.WARNING, logger="runners"):
        taken = successor.acquire(JOB, [LOW, HIGH], "successor")

    assert taken[LOW].row.bundle == 0
    assert "ended 1 sessions" in caplog.text
    with pytest.raises(psycopg.OperationalError):
        holder.execute("COMMIT")
    assert successor.acquire(JOB, [LOW], "again")[LOW].row.watermark_us is None


def test_takeover_waits_for_a_commit_in_flight(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    store, successor = connect(lock_timeout_ms=LONG_MS), connect(lock_timeout_ms=LONG_MS)
    bundle = owned(store)
    with admin.transaction():
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        outcome = Background(lambda: store.commit(bundle(1)))
        blocked_sessions(admin, outcome)
        taken = Background(lambda: successor.acquire(JOB, [LOW], "successor")[LOW])
        blocked_sessions(admin, outcome, taken)

    assert outcome() == Committed()
    found: Any = taken()
    page = successor.read_cell_page(JOB, LOW, found.row.token, 0, 10)
    assert (found.row.bundle, page) == (1, {(1, b"k"): b"v"})


def test_commit_that_gave_way_to_a_lock_is_repeated(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    """The lock is let go when the commit has reported that it tries again."""
    reasons: list[str] = []

    def let_go(why: str) -> None:
        reasons.append(why)
        admin.rollback()

    store = connect(lock_timeout_ms=100, waits=let_go)
    bundle = owned(store)
    admin.execute("BEGIN")
    admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")

    assert store.commit(bundle(1)) == Committed()
    assert ["lock timeout" in each for each in reasons] == [True]
    assert store.read_table(SCORES) == [("v", 1)]


def test_commit_that_never_gets_its_lock_is_an_error_and_did_nothing(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    store = connect(lock_timeout_ms=50)
    bundle = owned(store)
    with admin.transaction():
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="lock timeout"):
            store.commit(bundle(1))

    assert store.statistics(JOB)["cells"] == 0
    assert store.commit(bundle(1)) == Committed()


def test_deadlocked_commit_is_repeated(connect: Connect, admin: psycopg.Connection[Any]) -> None:
    """Whoever waits last finds the deadlock, and gives way: that is the commit, held up between its rows till then."""
    admin.execute(f"ALTER DATABASE {admin.info.dbname} SET deadlock_timeout = '50ms'".encode())
    reasons: list[str] = []
    store = connect(lock_timeout_ms=LONG_MS, waits=reasons.append)
    between = connect(idle_timeout_ms=LONG_MS).connect()
    bundle = owned(store)
    write = TableWrite(table=SCORES, upserts=[("a", 1), ("b", 1), ("c", 1)])
    assert store.commit(bundle(1, tables=[write])) == Committed()
    update = "UPDATE scores SET total = 5 WHERE team = %s"
    with admin.transaction():
        admin.execute(f"SET LOCAL deadlock_timeout = {LONG_MS}".encode())
        admin.execute(update, ["c"])
        between.execute("BEGIN")
        between.execute(update, ["b"])
        outcome = Background(lambda: store.commit(bundle(2, tables=[write])))
        blocked_sessions(between, outcome)
        updated = Background(lambda: admin.execute(update, ["a"]))
        waiting = "SELECT cardinality(pg_blocking_pids(%s))"
        until(lambda: between.execute(waiting, [admin.info.backend_pid]).fetchone() == (1,))
        between.rollback()
        updated()
    assert outcome() == Committed()

    assert ["deadlock" in each for each in reasons] == [True]
    assert sorted(store.read_table(SCORES)) == [("a", 1), ("b", 1), ("c", 1)]


# What is answered to COMMIT


def raise_at_commit(admin: psycopg.Connection[Any], sqlstate: str) -> None:
    """Have every COMMIT that has written scores fail, in the user's own words."""
    admin.execute(
        f"""CREATE OR REPLACE FUNCTION object() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              RAISE EXCEPTION 'no total above ten' USING ERRCODE = '{sqlstate}';
            END $$;
            DROP TRIGGER IF EXISTS object ON scores;
            CREATE CONSTRAINT TRIGGER object AFTER INSERT OR UPDATE ON scores
              DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION object()"""
    )


@pytest.mark.parametrize("sqlstate", ["P0001", "22003", "XX000", "42501", "23514"])
def test_an_error_answered_to_commit_is_a_rollback_with_its_reason(
    connect: Connect, admin: psycopg.Connection[Any], sqlstate: str
) -> None:
    """Whatever a deferred trigger of the user raises, the commit did not happen, and nobody has to look it up."""
    store = connect()
    bundle = owned(store)
    raise_at_commit(admin, sqlstate)

    with pytest.raises(StoreError, match="no total above ten"):
        store.commit(bundle(1))

    assert store.read_table(SCORES) == []
    admin.execute("DROP TRIGGER object ON scores")
    assert store.commit(bundle(1)) == Committed()
    assert store.read_table(SCORES) == [("v", 1)]


def test_a_commit_that_somebody_cancels_is_repeated(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    store = connect(lock_timeout_ms=LONG_MS)
    bundle = owned(store)
    with admin.transaction():
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        outcome = Background(lambda: store.commit(bundle(1)))
        admin.execute("SELECT pg_cancel_backend(%s)", blocked_sessions(admin, outcome))

    assert outcome() == Committed()
    assert store.read_table(SCORES) == [("v", 1)]


def test_time_outs_of_roles_and_databases_do_not_end_what_a_store_does(
    store_dsn: str, connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    """A statement that waits for a lock longer than that, and a session that waits for work."""
    name = psycopg.conninfo.conninfo_to_dict(store_dsn)["dbname"]
    known = admin.execute(
        "SELECT name FROM pg_settings WHERE name LIKE '%\\_timeout' AND context = 'user'"
    )
    ours = {"statement_timeout", "idle_session_timeout", "transaction_timeout", "lock_timeout"}
    timeouts = ours & {setting for (setting,) in known}
    for setting in timeouts:
        admin.execute(f"ALTER DATABASE {name} SET {setting} = '150ms'".encode())
    store, lock = connect(lock_timeout_ms=LONG_MS), JobLock(store_dsn, JOB)
    lock.hold()
    bundle = owned(store)
    pids = {store.connect().info.backend_pid}
    with admin.transaction():
        admin.execute("SET LOCAL statement_timeout = 0")
        admin.execute("LOCK TABLE scores IN ACCESS EXCLUSIVE MODE")
        outcome = Background(lambda: store.commit(bundle(1)))
        blocked_sessions(admin, outcome)
        time.sleep(0.4)
    assert outcome() == Committed()

    time.sleep(0.4)
    assert store.commit(bundle(2)) == Committed()
    assert {store.connect().info.backend_pid} == pids
    with pytest.raises(JobRunningError):
        JobLock(store_dsn, JOB).hold()
    lock.release()


# Size and plans


def test_large_commit(connect: Connect) -> None:
    store = connect()
    bundle = owned(store)
    cells = [CellWrite("count", number, b"key %d" % number, b"x" * 60) for number in range(20_000)]
    rows = [(f"team {number}", number) for number in range(20_000)]
    timers = [TimerWrite("count", n, b"k", b"w", "event", n) for n in range(20_000)]

    large = bundle(1, cells=cells, timers=timers, tables=[TableWrite(table=SCORES, upserts=rows)])
    assert store.commit(large) == Committed()

    taken = store.acquire(JOB, [LOW], "successor")[LOW]
    page = store.read_cell_page(JOB, LOW, taken.row.token, 0, len(cells))
    assert page == {(cell.key_hash, cell.cell_key): cell.value for cell in cells}
    keys = list(page)[::2]
    found = store.read_cells(JOB, "count", {LOW: taken.row.token}, keys)
    assert found == {key: page[key] for key in keys}
    assert len(taken.timers) == 20_000
    assert sorted(store.read_table(SCORES)) == sorted(rows)


def test_a_connection_that_has_sent_very_much_makes_room_for_another(
    connect: Connect, admin: psycopg.Connection[Any]
) -> None:
    """Its buffer would stay as large as its largest commit; all that comes after goes by the other one.

    That is so also where what comes after writes to a table for the first time, whose name a connection quotes.
    """

    def sessions() -> set[int]:
        found = admin.execute("""
            SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend'
        """)
        return {pid for (pid,) in found}

    store = connect()
    bundle = owned(store)
    before = sessions()
    small = [CellWrite("count", 1, b"key", b"x")]
    assert store.commit(bundle(1, cells=small, tables=())) == Committed()
    assert sessions() == before
    cells = [CellWrite("count", n, b"key %d" % n, b"x" * (1 << 20)) for n in range(33)]
    assert 33 << 20 > session.BUFFER_BYTES_MAX
    assert store.commit(bundle(2, cells=cells, tables=())) == Committed()
    assert store.commit(bundle(3, cells=small)) == Committed()
    until(lambda: len(sessions()) == len(before))
    assert sessions() != before


def test_hot_tables_are_never_scanned(connect: Connect, admin: psycopg.Connection[Any]) -> None:
    store = connect()
    bundle = owned(store)
    for number in range(1, 20):
        timer = TimerWrite("count", 1, b"k", b"w", "event", 1 if number % 2 else None)
        value = b"v" if number % 2 else None
        channel = Channel(LOW, HIGH)
        production = bundle(
            number,
            cells=[CellWrite("count", 1, b"k", value)],
            timers=[timer],
            checkpoints=[Checkpoint(channel, number, 0, b"")],
            acknowledged={channel: number - 1},
            delivered={Channel(HIGH, LOW): number},
        )
        assert store.commit(production) == Committed()
    store.close()

    # Migrations scan a few times, a commit that scans does so each time; the server publishes its counts with a delay.
    scanned = """SELECT relname FROM pg_stat_user_tables
                 WHERE schemaname = 'dataflow' AND idx_scan >= 19 AND seq_scan >= 18"""
    published = "SELECT max(idx_scan) FROM pg_stat_user_tables WHERE relname = 'fences'"
    while admin.execute(published).fetchone() < (19,):  # type: ignore[operator]
        time.sleep(0.01)
    assert admin.execute(scanned).fetchall() == []


def test_a_forked_process_reads_on_a_connection_of_its_own(connect: Connect) -> None:
    """User code on trial reads state; what the process that waits for it sends and reads is not disturbed."""
    store = connect()
    bundle = owned(store)
    value = b"v" * 100_000
    production = bundle(1, cells=[CellWrite("count", 7, b"large", value)])
    assert store.commit(production) == Committed()
    tokens = {fence.range_id: fence.token for fence in production.fences}

    def is_read() -> bool:
        found = store.read_cells(JOB, "count", tokens, [(7, b"large")])
        return found == {(7, b"large"): value}

    assert is_read()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if is_read() else 1)
        assert is_read()
        assert os.waitpid(child, 0)[1] == 0
        assert is_read()

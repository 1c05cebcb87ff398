"""How Postgres goes about the statements of a commit, on tables that it knows nothing of yet."""

import time
from contextlib import closing
from cProfile import Profile

import psycopg
import pytest

from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Production, TimerWrite
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore

pytestmark = pytest.mark.postgres

RANGE = RangeId("count", 0)
#: Cells, and as many timers, that are set in one commit and deleted in the next.
COUNT = 3_000


def test_ending_much_state_at_once_looks_at_each_row_once(store_dsn: str) -> None:
    """Deleting n timers and cells must not read n * n rows, which an index on less than the key invites."""
    keys = [(number, f"{number}".encode()) for number in range(COUNT)]
    ranges = [RangeSpec(range_id=RANGE, keys=even_ranges(1)[0])]
    with closing(PostgresStore(store_dsn)) as store:
        store.open_job(JobSpec(job="job", mode="streaming", fingerprint="", ranges=ranges))
        token = store.acquire("job", [RANGE], "me")[RANGE].row.token
        for bundle, value, fire_us in ((1, b"v", 1), (2, None, None)):
            production = Production(
                job="job",
                fences=[Fence(range_id=RANGE, token=token, bundle=bundle)],
                cells=[CellWrite("count", *key, value) for key in keys],
                timers=[TimerWrite("count", *key, b"w", "event", fire_us) for key in keys],
            )
            assert Committed() == store.commit(production)
    counts = """SELECT sum(n_tup_del), sum(idx_tup_fetch) FROM pg_stat_user_tables
                WHERE schemaname = 'dataflow' AND relname ~ '^(cells|timers)_'"""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        # The server publishes its counts with a delay.
        while (found := connection.execute(counts).fetchone() or (0, 0))[0] < 2 * COUNT:
            time.sleep(0.01)

    assert found[1] <= 10 * COUNT


@pytest.mark.parametrize("among", [4, 400])
def test_a_range_is_taken_over_without_reading_the_others(store_dsn: str, among: int) -> None:
    """Every range of a job is taken over, so that what reads all of them each time takes the square of their number."""
    ids = [RangeId("count", index) for index in range(among)]
    ranges = [
        RangeSpec(range_id=range_id, keys=keys)
        for range_id, keys in zip(ids, even_ranges(among), strict=True)
    ]
    with closing(PostgresStore(store_dsn)) as store:
        store.open_job(JobSpec(job="job", mode="batch", fingerprint="", ranges=ranges))
        for range_id in ids[:2]:
            # Statements are prepared, and the numbers of the job read, once for a connection.
            store.acquire("job", [range_id], "me", 0)
        profile = Profile()
        taken = profile.runcall(store.acquire, "job", [ids[2]], "me", 0)

    assert ids[2] == taken[ids[2]].row.range_id
    assert 2_500 > sum(each.callcount for each in profile.getstats())

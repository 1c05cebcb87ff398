"""A store that is short of disk, memory or connections is waited for; nothing of a refused commit happens."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from runners.errors import StoreError
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import Production
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore

pytestmark = pytest.mark.postgres


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A person with psql."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


def first_bundle(store: PostgresStore) -> Production:
    """The first bundle of a worker that has just taken the one range of a new job."""
    only = RangeId("count", 0)
    ranges = [RangeSpec(range_id=only, keys=even_ranges(1)[0])]
    store.open_job(JobSpec(job="job", mode="streaming", fingerprint="f", ranges=ranges))
    token = store.acquire("job", [only], "worker")[only].row.token
    return Production(job="job", fences=[Fence(range_id=only, token=token, bundle=1)])


def refuse(admin: psycopg.Connection[Any], sqlstate: str, times: int) -> None:
    """Have the server refuse every statement that touches a fence, so many times."""
    admin.execute("CREATE SEQUENCE refusals")
    admin.execute(
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('refusals') <= {times} THEN
                    RAISE EXCEPTION 'short of something' USING ERRCODE = '{sqlstate}';
                END IF;
                RETURN NULL;
            END $$""".encode()
    )
    admin.execute(
        "CREATE TRIGGER refuse AFTER UPDATE ON dataflow.fences "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )


@pytest.mark.parametrize("sqlstate", ["53100", "53200", "53300"])
def test_a_commit_waits_for_a_server_that_is_short_of_something(
    store_dsn: str, admin: psycopg.Connection[Any], sqlstate: str
) -> None:
    """Refused six times, more often than a commit gives way to a lock, then carried out; and so is a takeover."""
    store = PostgresStore(store_dsn)
    production = first_bundle(store)
    refuse(admin, sqlstate, times=6)
    assert store.commit(production) == Committed()

    admin.execute("ALTER SEQUENCE refusals RESTART")
    [only] = store.acquire("job", [production.fences[0].range_id], "successor").values()
    assert only.row.bundle == 1
    store.close()


def test_a_shortage_that_does_not_end_is_an_error_and_did_nothing(
    store_dsn: str, admin: psycopg.Connection[Any]
) -> None:
    store = PostgresStore(store_dsn, connect_timeout_s=0.3)
    production = first_bundle(store)
    refuse(admin, "53100", times=1_000)
    with pytest.raises(StoreError, match="short of something"):
        store.commit(production)

    admin.execute("DROP TRIGGER refuse ON dataflow.fences")
    assert store.commit(production) == Committed()
    store.close()

"""One driver at a time has a job, whatever becomes of sessions."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import psycopg
import pytest

from runners.errors import JobRunningError, StoreError
from runners.millwheel.store.postgres import job_lock
from runners.millwheel.store.postgres.job_lock import JobLock
from tests.waiting import WAIT_MAX_S

pytestmark = pytest.mark.postgres

Make = Callable[..., JobLock]


@pytest.fixture
def make(store_dsn: str) -> Iterator[Make]:
    """Makes locks, as drivers do; they are released at the end."""
    made: list[JobLock] = []

    def make(job: str = "job") -> JobLock:
        made.append(JobLock(store_dsn, job))
        return made[-1]

    yield make
    for lock in made:
        lock.release()


@pytest.fixture
def admin(store_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A person with psql."""
    with psycopg.connect(store_dsn, autocommit=True) as connection:
        yield connection


def end_drivers(admin: psycopg.Connection[Any]) -> int:
    """End the sessions that drivers hold their jobs with; how many there were."""
    found = admin.execute(
        """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
           WHERE starts_with(application_name, 'dataflow driver') AND datname = current_database()"""
    )
    return len(found.fetchall())


def test_a_job_has_one_driver(make: Make) -> None:
    first = make()
    first.hold()
    first.hold()
    with pytest.raises(JobRunningError, match=r"job 'job' is being run by another driver"):
        make().hold()
    make("another job").hold()

    first.release()
    first.release()
    make().hold()


def test_of_many_that_start_at_once_one_has_the_job(make: Make) -> None:
    locks = [make() for _ in range(6)]
    refused: list[StoreError] = []
    start = threading.Barrier(len(locks))

    def hold(lock: JobLock) -> None:
        start.wait()
        try:
            lock.hold()
        except JobRunningError as error:
            refused.append(error)

    threads = [threading.Thread(target=hold, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MAX_S)
    assert len(refused) == len(locks) - 1


def test_a_driver_that_lost_its_session_takes_the_job_again(
    make: Make, admin: psycopg.Connection[Any]
) -> None:
    lock = make()
    lock.hold()
    assert end_drivers(admin) == 1
    lock.hold()
    with pytest.raises(JobRunningError):
        make().hold()


class NoPause:
    """In place of growing pauses: who makes one has failed."""

    def __init__(self, first_s: float, max_s: float) -> None:
        pass

    def next_s(self) -> NoReturn:
        pytest.fail("it waits for a driver that is alive")


def test_a_driver_that_lost_its_session_may_lose_its_job(
    make: Make, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused at once."""
    lock, quicker = make(), make()
    lock.hold()
    assert end_drivers(admin) == 1
    quicker.hold()
    monkeypatch.setattr(job_lock, "Backoff", NoPause)
    with pytest.raises(JobRunningError):
        lock.hold()
    quicker.hold()


def test_a_session_of_its_own_that_the_server_believes_alive_is_no_other_driver(make: Make) -> None:
    lock = make()
    lock.hold()
    left_behind, lock._connection = lock._connection, None
    lock.hold()

    assert left_behind is not None
    with pytest.raises(psycopg.OperationalError):
        left_behind.execute("SELECT 1")

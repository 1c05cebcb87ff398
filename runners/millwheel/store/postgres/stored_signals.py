"""Signals on their way through the database: numbered under the lock of their job.

**Invariant:** numbers have no gap and become visible in their order, so a reader that has read up to one has missed
none.
"""

from typing import Any

from psycopg import Connection

from runners.millwheel.model.signals import Signal
from runners.millwheel.store.guards import check_is_listening, unknown_job
from runners.millwheel.store.postgres.queries import QUERIES


def insert_signal(connection: Connection[Any], job: str, name: str, request: int) -> int:
    """Keep a signal, unless the same request has kept it already.  Inside a transaction.

    Args:
        connection: to the store; locks the job until the transaction ends.
        job: its name.
        name: of the signal.
        request: a number for this call of the user, the same in each attempt, so that a retry does not send the signal
            twice.

    Returns:
        The number of the signal within the job.

    Raises:
        SignalError: no window would receive it.
        StoreError: there is no such job.
    """
    found = connection.execute(QUERIES["lock_job"], {"name": job}).fetchone()
    if found is None:
        raise unknown_job(job)
    # Only now that the lock is taken: an attempt that was cut off may have had it to its end.
    sent = connection.execute(QUERIES["find_signal"], {"request": request}).fetchone()
    if sent is None:
        number, mode, _, is_finished, known = found
        check_is_listening(job, name, mode=mode, is_finished=is_finished, known=known)
        parameters = {"job_id": number, "name": name, "request": request}
        sent = connection.execute(QUERIES["insert_signal"], parameters).fetchone()
    assert sent is not None
    return int(sent[0])


def read_signals(connection: Connection[Any], job: str, after: int) -> list[Signal]:
    """The job's signals with numbers above ``after``.

    Args:
        connection: to the store.
        job: its name; an unknown one has no signals.
        after: the number of the last signal that is known; 0 for all.

    Returns:
        In the order of their numbers.
    """
    rows = connection.execute(QUERIES["read_signals"], {"name": job, "after": after})
    return [Signal(*row) for row in rows]

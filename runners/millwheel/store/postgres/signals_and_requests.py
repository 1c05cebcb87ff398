"""Signals and requests on their way through the database: both are numbered under the lock of their job.

**Invariants**

* Numbers have no gap and become visible in their order, so a reader that has read up to one has missed none.
* A finished job has no request without an answer.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from runners.millwheel.model.requests import DRAINED, FINISHED, Answer, Request, StoredRequest, Verb
from runners.millwheel.model.signals import Signal
from runners.millwheel.store import events
from runners.millwheel.store.guards import (
    check_is_listening,
    check_is_served,
    escape_text,
    unknown_job,
)
from runners.millwheel.store.postgres.evidence import insert_event
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES


class SignalAndRequestVerbs(JobReads):
    """The verbs of the port for what is sent to a job, and the end of a job, which answers its requests."""

    def send_signal(self, job: str, name: str) -> int:
        """Keep a signal for the job, once however often the connection is lost, and return its number."""
        attempt = self._next_token()
        return self._transact(lambda opened: _insert_signal(opened, job, name, attempt))

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        """The job's signals with numbers above ``after``."""
        return self._transact(
            lambda opened: _read_signals(opened, job, after), is_one_statement=True
        )

    def send_request(self, job: str, request: Request) -> int:
        """Keep a request for the job, once however often the connection is lost, and return its number."""
        attempt = self._next_token()
        return self._transact(lambda opened: _insert_request(opened, job, request, attempt))

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The job's requests with numbers above ``after``."""
        return self._transact(
            lambda opened: _read_requests(opened, job, after), is_one_statement=True
        )

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        """Keep the answer to a request, once."""
        self._transact(lambda opened: _answer(opened, job, number, answer))

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        """Mark the job as done, and answer all open requests."""
        self._transact(lambda opened: _finish(opened, job, is_drained=is_drained))

    def _next_token(self) -> int:
        """A number of its own for what is to be sent, by which it is kept once however often that is tried."""
        token = self._transact(lambda opened: opened.execute(QUERIES["next_token"]).fetchone())
        assert token is not None
        return int(token[0])


def _insert_signal(connection: Connection[Any], job: str, name: str, request: int) -> int:
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


def _read_signals(connection: Connection[Any], job: str, after: int) -> list[Signal]:
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


def _insert_request(connection: Connection[Any], job: str, request: Request, attempt: int) -> int:
    found = connection.execute(QUERIES["lock_job"], {"name": job}).fetchone()
    if found is None:
        raise unknown_job(job)
    # Only now that the lock is taken: an attempt that was cut off may have had it to its end.
    sent = connection.execute(QUERIES["find_request"], {"request": attempt}).fetchone()
    if sent is None:
        number, mode, _, is_finished, *_ = found
        check_is_served(job, request, mode=mode, is_finished=is_finished)
        parameters = {
            "job_id": number,
            "verb": request.verb.value,
            "arguments": list(request.arguments),
            "request": attempt,
        }
        sent = connection.execute(QUERIES["insert_request"], parameters).fetchone()
    assert sent is not None
    return int(sent[0])


def _read_requests(connection: Connection[Any], job: str, after: int) -> list[StoredRequest]:
    rows = connection.execute(QUERIES["read_requests"], {"name": job, "after": after})
    return [
        StoredRequest(
            number=number,
            request=Request(Verb(verb), tuple(arguments)),
            answer=None if is_done is None else Answer(is_done=is_done, text=answer),
        )
        for number, verb, arguments, is_done, answer in rows
    ]


def _answer(connection: Connection[Any], job: str, number: int, answer: Answer) -> None:
    parameters = {
        "name": job,
        "number": number,
        "is_done": answer.is_done,
        "answer": escape_text(answer.text),
    }
    connection.execute(QUERIES["answer_request"], parameters)


def _finish(connection: Connection[Any], job: str, *, is_drained: bool) -> None:
    # From here on a request that is sent waits, and finds the job finished.
    locked = connection.execute(QUERIES["lock_job"], {"name": job}).fetchone()
    parameters = {"name": job, "is_drained": is_drained}
    found = connection.execute(QUERIES["finish_job"], parameters).fetchone()
    if locked is None or found is None:
        raise unknown_job(job)
    if not locked[3]:
        insert_event(connection, job, events.finished(is_drained=is_drained))
    for each in _read_requests(connection, job, 0):
        drains = found[0] and each.request.verb is Verb.DRAIN
        _answer(connection, job, each.number, DRAINED if drains else FINISHED)

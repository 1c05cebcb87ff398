"""Requests on their way through the database: numbered under the lock of their job, as signals are.

**Invariant:** a finished job has no request without an answer.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from runners.millwheel.model.requests import DRAINED, FINISHED, Answer, Request, StoredRequest, Verb
from runners.millwheel.store.guards import check_is_served, escape_text, unknown_job
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES


class RequestVerbs(JobReads):
    """The verbs of the port that are about requests, and the end of a job, which answers them."""

    def send_request(self, job: str, request: Request) -> int:
        """Keep a request for the job, once however often the connection is lost, and return its number."""
        token = self._transact(lambda opened: opened.execute(QUERIES["next_token"]).fetchone())
        assert token is not None
        return self._transact(lambda opened: _insert(opened, job, request, token[0]))

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The job's requests with numbers above ``after``."""
        return self._transact(lambda opened: _read(opened, job, after), is_one_statement=True)

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        """Keep the answer to a request, once."""
        self._transact(lambda opened: _answer(opened, job, number, answer))

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        """Mark the job as done, and answer all open requests."""
        self._transact(lambda opened: _finish(opened, job, is_drained=is_drained))


def _insert(connection: Connection[Any], job: str, request: Request, attempt: int) -> int:
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


def _read(connection: Connection[Any], job: str, after: int) -> list[StoredRequest]:
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
    # The row of the job is locked from here on: a request that is sent now finds it finished.
    parameters = {"name": job, "is_drained": is_drained}
    found = connection.execute(QUERIES["finish_job"], parameters).fetchone()
    if found is None:
        raise unknown_job(job)
    for each in _read(connection, job, 0):
        drains = found[0] and each.request.verb is Verb.DRAIN
        _answer(connection, job, each.number, DRAINED if drains else FINISHED)

"""Requests to jobs that are kept in memory."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from runners.millwheel.model.requests import DRAINED, FINISHED, Answer, Request, StoredRequest, Verb
from runners.millwheel.store.guards import check_is_served
from runners.millwheel.store.memory.job import StoredJob


class MemoryRequests(ABC):
    """The verbs of the port that are about requests, and the end of a job, which answers them."""

    _lock: threading.RLock
    _jobs: dict[str, StoredJob]

    @abstractmethod
    def _job(self, job: str) -> StoredJob:
        """The job of that name."""

    def send_request(self, job: str, request: Request) -> int:
        """Keep a request for the job, and say its number."""
        with self._lock:
            stored = self._job(job)
            check_is_served(job, request, mode=stored.spec.mode, is_finished=stored.is_finished)
            number = len(stored.requests) + 1
            stored.requests.append(StoredRequest(number=number, request=request))
            return number

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The job's requests with numbers above ``after``."""
        with self._lock:
            stored = self._jobs.get(job)
            return stored.requests[after:] if stored else []

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        """Keep what has come of a request, once."""
        with self._lock:
            requests = self._jobs[job].requests if job in self._jobs else []
            if 0 < number <= len(requests) and requests[number - 1].answer is None:
                requests[number - 1] = attrs.evolve(requests[number - 1], answer=answer)

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        """Mark the job as done, and leave nobody waiting."""
        with self._lock:
            stored = self._job(job)
            if not stored.is_finished:
                stored.is_finished, stored.is_drained = True, is_drained
            for each in list(stored.requests):
                drains = stored.is_drained and each.request.verb is Verb.DRAIN
                self.answer_request(job, each.number, DRAINED if drains else FINISHED)

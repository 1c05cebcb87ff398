"""Requests to jobs that are kept in memory."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from runners.core.ground.clock import Clock
from runners.millwheel.model.requests import DRAINED, FINISHED, Answer, Request, StoredRequest, Verb
from runners.millwheel.store.guards import check_is_served
from runners.millwheel.store.memory.job import StoredJob


class MemoryRequests(ABC):
    """The verbs of the port that are about requests, and the end of a job, which answers them."""

    _lock: threading.RLock
    _clock: Clock
    _jobs: dict[str, StoredJob]

    @abstractmethod
    def _job(self, job: str) -> StoredJob:
        """The job of that name."""

    def send_request(self, job: str, request: Request) -> int:
        """Keep a request for the job, and return its number."""
        with self._lock:
            stored = self._job(job)
            check_is_served(job, request, mode=stored.spec.mode, is_finished=stored.is_finished)
            number = stored.requests[-1].number + 1 if stored.requests else 1
            stored.requests.append(StoredRequest(number=number, request=request))
            return number

    def read_requests(self, job: str, after: int) -> Sequence[StoredRequest]:
        """The job's requests with numbers above ``after``."""
        with self._lock:
            stored = self._jobs.get(job)
            return [each for each in stored.requests if each.number > after] if stored else []

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        """Keep the answer to a request, once."""
        with self._lock:
            if job not in self._jobs:
                return
            stored = self._jobs[job]
            for index, each in enumerate(stored.requests):
                if each.number == number and each.answer is None:
                    stored.requests[index] = attrs.evolve(each, answer=answer)
                    stored.answered_ms[number] = self._clock.monotonic_ms()

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        """Mark the job as done, and answer all open requests."""
        with self._lock:
            stored = self._job(job)
            if not stored.is_finished:
                stored.is_finished, stored.is_drained = True, is_drained
            for each in list(stored.requests):
                drains = stored.is_drained and each.request.verb is Verb.DRAIN
                self.answer_request(job, each.number, DRAINED if drains else FINISHED)

"""Adapters that leave people who ask without an answer, or with the wrong one."""

import itertools

import attrs

from runners.millwheel.model.requests import Answer, Request, StoredRequest
from runners.millwheel.store.memory.store import MemoryStore


class NumbersAllRequestsTogether(MemoryStore):
    """Leaves gaps in the numbers of each job."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    def send_request(self, job: str, request: Request) -> int:
        with self._lock:
            super().send_request(job, request)
            requests = self._job(job).requests
            requests[-1] = attrs.evolve(requests[-1], number=next(self._numbers))
            return requests[-1].number


class BelievesTheLastAnswer(MemoryStore):
    """An answer that is late replaces the first."""

    def answer_request(self, job: str, number: int, answer: Answer) -> None:
        requests = self._jobs[job].requests if job in self._jobs else []
        if 0 < number <= len(requests):
            requests[number - 1] = attrs.evolve(requests[number - 1], answer=answer)


class ForgetsArguments(MemoryStore):
    """Keeps the verb only."""

    def send_request(self, job: str, request: Request) -> int:
        return super().send_request(job, Request(request.verb))


class LeavesThemWaiting(MemoryStore):
    """Finishes a job and answers nobody."""

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        stored = self._job(job)
        if not stored.is_finished:
            stored.is_finished, stored.is_drained = True, is_drained


class TakesRequestsAfterTheEnd(MemoryStore):
    """Looks whether the job is finished before it has the lock."""

    def send_request(self, job: str, request: Request) -> int:
        number = len(self._job(job).requests) + 1
        self._job(job).requests.append(StoredRequest(number=number, request=request))
        return number


class DrainsWhatIsFinished(MemoryStore):
    """The last word counts."""

    def finish_job(self, job: str, *, is_drained: bool = False) -> None:
        self._job(job).is_finished = False
        super().finish_job(job, is_drained=is_drained)

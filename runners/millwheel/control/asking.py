"""Ask something of a job, from any process: send a request, wait for the answer, look at the ranges."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dataflow.times import in_words
from runners.errors import RequestError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import Answer, Request
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.port import JobRow, Store
from runners.system_clock import SystemClock
from windowing.timestamps import US_PER_SECOND

#: An answer is waited for no longer than this, except that to a drain, which takes as long as it takes.
ANSWER_TIMEOUT_S = 60.0
_LOOK_INTERVAL_S = 0.05


def wait_for_answer(
    store: Store, job: str, number: int, timeout_s: float | None = ANSWER_TIMEOUT_S
) -> Answer:
    """Wait for the answer to a request, and return it as soon as it is known.

    Args:
        store: where the job is.
        job: its name.
        number: of the request.
        timeout_s: how long to wait, in seconds; None: for ever.

    Raises:
        RequestError: the job was reset, or there was no answer in time.
        StoreError: the store cannot be read.
    """
    clock = SystemClock()
    asked_ms = clock.monotonic_ms()
    while True:
        found = [each for each in store.read_requests(job, number - 1) if each.number == number]
        if not found:
            raise RequestError(f"job {job} was reset, and request {number} with it")
        if found[0].answer is not None:
            return found[0].answer
        if timeout_s is not None and clock.monotonic_ms() > asked_ms + timeout_s * 1_000:
            raise RequestError(
                f"request {number} of job {job} was not answered in {in_words(round(timeout_s * US_PER_SECOND))}",
                hint="run the job: the request is answered when it is running",
            )
        time.sleep(_LOOK_INTERVAL_S)


def ask(store: Store, job: str, request: Request) -> str:
    """Send a request, and wait until it is done; returns the sentence that was answered.

    Args:
        store: that has the job.
        job: its name.
        request: what its driver is to do.

    Raises:
        RequestError: it is not carried out by any driver, was not in time, or cannot be; the message has the reason.
        StoreError: there is no such job, or no store.
    """
    answer = wait_for_answer(store, job, store.send_request(job, request))
    if not answer.is_done:
        raise refused(job, request, answer)
    return answer.text


def refused(job: str, request: Request, answer: Answer) -> RequestError:
    """The error for a request that was refused.

    Args:
        job: its name.
        request: that was sent.
        answer: with the reason.
    """
    return RequestError(f"job {job} has not carried out the request: {request}", detail=answer.text)


def ranges_of(
    job: JobRow, splits: Mapping[RangeId, SplitPoll] = MappingProxyType({})
) -> Sequence[Mapping[str, Any]]:
    """The ranges of a job that have something to do, or had, in the order of their names, with these fields.

    * ``range``: its name, as `Request` takes it;
    * ``first_hash``, ``last_hash``: the key hashes that it has; None of a split of a source;
    * ``worker``: its owner, or the last one; None: it has had none yet;
    * ``watermark_us``: how far it has come, by its last commit; None: it has made none;
    * ``is_finished``: a split of a source that has been read to its end, or was ended;
    * ``is_removed``: a split that its input does not have any more; it ends where it is;
    * ``handover_with``: the range with which it is being split or merged, so that it cannot move; None: with none.
    * ``polled_us``: when a split of a source was last asked for records, by the clock of its worker; None: not known;
      long ago: it is not asked, so nobody knows what it has;
    * ``record_us``: when it last had one; None: not known;
    * ``backlog``: what it had then that was still to be read, a `dataflow.Backlog`; None: not known.

    Args:
        job: as the store has it.
        splits: the last polls of its splits: as the store has them, a second or two old, or as its driver does.
    """
    return [
        {
            "range": str(range_id),
            "first_hash": row.keys and row.keys.low,
            "last_hash": row.keys and row.keys.high - 1,
            "worker": row.owner,
            "watermark_us": row.watermark_us,
            "is_finished": row.is_finished,
            "is_removed": row.is_removed,
            "handover_with": None if row.handover_with is None else str(row.handover_with),
            "polled_us": poll and poll.polled_us,
            "record_us": poll and poll.record_us,
            "backlog": poll and poll.backlog,
        }
        for range_id, row in sorted(job.ranges.items())
        if not row.is_retired
        for poll in [splits.get(range_id)]
    ]

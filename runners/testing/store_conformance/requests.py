"""Checks of requests: numbered for each job, answered once, and none without an answer when the job is finished."""

import threading
import time
from functools import partial

import attrs

from runners.errors import RequestError, StoreError
from runners.millwheel.model.requests import (
    DRAINED,
    FINISHED,
    Answer,
    Request,
    StoredRequest,
    Verb,
    merge,
    move,
    split,
)
from runners.millwheel.store.port import Store
from runners.testing.store_conformance.world import (
    JOB,
    ConformanceError,
    StoreFactory,
    at_once,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
)

_SENDERS, _REQUESTS_MIN = 4, 16
_DRAIN, _CANCEL = Request(Verb.DRAIN), Request(Verb.CANCEL)
_DONE, _NOT_DONE = Answer(is_done=True, text="it is"), Answer(is_done=False, text="it is not")


def check_requests_are_numbered_for_each_job(connect: StoreFactory) -> None:
    """From 1 without a gap, with their arguments, whatever other jobs are asked."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("other"), tables=[]))
    expect_equal(list(store.read_requests(JOB, 0)), [], "requests to a new job")
    asked = [move("a [b]/c[0]", 1), split("count[1]", (1 << 64) - 1), merge("count[0]", "count[1]")]
    numbers = [store.send_request(JOB, asked[0]), store.send_request("other", _DRAIN)]
    numbers += [store.send_request(JOB, each) for each in asked[1:]]
    expect_equal(numbers, [1, 1, 2, 3], "the numbers of requests")
    expected = [StoredRequest(number=n, request=each) for n, each in enumerate(asked, 1)]
    for after in range(5):
        found = list(connect().read_requests(JOB, after))
        expect_equal(found, expected[after:], f"requests after {after}")
    expect_equal(list(store.read_requests("nobody", 0)), [], "requests to an unknown job")


def check_requests_are_answered_once(connect: StoreFactory) -> None:
    """The first answer counts; one that comes for nothing is no error."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("other"), tables=[]))
    for _ in range(3):
        store.send_request(JOB, _CANCEL)
    store.send_request("other", _CANCEL)
    odd = Answer(is_done=False, text="it has a \0 in it")
    for answer in (_NOT_DONE, _DONE):
        connect().answer_request(JOB, 2, answer)
    store.answer_request(JOB, 9, _DONE)
    store.answer_request("nobody", 1, _DONE)
    found = [each.answer for each in connect().read_requests(JOB, 0)]
    expect_equal(found, [None, _NOT_DONE, None], "the answers")
    expect_equal(store.read_requests("other", 0)[0].answer, None, "an answer of another job")
    store.answer_request(JOB, 3, odd)
    answer_found = store.read_requests(JOB, 2)[0].answer
    expect(answer_found is not None and not answer_found.is_done, "an answer that is no text")


def check_requests_that_nobody_would_carry_out_are_refused(connect: StoreFactory) -> None:
    """Requests to a job that is finished, in batch, or unknown are refused; and nothing is kept then."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("history", mode="batch"), tables=[]))
    odd = Request(Verb.MOVE, ("a\0b[0]", "1"))
    expect_error(RequestError, partial(store.send_request, "history", _DRAIN), "a batch job")
    expect_error(StoreError, partial(store.send_request, "nobody", _DRAIN), "an unknown job")
    expect_error(RequestError, partial(store.send_request, JOB, odd), "what is no text")
    store.finish_job(JOB)
    expect_error(RequestError, partial(store.send_request, JOB, _DRAIN), "a finished job")
    expect_equal(list(store.read_requests(JOB, 0)), [], "requests after refusals")


def check_a_job_that_finishes_answers(connect: StoreFactory) -> None:
    """A job that finishes answers its requests: a drain with that it is drained, others with that it is finished."""
    store = opened(connect)
    for each in (_CANCEL, _DRAIN, move("count[0]", 1)):
        store.send_request(JOB, each)
    store.answer_request(JOB, 1, _DONE)
    expect(not store.read_jobs()[0].is_drained, "a job that runs is drained")
    store.finish_job(JOB, is_drained=True)
    found = [each.answer for each in connect().read_requests(JOB, 0)]
    expect_equal(found, [_DONE, DRAINED, FINISHED], "the answers of a job that is drained")
    store.finish_job(JOB)
    job, (listed,) = connect().read_job(JOB), connect().read_jobs()
    assert job is not None
    expect_equal((job.is_finished, job.is_drained), (True, True), "a job that is drained")
    expect_equal((listed.is_finished, listed.is_drained), (True, True), "the same in the list")


def check_a_job_that_ends_by_itself_is_not_drained(connect: StoreFactory) -> None:
    """A job that ends by itself is not drained, even if a drain was requested too late to be carried out."""
    store = opened(connect)
    store.send_request(JOB, _DRAIN)
    store.finish_job(JOB)
    store.finish_job(JOB, is_drained=True)
    expect_equal(store.read_requests(JOB, 0)[0].answer, FINISHED, "the answer")
    expect(not store.read_jobs()[0].is_drained, "a job that has ended by itself is drained")


def check_requests_by_many_at_once(connect: StoreFactory) -> None:
    """Every request has a number of its own; who reads on misses none; none is left without an answer at the end."""
    store, stores = opened(connect), [connect() for _ in range(_SENDERS)]
    enough, is_over = threading.Event(), threading.Event()

    def send(sender: Store) -> int:
        sent, was_over = 0, False
        while not was_over:
            was_over = is_over.is_set()
            try:
                number = sender.send_request(JOB, _CANCEL)
            except RequestError:
                return sent
            sent += 1
            if number >= _REQUESTS_MIN:
                enough.set()
            time.sleep(0.001)
        raise ConformanceError("a request was taken after the end of the job")

    def finish() -> int:
        expect(enough.wait(60), "requests were not sent")
        store.finish_job(JOB)
        is_over.set()
        return 0

    sent = sum(at_once([*(partial(send, each) for each in stores), finish]))
    found = store.read_requests(JOB, 0)
    expect_equal([each.number for each in found], list(range(1, sent + 1)), "the numbers")
    expect_equal([each.answer for each in found], [FINISHED] * sent, "the answers")


def check_reset_forgets_requests(connect: StoreFactory) -> None:
    """A new job under an old name is asked for nothing, and is not drained."""
    store = opened(connect)
    store.send_request(JOB, _DRAIN)
    store.finish_job(JOB, is_drained=True)
    store.reset_job(JOB)
    job = store.open_job(job_spec())
    expect_equal((job.is_finished, job.is_drained), (False, False), "the new job")
    expect_equal(list(store.read_requests(JOB, 0)), [], "requests to it")
    expect_equal(store.send_request(JOB, _CANCEL), 1, "the first request to it")

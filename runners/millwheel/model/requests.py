"""Requests: what people ask of a running job from outside, by way of its store.

A job's requests are numbered from 1 by the store, which keeps them and their answers.  The driver reads new ones and
gives them to the request desk beside its master (`runners.millwheel.master.request_desk`), which has them carried out.

**Invariants**

* A request has one answer: the first that is given.
* A request to drain or to cancel is carried out by the driver of the moment, also by the next one, until it is
  answered.  A drain is answered in the transaction that finishes the job.
* A change of ranges is carried out by the driver that has read it, or not at all: a driver that starts answers those
  that it finds, because it cannot know how far the last one had come with them.

MillWheel, section 7.1 (moves, splits and merges).
"""

from enum import StrEnum

import attrs

from runners.errors import RequestError
from runners.millwheel.model.ids import RangeId


class Verb(StrEnum):
    """The kinds of requests."""

    #: A range moves to a slot.
    MOVE = "move"
    #: A range is divided at a key hash, or where its owner finds the middle of its state.
    SPLIT = "split"
    #: A range takes in the keys of its neighbour.
    MERGE = "merge"
    #: Sources end where they are, and the job when every window has fired.
    DRAIN = "drain"
    #: The job stops; running it again continues it.
    CANCEL = "cancel"


@attrs.frozen
class Request:
    """A verb with its arguments, as text; see `move`, `split` and `merge`."""

    verb: Verb
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.verb, *self.arguments))


@attrs.frozen(kw_only=True)
class Answer:
    """The answer to a request: whether it was done, and a sentence."""

    is_done: bool
    text: str


@attrs.frozen(kw_only=True)
class StoredRequest:
    """A request as the store has it.

    Attributes:
        answer: None until there is one.
    """

    number: int
    request: Request
    answer: Answer | None = None


#: The answer of a driver that starts to requests that it must not carry out.
GONE = Answer(is_done=False, text="not answered: the driver that was asked has ended; ask again")
#: The answer to cancel.
CANCELLED = Answer(is_done=True, text="cancelled; running the job again continues it")
#: The answer to what takes too long to wait for.
NOT_YET = Answer(is_done=False, text="begun, and not done yet; dataflow ranges shows when it is")
#: The answer to drain, in the transaction that finishes the job.
DRAINED = Answer(is_done=True, text="drained")
#: The answer to all other open requests when the job is finished.
FINISHED = Answer(is_done=False, text="the job is finished")


def move(range_id: str, slot: int) -> Request:
    """Have a range go to the worker of a slot.

    Args:
        range_id: of the range.
        slot: its number, from 0.

    Raises:
        RequestError: that is no range, or no slot.
    """
    if slot < 0:
        raise RequestError(f"there is no slot {slot}", hint="slots count from 0")
    return Request(Verb.MOVE, (_checked(range_id), str(slot)))


def split(range_id: str, at: int | None = None) -> Request:
    """Have a key range divided; ``at``: the first key hash of the new one.

    Args:
        range_id: of the key range.
        at: the first key hash of the new range; None: the middle.

    Raises:
        RequestError: that is no range.
    """
    return Request(Verb.SPLIT, (_checked(range_id), *([] if at is None else [str(at)])))


def merge(range_id: str, gone: str) -> Request:
    """Have a key range take in its neighbour.

    Args:
        range_id: has all keys afterwards.
        gone: its neighbour, which is retired.

    Raises:
        RequestError: one of them is no range.
    """
    return Request(Verb.MERGE, (_checked(range_id), _checked(gone)))


def _checked(range_id: str) -> str:
    try:
        return str(RangeId.parse(range_id))
    except ValueError as error:
        raise RequestError(
            f"{range_id!r} is not the name of a range",
            detail="a name is a computation and a number, such as count[0]",
            hint="dataflow ranges JOB lists those of a job",
        ) from error

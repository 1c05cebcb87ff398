"""Events: what has happened to a job, when, by whom and why; for people, and for nothing else.

No result depends on it.  An event is kept in the transaction of what it tells of, wherever there is one.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import attrs

#: The events of a job that are kept in the log of a store; takeovers and requests have tables of their own.
EVENTS_MAX = 10_000


class EventKind(StrEnum):
    """What has happened."""

    #: A driver runs the job for the first time.
    START = "start"
    #: A driver goes on with a job, or begins again from its store.
    RESTART = "restart"
    #: Ranges were given to a worker, and nobody had them.
    ASSIGNMENT = "assignment"
    #: A worker has taken over ranges of one that is gone, or that is to start again.
    TAKEOVER = "takeover"
    #: Ranges have moved to another worker because that was asked, or by the balancer.
    MOVE = "move"
    SPLIT = "split"
    MERGE = "merge"
    #: The job runs another pipeline.
    UPDATE = "update"
    #: A worker has ended although it should not have, or the whole job has.
    FAILURE = "failure"
    #: The driver has stopped, and running the job again continues it.
    PAUSE = "pause"
    CANCEL = "cancel"
    #: The job is done.
    FINISH = "finish"
    #: The same, because its sources were to end where they were.
    DRAIN = "drain"
    #: Traces of a worker cannot be sent, or can again.
    TRACES = "traces"
    #: Somebody has asked the job for something.
    REQUEST = "request"


class Actor(StrEnum):
    """Who has done it."""

    DRIVER = "driver"
    WORKER = "worker"
    OPERATOR = "operator"


class Cause(NamedTuple):
    """Why a range changes its owner or its keys.

    Attributes:
        kind: what that is for the range; an `EventKind`.
        reason: a sentence.
    """

    kind: str
    reason: str


#: Where nobody has said why.
UNKNOWN = Cause(EventKind.TAKEOVER, "not known")


@attrs.frozen(kw_only=True)
class JobEvent:
    """An event.

    Attributes:
        who: the host and process of a driver, or the name of a worker; None: not known.
        subject: ranges, or a slot; None: the job.
        details: values that JSON has.
    """

    kind: EventKind
    actor: Actor
    who: str | None
    reason: str
    subject: str | None = None
    details: Mapping[str, object] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class StoredEvent:
    """An event as the store has it."""

    event: JobEvent
    at: datetime

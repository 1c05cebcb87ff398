"""Patience: whether, and when, to try again what certainly did nothing.

There are two reasons to wait, which need different patience.  Another transaction was first (a lock, a deadlock): that
is over within milliseconds, and after a few times it is an error.  Or the server or the network is not there, or out of
disk, memory or connections: that is over when a person or a restart has repaired it, so it is worth waiting for as long
as for a server that is starting up.

Pauses grow, and are random within their bound: many workers lose their server at the same moment, and must not come
back at the same moment.
"""

import random  # noqa: TID251 - what waits here is real, and no result depends on it
import time

#: How often a transaction that gave way to another is tried.
ATTEMPTS_MAX = 4
#: SQLSTATE classes of "another transaction was first".
_CONFLICT_CLASSES = {"40", "55"}
#: A statement was cancelled from another session.
_CANCELED = "57014"
#: The server ended a transaction because it is short of something: disk, memory, connections.
_SHORTAGE_CLASS = "53"


def is_shortage(sqlstate: str | None) -> bool:
    """Whether the server was short of something, and can do what it was asked when it no longer is."""
    return (sqlstate or "").startswith(_SHORTAGE_CLASS)


class Backoff:
    """Growing pauses: each is between half its bound and all of it, and the bound doubles from one to the next.

    Args:
        first_s: the bound of the first pause, in seconds.
        max_s: beyond which the bound does not grow, in seconds.
    """

    def __init__(self, first_s: float, max_s: float) -> None:
        self._bound_s, self._max_s = first_s, max_s

    def next_s(self) -> float:
        """How long to wait now."""
        pause_s = self._bound_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._bound_s = min(2 * self._bound_s, self._max_s)
        return pause_s


class Patience:
    """One transaction's: starts with its first attempt.

    Args:
        absence_max_s: how long to wait for a server that is cut off, or short of something.
    """

    def __init__(self, absence_max_s: float) -> None:
        self._deadline_s = time.monotonic() + absence_max_s  # noqa: TID251 - waits for a real server
        self._gave_way = 0
        self._conflict = Backoff(0.04, 1.0)
        self._absence = Backoff(0.1, 1.0)

    def wait(self, sqlstate: str | None) -> bool:
        """Pause before another attempt; False, at once, if there should be none."""
        if (sqlstate or "")[:2] in _CONFLICT_CLASSES or sqlstate == _CANCELED:
            self._gave_way += 1
            pause_s = self._conflict.next_s()
            is_over = self._gave_way >= ATTEMPTS_MAX
        else:
            pause_s = self._absence.next_s()
            is_over = time.monotonic() + pause_s > self._deadline_s  # noqa: TID251 - a deadline of a connection, not of data
        if not is_over:
            time.sleep(pause_s)
        return not is_over


def ignore(_: str) -> None:
    """Do nothing: for callers that need not know why something waits."""

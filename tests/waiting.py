"""Waiting for what another thread, process or server does: for the state, never for a time.

How long it may take is for a hang alone: no machine is so busy.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

#: Less than the time that a test may take, so that a failure shows what did not come about.
WAIT_MAX_S = 240.0
#: The same for a whole run of a program that starts Spark; for tests which may take longer than the others.
RUN_MAX_S = 1_500.0
#: Of time-outs of stores and servers that a test is not about.
LONG_MS = 600_000
#: Between two looks; longer where a look itself takes long, which reads a whole table perhaps: with a tenth of their
#: time three tests that wait leave the processors to what they wait for.
_POLL_S, _POLL_MAX_S = 0.01, 0.5
_REST_PER_LOOK = 9


def until(is_reached: Callable[[], object], complaint: Callable[[], str] = str) -> None:
    """Look again and again until it is true; ``complaint``: the message if it never is."""
    deadline_s = time.monotonic() + WAIT_MAX_S
    began_s = time.monotonic()
    while not is_reached():
        now_s = time.monotonic()
        assert now_s < deadline_s, f"not reached in {WAIT_MAX_S} s: {complaint()}"
        time.sleep(min(_POLL_MAX_S, max(_POLL_S, _REST_PER_LOOK * (now_s - began_s))))
        began_s = time.monotonic()


class Background:
    """An action on a thread of its own; calling it waits for its answer."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._answers: list[object] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(action()), daemon=True)
        self._thread.start()

    def __call__(self) -> object:
        self._thread.join(WAIT_MAX_S)
        return self._answers[0]

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, or failed."""
        return not self._thread.is_alive()


def blocked_sessions(admin: psycopg.Connection[Any], *actions: Background) -> list[int]:
    """The sessions of stores on this database that wait for a lock, when there is one for each of these actions."""
    query = """SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'
               AND datname = current_database() AND application_name = 'dataflow'"""
    found: list[int] = []

    def are_there() -> bool:
        # Otherwise who is there is as of when this transaction asked first.
        admin.execute("SELECT pg_stat_clear_snapshot()")
        found[:] = [pid for (pid,) in admin.execute(query).fetchall()]
        assert not any(each.is_over for each in actions), "it waits for no lock"
        return len(found) == len(actions)

    until(are_there)
    return found

"""ConnectionRetries: when a connection that is lost is opened again, and when that is given up."""

from __future__ import annotations

from dataflow.errors import InputError
from dataflow.io.outages import Outages, steady_s
from dataflow.io.postgres_reads.connection import (
    error_code,
    is_lost,
    login_error,
    refuses_login,
)
from dataflow.source import Outage

#: How long a server that has let this job in before may refuse the login, in seconds: passwords are changed.
REFUSED_MAX_S = 60.0


class ConnectionRetries:
    """Which errors of attempts to read are passing ones, and the pauses between the attempts (`Outages`).

    Args:
        table: that is read, for messages.
        is_known: whether the server has let this job in before.
        slot: by which its changes are read; None: its rows are.
    """

    def __init__(self, table: str, *, is_known: bool, slot: str | None = None) -> None:
        self._table, self._is_known, self._slot = table, is_known, slot
        self._outages = Outages(table if slot is None else f"changes of {table} (slot {slot})")
        #: Since when logins are refused; None: they are not.
        self._refused_since_s: float | None = None

    @property
    def is_pausing(self) -> bool:
        """Whether the next attempt is still to wait."""
        return self._outages.is_pausing

    @property
    def outage(self) -> Outage | None:
        """What a batch says of it (`SourceBatch.outage`); None: the last attempt has not failed."""
        return self._outages.outage

    def succeeded(self) -> None:
        """Note that the server has answered."""
        self._outages.over()
        self._is_known, self._refused_since_s = True, None

    def wait(self, pause_s: float) -> None:
        """Pause without a failure.

        Args:
            pause_s: for so many seconds.
        """
        self._outages.pause(pause_s)

    def failed(self, error: Exception) -> None:
        """Pause, where another attempt may help; raise otherwise.

        Args:
            error: of the attempt.

        Raises:
            InputError: the server refuses what it is asked, or has refused the login for long.
        """
        if self._is_refused_for_long(error):
            raise login_error(self._table, error) from error
        if not is_lost(error):
            if error_code(error) is None:
                raise error
            raise InputError(
                f"the Postgres server refuses to let {self._table} be read",
                detail=" ".join(
                    [
                        *([] if self._slot is None else [f"slot {self._slot!r},"]),
                        f"SQLSTATE {error_code(error)}: {str(error).strip()}",
                    ]
                ),
                hint="docs/connectors/postgres.md lists the rights and settings that it needs",
            ) from error
        self._outages.failed(error)

    def _is_refused_for_long(self, error: Exception) -> bool:
        """Whether the login is refused, and has been for long, or was never accepted."""
        if not refuses_login(error):
            self._refused_since_s = None
            return False
        if self._refused_since_s is None:
            self._refused_since_s = steady_s()
        return not self._is_known or steady_s() - self._refused_since_s >= REFUSED_MAX_S

"""CommittedPositions: notifies the reader of a split of what is durable, for it to acknowledge that to its system.

At least once, never before it is durable, and in order: a position stands for all before it, so of several that wait
only the newest is of account.  What a reader raises harms no data; it is logged, and the reader is notified again.
"""

import logging
from typing import Any

from dataflow.metric_updates import uncounted
from dataflow.source import Source, SourceReader

_LOG = logging.getLogger(__name__)
#: How often a reader that is about to be closed is notified, at most.
TRIES_AT_END = 3
#: So many calls of `CommittedPositions.notify` are passed over, at most, after a failure.
_PASSED_OVER_MAX = 63


class CommittedPositions:
    """Notifies one reader; see the module.

    Args:
        source: of the split; where it acknowledges nothing, nobody is notified.
        reader: of the split.
        where: names the read, for the log.
    """

    def __init__(self, source: Source, reader: SourceReader, *, where: str) -> None:
        self._reader, self._where = reader, where
        self._acknowledges = source.acknowledges
        self._waiting: Any | None = None
        self._failures = self._passed_over = 0

    def note(self, position: Any | None) -> None:
        """Note that everything up to a position is durable; the reader is not notified yet.

        Args:
            position: behind a batch; None: at the start, where nothing has been read.
        """
        if self._acknowledges and position is not None:
            self._waiting = position

    def notify(self) -> None:
        """Notify the reader of what it has not acknowledged yet; where it has failed, ever more seldom.

        To be called now and then, between two reads.
        """
        if self._waiting is None:
            return
        if self._passed_over > 0:
            self._passed_over -= 1
            return
        self._notify()

    def _notify(self) -> None:
        try:
            with uncounted():
                self._reader.committed(self._waiting)
        except Exception as error:  # noqa: BLE001 - whatever it is, what was read is durable
            self._failures += 1
            self._passed_over = min((1 << self._failures) - 1, _PASSED_OVER_MAX)
            # Each of them would fill the log while a system is away: 1, 2, 4, 8, ...
            if self._failures & (self._failures - 1) == 0:
                _LOG.warning(
                    "%s: the reader could not acknowledge a committed position, %s times by now: %s: %s; nothing is "
                    "lost, and it is notified again",
                    self._where,
                    self._failures,
                    type(error).__name__,
                    error,
                    exc_info=error,
                )
        else:
            self._waiting, self._failures, self._passed_over = None, 0, 0

    def close(self) -> None:
        """Notify the reader, which is about to be closed; a few times if it fails."""
        for _ in range(TRIES_AT_END):
            if self._waiting is not None:
                self._notify()
        if self._waiting is not None:
            _LOG.error(
                "%s: the reader is closed, and has not acknowledged its last committed position; it is notified when "
                "the split is opened again",
                self._where,
            )
            self._waiting = None

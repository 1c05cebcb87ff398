"""SplitPoll: when a split was last asked for records, and when it last had some; for people, and for nothing else.

A split that was polled a moment ago and had nothing is quiet.  Of one that was not asked for a while nobody knows
whether it has something: its job is paused, its receivers do not keep up, or it has no worker.

All times are by the clock of the worker that reads, in microseconds since 1970; none of them is durable.
"""

from typing import Self

import attrs

from dataflow.source import Backlog, Outage, SourceBatch, SplitStatus


@attrs.frozen(kw_only=True)
class SplitPoll:
    """The last poll of a split.

    Attributes:
        polled_us: when it was.
        record_us: when a poll last had a record, also one that was set aside; None: none has, as far as is known.
        backlog: what was still to be read after it, as the source knows it; None: it does not.
        idle_since_us: the first poll by this owner since when its reader has said each time that the split is idle;
            None: it does not say so, whether or not it has records.
        is_finished: whether its reader has said that nothing will ever come.
        outage: why it could not be read, by the word of its reader, which tries again; None: it could.
        outage_since_us: the first poll by this owner since when it could not; None: it could.
    """

    polled_us: int
    record_us: int | None = None
    backlog: Backlog | None = None
    idle_since_us: int | None = None
    is_finished: bool = False
    outage: Outage | None = None
    outage_since_us: int | None = None

    @classmethod
    def of(cls, batch: SourceBatch, now_us: int, *, before: Self | None = None) -> Self:
        """The poll that had a batch.

        Args:
            batch: as the reader returned it.
            now_us: the processing time, in microseconds since 1970.
            before: the last poll before it; None: there was none.
        """
        poll = cls(
            polled_us=now_us,
            record_us=now_us if batch.records else None,
            backlog=batch.backlog,
            idle_since_us=_since(
                now_us,
                is_so=batch.status is SplitStatus.IDLE,
                known_us=None if before is None else before.idle_since_us,
            ),
            is_finished=batch.status is SplitStatus.FINISHED,
            outage=batch.outage,
            outage_since_us=_since(
                now_us,
                is_so=batch.outage is not None,
                known_us=None if before is None else before.outage_since_us,
            ),
        )
        return poll.following(before)

    def following(self, before: Self | None) -> Self:
        """This poll, which knows when the split last had a record before it, perhaps with another owner.

        Args:
            before: what is known of the split without this one; None: nothing.
        """
        if self.record_us is not None or before is None:
            return self
        return attrs.evolve(self, record_us=before.record_us)


def _since(now_us: int, *, is_so: bool, known_us: int | None) -> int | None:
    """Since when something is so; None: it is not."""
    if not is_so:
        return None
    return now_us if known_us is None else known_us

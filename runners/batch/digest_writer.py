"""DigestWriter: the writer of a range that has neither rows nor dead letters nor lineage.

Only its digests are to be committed, once, when it is done; so it is not taken over before, and nothing of it is
written twice by being written anew (`range_writer.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Self

from dataflow.metric_updates import MetricValues
from dataflow.table import TableWrite
from runners.batch.range_writer import RangeWriter
from runners.core.ground.dead_letters import DeadLetter
from runners.core.ground.lineage import LineageEntry
from runners.stored.places import ReadSoFar


class DigestWriter:
    """Stands in for a `RangeWriter` that has nothing to write until its range is done.

    Args:
        take_over: makes the `RangeWriter`.

    Attributes:
        is_finished, is_full: such a range is worked off again in every run: only its receivers are asked whether they
            need it.
        token: none: the range is not taken over before its end.
    """

    is_finished = is_full = False
    token = 0
    read_so_far = ReadSoFar()

    def __init__(self, take_over: Callable[[], RangeWriter]) -> None:
        self._take_over = take_over

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing: nothing is open."""

    @property
    def has_sent(self) -> bool:
        """Whether an earlier attempt has sent everything; takes the range over to look."""
        with self._take_over() as writer:
            return writer.has_sent

    def resume(self) -> None:
        """Do nothing: no earlier attempt has committed anything that could be continued."""

    def pass_over(self, dead: Sequence[DeadLetter]) -> None:
        """Do nothing: no committed letter could come again."""

    def write(
        self,
        writes: Iterable[TableWrite],
        dead: Sequence[DeadLetter] = (),
        lineage: Sequence[LineageEntry] = (),
    ) -> None:
        """There is nothing to write."""
        assert not dead
        assert not lineage
        assert not [*writes]

    def check_sent(self, sent: Mapping[int, int] | None) -> None:
        """The digests are compared when they are committed."""

    def commit(
        self,
        read_so_far: ReadSoFar | None = None,
        *,
        is_last: bool,
        sent: Mapping[int, int] | None = None,
        packings: Mapping[int, Sequence[int]] = MappingProxyType({}),
        metrics: MetricValues = MappingProxyType({}),
    ) -> None:
        """Take the range over and commit its digests, and what was counted, if it is done and there is any of these.

        Raises as `RangeWriter.__enter__` and `RangeWriter.commit` do.
        """
        if is_last and (sent is not None or metrics):
            with self._take_over() as writer:
                writer.commit(
                    read_so_far, is_last=True, sent=sent, packings=packings, metrics=metrics
                )

"""ModelSink: a sink in memory with transactions, fences, time-outs and outcomes that nobody knows.

It is the specification of a sink, and what the relay is tested against.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import attrs

from dataflow.errors import SinkFencedError
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter


class Outcome(Enum):
    """What becomes of an act of a `ModelSink`."""

    #: It is done, and the writer knows.
    DONE = "done"
    #: It is not done, and the writer knows: an abort, a refused connection.
    FAILED = "failed"
    #: It is done, and the writer does not know.
    DONE_UNREPORTED = "done, unreported"
    #: It is not done, and the writer does not know.
    LOST = "lost"
    #: It is on its way, and the writer does not know: done later, unless the lane is fenced before.
    DELAYED = "delayed"


class OutcomeUnknownError(Exception):
    """Nobody knows whether an act of a `ModelSink` was done."""


@attrs.define
class ModelLane:
    """What the sink has of one lane: the token, the number, and the changes.

    Attributes:
        delayed: commits that are on their way, with the tokens of their writers.
    """

    token: int = 0
    number: int = 0
    changes: list[SinkChange] = attrs.field(factory=list)
    numbers: list[int] = attrs.field(factory=list)
    delayed: list[tuple[int, int, Sequence[SinkChange]]] = attrs.field(factory=list)


class ModelSink(Sink[Any]):
    """A sink in memory, of this process.

    Args:
        lanes: how many.
        fate: called before each commit with the lane; decides what becomes of it.
        between: called between the steps of each act, with their names: others may act there.
        takes_retractions: whether changes may be retractions.
        batching: how large batches are.
    """

    def __init__(
        self,
        *,
        lanes: int = 1,
        fate: Callable[[Lane], Outcome] = lambda _: Outcome.DONE,
        between: Callable[[str], None] = lambda _: None,
        takes_retractions: bool = True,
        batching: Batching | None = None,
    ) -> None:
        self._lanes, self.fate, self.between = lanes, fate, between
        self._takes_retractions = takes_retractions
        self._batching = batching or Batching()
        self.state: dict[str, ModelLane] = {}

    @property
    def lanes(self) -> int:
        """How many lanes it was given."""
        return self._lanes

    @property
    def takes_retractions(self) -> bool:
        """Whether it was made so."""
        return self._takes_retractions

    @property
    def batching(self) -> Batching:
        """How large batches are."""
        return self._batching

    def open(self, lane: Lane) -> SinkWriter:
        """A writer of a lane."""
        return ModelWriter(self, lane)

    @property
    def changes(self) -> list[SinkChange]:
        """All changes that the sink has, lane by lane."""
        return [change for lane in self.state.values() for change in lane.changes]

    def let_land(self) -> None:
        """Have all commits that are on their way done, but for those whose lane was fenced."""
        for lane in self.state.values():
            delayed, lane.delayed = lane.delayed, []
            for token, number, changes in delayed:
                if token == lane.token:
                    commit(lane, number, changes)


class ModelWriter(SinkWriter):
    """A writer of a `ModelSink`.

    Args:
        sink: the sink.
        lane: the lane.
    """

    def __init__(self, sink: ModelSink, lane: Lane) -> None:
        self.sink, self.lane, self.token = sink, lane, 0
        self.state = sink.state.setdefault(lane.writer, ModelLane())

    def fence(self, token: int) -> int:
        """Shut out writers with lower tokens, then read the number.

        Raises:
            SinkFencedError: the token is not higher than all before.
        """
        self.sink.between("before the fence")
        if token <= self.state.token:
            raise SinkFencedError(f"{self.lane.title} was fenced")
        self.state.token = self.token = token
        self.sink.between("between the fence and the number")
        return self.state.number

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Write the changes and keep the number.

        Raises:
            SinkFencedError: the lane was fenced.
            ConnectionError: nothing was done, by `Outcome.FAILED`.
            OutcomeUnknownError: nobody knows.
        """
        self.sink.between("before the write")
        fate = self.sink.fate(self.lane)
        if fate is Outcome.FAILED:
            raise ConnectionError("the model sink was not reached")
        if fate is Outcome.DELAYED:
            self.state.delayed.append((self.token, number, changes))
        elif fate is not Outcome.LOST:
            if self.token != self.state.token:
                raise SinkFencedError(f"{self.lane.title} was fenced")
            commit(self.state, number, changes)
        self.sink.between("after the write")
        if fate is not Outcome.DONE:
            raise OutcomeUnknownError(fate.value)


def commit(lane: ModelLane, number: int, changes: Sequence[SinkChange]) -> None:
    """Have a batch in the sink.  It does not look at the number, as most systems do not: that is the relay's part.

    Args:
        lane: changed in place.
        number: of the batch.
        changes: of the batch.
    """
    lane.number = number
    lane.numbers.append(number)
    lane.changes.extend(changes)

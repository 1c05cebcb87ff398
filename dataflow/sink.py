"""The Sink contract: how rows leave a pipeline exactly once, to a system that is not the store.

What leaves is durable in the store before it is sent, in an outbox that is divided into lanes.  A relay takes batches
out of a lane, numbers them from 1 without a gap, and has the sink keep, in one atomic act, the changes of a batch and
its number.  Whoever takes a lane over fences it first, and then asks for the number: what is above it is sent, what is
not is there.  So no commit in two phases is needed, and nothing is lost or written twice whatever dies, and whenever.

MillWheel, section 5.2 (strong productions: checkpoint, then send until it is acknowledged).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic

import attrs
import msgspec

from dataflow.table import ColumnType, TableSpec
from dataflow.type_vars import InT_contra

#: Columns of every outbox, before those of the sink: its lane, and the sign of the change.
LANE, SIGN = "dataflow_lane", "dataflow_sign"
#: The column of elements of any kind.
VALUE = "value"


class SinkChange(msgspec.Struct, frozen=True):
    """An element that is emitted or retracted.

    Attributes:
        value: the element; for a sink with `Sink.columns` a tuple of their values, in their order.
        sign: +1 for an emission, -1 for the retraction of an equal element that was emitted before.
    """

    value: Any
    sign: int


@attrs.frozen(kw_only=True)
class Batching:
    """How large batches are, and how long changes wait for others so that they are.

    A batch is sent when it is full, when the first of its changes has waited for `max_delay_ms`, or when no more
    changes can come: at the end of the job, and of a batch.  A job that is paused leaves what waits in the outbox.

    Attributes:
        max_delay_ms: how long a change waits, about; 0: what is there is sent at once.
        max_bytes: a batch with so many bytes, as the outbox has them, is full; a single larger row is a batch of its
            own.  A batch is held in memory, in several times as many bytes.
        max_rows: a batch with so many changes is full.
    """

    max_delay_ms: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    max_bytes: int = attrs.field(default=16 << 20, validator=attrs.validators.gt(0))
    max_rows: int = attrs.field(default=10_000, validator=attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class Lane:
    """Part of an outbox that is sent in order; the changes of one `Sink.lane_key` are all in one lane.

    Attributes:
        writer: an opaque text under which the sink keeps the lane's number: another one for each job, sink and lane,
            and after a job was begun anew (``fresh=True``).
        number: of the lane, from 0.
        title: job, sink and lane, for messages.
        delivered: the number of the last batch that the relay knows to be delivered; 0: none.  For a sink that keeps no
            number (`AtLeastOnce` in its name): `SinkWriter.fence` returns it.
    """

    writer: str
    number: int
    title: str
    delivered: int = 0


class SinkWriter(ABC):
    """Writes the batches of one lane; made by `Sink.open`, used by one thread.

    A writer is closed after any exception, and another one is opened, which fences the lane anew and asks.
    """

    @abstractmethod
    def fence(self, token: int) -> int:
        """Shut out every writer of this lane with a lower token, for ever; then read the lane's number.

        In this order: a number that is read before the fence may be changed by a writer that is still at work.

        Args:
            token: higher than that of every writer of this lane before.

        Returns:
            The number of the last batch that the sink has; 0: none.  Of a sink that keeps none: `Lane.delivered`.

        Raises:
            SinkFencedError: the lane was fenced with this token or a higher one.
        """

    @abstractmethod
    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Write the changes and keep the number, in one atomic act: all of it or nothing.

        Args:
            number: of the batch: that of the last one, and 1.
            changes: in the order in which they were made; at least one.

        Raises:
            SinkFencedError: another writer has fenced the lane; nothing was written, and nothing will be.
            SinkRefusedError: the sink takes no such rows, however often they are sent; nothing was written.
            Exception: the sink was not reached, or nobody knows whether the batch was written.  It is not sent again
                before the lane has been fenced and the number read.
        """

    def close(self) -> None:  # noqa: B027 - some writers hold nothing
        """Release connections.  Idempotent, and raises nothing."""


class Sink(ABC, Generic[InT_contra]):
    """A system that elements are written to exactly once.  Instances are pickled with the pipeline.

    A sink that cannot keep a number together with its rows is given a batch again whose outcome is not known, with the
    same number and the same changes: it says *at least once* by its name, and sends writer, number and index of each
    change along, so that a receiver can know it again.
    """

    @property
    def lanes(self) -> int:
        """How many parts the outbox has, which are sent independently; at least 1."""
        return 1

    @property
    def columns(self) -> Mapping[str, ColumnType] | None:
        """Columns of rows, as for `WriteToPostgres`; None: elements are of any kind, and are pickled."""
        return None

    @property
    def takes_retractions(self) -> bool:
        """Whether changes may have the sign -1; otherwise input that retracts is refused when the pipeline is built."""
        return True

    @property
    def batching(self) -> Batching:
        """How large batches are; by default what waits is sent at once."""
        return Batching()

    def lane_key(self, element: InT_contra) -> Any:
        """What decides on the lane of an element, anything that is a key: changes of one key keep their order.

        Args:
            element: for a sink with `columns`, a tuple of their values.
        """
        return element

    def check(self) -> None:
        """Raise an error if the sink cannot be written to, before any work starts."""

    @abstractmethod
    def open(self, lane: Lane) -> SinkWriter:
        """A writer of a lane.  It need not be connected yet.

        Args:
            lane: the lane.
        """


def outbox_of(name: str, sink: Sink[Any]) -> TableSpec:
    """The table in which changes wait for a sink.

    Args:
        name: that of the table.
        sink: the sink.
    """
    columns = {VALUE: bytes} if sink.columns is None else sink.columns
    return TableSpec(name=name, columns={LANE: int, SIGN: int, **columns}, is_outbox=True)

"""The Source contract: one for bounded and unbounded inputs.

A source is divided into splits; a split is read from a position, and each batch has the position where it ended, the
watermark that event time has come to, and whether there is more.  The watermark is the source's business because it
must be known before user code can filter records away.

A source of changes (rows that are inserted, replaced and deleted) retracts records: a record with a sign of -1
retracts an equal one (`Source.emits_retractions`).

MillWheel, section 4.6 (injectors).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, Generic

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.set_aside import SetAside
from dataflow.type_hints import bounded, parameters_of
from dataflow.type_vars import OutT_co


class SplitStatus(Enum):
    """The status that a split reports of itself."""

    #: There is, or may soon be, more to read.
    ACTIVE = "active"
    #: It was polled and had nothing; it does not hold the watermark back until it has again.
    IDLE = "idle"
    #: It will never have more.
    FINISHED = "finished"


@attrs.frozen(kw_only=True)
class Backlog:
    """What a split has that is still to be read, as far as its source can know that; for people, and for nothing else.

    Estimates are welcome, except that 0 is exact: there is nothing now.

    Attributes:
        records: how many; None: not known.
        size_bytes: how large they are, as the source has them; None: not known.
        age_us: for how long the first of them has been there, in microseconds; 0 where there is none; None: not known.
    """

    records: int | None = None
    size_bytes: int | None = None
    age_us: int | None = None


@attrs.frozen(kw_only=True)
class Outage:
    """An input, or a part of it, that cannot be read at the moment while its reader tries again; only for messages.

    Attributes:
        what: cannot be read, in words that stay the same for as long as that lasts.
        error: of the last try.
    """

    what: str
    error: str


@attrs.frozen(kw_only=True)
class SourceBatch:
    """Records read in one go.

    Attributes:
        values: the records, in the order of the source; empty: there are none now.
        timestamps_us: the event time of each, in microseconds since 1970.
        position: resumes right after the records and is committed together with their effects, so they are read once as
            far as anyone can see.
        watermark_us: bounds from below the event times still to come from this split; a record below it is late data,
            never an error.
        status: whether there may be more records soon, later, or never.
        processing_time_us: the test's clock, when this batch arrives.  The direct runner follows it, never back; other
            runners have a clock of their own, or none.
        signals: the names of signals that a test sends, after the records; to the direct runner alone, as a job of
            another runner receives them through its store.
        set_aside: records among them that are not handed over because they are malformed, and where each is.  Where the
            runner keeps dead letters they become such, in the same commit as the others; else the first of them ends
            the run.
        signs: of each record +1, or -1 where it retracts one that the split has handed over before: an equal value, at
            the same event time.  None: all are +1.  Only for sources that say so (`Source.emits_retractions`).
        backlog: what is still to be read behind the batch; None: the source does not know.  Nothing depends on it.
        outage: why there are no records, where the input cannot be read and the reader tries again by itself, without a
            loss; None: it can be read.  Nothing depends on it.

    Raises:
        InputError: the backlog is none, or a number of it is negative or no integer; or there is an outage, and
            there are records or the split is not active.
    """

    values: Sequence[Any]
    timestamps_us: Sequence[int]
    position: Any
    watermark_us: int
    status: SplitStatus = SplitStatus.ACTIVE
    processing_time_us: int | None = None
    signals: tuple[str, ...] = ()
    set_aside: Sequence[SetAside] = ()
    signs: Sequence[int] | None = None
    backlog: Backlog | None = None
    outage: Outage | None = None

    def __attrs_post_init__(self) -> None:
        if self.backlog is not None:
            _check_backlog(self.backlog)
        if self.outage is not None and (self.records or self.status is not SplitStatus.ACTIVE):
            raise InputError(
                f"a SourceBatch says that {self.outage.what} cannot be read, and what was read of it",
                detail=f"it has {self.records} records, and the split is {self.status.value}",
                hint="give outage= with a batch that has no records, of a split that is active",
            )

    @property
    def records(self) -> int:
        """How many records were read, those that were set aside among them."""
        return len(self.values) + len(self.set_aside)


def _check_backlog(backlog: object) -> None:
    if not isinstance(backlog, Backlog):
        raise InputError(
            f"the backlog of a SourceBatch cannot be {backlog!r:.100}",
            hint="give it as df.Backlog(records=...), or None where it is not known",
        )
    for name, number in attrs.asdict(backlog).items():
        is_integer = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and not (is_integer and number >= 0):
            raise InputError(
                f"the backlog of a SourceBatch cannot have {name}={number!r}",
                detail="it is what is still to be read: an integer that is not negative",
                hint="use 0 where there is nothing, and None where it is not known",
            )


@attrs.frozen(kw_only=True)
class SplitChanges:
    """How the splits of a source differ from those that a job knows (`Source.discover`).

    Attributes:
        added: splits that are not among the known ones.
        removed: those of the known ones that the input does not have any more, and will not have again.  Splits that
            have ended before may be among them.
    """

    added: Sequence[Any] = ()
    removed: Sequence[Any] = ()


class SourceReader(ABC):
    """Reads one split, in order.

    Attributes:
        reads_columns: whether its batches are columns (`dataflow.columns`), so that more records in one go cost little
            memory.
    """

    reads_columns: bool = False

    @abstractmethod
    def read(self, max_records: int) -> SourceBatch:
        """At most ``max_records`` more records, with those that are set aside; may be none.

        Raises:
            InputError: the input cannot be read on.  A record that is malformed is set aside instead.
        """

    def ignore_after(self, ceiling_us: int) -> bool:
        """Have the watermark follow no event time that is later, as that is wrong; called before each `read`.

        For a reader whose watermark follows the newest of what it reads, and so would never come back from a wrong one.
        Others need not override it: the watermark of theirs that is later is not believed.  A source with a trusted
        watermark is not asked (`Source.has_trusted_watermark`).

        Args:
            ceiling_us: as far ahead of the clock as an event time can be, in microseconds since 1970.

        Returns:
            Whether records that are later are set aside: True, if the watermark follows records; False, if it follows
            something else, so that they do no harm.
        """
        del ceiling_us
        return False

    def committed(self, position: Any) -> None:  # noqa: B027 - most systems need not know
        """Acknowledge everything up to a position: it is durable, with all that was made of it.

        For systems that keep what is not acknowledged: queues, replication slots, groups with offsets.  Called only if
        the source says so (`Source.acknowledges`), between two reads, and at least once for the last of all positions:
        also again, with the position at which the reader was opened, as its predecessor may have died before; and not
        for each batch, as a position stands for all before it.  Never before it is durable, and never an earlier
        position than before; but a former owner of the split that is cut off may still call it, later and with an
        earlier one.

        It returns soon.  What it raises is logged, and it is called again; no record is lost or repeated by that.

        *Durable* means: in a stream, the commit with the position has happened; in a batch, the whole run has ended,
        and a new reader, opened there, is notified in the driver; after a backfill, the stream that goes on notifies it
        when it opens the split; in memory, where nothing is durable, a bundle has gone through the whole pipeline.

        Args:
            position: as a batch of this reader had it, or of an earlier one.
        """

    def close(self) -> None:  # noqa: B027 - most readers hold nothing
        """Release files and connections.  Idempotent."""


class Source(ABC, Generic[OutT_co]):
    """An input.  Instances are pickled and shipped to workers; readers are opened there.

    ``class Orders(df.Source[Order])`` names the type of its elements; ``df.Source`` has any.

    Splits and positions are plain data that `pickle` takes, without functions.
    """

    @property
    def element_type(self) -> Any:
        """The type of its elements: that in ``Source[...]``; `typing.Any`: nobody knows."""
        return bounded(next(iter(parameters_of(type(self), Source)), Any))

    @property
    def is_bounded(self) -> bool:
        """Whether the input ends by itself, as files and memory do.

        Override it with False in a source that follows a stream or a directory: a pipeline that waits for the end of
        such an input is then refused when it is built.
        """
        return True

    @property
    def has_arrival_order(self) -> bool:
        """Whether a stateful DoFn that declares no order is given records in the order in which they arrive.

        It is where the input has no end.  Where it has one, such a DoFn is given records in the order of event times,
        which is the same on every runner.  Override it with True in a bounded source that plays a stream.
        """
        return not self.is_bounded

    def check(self) -> None:
        """Raise `InputError` if the input cannot be read, before any work starts."""

    @property
    def input_name(self) -> str | None:
        """The name of the input, as plain text: a path, a topic; None if there is no such text.

        A job that is continued reads on in the splits that it has.  With another name its input is another one, so its
        positions there mean nothing.
        """
        return None

    @property
    def has_event_times(self) -> bool:
        """Whether it knows when its records happened; otherwise all are at the beginning of time."""
        return True

    @property
    def emits_retractions(self) -> bool:
        """Whether its readers retract records (`SourceBatch.signs`), as a source of changes does.

        Override it with True in such a source: what follows is then built for input that may be retracted, and a
        reader of another source that retracts something ends the run.  A retraction is of the same split as its record,
        and comes after it.  It has the event time of its record, and lands in the same window; so it is late where the
        watermark has passed that time, unless the source holds it back, or the window is all of time.
        """
        return False

    @property
    def acknowledges(self) -> bool:
        """Whether its readers want to know what is durable (`SourceReader.committed`).

        Override it with True in a source of a queue or the like.
        """
        return False

    @property
    def keeps_set_aside(self) -> bool:
        """Whether its readers may set records aside that are always kept (`SetAside.is_always_kept`)."""
        return False

    @property
    def has_trusted_watermark(self) -> bool:
        """Whether its watermark is believed however far it is ahead of the clock.

        Override it with True in a source that looks at each event time itself, or whose times have to do with no clock.
        """
        return False

    @abstractmethod
    def splits(self, desired: int) -> Sequence[Any]:
        """Divide the input into at least one part, aiming at ``desired``; 1 asks to keep the order of the input."""

    def estimate_size(self) -> int | None:
        """How many bytes the input has, about, as text or the like; None: nobody knows, or what is read says little.

        A batch divides a small input into fewer parts, as each costs a task.  Called in the driver, perhaps before
        `check`, and again whenever the job is run.  Where elements stand for more than they are, as names of files do,
        it is best left as it is.

        Raises:
            InputError: the input cannot be read.
        """
        return None

    def release(self) -> None:
        """Let go of what `splits` holds for the readers, in the driver: the run has ended, however.  Idempotent.

        What a driver holds ends with it, so the readers of the next one, which begin where a split was read to, must do
        without.
        """

    @property
    def discover_every_ms(self) -> int | None:
        """How long a stream waits, in milliseconds, before it asks again for splits that come and go (`discover`).

        Override it in a source that gets splits while a job runs, such as a topic whose partitions grow; 30,000 is a
        good value.  A job that reads such a source never ends by itself, so the source is not bounded.  None: its
        splits are those that it has when the job is created.
        """
        return None

    def discover(self, known: Sequence[Any]) -> SplitChanges:
        """The splits that have come and gone since the job was created.

        Called only if the source says how often (`discover_every_ms`): in a stream by the driver, in a thread of its
        own and with no reader of the source, first when the job begins or goes on; in memory when no known split has
        anything.
        A batch and a backfill read the splits that there are when they begin; the stream behind the backfill asks.

        *A split that is added* is read from its start (`open` with no position), once and for ever: the job keeps it
        durably before anybody reads it.  Its event time begins at that of the source then, as no watermark goes back,
        so what it has from before is late.  A split is known by what it is made of, so what `discover` says of a new
        one must not differ when it is asked again before the job has kept it.  Each costs the job a row and some
        memory for ever: meant for hundreds or thousands, not for a file each.

        *A split that is removed* ends where it has been read to, and the job logs that.  What it had that was not read
        is lost: by whoever removed it, not by the job.  A split never begins again, so one that comes again under
        its old name has to be another one: give it what tells them apart, such as the id of a topic beside its name.

        Name only what is certain: a listing that fails raises, and one that may lack something removes nothing.

        Args:
            known: every split that the job has had of this source, in the order in which they came: those of `splits`,
                of earlier answers, perhaps of an earlier version of the source, and those that have ended.

        Raises:
            Exception: nothing is known at the moment.  It is logged, and asked again; nothing else happens.
        """
        del known
        return SplitChanges()

    @abstractmethod
    def open(self, split: Any, position: Any | None, *, fence: int) -> SourceReader:
        """A reader of ``split`` from ``position``, or from its start if None.

        Args:
            split: one of `splits` or of `discover`, or of those of an earlier version of the source.
            position: as a batch of an earlier reader had it; None: the start.
            fence: grows with each owner of the split in a job, for systems that can shut an earlier owner out, which
                may not know yet that it is none any more: a slot that is taken over, an id of transactions.  What such
                an owner reads is never committed in any case.  It starts again from 0 where a job is forgotten, and
                from that of a backup where the store is restored.  0: the engine has none, in memory and for tasks of
                a batch that write nothing themselves.
        """

    def repeatable(self) -> "Source[OutT_co]":
        """The input for an engine that may read a split again after others have used its records, as in batch.

        Its readers hand over the same values and times every time, as most do anyway.
        """
        return self


def check_discovery(source: Source) -> None:
    """Refuse a source that nobody would ask for new splits, or that cannot be asked.

    Raises:
        PipelineError: it defines `Source.discover` and does not say how often that is to be asked; or it says so and is
            bounded; or that is no positive number of milliseconds.
    """
    kind, every_ms = type(source), source.discover_every_ms
    name = kind.__name__
    if every_ms is None:
        is_asked = kind.discover_every_ms is not Source.discover_every_ms
        if kind.discover is not Source.discover and not is_asked:
            raise PipelineError(
                f"{name} defines discover, which nobody would call",
                hint=f"override discover_every_ms in class {name} with a number, such as 30_000, or leave discover out",
            )
        return
    if not isinstance(every_ms, int) or isinstance(every_ms, bool) or every_ms <= 0:
        raise PipelineError(
            f"{name}.discover_every_ms must be a positive number of milliseconds, and is {every_ms!r}",
            hint="30_000 is a good value; None, if its splits never change",
        )
    if source.is_bounded:
        raise PipelineError(
            f"{name} may get splits while a job runs, and says that it ends by itself",
            detail="discover_every_ms is a number, and is_bounded is True",
            hint=f"override is_bounded with False in class {name}",
        )


def checked_changes(source: Source, changes: object) -> SplitChanges:
    """What `Source.discover` has returned.

    Args:
        source: that was asked.
        changes: its answer.

    Raises:
        InputError: it is no `SplitChanges`.
    """
    if isinstance(changes, SplitChanges):
        return changes
    name = type(source).__name__
    raise InputError(
        f"{name}.discover has returned no SplitChanges, but {changes!r:.100}",
        hint="return df.SplitChanges(added=[...], removed=[...])",
    )


def open_split(source: Source, split: Any, position: Any | None, *, fence: int = 0) -> SourceReader:
    """A reader of a split, as every engine opens it.

    Args:
        source: of the split.
        split: one of `Source.splits`.
        position: where to go on; None: at its start.
        fence: of its owner; 0: there is none.

    Raises:
        InputError: what was opened is no reader, or wants to be notified and its source does not say so.
    """
    reader: object = source.open(split, position, fence=fence)
    name = type(source).__name__
    if not isinstance(reader, SourceReader):
        raise InputError(
            f"{name} has opened no SourceReader, but {reader!r:.100}",
            hint=f"return a df.SourceReader from {name}.open",
        )
    if not source.acknowledges and type(reader).committed is not SourceReader.committed:
        raise InputError(
            f"{type(reader).__name__} defines committed, which nobody would call",
            detail=f"{name} does not say that it acknowledges what is durable",
            hint=f"override acknowledges with True in class {name}, or leave committed out",
        )
    return reader

"""WhyExplanation: the answer to "why has this not fired?", as a value with a form in JSON and one for terminals.

The sentence comes first; below it the chain of what holds event time back, from the stage that was asked for to what
nothing else holds; then a table.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Self

import attrs
import msgspec

from runners.observability.why.words import shown_tree
from triggers.awaited import Awaited
from windowing.window import Window

#: Of the form in JSON; a field may be added that has a default, and any other change counts it up.
VERSION = 1


class CauseKind(StrEnum):
    """Why something has not fired; in the order in which causes are looked for."""

    FINISHED = "finished"
    NOT_RUNNING = "not running"
    DRIVER_SILENT = "driver silent"
    DRIVER_BUSY = "driver busy"
    PAUSED = "paused"
    BATCH = "batch"
    KEY_LATE = "key late"
    KEY_UNSEEN = "key unseen"
    KEY_HIDDEN = "key hidden"
    EMITTED = "emitted"
    RECORDS = "records"
    CLOCK = "clock"
    SIGNAL = "signal"
    NEVER = "never"
    OWN_TRIGGER = "own trigger"
    TRIGGER_OVER = "trigger over"
    OVERDUE = "overdue"
    # What event time is held by: the kinds of the last of the chain.
    RANGE_WITHOUT_OWNER = "range without owner"
    WORKER_SILENT = "worker silent"
    REPORTS_REFUSED = "reports refused"
    WORKER_BUSY = "worker busy"
    COMMIT_WAITS = "commit waits"
    UNACKNOWLEDGED = "unacknowledged"
    NOT_REPORTED = "not reported"
    BEHIND_ITS_INPUT = "behind its input"
    OPEN_WINDOW = "open window"
    NEW_SPLITS = "new splits"
    MAY_GROW = "may grow"
    NEVER_POLLED = "never polled"
    NOT_POLLED = "not polled"
    INPUT_AWAY = "input away"
    NEVER_READ = "never read"
    ALL_IDLE = "all idle"
    WAITS_FOR_RECORD = "waits for record"
    READING = "reading"
    ENDED = "ended"
    UNKNOWN = "unknown"
    # Nothing is wrong with event time.
    NOTHING_DUE = "nothing due"
    SINK_WAITS = "sink waits"


class HolderKind(StrEnum):
    """What holds."""

    STAGE = "stage"
    RANGE = "range"
    SPLIT = "split"
    PRODUCTION = "production"
    WINDOW = "window"
    WORKER = "worker"
    SESSION = "session"
    SOURCE = "source"


@attrs.frozen(kw_only=True)
class Holder:
    """One link of the chain.

    Attributes:
        kind: what it is.
        name: of the stage, range, worker or channel.
        value_us: the event time at which it holds, in microseconds since 1970.
        text: a sentence about it.
        cause: of the last link, and of those that stand for it; None: it is held by the next one.
        as_far: others that hold at the same event time.
        details: numbers and texts, for programs.
    """

    kind: HolderKind
    name: str
    value_us: int
    text: str
    cause: CauseKind | None = None
    as_far: tuple[str, ...] = ()
    details: Mapping[str, str | int | bool | None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Fact:
    """A line of the table.

    Attributes:
        source: where the value is from: a view of the store, or what the driver has written.
    """

    name: str
    value: str
    source: str = ""


@attrs.frozen(kw_only=True)
class Asked:
    """What was asked.

    Attributes:
        stage: the one that the answer is about; None: it was not found.
    """

    job: str
    stage: str | None = None
    key: str | None = None
    window: Window | None = None


@attrs.frozen(kw_only=True)
class WhyExplanation:
    """The answer.

    Attributes:
        asked: the question.
        sentence: the answer, in one or two lines.
        cause: the first that holds.
        chain: from the stage to what nothing else holds; empty: event time is not the reason.
        awaited: what the trigger waits for; None: no window was asked for, or it is not known.
        facts: the table.
        hints: what one can do.
        now_us: by the clock of whoever has asked, in microseconds since 1970.
        as_of_us: when the evidence was taken; None: now.
        unknown: what could not be found out, and why.
    """

    asked: Asked
    sentence: str
    cause: CauseKind
    now_us: int
    chain: tuple[Holder, ...] = ()
    awaited: Awaited | None = None
    facts: tuple[Fact, ...] = ()
    hints: tuple[str, ...] = ()
    as_of_us: int | None = None
    unknown: tuple[str, ...] = ()
    version: int = VERSION

    @property
    def leaf(self) -> Holder | None:
        """The last of the chain; None: there is none."""
        return self.chain[-1] if self.chain else None

    def as_json(self) -> Mapping[str, Any]:
        """All of it as plain values, for JSON; instants are microseconds since 1970, windows ``[start, end]``."""
        found: Mapping[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`.

        Args:
            found: of this version.
        """
        return msgspec.convert(found, cls)

    def lines(self) -> Iterator[str]:
        """The answer for a terminal, line by line."""
        yield from self.sentence.splitlines()
        if self.awaited is not None:
            yield ""
            yield "its trigger:"
            yield from (f"  {line}" for line in shown_tree(self.awaited))
        if self.chain:
            yield ""
            yield "held by:"
            for depth, holder in enumerate(self.chain):
                yield f"  {'  ' * depth}{holder.text}"
        if self.facts:
            yield ""
            width = max(len(fact.name) for fact in self.facts)
            yield from (f"{fact.name.ljust(width)}  {fact.value}" for fact in self.facts)
        for hint in self.hints:
            yield ""
            yield f"hint: {hint}"
        for each in self.unknown:
            yield ""
            yield f"unknown: {each}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

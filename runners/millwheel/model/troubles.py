"""Troubles: why workers of a job end or wait, how often, and when, and that they go on; reported to people.

No result depends on it: a job is right whatever is noted here.  It is bounded, so a trouble of which there are very
many kinds pushes out older ones.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import attrs

from windowing.errors import error_text

#: Kinds of trouble that are remembered of a job.
TROUBLES_MAX = 100
#: Of a reason; the rest of it is in the log of the process that reported it.
REASON_CHARS_MAX = 4_000


class TroubleKind(StrEnum):
    """What a trouble has led to."""

    DEATH = "death"
    WAIT = "wait"
    RESUMED = "end of a wait"


_VERBS = {TroubleKind.DEATH: "ended", TroubleKind.WAIT: "waits", TroubleKind.RESUMED: "goes on"}


@attrs.frozen(kw_only=True)
class Trouble:
    """One reason, and how often it was the reason.

    Attributes:
        kind: whether a worker ended, waits, or goes on.
        place: whose work it was: ranges, or a slot where nothing is known of them.
        reason: the cause first, in one line; then what is known of it.
        count: how often.
    """

    kind: TroubleKind
    place: str
    reason: str
    count: int = 1

    @property
    def headline(self) -> str:
        """The first line of the reason."""
        return self.reason.partition("\n")[0]

    def __str__(self) -> str:
        times = "" if self.count == 1 else f" ({self.count} times)"
        return f"a worker {_VERBS[self.kind]} at {self.place}{times}: {self.reason}"


@attrs.frozen(kw_only=True)
class StoredTrouble:
    """A trouble as the store has it."""

    trouble: Trouble
    first_at: datetime
    last_at: datetime


#: Troubles with the same key are counted as one.
_Key = tuple[TroubleKind, str, str]


def _key(trouble: Trouble) -> _Key:
    return trouble.kind, trouble.place, trouble.headline


class TroubleBook:
    """The troubles that one driver knows, by kind, place and first line of the reason."""

    def __init__(self) -> None:
        self._counts: dict[_Key, int] = {}
        self._unreported: dict[_Key, Trouble] = {}
        #: The one noted last, with the number of times that it has been noted.
        self.latest: Trouble | None = None

    def note(self, kind: TroubleKind, place: str, reason: str) -> None:
        """Note that something has ended, waits, or goes on.

        Args:
            kind: what has happened.
            place: where: a worker, or a range.
            reason: its headline first, then the details.
        """
        noted = Trouble(kind=kind, place=place, reason=reason[:REASON_CHARS_MAX])
        key = _key(noted)
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        while len(self._counts) > TROUBLES_MAX:
            del self._counts[next(iter(self._counts))]
        self.latest = attrs.evolve(noted, count=count)
        before = self._unreported.get(key)
        self._unreported[key] = attrs.evolve(noted, count=1 + (before.count if before else 0))

    def take(self) -> Sequence[Trouble]:
        """Return the troubles noted since the last call, each with how often since then."""
        taken, self._unreported = self._unreported, {}
        return list(taken.values())

    def total(self, trouble: Trouble) -> int:
        """How often there has been a trouble of that kind, place and headline."""
        return self._counts.get(_key(trouble), trouble.count)


def reason_of(error: BaseException) -> str:
    """Why something has failed: the last cause first, then the errors that it has led to."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    lines = [_one(each) for each in reversed(chain)]
    # An error of this package quotes its cause; then the line of the cause adds nothing.
    kept = [
        line
        for index, line in enumerate(lines)
        if not any(_first_line(line) in later for later in lines[index + 1 :])
    ]
    return "\n".join(kept)


def _one(error: BaseException) -> str:
    text = error_text(error).strip()
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _first_line(line: str) -> str:
    return line.partition(": ")[2].partition("\n")[0] or line

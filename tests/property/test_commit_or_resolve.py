"""Commit or resolve: the outcome of a commit is what is in the store, whatever was lost, and it is sent once."""

from collections.abc import Callable
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.table import TableSpec, TableWrite
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.commit_or_resolve import CommitResult, Commits, commit_or_resolve
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import (
    CommitOutcome,
    Committed,
    Fenced,
    Indeterminate,
    JobSpec,
    RangeSpec,
)

ROWS = TableSpec(name="rows", columns={"n": int})
RANGE = RangeId("read", 0)


class Fate(Enum):
    """What becomes of a commit on its way to the store."""

    ANSWERED = "answered"
    LANDS_UNANSWERED = "it lands, and the answer is lost"
    LOST = "it never arrives"
    LATE = "it arrives when its sender has asked what became of it"


class Wire:
    """A connection that loses what it is asked to lose.

    Args:
        store: at the other end.
        fate: of the first commit; later ones are answered.
        is_away: whether the store can be asked nothing.
    """

    def __init__(self, store: MemoryStore, fate: Fate, *, is_away: bool) -> None:
        self._store, self._fate, self._is_away = store, fate, is_away
        self.sent = 0
        self._late: Production | None = None

    def commit(self, production: Production) -> CommitOutcome:
        self.sent += 1
        fate, self._fate = self._fate, Fate.ANSWERED
        if fate is Fate.ANSWERED:
            return self._store.commit(production)
        if fate is Fate.LANDS_UNANSWERED:
            self._store.commit(production)
        elif fate is Fate.LATE:
            self._late = production
        return Indeterminate("the connection died")

    def resolve(self, production: Production) -> CommitOutcome:
        return Indeterminate("no route") if self._is_away else self._store.resolve(production)

    def let_late_ones_land(self) -> None:
        if self._late is not None:
            self._store.commit(self._late)


def opened() -> tuple[MemoryStore, Production]:
    """A store, and a production of the owner of its only range."""
    store = MemoryStore()
    ranges = [RangeSpec(range_id=RANGE, split=b"")]
    store.open_job(JobSpec(job="job", mode="batch", fingerprint="f", ranges=ranges, tables=[ROWS]))
    row = store.acquire("job", [RANGE], "owner")[RANGE].row
    fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
    write = TableWrite(table=ROWS, inserts=[(1,)])
    return store, Production(job="job", fences=[fence], tables=[write])


def check(
    commit: Callable[[Commits, Production], CommitResult],
    fate: Fate,
    *,
    is_away: bool,
    is_fenced: bool,
) -> None:
    store, production = opened()
    if is_fenced:
        store.acquire("job", [RANGE], "successor")
    wire = Wire(store, fate, is_away=is_away)

    result = commit(wire, production)

    at_once = store.read_table(ROWS)
    assert wire.sent == 1, "sent again"
    is_known = fate is Fate.ANSWERED or not is_away
    assert isinstance(result.outcome, Indeterminate) != is_known, result
    wire.let_late_ones_land()
    if is_known:
        assert isinstance(result.outcome, Committed if at_once else Fenced), result
        assert store.read_table(ROWS) == at_once, "it landed after all"
    assert ("connection died" in result.detail) == (fate is not Fate.ANSWERED)


@given(fate=st.sampled_from(Fate), is_away=st.booleans(), is_fenced=st.booleans())
def test_what_is_reported_of_a_commit_is_what_is_in_the_store(
    fate: Fate, *, is_away: bool, is_fenced: bool
) -> None:
    check(commit_or_resolve, fate, is_away=is_away, is_fenced=is_fenced)


def send_again(store: Commits, production: Production) -> CommitResult:
    answer = store.commit(production)
    is_lost = isinstance(answer, Indeterminate)
    return CommitResult(store.commit(production) if is_lost else answer, answer)


def ask_and_send_again(store: Commits, production: Production) -> CommitResult:
    answer = outcome = store.commit(production)
    if isinstance(answer, Indeterminate):
        outcome = store.resolve(production)
        if isinstance(outcome, Fenced):
            outcome = store.commit(production)
    return CommitResult(outcome, answer)


def take_it_to_have_failed(store: Commits, production: Production) -> CommitResult:
    answer = store.commit(production)
    is_lost = isinstance(answer, Indeterminate)
    return CommitResult(Fenced(RANGE) if is_lost else answer, answer)


def take_it_to_have_landed(store: Commits, production: Production) -> CommitResult:
    answer = store.commit(production)
    return CommitResult(Committed() if isinstance(answer, Indeterminate) else answer, answer)


def never_ask(store: Commits, production: Production) -> CommitResult:
    answer = store.commit(production)
    return CommitResult(answer, answer)


@pytest.mark.parametrize(
    "broken",
    [send_again, ask_and_send_again, take_it_to_have_failed, take_it_to_have_landed, never_ask],
)
def test_a_commit_that_is_broken_on_purpose_is_found(
    broken: Callable[[Commits, Production], CommitResult],
) -> None:
    def look() -> None:
        for fate in Fate:
            for is_away in (False, True):
                for is_fenced in (False, True):
                    check(broken, fate, is_away=is_away, is_fenced=is_fenced)

    with pytest.raises(AssertionError):
        look()

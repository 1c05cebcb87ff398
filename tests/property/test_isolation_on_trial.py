"""Records that raise, end their process or never come back are left out as they are one by one, for fewer processes."""

from collections.abc import Callable, Sequence
from enum import Enum
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import TransformError
from runners.core.ground.bundle import Bundle
from runners.core.user_code import poison
from runners.core.user_code.poison import on_trial, run_isolated

STAGE = "read"
#: The records that a trial has time for, where it has little.
SLOW = 7
#: How often a record raises that does so however often it is tried.
ALWAYS = 1 << 30


class Record(Enum):
    """What user code does with a record."""

    GOOD = "is taken"
    RAISES = "raises"
    KILLS = "ends its process"
    HANGS = "never comes back"


class _GoneError(BaseException):
    """The process has ended, or has been ended."""


class Process:
    """Runs bundles, as a stage does: with no effect where it raises.

    Args:
        raising: how often each record that raises does so in one process; then it is taken.
        time: how many records a trial, or the process itself since it was renewed, has time for; None: for any number.
    """

    def __init__(self, raising: int, time: int | None) -> None:
        self._raising, self._limit, self._left = raising, time, time
        self._is_trial = False
        self._raised: dict[int, int] = {}
        self.taken: list[int] = []
        self.trials = 0

    def run(self, part: Bundle) -> None:
        assert self._is_trial or self._left == self._limit, "a step has less time than on trial"
        for number, kind in part.values:
            self._take_time()
            if kind is Record.KILLS or kind is Record.HANGS:
                # Not in the process itself: that would be the end of the worker, and of this test.
                assert self._is_trial, f"{number} {kind.value}, and was not on trial"
                raise _GoneError(kind.value)
            if kind is Record.RAISES and self._raised.get(number, 0) < self._raising:
                self._raised[number] = self._raised.get(number, 0) + 1
                raise TransformError(f"{number} fails")
        self.taken += [number for number, _ in part.values]

    def _take_time(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise _GoneError("takes too long")

    def __call__(self, run: Callable[[], object]) -> None:
        """On trial: in a copy of the process, of which nothing is left."""
        taken, raised = list(self.taken), dict(self._raised)
        self._is_trial, self._left = True, self._limit
        try:
            run()
        except _GoneError as gone:
            raise TransformError(f"user code does not return: {gone}") from None
        except Exception:  # noqa: BLE001 - it is raised again where it can be handled
            pass
        finally:
            self.taken, self._raised = taken, raised
            self._is_trial, self._left = False, self._limit
            self.trials += 1

    def renew(self) -> None:
        self._left = self._limit


def bundle_of(kinds: Sequence[Record]) -> Bundle:
    return Bundle(list(enumerate(kinds)), list(range(len(kinds))))


def letters(dead: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(each.element, each.timestamp_us, each.error, each.tries, each.stage) for each in dead]


Kinds = st.lists(
    st.sampled_from([*Record, Record.GOOD, Record.GOOD, Record.RAISES]), min_size=1, max_size=40
)


@given(
    kinds=Kinds,
    tries=st.integers(1, 3),
    raising=st.sampled_from([1, 2, ALWAYS]),
    time=st.sampled_from([None, SLOW]),
)
def test_a_bundle_on_trial_is_as_each_record_on_trial(
    kinds: list[Record], tries: int, raising: int, time: int | None
) -> None:
    """It leaves the same letters and takes the same rest, in the same order; and the process itself never ends."""
    together, alone = Process(raising, time), Process(raising, time)
    dead = run_isolated(together.run, bundle_of(kinds), stage=STAGE, tries=tries, trial=together)
    expected = []
    for index in range(len(kinds)):
        one = bundle_of(kinds).take([index], [(index, kinds[index])])
        run = on_trial(alone.run, alone)
        expected += run_isolated(run, one, stage=STAGE, tries=tries)

    if raising == ALWAYS:
        assert letters(dead) == letters(expected)
        assert together.taken == alone.taken
    # What fails the first times only is taken, or not, as it is met more or less often before; nothing is lost.
    left = sorted([*together.taken, *(letter.element[0] for letter in dead)])
    assert left == list(range(len(kinds)))
    for letter in dead:
        number, kind = letter.element
        assert {Record.GOOD: "", Record.RAISES: f"{number} fails"}.get(
            kind, kind.value
        ) in letter.error
        assert kind is not Record.GOOD


@given(kinds=Kinds, tries=st.integers(1, 3))
def test_processes_are_for_what_does_not_come_back(kinds: list[Record], tries: int) -> None:
    """One for a bundle whose records only raise; for each other one as many as halves lead to it, and its tries."""
    process = Process(ALWAYS, None)
    run_isolated(process.run, bundle_of(kinds), stage=STAGE, tries=tries, trial=process)
    lost = sum(kind in (Record.KILLS, Record.HANGS) for kind in kinds)
    halves = ceil(log2(len(kinds)))

    # Beside each part on the way there is its other half, with its tries if it is a record.
    assert process.trials <= max(1, tries) + lost * (2 * halves + 2 * tries)
    if lost == 0 and len(kinds) > 1:
        assert process.trials == 1


def never_in_halves(patch: pytest.MonkeyPatch) -> None:
    """What has not come back on trial is run here."""
    patch.setattr(poison, "_comes_back", lambda *_: True)


def with_the_time_of_one(patch: pytest.MonkeyPatch) -> None:
    """All parts of a bundle share the time of one."""
    patch.setattr(Process, "renew", lambda _: None)


def second_half_first(patch: pytest.MonkeyPatch) -> None:
    """Letters in another order."""
    halves = poison.halves
    patch.setattr(poison, "halves", lambda part: halves(part)[::-1])


@pytest.mark.parametrize("broken", [never_in_halves, with_the_time_of_one, second_half_first])
def test_what_is_broken_on_purpose_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    law = test_a_bundle_on_trial_is_as_each_record_on_trial.hypothesis.inner_test  # type: ignore[attr-defined]

    def look() -> None:
        for kinds in (
            [Record.GOOD, Record.KILLS, Record.GOOD],
            [Record.GOOD, Record.RAISES] * 3,
            [Record.GOOD, Record.RAISES, Record.RAISES, Record.GOOD],
        ):
            law(kinds, 2, ALWAYS, SLOW)

    with pytest.raises((AssertionError, _GoneError)):
        look()

"""Workers that end at one step, one after the other, are counted until the job gets further there."""

from collections.abc import Callable

import pytest

from runners.millwheel.master.deaths import DEATHS_MAX, Deaths
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.model.troubles import TroubleBook, TroubleKind, reason_of
from runners.millwheel.wire.messages import Died

READ, OTHER, LOW, HIGH = (RangeId(name, index) for name in ("read", "sum") for index in (0, 1))


def records(bundle: int, split: RangeId = READ) -> StepInput:
    return StepInput((split,), None, bundle, bundle)


def deliveries(first: int, last: int, receiver: RangeId = LOW, sender: RangeId = READ) -> StepInput:
    return StepInput((receiver,), sender, first, last)


def died(*at: StepInput, is_silent: bool = True) -> Died:
    return Died(slot=0, at=at, reason="the process ended\nmore of it", is_silent=is_silent)


def test_a_step_that_ends_one_worker_after_the_other_ends_the_job() -> None:
    """Whatever else goes on: nobody asks whether something was read somewhere."""
    deaths = Deaths("job", TroubleBook())
    answers = [deaths.note(died(records(3))) for _ in range(DEATHS_MAX)]

    assert answers[:-1] == [None] * (DEATHS_MAX - 1)
    assert "read[0]" in str(answers[-1])
    assert "more of it" in str(answers[-1])


@pytest.mark.parametrize("at", [records, lambda n: deliveries(n, n + 64)])
def test_input_that_gets_further_in_between_is_no_reason_to_end(
    at: Callable[[int], StepInput],
) -> None:
    """Workers are killed for other reasons, too, and as often as you like."""
    deaths = Deaths("job", TroubleBook())

    assert not any(deaths.note(died(at(n))) for n in range(10 * DEATHS_MAX))


def test_a_delivery_ends_the_job_whatever_comes_from_other_senders_and_for_other_ranges() -> None:
    """The range itself may go on with these for ever: they are committed before the process ends."""
    deaths = Deaths("job", TroubleBook())
    answers = [
        deaths.note(
            died(
                deliveries(n, n, HIGH),
                deliveries(9 * n, 9 * n + 5, sender=OTHER),
                deliveries(7, 7 + n),
            )
        )
        for n in range(DEATHS_MAX)
    ]

    assert answers[:-1] == [None] * (DEATHS_MAX - 1)
    assert "sum[0]" in str(answers[-1])


def test_a_refused_step_is_counted_though_others_were_begun_behind_it() -> None:
    """It is refused when it is committed, and the worker is at one of the next steps by then, or not."""
    deaths = Deaths("job", TroubleBook())
    answers = [deaths.note(died(deliveries(6 + n % 3, 9))) for n in range(DEATHS_MAX + 2)]

    assert answers[:-1] == [None] * (DEATHS_MAX + 1)
    assert answers[-1] is not None


def test_what_is_due_gets_further_with_any_range_that_it_is_due_in() -> None:
    """Ranges in which nothing is due are among those that are named, and never commit anything."""
    deaths = Deaths("job", TroubleBook())
    due = [StepInput((LOW, HIGH), None, bundles, None) for bundles in range(10 * DEATHS_MAX)]

    assert not any(deaths.note(died(each)) for each in due)
    assert [deaths.note(died(due[-1])) is None for _ in range(DEATHS_MAX - 1)].count(False) == 1


def test_a_range_that_is_due_elsewhere_is_counted_anew() -> None:
    """Two workers with one range each have committed less than one with both: that is no step back."""
    deaths = Deaths("job", TroubleBook())
    for n in range(10 * DEATHS_MAX):
        assert not deaths.note(died(StepInput((LOW, HIGH), None, 100 + n, None)))
        assert not deaths.note(died(StepInput((LOW,), None, 50 + n, None)))


def test_who_was_in_no_user_code_accuses_nothing() -> None:
    deaths = Deaths("job", TroubleBook())

    assert not any(deaths.note(died()) for _ in range(10 * DEATHS_MAX))
    assert deaths.suspects([READ]) == []


def test_only_what_ended_its_process_is_run_on_trial() -> None:
    """An error names what it is about by itself."""
    deaths = Deaths("job", TroubleBook())
    deaths.note(died(records(3)))
    deaths.note(died(records(5, OTHER), is_silent=False))
    deaths.note(died(deliveries(1, 2), deliveries(3, 4, HIGH)))
    deaths.note(died(deliveries(2, 5)))

    assert deaths.suspects([READ, OTHER]) == [records(3)]
    assert deaths.suspects([LOW]) == [deliveries(2, 5)]


def test_troubles_are_counted_by_their_first_line() -> None:
    book = TroubleBook()
    for number in range(3):
        book.note(TroubleKind.DEATH, "sum[0]", f"boom\nat {number}")
    book.note(TroubleKind.WAIT, "sum[0]", "a lock")
    taken = book.take()

    assert [(each.kind, each.count) for each in taken] == [
        (TroubleKind.DEATH, 3),
        (TroubleKind.WAIT, 1),
    ]
    assert book.take() == []
    book.note(TroubleKind.DEATH, "sum[0]", "boom")
    assert [each.count for each in book.take()] == [1]
    assert book.latest is not None
    assert book.latest.count == 4


def test_the_reason_of_an_error_begins_with_its_first_cause() -> None:
    error = RuntimeError("what it led to")
    error.__cause__ = ValueError("the cause")
    lines = reason_of(error).splitlines()

    assert lines == ["ValueError: the cause", "RuntimeError: what it led to"]

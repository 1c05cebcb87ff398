"""Workers that end at one step, one after the other, are counted until the job gets further there."""

from runners.millwheel.master.deaths import DEATHS_MAX, Deaths
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.troubles import TroubleBook, TroubleKind, reason_of
from runners.millwheel.wire.messages import Died

READ, OTHER = RangeId("read", 0), RangeId("read", 1)


def died(at: dict[RangeId, int], *, is_silent: bool = True) -> Died:
    return Died(slot=0, at=at, reason="the process ended\nmore of it", is_silent=is_silent)


def test_a_step_that_ends_one_worker_after_the_other_ends_the_job() -> None:
    """Whatever else goes on: nobody asks whether something was read somewhere."""
    deaths = Deaths("job", TroubleBook())
    answers = [deaths.note(died({READ: 3})) for _ in range(DEATHS_MAX)]

    assert answers[:-1] == [None] * (DEATHS_MAX - 1)
    assert "read[0]" in str(answers[-1])
    assert "more of it" in str(answers[-1])


def test_a_range_that_gets_further_in_between_is_no_reason_to_end() -> None:
    """Workers are killed for other reasons, too, and as often as you like."""
    deaths = Deaths("job", TroubleBook())

    assert not any(deaths.note(died({READ: n})) for n in range(10 * DEATHS_MAX))


def test_a_step_of_several_ranges_gets_further_with_one_of_them() -> None:
    """The others may have nothing to commit."""
    deaths = Deaths("job", TroubleBook())

    assert not any(deaths.note(died({READ: 1, OTHER: n})) for n in range(10 * DEATHS_MAX))


def test_who_was_at_no_range_accuses_none() -> None:
    deaths = Deaths("job", TroubleBook())

    assert not any(deaths.note(died({})) for _ in range(10 * DEATHS_MAX))
    assert deaths.suspects([READ]) == {}


def test_only_what_ended_its_process_is_run_on_trial() -> None:
    """An error names what it is about by itself."""
    deaths = Deaths("job", TroubleBook())
    deaths.note(died({READ: 3}))
    deaths.note(died({OTHER: 5}, is_silent=False))

    assert deaths.suspects([READ, OTHER]) == {READ: 3}


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

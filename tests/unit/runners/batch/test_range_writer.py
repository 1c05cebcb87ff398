"""A range is written once, by the attempt that owns it, whatever older attempts do."""

import time
from collections.abc import Sequence

import attrs
import pytest

from dataflow.table import TableSpec, TableWrite
from runners.batch import range_writer
from runners.batch.range_writer import RangeWriter
from runners.core.ground.dead_letters import DeadLetter
from runners.errors import FencedError, StoreUnreachableError, UnrepeatableError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Indeterminate, JobSpec, RangeSpec
from runners.stored import places
from runners.stored.letters import stored_dead_mapping
from runners.stored.places import ReadSoFar
from windowing.window import GLOBAL_WINDOW

ROWS = TableSpec(name="rows", columns={"n": int})
KEYED = TableSpec(name="keyed", columns={"k": str, "n": int}, key=("k",))
SPLIT = RangeId("read", 0)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    ranges = [RangeSpec(range_id=SPLIT, split=b"")]
    store.open_job(
        JobSpec(job="job", mode="batch", fingerprint="f", ranges=ranges, tables=[ROWS, KEYED])
    )
    return store


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_writer, "FENCED_WAIT_S", 0.0)


def attempt(store: MemoryStore, owner: str) -> RangeWriter:
    return RangeWriter(store, "job", SPLIT, owner)


def inserts(*numbers: int) -> list[TableWrite]:
    return [TableWrite(table=ROWS, inserts=[(number,) for number in numbers])]


def numbers(store: MemoryStore) -> Sequence[int]:
    return sorted(row[0] for row in store.read_table(ROWS))


def test_the_second_attempt_fences_the_first(store: MemoryStore) -> None:
    with attempt(store, "first") as first, attempt(store, "second") as second:
        first.write(inserts(1))
        second.write(inserts(1))
        with pytest.raises(FencedError, match="no longer owns"):
            first.commit(is_last=True)
        second.commit(is_last=True)

    assert numbers(store) == [1]


def test_a_fenced_attempt_ends_quietly_when_the_other_has_finished(store: MemoryStore) -> None:
    with attempt(store, "first") as first, attempt(store, "second") as second:
        first.write(inserts(1))
        second.write(inserts(1))
        second.commit(is_last=True)
        first.commit(is_last=True)

        assert first.is_finished

    assert numbers(store) == [1]


def test_a_fenced_attempt_waits_for_the_other(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_writer, "FENCED_WAIT_S", 5.0)
    with attempt(store, "first") as first, attempt(store, "second") as second:
        second.write(inserts(1))
        monkeypatch.setattr(time, "sleep", lambda _: second.commit(is_last=True))
        first.commit(is_last=True)

    assert numbers(store) == [1]


def test_a_finished_range_takes_nothing_more(store: MemoryStore) -> None:
    with attempt(store, "first") as first:
        first.write(inserts(1))
        first.commit(is_last=True)
    with attempt(store, "second") as second:
        assert second.is_finished
        second.write(inserts(1))
        second.commit(is_last=True)

    assert numbers(store) == [1]


def test_the_next_attempt_knows_how_far_the_last_one_came(store: MemoryStore) -> None:
    with attempt(store, "first") as first:
        assert first.read_so_far == ReadSoFar()
        first.write(inserts(1, 2))
        first.commit(ReadSoFar(2, {"offset": 20}), is_last=False)
        first.write(inserts(3))
        first.commit(ReadSoFar(3, {"offset": 30}), is_last=False)
        first.write(inserts(4))
    with attempt(store, "second") as second:
        assert second.read_so_far == ReadSoFar(3, {"offset": 30})
        assert not second.is_finished

    assert numbers(store) == [1, 2, 3]


def test_the_last_word_about_a_key_counts(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_writer, "ROWS_MAX", 2)
    with attempt(store, "only") as writer:
        for output in (
            TableWrite(table=KEYED, changes=[(None, ("a", 1)), (None, ("b", 1))]),
            TableWrite(table=KEYED, changes=[(None, ("c", 1)), (("a", 1), None)]),
            TableWrite(table=KEYED, changes=[(None, ("a", 2)), (("b", 1), None)]),
            TableWrite(table=KEYED, changes=[(("c", 1), None)]),
        ):
            writer.write([output])
        assert writer.is_full
        writer.commit(is_last=True)

    assert store.read_table(KEYED) == [("a", 2)]


def test_no_write_has_more_rows_than_one_statement_takes(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key range commits everything at once, so what it has may be many times as much."""
    monkeypatch.setattr(range_writer, "ROWS_MAX", 3)
    committed: list[Production] = []
    commit = store.commit

    def noted(production: Production) -> CommitOutcome:
        committed.append(production)
        return commit(production)

    monkeypatch.setattr(store, "commit", noted)
    with attempt(store, "only") as writer:
        for number in range(10):
            writer.write(inserts(number))
        writer.commit(is_last=True)

    (production,) = committed
    assert [len(each.inserts) for each in production.tables] == [3, 3, 3, 1]
    assert numbers(store) == list(range(10))


def test_letters_of_one_commit_are_those_that_the_next_one_comes_upon_again(
    store: MemoryStore,
) -> None:
    letter = DeadLetter(
        stage="read",
        element=1,
        timestamp_us=0,
        window=GLOBAL_WINDOW,
        sign=+1,
        error="",
        traceback="",
        tries=1,
    )
    with attempt(store, "only") as writer:
        writer.write(inserts(1), [letter])
        writer.commit(ReadSoFar(2), is_last=False)
        writer.write(inserts(2), [letter])
        writer.commit(ReadSoFar(4), is_last=False)
        writer.write(inserts(3))
        writer.commit(ReadSoFar(5), is_last=True)

    assert len(store.read_dead_letters("job")) == 2


@attrs.define
class Lossy(MemoryStore):
    """The answer to a commit is lost; ``lands``: whether the commit was made."""

    lands: bool = True
    is_down: bool = False

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def commit(self, production: Production) -> CommitOutcome:
        if self.lands:
            super().commit(production)
        return Indeterminate("connection lost")

    def resolve(self, production: Production) -> CommitOutcome:
        return Indeterminate("still down") if self.is_down else super().resolve(production)


@pytest.mark.parametrize("lands", [True, False])
def test_a_lost_answer_is_looked_up(lands: bool) -> None:
    store = Lossy(lands=lands)
    ranges = [RangeSpec(range_id=SPLIT, split=b"")]
    store.open_job(JobSpec(job="job", mode="batch", fingerprint="f", ranges=ranges, tables=[ROWS]))
    with attempt(store, "first") as first:
        first.write(inserts(1))
        if lands:
            first.commit(is_last=True)
        else:
            with pytest.raises(FencedError):
                first.commit(is_last=True)

    assert numbers(store) == ([1] if lands else [])


def test_nobody_guesses_while_the_store_is_down() -> None:
    store = Lossy(is_down=True)
    ranges = [RangeSpec(range_id=SPLIT, split=b"")]
    store.open_job(JobSpec(job="job", mode="batch", fingerprint="f", ranges=ranges, tables=[ROWS]))
    with attempt(store, "first") as first:
        first.write(inserts(1))
        with pytest.raises(StoreUnreachableError, match="not known"):
            first.commit(is_last=True)
    with attempt(store, "second") as second:
        assert second.is_finished


def letters(*numbers: int) -> list[DeadLetter]:
    return [
        DeadLetter(
            stage="read",
            element=number,
            timestamp_us=0,
            window=GLOBAL_WINDOW,
            sign=1,
            error="poison",
            traceback="",
            tries=1,
        )
        for number in numbers
    ]


def dead(store: MemoryStore) -> list[int]:
    found = map(stored_dead_mapping, store.read_dead_letters("job"))
    return [letter["element"].value for letter in found]


def test_letters_are_written_with_the_rows_by_one_attempt(store: MemoryStore) -> None:
    with attempt(store, "first") as first, attempt(store, "second") as second:
        first.write(inserts(1), letters(2))
        second.write(inserts(1), letters(2))
        assert dead(store) == []
        second.commit(is_last=True)
        first.commit(is_last=True)

    assert (numbers(store), dead(store)) == ([1], [2])


def test_the_next_attempt_goes_on_behind_the_letters(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_writer, "ROWS_MAX", 2)
    with attempt(store, "first") as first:
        first.write([], letters(1, 2))
        assert first.is_full
        first.commit(ReadSoFar(2, 20), is_last=False)
        first.write([], letters(3))
    with attempt(store, "second") as second:
        assert second.read_so_far.dead == 2
        assert (second.read_so_far.records, second.read_so_far.position) == (2, 20)
        second.resume()
        second.write([], letters(3, 4))
        second.commit(ReadSoFar(4, 40), is_last=True)

    assert dead(store) == [1, 2, 3, 4]


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("again", [0, 1, 2])
def test_what_is_repeated_fails_on_as_many_records(
    store: MemoryStore, again: int, *, is_finished: bool
) -> None:
    """Else a record would be in a result and a letter, or in neither."""
    with attempt(store, "first") as first:
        first.write([], letters(1))
        first.commit(ReadSoFar(2, 20), is_last=is_finished)
    with attempt(store, "second") as second:
        if is_finished:
            second.write([], letters(1, 2)[:again])
        else:
            second.pass_over(letters(1, 2)[:again])
            second.write([], letters(3))
        if again == 1:
            second.commit(is_last=True)
        else:
            with pytest.raises(
                UnrepeatableError, match=rf"failed on 1 records .* again on {again} of"
            ):
                second.commit(is_last=True)

    assert dead(store) == ([1, 3] if again == 1 and not is_finished else [1])


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("again", [(1, 2), (2, 1), (1, 3)])
def test_what_is_repeated_fails_on_the_same_records(
    store: MemoryStore, again: tuple[int, int], *, is_finished: bool
) -> None:
    """Equally many will not do: one would be in a result and a letter, and another one in neither."""
    with attempt(store, "first") as first:
        first.write([], letters(1, 2))
        first.commit(ReadSoFar(2, 20), is_last=is_finished)
    with attempt(store, "second") as second:
        if is_finished:
            second.write([], letters(*again))
        else:
            second.pass_over(letters(*again))
            second.write([], letters(4))
        if sorted(again) == [1, 2]:
            second.commit(is_last=True)
        else:
            with pytest.raises(UnrepeatableError, match="again on others of the same"):
                second.commit(is_last=True)

    assert dead(store) == ([1, 2, 4] if sorted(again) == [1, 2] and not is_finished else [1, 2])


def test_letters_of_an_earlier_version_are_only_counted(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, attempt(store, "first") as first:
        patch.setattr(places, "_digests", lambda mark: mark.sent and list(mark.sent.items()))
        first.write([], letters(1))
        first.commit(ReadSoFar(2, 20), is_last=False)
    with attempt(store, "second") as second:
        second.pass_over(letters(2))
        second.write([], letters(3))
        second.commit(ReadSoFar(4, 40), is_last=False)
    with attempt(store, "third") as third:
        third.pass_over(letters(4))
        with pytest.raises(UnrepeatableError, match=r"failed on 2 .* again on 1 of"):
            third.commit(is_last=True)

    assert dead(store) == [1, 3]


@pytest.mark.parametrize("others", [(1,), (1, 3)])
def test_an_attempt_that_lost_must_have_failed_on_the_same(
    store: MemoryStore, others: tuple[int, ...]
) -> None:
    """What it has for others may be what they get."""
    with attempt(store, "first") as first, attempt(store, "second") as second:
        first.write([], letters(1, 2))
        second.write([], letters(*others))
        second.commit(is_last=True)
        with pytest.raises(UnrepeatableError):
            first.commit(is_last=True)

    assert dead(store) == list(others)


@pytest.mark.parametrize("packed", [[2, 1, 30, 40], [2, 1, 31, 40]])
def test_who_ends_second_must_have_packed_as_the_first_has(
    store: MemoryStore, packed: list[int]
) -> None:
    """Its output may reach receivers, and a later attempt packs as the mark says."""
    first = attempt(store, "first")
    with first, attempt(store, "second") as second:
        second.commit(ReadSoFar(2), is_last=True, sent={0: 1}, packings={0: [2, 1, 30, 40]})
        if packed == [2, 1, 30, 40]:
            first.commit(ReadSoFar(2), is_last=True, sent={0: 1}, packings={0: packed})
        else:
            with pytest.raises(FencedError, match="packed its output otherwise"):
                first.commit(ReadSoFar(2), is_last=True, sent={0: 1}, packings={0: packed})
    with attempt(store, "third") as third:
        assert third.read_so_far.packings == {0: [2, 1, 30, 40]}

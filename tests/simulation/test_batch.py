"""Batch runs whose attempts and drivers die, one of which is always continued: what they leave, or that they refuse."""

import random as chance
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import DataflowError
from dataflow.io.memory import _MemoryReader
from runners.batch import gather, letter_digests, range_task, range_writer, repeating
from runners.batch.digest_writer import DigestWriter
from runners.batch.gather import Gatherer
from runners.batch.letter_digests import Letters
from runners.batch.range_writer import RangeWriter
from runners.direct import DirectRunner
from runners.errors import UnrepeatableError
from runners.millwheel.store.commit_or_resolve import CommitResult
from runners.millwheel.store.port import Indeterminate
from runners.stored.letters import stored_dead_mapping
from runners.testing.simulator import batch as simulated
from runners.testing.simulator.batch import SimulatedBatch
from runners.testing.simulator.errors import InvariantError
from tests.effort import by_profile

SEEDS = by_profile(12, nightly=5_000)
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 400
RECORDS = 40
COLUMNS = {"key": str, "start": float, "value": str}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every task has something to do between its beginning and its end."""
    monkeypatch.setattr(range_task, "BUNDLE_RECORDS", 3)
    monkeypatch.setattr(range_writer, "ROWS_MAX", 4)
    monkeypatch.setattr(gather, "RECORDS_FIRST", 5)
    monkeypatch.setattr(gather, "PACKED_BYTES", 300)


def row(pair: tuple[Any, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    key, value = pair
    shown = value if isinstance(value, int) else sorted(value)
    return {"key": str(key), "start": window.start.timestamp(), "value": str(shown)}


def write(pcoll: Any, name: str, *, key: tuple[str, ...] = ()) -> None:
    rows = pcoll | f"{name} row" >> df.Map(row)
    rows | name >> df.WriteToPostgres(name, columns=COLUMNS, key=key)


def numbers(p: df.Pipeline, random: Random) -> Any:
    """Each number of the input once, with some key and event time."""
    return p | "read" >> df.Create(
        [
            df.TimestampedValue((random.randrange(6), number), random.randrange(300))
            for number in range(RECORDS)
        ]
    )


def sums(p: df.Pipeline, random: Random) -> None:
    windows = random.choice([df.FixedWindows(60), df.SlidingWindows(60, period=40)])
    write(
        numbers(p, random) | df.WindowInto(windows) | "sum" >> df.CombinePerKey(df.SumCombineFn()),
        "rows",
    )


def sessions(p: df.Pipeline, random: Random) -> None:
    write(numbers(p, random) | df.WindowInto(df.Sessions(20)) | "group" >> df.GroupByKey(), "rows")


def chain(p: df.Pipeline, random: Random) -> None:
    """Rows of the source, of a grouping and of the one behind it; a grouping without rows between them."""
    read = numbers(p, random)
    write(read, "read rows")
    grouped = read | "group" >> df.GroupByKey()
    write(grouped, "rows")
    halves = (
        grouped
        | df.FlatMap(lambda pair: [(value % 2, value) for value in pair[1]])
        | "half" >> df.GroupByKey()
        | df.FlatMap(lambda pair: [(value % 5, value) for value in pair[1]])
        | "fifth" >> df.GroupByKey()
    )
    write(halves, "halves")


def retracted(p: df.Pipeline, random: Random) -> None:
    """Early panes, as many as there happen to be, which are retracted."""
    panes = (
        numbers(p, random)
        | df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterWatermark(early=df.AfterCount(2)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: (pair[1] % 4, pair[0]))
        | "count" >> df.CombinePerKey(df.CountCombineFn())
    )
    write(panes, "rows", key=("key", "start"))


class Numbered(df.DoFn):
    """Numbers the elements of a key in time order."""

    requires_time_sorted_input = True
    COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())

    def process(
        self, element: tuple[int, int], count: Any = df.DoFn.StateParam(COUNT)
    ) -> Iterator[tuple[int, int]]:
        count.add(element[1])
        yield count.read(), element[1]


def stateful(p: df.Pipeline, random: Random) -> None:
    times = random.sample(range(10 * RECORDS), RECORDS)
    read = p | "read" >> df.Create(
        [df.TimestampedValue((number % 3, number), at) for number, at in enumerate(times)]
    )
    numbered = read | "number" >> df.ParDo(Numbered())
    write(numbered | "group" >> df.GroupByKey(), "rows")


def expanded(p: df.Pipeline, random: Random) -> None:
    """Of each record up to fifteen: behind those of which much was made, fewer are read at a time."""
    several = numbers(p, random) | df.FlatMap(
        lambda pair: [(pair[0], part) for part in range(pair[1] % 16)]
    )
    write(several | "sum" >> df.CombinePerKey(df.SumCombineFn()), "rows")


DETERMINISTIC: dict[str, Callable[[df.Pipeline, Random], None]] = {
    "sums": sums,
    "sessions": sessions,
    "chain": chain,
    "retracted": retracted,
    "stateful": stateful,
    "expanded": expanded,
}


def rows_of(result: Any, table: str) -> Counter[str]:
    return Counter(repr(sorted(each.items())) for each in result.read_table(table))


@pytest.mark.slow
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_what_is_left_is_what_the_direct_runner_emits(name: str) -> None:
    build = DETERMINISTIC[name]
    struck: Counter[str] = Counter()
    for seed in range(SEEDS):
        run = SimulatedBatch(build, seed)
        run.run()
        direct = DirectRunner().run(run.graph())
        for table in run.graph().tables():
            ours = Counter(repr(sorted(each.items())) for each in run.rows(table.name))
            assert ours == rows_of(direct, table.name), f"{name}, seed {seed}, {run.struck}"
        struck += run.struck
    assert struck.keys() >= {"driver", "attempt", "commit", "lost output"}


def check_chain(seed: int) -> None:
    chance.seed(seed)
    run = SimulatedBatch(chain, seed)
    run.run()
    direct = DirectRunner().run(run.graph())
    for table in run.graph().tables():
        ours = Counter(repr(sorted(each.items())) for each in run.rows(table.name))
        assert ours == rows_of(direct, table.name), f"seed {seed}, {run.struck}"


def hand_over(patch: pytest.MonkeyPatch, records: Callable[[int], int]) -> None:
    """Have sources hand over other numbers of records than they are asked for."""
    read = _MemoryReader.read
    patch.setattr(_MemoryReader, "read", lambda reader, most: read(reader, records(most)))


def test_fewer_records_are_read_behind_those_of_which_much_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: set[int] = set()

    def noted(records: int) -> int:
        asked.add(records)
        return records

    hand_over(monkeypatch, noted)
    SimulatedBatch(sums, 0).run()
    assert max(asked) == 3
    asked.clear()
    SimulatedBatch(expanded, 0).run()
    assert {1, 2, 3} <= asked


@pytest.mark.slow
def test_batches_may_be_shorter_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what an attempt has written ends where no batch of the next one does."""
    hand_over(monkeypatch, lambda most: chance.randint(1, most))

    for seed in range(SEEDS):
        check_chain(seed)


@pytest.mark.slow
def test_a_task_that_reads_beyond_what_is_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is written in part, passed over as a whole: rows are lost."""
    hand_over(monkeypatch, lambda _: chance.randint(1, 3))

    def look() -> None:
        for seed in range(SEEDS_MAX):
            check_chain(seed)

    with pytest.raises(AssertionError, match="seed"):
        look()


@pytest.mark.parametrize("place", ["read", "group"])
def test_nothing_is_made_of_a_part_of_the_input(place: str) -> None:
    """A failure reaches every level behind it, not only the driver."""

    def failing(p: df.Pipeline, random: Random) -> None:
        def fail(at: str) -> Any:
            def check(pair: tuple[int, Any]) -> tuple[int, Any]:
                if at == place and (pair[0] == 1 if at == "group" else pair[1] == 0):
                    raise ValueError(f"in the {at}")
                return pair

            return df.Map(check)

        groups = numbers(p, random) | "in read" >> fail("read") | "group" >> df.GroupByKey()
        write(groups, "groups")
        halves = (
            groups
            | "in group" >> fail("group")
            | df.FlatMap(lambda pair: [(value % 2, value) for value in pair[1]])
            | "half" >> df.GroupByKey()
        )
        write(halves, "halves")
        again = halves | df.FlatMap(lambda pair: [(value % 3, value) for value in pair[1]])
        write(again | "last" >> df.GroupByKey(), "rows")

    run = SimulatedBatch(failing, 0, rate=0.0)
    with pytest.raises(df.TransformError, match=f"in the {place}"):
        run.run()

    behind = ["halves", "rows", *(["groups"] if place == "read" else [])]
    assert {name: list(run.rows(name)) for name in behind} == {name: [] for name in behind}


# --- code that is not deterministic -----------------------------------------------------------


def salted(pair: tuple[int, int]) -> tuple[int, int]:
    return chance.randrange(1_000), pair[1]


def salted_keys(p: df.Pipeline, random: Random) -> None:
    """A salt as key, in front of a table."""
    write(numbers(p, random) | df.Map(salted) | "group" >> df.GroupByKey(), "rows")


def salted_behind(p: df.Pipeline, random: Random) -> None:
    """A salt behind a grouping, and one more grouping between the salt and the table."""
    grouped = numbers(p, random) | "first" >> df.GroupByKey()
    salts = grouped | df.FlatMap(lambda pair: [salted((0, value)) for value in pair[1]])
    again = salts | "second" >> df.GroupByKey()
    flat = again | df.FlatMap(lambda pair: [(value % 7, value) for value in pair[1]])
    write(flat | "third" >> df.GroupByKey(), "rows")
    write(again, "salted rows")


def salted_beside(p: df.Pipeline, random: Random) -> None:
    """What a source writes by itself has the salt of what it sends."""
    salts = numbers(p, random) | df.Map(salted)
    write(salts, "rows")
    write(salts | "group" >> df.GroupByKey(), "grouped rows")


def counted(rows: Any) -> Counter[str]:
    """Of how many rows each record of the input is."""
    return Counter(value for each in rows for value in each["value"].strip("[]").split(", "))


def keys(rows: Any) -> dict[str, str]:
    return {value: each["key"] for each in rows for value in each["value"].strip("[]").split(", ")}


ONCE = Counter({str(number): 1 for number in range(RECORDS)})
ROLLING: dict[str, Callable[[df.Pipeline, Random], None]] = {
    "salted keys": salted_keys,
    "salted behind": salted_behind,
    "salted beside": salted_beside,
}


def check_rolling(name: str, seed: int) -> bool:
    """Whether the job came to its end; what it has left then is right."""
    chance.seed(seed)
    run = SimulatedBatch(ROLLING[name], seed)
    try:
        run.run()
    except UnrepeatableError:
        return False
    for table in run.graph().tables():
        assert counted(run.rows(table.name)) == ONCE, f"{name}, seed {seed}, {table.name}"
    if name == "salted beside":
        assert keys(run.rows("rows")) == keys(run.rows("grouped rows")), f"seed {seed}"
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", ROLLING)
def test_code_that_is_not_deterministic_is_refused_or_counts_each_record_once(name: str) -> None:
    ended = Counter(check_rolling(name, seed) for seed in range(SEEDS))

    assert ended[True]
    assert ended[False]


@df.nondeterministic
def marked(pair: tuple[int, int]) -> tuple[int, int]:
    return salted(pair)


def rolling_in_batch(p: df.Pipeline, random: Random) -> None:
    write(numbers(p, random) | "salt" >> df.Map(marked) | "group" >> df.GroupByKey(), "rows")


def refusals(build: Callable[[df.Pipeline, Random], None]) -> list[UnrepeatableError]:
    """The errors where a job was refused; the others have left each record once."""
    texts = []
    for seed in range(SEEDS):
        chance.seed(seed)
        run = SimulatedBatch(build, seed)
        try:
            run.run()
        except UnrepeatableError as error:
            texts.append(error)
        else:
            assert counted(run.rows("rows")) == ONCE, f"seed {seed}"
    return texts


@pytest.mark.slow
def test_code_that_is_marked_is_never_run_again_behind_what_was_made_of_it() -> None:
    texts = [str(error) for error in refusals(rolling_in_batch)]

    assert 0 < len(texts) < SEEDS
    assert all("'salt'" in each and "fresh=True" in each for each in texts)


@pytest.mark.slow
def test_a_difference_names_the_transforms() -> None:
    texts = refusals(salted_keys)

    (fact,) = {error.fact for error in texts}
    assert "'read/" in fact
    assert "'Map(salted)'" in fact
    assert fact.endswith("emitted other records when it was run again")
    assert all("fresh=True" in str(error) for error in texts)


def test_code_may_be_corrected_as_long_as_there_are_no_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = SimulatedBatch(salted_keys, 0, rate=0.0)
    commit = simulated._FragileStore.commit

    def no_rows(store: Any, production: Any) -> Any:
        if production.tables:
            raise ValueError("a wrong row")
        return commit(store, production)

    monkeypatch.setattr(simulated._FragileStore, "commit", no_rows)
    with pytest.raises(DataflowError, match="a wrong row"):
        run.run()
    assert any(row.is_finished for row in run.store.read_job("batch").ranges.values())  # type: ignore[union-attr]
    monkeypatch.undo()

    run.run()

    assert counted(run.rows("rows")) == ONCE


# --- records that fail ------------------------------------------------------------------------


def careful(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[1] % 3 == 1:
        raise ValueError(f"{pair[1]} is poison")
    return pair


class Careful(df.DoFn):
    """Careful with the numbers of a group; keeps nothing, so that its groups are emitted as they come."""

    def process(self, element: tuple[int, Any]) -> Iterator[tuple[int, Any]]:
        key, values = element
        if sum(values) % 4 == 1:
            raise ValueError("the group is poison")
        yield key, values


def poisoned(p: df.Pipeline, random: Random) -> None:
    """Some fail where they are read, which has rows of its own, others in a group, which sends them on."""
    read = numbers(p, random) | df.Map(careful)
    write(read, "read rows")
    first = read | df.WindowInto(df.FixedWindows(60)) | "first" >> df.GroupByKey()
    groups = first | "careful" >> df.ParDo(Careful())
    flat = groups | df.FlatMap(lambda pair: [(value % 4, value) for value in pair[1]])
    write(flat | "second" >> df.GroupByKey(), "rows")


def poisoned_read(p: df.Pipeline, random: Random) -> None:
    """A read that has nobody behind it goes on where its last commit was."""
    write(numbers(p, random) | df.Map(careful), "rows")


def poisoned_end(p: df.Pipeline, random: Random) -> None:
    """Only dead letters show that the read has come to its end."""
    groups = numbers(p, random) | df.Map(careful) | "group" >> df.GroupByKey()
    write(groups | "careful" >> df.ParDo(Careful()), "rows")


POISONED: dict[str, Callable[[df.Pipeline, Random], None]] = {
    "read": poisoned_read,
    "groups": poisoned,
    "end": poisoned_end,
}


def values_of(shown: str) -> list[str]:
    return shown.strip("[]").split(", ")


def check_poisoned(name: str, seed: int) -> bool:
    """Whether the job came to its end; then each record is in one row or in one dead letter."""
    chance.seed(seed)
    run = SimulatedBatch({**POISONED, **MOODY}[name], seed, tries=2)
    try:
        run.run()
    except UnrepeatableError:
        return False
    found = counted(run.rows("rows"))
    for row in run.store.read_dead_letters("batch"):
        letter = stored_dead_mapping(row)
        values = letter["element"].value[1]
        several = values if isinstance(values, list) else [values]
        found.update(map(str, several))
    assert found == ONCE, f"{name}, seed {seed}, {run.struck}"
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", POISONED)
def test_each_record_is_in_a_row_or_in_a_dead_letter(name: str) -> None:
    ended = Counter(check_poisoned(name, seed) for seed in range(SEEDS))

    assert ended == {True: SEEDS}


def moody(pair: tuple[int, int]) -> tuple[int, int]:
    if chance.random() < 0.2:
        raise ValueError("not today")
    return pair


def moody_read(p: df.Pipeline, random: Random) -> None:
    write(numbers(p, random) | df.Map(moody), "rows")


def moody_groups(p: df.Pipeline, random: Random) -> None:
    groups = numbers(p, random) | df.Map(moody) | "group" >> df.GroupByKey()
    write(groups, "rows")


class Victims(df.DoFn):
    """Fails on as many values in each attempt, which are others: every fourth."""

    def setup(self) -> None:
        self.rest = chance.randrange(4)

    def process(self, element: tuple[int, Any]) -> Iterator[tuple[int, int]]:
        values = element[1] if isinstance(element[1], list) else [element[1]]
        if values[0] % 4 == self.rest:
            raise ValueError("not today")
        yield from ((element[0], value) for value in values)


class StatefulVictims(Victims):
    """Fails as `Victims` does, and keeps state."""

    COUNT = df.CombiningValueStateSpec("count", df.CountCombineFn())

    def process(
        self, element: tuple[int, int], count: Any = df.DoFn.StateParam(COUNT)
    ) -> Iterator[tuple[int, int]]:
        count.add(element[1])
        yield from super().process(element)


def alike(p: df.Pipeline) -> Any:
    """Records of one key and instant that differ in their values alone."""
    return p | "read" >> df.Create([(0, number) for number in range(RECORDS)])


def others_read(p: df.Pipeline, random: Random) -> None:
    write(alike(p) | "victims" >> df.ParDo(Victims()) | "group" >> df.GroupByKey(), "rows")


def others_state(p: df.Pipeline, random: Random) -> None:
    write(alike(p) | "state" >> df.ParDo(StatefulVictims()) | "group" >> df.GroupByKey(), "rows")


def others_behind(p: df.Pipeline, random: Random) -> None:
    """Groups of one key that differ in their windows alone, which are forgotten behind them."""
    values = [df.TimestampedValue((0, number), 10 * number) for number in range(RECORDS)]
    windows = p | "read" >> df.Create(values) | df.WindowInto(random.choice(WINDOWS))
    victims = windows | "first" >> df.GroupByKey() | "victims" >> df.ParDo(Victims())
    write(victims | df.WindowInto(df.GlobalWindows()) | "group" >> df.GroupByKey(), "rows")


WINDOWS = (df.FixedWindows(10), df.Sessions(5))
OTHERS: dict[str, Callable[[df.Pipeline, Random], None]] = {
    "others are read": others_read,
    "others of a stateful DoFn": others_state,
    "others behind a grouping": others_behind,
}
MOODY: dict[str, Callable[[df.Pipeline, Random], None]] = {
    "moody read": moody_read,
    "moody groups": moody_groups,
    **OTHERS,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOODY)
def test_code_that_fails_by_the_moment_is_refused_or_each_record_is_there_once(name: str) -> None:
    ended = Counter(check_poisoned(name, seed) for seed in range(SEEDS))

    assert ended[True]


# --- broken on purpose ------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def nothing_is_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RangeWriter, "check_sent", lambda self, sent: None)


def digests_of_everything_together(patch: pytest.MonkeyPatch) -> None:
    digests = Gatherer.digests

    def together(self: Gatherer) -> Any:
        found = digests(self)
        return found and dict.fromkeys(found, 1)

    patch.setattr(Gatherer, "digests", together)


def earlier_runs_never_bind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulated, "binding_ranges", lambda plan, ranges: frozenset())


def only_their_own_rows_bind(patch: pytest.MonkeyPatch) -> None:
    bound = repeating.binding_ranges

    def own(plan: Any, ranges: Any) -> Any:
        return frozenset(
            each for each in bound(plan, ranges) if plan.stages[each.computation].tables
        )

    patch.setattr(simulated, "binding_ranges", own)


def no_digest_without_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DigestWriter, "commit", lambda *_, **__: None)


def rows_of_parts_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    commit = RangeWriter.commit

    def at_the_end(self: Any, *args: Any, is_last: bool, sent: Any = None, **more: Any) -> None:
        commit(self, *args, is_last=is_last, sent=sent if is_last else None, **more)

    patch.setattr(RangeWriter, "commit", at_the_end)


MUTATIONS: list[tuple[str, Patch]] = [
    ("salted keys", nothing_is_compared),
    ("salted keys", digests_of_everything_together),
    ("salted keys", earlier_runs_never_bind),
    ("salted keys", only_their_own_rows_bind),
    ("salted keys", no_digest_without_rows),
    ("salted beside", rows_of_parts_are_not_compared),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mutation"), MUTATIONS, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_run_that_is_broken_on_purpose_is_found(
    name: str, mutation: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)

    def look() -> None:
        for seed in range(SEEDS_MAX):
            check_rolling(name, seed)

    with pytest.raises(AssertionError, match="seed"):
        look()


@pytest.mark.slow
def test_an_attempt_that_sends_again_what_may_have_landed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent_again(store: Any, production: Any) -> CommitResult:
        answer = store.commit(production)
        is_lost = isinstance(answer, Indeterminate)
        return CommitResult(store.commit(production) if is_lost else answer, answer)

    def look() -> None:
        for seed in range(SEEDS_MAX):
            check_chain(seed)

    monkeypatch.setattr(range_writer, "commit_or_resolve", sent_again)
    with pytest.raises(InvariantError, match="sent again"):
        look()


def letters_are_only_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Letters, "differ", lambda self, other: self.count != other.count)


def letters_of_a_key_are_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(letter_digests, "_hash_of", lambda letter, _: letter.element[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        (name, mutation)
        for name in OTHERS
        for mutation in (letters_are_only_counted, letters_of_a_key_are_the_same)
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_record_that_fails_in_place_of_another_is_found(
    name: str, mutation: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)

    def look() -> None:
        for seed in range(SEEDS_MAX):
            check_poisoned(name, seed)

    with pytest.raises(AssertionError, match="seed"):
        look()


def letters_are_forgotten_where_an_attempt_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RangeWriter, "resume", lambda self: None)


def letters_that_come_again_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RangeWriter, "pass_over", lambda self, dead: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        ("read", letters_are_forgotten_where_an_attempt_goes_on),
        ("groups", letters_that_come_again_are_not_counted),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_letters_that_are_miscounted_refuse_code_that_is_right(
    name: str, mutation: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)

    assert not all(check_poisoned(name, seed) for seed in range(SEEDS_MAX))

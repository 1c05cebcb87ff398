"""The contract of sources, as it is shipped: those of the SDK keep it, and a source is refused for each broken rule."""

import gzip
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import dataflow as df
from dataflow.computations import JsonLinesInjector, JsonLinesWatcher
from dataflow.impulse import ImpulseSource
from dataflow.io import parquet_files, text_files
from dataflow.io.arrival import ArrivalTime, ArrivalTimeSource
from dataflow.io.memory import MemorySource
from dataflow.io.periodic import PeriodicSource
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.testing.discovery_laws import check_discovered_splits
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError
from tests.effort import by_profile
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, US_PER_SECOND

pytestmark = pytest.mark.slow

EXAMPLES = by_profile(2, ci=5, nightly=1_000)


class Row(NamedTuple):
    """A typed row, which is read as columns."""

    at: float
    name: str


class Number(NamedTuple):
    """A number that may not be missing."""

    n: int


ROWS = [Row(float(10 * number - number % 3), f"n{number}") for number in range(12)]
DISORDER_US = 20 * US_PER_SECOND


class _Contract(SourceContract):
    examples = EXAMPLES
    folder: Path

    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Even tiny files are cut."""
        monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 1)
        monkeypatch.setattr(parquet_files, "_DECODED_ROWS_MAX", 2)
        self.folder = tmp_path


class TestMemory(_Contract):
    def make_source(self) -> Source:
        return MemorySource(
            [1, *(df.TimestampedValue(number, number) for number in range(9)), {"a": 1}, {"a": 1}]
        )

    def expected(self) -> Iterable[Any]:
        return [1, *range(9), {"a": 1}, {"a": 1}]


class TestNoElements(_Contract):
    def make_source(self) -> Source:
        return MemorySource([])

    def expected(self) -> Iterable[Any]:
        return []


class TestImpulse(_Contract):
    def make_source(self) -> Source:
        return ImpulseSource()

    def expected(self) -> Iterable[Any]:
        return [b""]


def write_csv(folder: Path) -> Path:
    for name, rows in (("a", ROWS[:7]), ("b", ROWS[7:])):
        lines = [f"{row.at},{row.name}" for row in rows]
        (folder / f"{name}.csv").write_text("\n".join(["at,name", *lines]), encoding="utf-8")
    return folder / "*.csv"


def write_json(folder: Path) -> Path:
    for name, rows in (("a", ROWS[:7]), ("b", ROWS[7:])):
        lines = "".join(f"{json.dumps(row._asdict())}\n" for row in rows)
        path = folder / f"{name}.jsonl"
        path.write_text(lines, encoding="utf-8")
        # Long ago: what has just been written may not be whole yet.
        os.utime(path, (0, 0))
    return folder / "*.jsonl"


def source_of(read: Any) -> Source:
    """The source of a transform that reads."""
    p = df.Pipeline()
    p | read
    (node,) = [each for each in p.graph().transforms if not each.inputs]
    source: Source = node.operation.source  # type: ignore[union-attr]
    return source


class TestCsv(_Contract):
    def make_source(self) -> Source:
        return source_of(df.ReadFromCsv(write_csv(self.folder)))

    def expected(self) -> Iterable[Any]:
        return [{"at": str(row.at), "name": row.name} for row in ROWS]


class TestCsvInOrder(_Contract):
    def make_source(self) -> Source:
        read = df.ReadFromCsv(
            write_csv(self.folder),
            event_time=lambda row: float(row["at"]),
            max_disorder=DISORDER_US / US_PER_SECOND,
        )
        return source_of(read)

    expected = TestCsv.expected


class TestJsonLines(_Contract):
    def make_source(self) -> Source:
        return source_of(df.ReadFromJsonLines(write_json(self.folder)))

    def expected(self) -> Iterable[Any]:
        return [row._asdict() for row in ROWS]


class TestJsonColumns(_Contract):
    def make_source(self) -> Source:
        return source_of(df.ReadFromJsonLines(write_json(self.folder), rows=Row, event_time="at"))

    def expected(self) -> Iterable[Any]:
        return ROWS


class TestText(_Contract):
    def make_source(self) -> Source:
        (self.folder / "a.txt").write_bytes(b"to be\r\n\nor not\nto be")
        return source_of(df.ReadFromText(self.folder, event_time=len, max_disorder=9))

    def expected(self) -> Iterable[Any]:
        return ["to be", "", "or not", "to be"]


class TestPackedJsonLines(_Contract):
    """Of two members each."""

    rows: Any = None

    def make_source(self) -> Source:
        for path in self.folder.glob(write_json(self.folder).name):
            data = path.read_bytes()
            members = gzip.compress(data[:50]) + gzip.compress(data[50:])
            path.with_suffix(".jsonl.gz").write_bytes(members)
        return source_of(df.ReadFromJsonLines(self.folder / "*.gz", rows=self.rows))

    def expected(self) -> Iterable[Any]:
        return [row if self.rows else row._asdict() for row in ROWS]


class TestPackedJsonColumns(TestPackedJsonLines):
    rows = Row


def write_parquet(folder: Path) -> Path:
    """Row groups of two rows, and an empty one at the end."""
    for name, rows in (("a", ROWS[:7]), ("b", ROWS[7:])):
        table = pa.Table.from_pylist([row._asdict() for row in rows])
        with pq.ParquetWriter(folder / f"{name}.parquet", table.schema) as writer:
            writer.write_table(table, row_group_size=2)
            writer.write_table(table.slice(0, 0))
    return folder


class TestParquet(_Contract):
    def make_source(self) -> Source:
        return source_of(df.ReadFromParquet(write_parquet(self.folder)))

    def expected(self) -> Iterable[Any]:
        return [row._asdict() for row in ROWS]


class TestParquetColumns(_Contract):
    splits_max = 6

    def make_source(self) -> Source:
        read = df.ReadFromParquet(
            write_parquet(self.folder),
            rows=Row,
            event_time="at",
            max_disorder=DISORDER_US / US_PER_SECOND,
        )
        return source_of(read)

    def expected(self) -> Iterable[Any]:
        return ROWS


@pytest.mark.slow
class TestParquetOfAFileSystem(TestParquetColumns):
    """Which is sent to workers with the source."""

    def make_source(self) -> Source:
        write_parquet(self.folder)
        system = fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())
        read = df.ReadFromParquet(
            ["b.parquet", "*.parquet"], rows=Row, event_time="at", filesystem=system
        )
        return source_of(read)


@pytest.mark.slow
class TestJsonColumnsOfAFileSystem(TestPackedJsonColumns):
    """Of packed files, and of one that is divided."""

    def make_source(self) -> Source:
        super().make_source()
        (self.folder / "b.jsonl.gz").unlink()
        (self.folder / "a.jsonl").unlink()
        system = fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())
        return source_of(df.ReadFromJsonLines("*.jsonl*", rows=Row, filesystem=system))


class TestMalformedParquetRows(_Contract):
    def make_source(self) -> Source:
        values = pa.array([1, None, 3, None, None, 6])
        path = self.folder / "a.parquet"
        pq.write_table(pa.table({"n": values}), path, row_group_size=4)
        return source_of(df.ReadFromParquet(path, rows=Number))

    def expected(self) -> Iterable[Any]:
        return [Number(1), Number(3), Number(6)]


class TestMalformedLines(_Contract):
    """What is set aside counts, and comes once as well."""

    def make_source(self) -> Source:
        path = self.folder / "mixed.jsonl"
        path.write_text('{"at": 1}\nno json\n{"at": 2}\n{"at": \n{"at": 3}\n', encoding="utf-8")
        return source_of(df.ReadFromJsonLines(path))

    def expected(self) -> Iterable[Any]:
        return [{"at": 1}, {"at": 2}, {"at": 3}]


class TestInjector(_Contract):
    def make_source(self) -> Source:
        return JsonLinesInjector(write_json(self.folder), event_time=lambda row: row["at"])

    expected = TestJsonLines.expected


class TestWatcher(_Contract):
    def make_source(self) -> Source:
        return JsonLinesWatcher(
            write_json(self.folder), event_time=lambda row: row["at"], max_disorder=200, poll=0
        )

    expected = TestJsonLines.expected


class TestWatcherOfPackedFiles(TestPackedJsonLines):
    """Files that are read in share by share, each from front to back."""

    def make_source(self) -> Source:
        super().make_source()
        return JsonLinesWatcher(
            self.folder / "*.gz", event_time=lambda row: row["at"], max_disorder=200, poll=0
        )


class TestPeriodic(_Contract):
    def make_source(self) -> Source:
        return PeriodicSource(0, 12 * US_PER_SECOND, US_PER_SECOND)


class TestPeriodicWithoutEnd(_Contract):
    def make_source(self) -> Source:
        clock = ArrivalTime(lambda: 20 * US_PER_SECOND)
        return PeriodicSource(0, None, US_PER_SECOND, clock)


class TestArrival(_Contract):
    def make_source(self) -> Source:
        clock = ArrivalTime(lambda: 20 * US_PER_SECOND)
        return ArrivalTimeSource(MemorySource(list(range(9))), clock)

    def expected(self) -> Iterable[Any]:
        return range(9)


# What follows is a source that is right, and one change for each rule that it then breaks.

CHANGES = [
    ("tea", 10, +1),
    ("cake", 20, +1),
    ("tea", 10, -1),
    ("milk", 30, +1),
    ("tea", 10, +1),
    ("salt", 40, +1),
]


@attrs.frozen
class Journal(Source[str]):
    """Changes in two halves; the second begins with a record of its own."""

    emits_retractions = True
    acknowledges = True

    def splits(self, desired: int) -> Sequence[Any]:
        return [(0, 4), (4, 6)] if desired > 1 else [(0, 6)]

    def open(self, split: Any, position: Any | None, *, fence: int) -> SourceReader:
        return JournalReader(split, position)


class JournalReader(SourceReader):
    def __init__(self, split: Any, position: Any | None) -> None:
        start, self.end = split
        self.next = start if position is None else position

    def read(self, max_records: int) -> SourceBatch:
        start, self.next = self.next, min(self.next + max_records, self.end)
        found = CHANGES[start : self.next]
        is_over = self.next == self.end
        return SourceBatch(
            values=[value for value, _, _ in found],
            timestamps_us=[at for _, at, _ in found],
            signs=[sign for _, _, sign in found],
            position=self.next,
            watermark_us=MAX_TIMESTAMP_US if is_over else MIN_TIMESTAMP_US,
            status=SplitStatus.FINISHED if is_over else SplitStatus.ACTIVE,
            backlog=df.Backlog(records=self.end - self.next),
        )

    def committed(self, position: Any) -> None:
        assert position is not None


class TestJournal(_Contract):
    def make_source(self) -> Source:
        return Journal()

    def expected(self) -> Iterable[Any]:
        return ["cake", "milk", "tea", "salt"]


class Growing(Journal):
    """One that may get splits."""

    is_bounded, discover_every_ms = False, 1_000

    def splits(self, desired: int) -> Sequence[Any]:
        return [(0, 4)]

    def discover(self, known: Sequence[Any]) -> df.SplitChanges:
        return df.SplitChanges(added=[each for each in [(0, 4), (4, 6)] if each not in known])


class TestGrowing(_Contract):
    """Its splits are complete when they have been discovered."""

    def make_source(self) -> Source:
        return Growing()

    def test_it_is_asked(self) -> None:
        check_discovered_splits(Growing, ["cake", "milk", "tea", "salt"], 1)


Reads = Callable[[SourceReader, int], SourceBatch]


def changed(**how: Any) -> Callable[[Any, int], SourceBatch]:
    """The batch with other fields; each is a function of the batch."""

    def read(self: Any, max_records: int) -> SourceBatch:
        batch = JournalReader.read(self, max_records)
        return attrs.evolve(batch, **{name: fn(batch) for name, fn in how.items()})

    return read


def skipping(self: Any, max_records: int) -> SourceBatch:
    """Whoever goes on at a position misses a record."""
    if getattr(self, "opened_at", None) is None:
        self.opened_at = self.next
        self.next += self.next > 0 and self.next not in (4, 6)
    return JournalReader.read(self, max_records)


def repeating(self: Any, max_records: int) -> SourceBatch:
    """Whoever goes on at a position has the last record again."""
    if not hasattr(self, "opened_at"):
        self.opened_at = self.next
        self.next -= self.next in (2, 3)
    return JournalReader.read(self, max_records)


def shuffled(self: Any, max_records: int) -> SourceBatch:
    """The order depends on how many are asked for."""
    batch = JournalReader.read(self, max_records)
    if max_records > 1_00 or len(batch.values) < 2 or -1 in (batch.signs or ()):
        return batch
    return attrs.evolve(
        batch,
        values=batch.values[::-1],
        timestamps_us=batch.timestamps_us[::-1],
        signs=batch.signs,
    )


def restless(self: Any, max_records: int) -> SourceBatch:
    """Has more after its end."""
    is_over = self.next == self.end
    batch = JournalReader.read(self, max_records)
    more = attrs.evolve(batch, values=["more"], timestamps_us=[50], signs=[1])
    return more if is_over else batch


def greedy(self: Any, max_records: int) -> SourceBatch:
    return JournalReader.read(self, max_records + 1)


def idle_too_soon(self: Any, max_records: int) -> SourceBatch:
    if not hasattr(self, "polls"):
        self.polls = 1
        return SourceBatch(
            values=[],
            timestamps_us=[],
            position=self.next,
            watermark_us=MIN_TIMESTAMP_US,
            status=SplitStatus.IDLE,
        )
    return JournalReader.read(self, max_records)


def endless(self: Any, max_records: int) -> SourceBatch:
    batch = JournalReader.read(self, max_records)
    return attrs.evolve(batch, status=SplitStatus.ACTIVE)


def following(batch: SourceBatch) -> int:
    return 25 if batch.position >= 2 else MIN_TIMESTAMP_US


def going_back(batch: SourceBatch) -> int:
    # Of the batch behind the one with the fourth change.
    return -100 - 10 * batch.position if batch.status is SplitStatus.ACTIVE else -1_000


def fails_twice(self: Any) -> None:
    self.closed = getattr(self, "closed", 0) + 1
    if self.closed > 1:
        raise OSError("closed twice")


def fails_again(self: Any, position: Any) -> None:
    if position < getattr(self, "last", 0):
        raise ValueError("an earlier position")
    self.last = position


#: Rule, and what is changed of reader and source.
def takes_all_with_it(self: Any) -> None:
    """What was there for its readers is gone."""

    def refuse(*_: Any, fence: int) -> SourceReader:
        raise LookupError("it was released")

    object.__setattr__(self, "open", refuse)


BROKEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("the same records in the same order", {"read": skipping}, {}),
    ("the same records in the same order|equal record", {"read": repeating}, {}),
    ("the same records in the same order", {"read": shuffled}, {}),
    ("at most max_records", {"read": greedy}, {}),
    ("have nothing to read", {"read": idle_too_soon}, {}),
    (
        "with records is not idle",
        {"read": changed(status=lambda batch: SplitStatus.IDLE)},
        {"is_bounded": False},
    ),
    ("must come to its end", {"read": endless}, {}),
    ("behind the watermark", {"read": changed(watermark_us=following)}, {}),
    ("must not go back", {"read": changed(watermark_us=going_back)}, {}),
    ("equal record", {"read": changed(signs=lambda batch: [-1] * len(batch.values))}, {}),
    ("equal record", {}, {"splits": lambda *_: [(0, 2), (2, 6)]}),
    ("must be \\+1 or -1", {"read": changed(signs=lambda batch: [0] * len(batch.values))}, {}),
    ("must say so", {}, {"emits_retractions": False}),
    ("for each record", {"read": changed(signs=lambda batch: [1] * (len(batch.values) + 1))}, {}),
    ("integers of microseconds", {"read": changed(watermark_us=lambda batch: 0.5)}, {}),
    ("a position must be plain", {"read": changed(position=lambda batch: lambda: batch)}, {}),
    ("a split must be plain", {}, {"splits": lambda *_: [lambda: 0]}),
    ("at least one split", {}, {"splits": lambda *_: []}),
    ("each record once", {}, {"splits": lambda *_: [(0, 4)]}),
    ("each record once", {}, {"splits": lambda *_: [(0, 6), (3, 4)]}),
    ("close must be idempotent", {"close": fails_twice}, {}),
    ("release must be idempotent", {}, {"release": fails_twice}),
    ("when its source was released", {}, {"release": takes_all_with_it}),
    ("committed must accept", {"committed": fails_again}, {}),
    ("return a SourceBatch", {"read": lambda *_: None}, {}),
    ("be text, or None", {}, {"input_name": 5}),
    ("that is finished must stay so", {"read": restless}, {}),
    (
        "finished must have a backlog of 0",
        {"read": changed(backlog=lambda batch: df.Backlog(records=6))},
        {},
    ),
    (
        "finished must have a backlog of 0",
        {"read": changed(backlog=lambda batch: df.Backlog(records=0, age_us=1))},
        {},
    ),
    (
        "whose backlog is 0 must have nothing",
        {"read": changed(backlog=lambda batch: df.Backlog(size_bytes=0))},
        {},
    ),
    (
        "whose backlog is 0 must have nothing",
        {"read": changed(backlog=lambda batch: df.Backlog(records=max(0, 4 - batch.position)))},
        {},
    ),
]


def discovering(*added: Any, removed: Sequence[Any] = ()) -> dict[str, Any]:
    """A source that has always these changes."""

    def discover(self: Any, known: Sequence[Any]) -> df.SplitChanges:
        return df.SplitChanges(added=added, removed=removed)

    return {"discover": discover}


BROKEN_DISCOVERIES: list[tuple[str, dict[str, Any]]] = [
    ("must return SplitChanges", {"discover": lambda *_: []}),
    ("add a split that is known", discovering((0, 4))),
    ("add a split twice", discovering((4, 6), (4, 6))),
    ("remove no split that is not known", discovering(removed=[(7, 8)])),
    (
        "remove no split that is there",
        {
            "discover": lambda self, known: attrs.evolve(
                Growing.discover(self, known), removed=known
            )
        },
    ),
    ("a split must be plain", discovering(lambda: 0)),
    ("have each record once", discovering()),
    (
        "the same splits when it is asked again",
        {
            "discover": lambda self, known: df.SplitChanges(
                added=[] if len(known) > 1 else [(4, 6, id(self))]
            )
        },
    ),
    ("which nobody would call", {"discover_every_ms": Source.discover_every_ms}),
    ("positive number of milliseconds", {"discover_every_ms": 0}),
    ("says that it ends by itself", {"is_bounded": True}),
]


@pytest.mark.parametrize(("rule", "how"), BROKEN_DISCOVERIES)
def test_a_source_that_discovers_wrongly_is_refused(rule: str, how: dict[str, Any]) -> None:
    made: list[Source] = []

    def make_source() -> Source:
        # All of them stay, so that each has an identity of its own.
        made.append(type("BrokenSource", (Growing,), how)())
        return made[-1]

    with pytest.raises((BrokenRuleError, df.PipelineError), match=rule):
        check_discovered_splits(make_source, ["cake", "milk", "tea", "salt"], 1)


def run_all(contract: SourceContract) -> None:
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "reader", "source"), BROKEN, ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_source_that_breaks_a_rule_is_refused(
    rule: str, reader: dict[str, Any], source: dict[str, Any]
) -> None:
    broken_reader = type("BrokenReader", (JournalReader,), reader)
    broken_source = type(
        "BrokenSource",
        (Journal,),
        {"open": lambda _, split, position, *, fence: broken_reader(split, position), **source},
    )

    class Contract(SourceContract):
        examples = 20

        def make_source(self) -> Source:
            return broken_source()  # type: ignore[no-any-return]

        def expected(self) -> Iterable[Any]:
            return ["cake", "milk", "tea", "salt"]

    with pytest.raises(BrokenRuleError, match=rule):
        run_all(Contract())


@pytest.mark.parametrize("backlog", [{"records": -1}, {"size_bytes": 0.5}, {"age_us": True}])
def test_a_backlog_is_what_is_left(backlog: dict[str, Any]) -> None:
    (name,) = backlog
    batch = JournalReader((0, 6), None).read(1)
    with pytest.raises(df.InputError, match=f"backlog of a SourceBatch cannot have {name}="):
        attrs.evolve(batch, backlog=df.Backlog(**backlog))


def test_a_batch_has_a_backlog_or_none() -> None:
    with pytest.raises(df.InputError, match="backlog of a SourceBatch cannot be 5"):
        attrs.evolve(JournalReader((0, 6), None).read(1), backlog=5)  # type: ignore[arg-type]


def test_a_contract_needs_a_source() -> None:
    with pytest.raises(NotImplementedError, match="has to define make_source"):
        SourceContract().test_it_knows_its_type_and_name()

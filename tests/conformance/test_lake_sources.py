"""Tables of lakes are sources that keep the contract, by version and as they change."""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

import dataflow as df
from dataflow.errors import SinkRefusedError
from dataflow.lake.delta_source import DeltaSource, DeltaTableReader
from dataflow.lake.delta_table import DeltaPlace
from dataflow.lake.iceberg_source import NOTHING, IcebergSource
from dataflow.lake.iceberg_table import IcebergPlace
from dataflow.lake.reading import LakeReader, Position, Split
from dataflow.sink import SinkChange
from dataflow.source import Source, SourceReader
from dataflow.testing import assert_that, equal_to
from dataflow.testing.sink_contract import lane_of
from dataflow.testing.source_contract import SourceContract
from tests.iceberg_deletes import delete_equal, delete_positions

pytestmark = pytest.mark.slow


class Sale(NamedTuple):
    shop: str
    amount: int


def table(*rows: tuple[str, int]) -> pa.Table:
    shops, amounts = zip(*rows, strict=True)
    return pa.table({"shop": shops, "amount": amounts})


def sales(count: int, shop: str) -> list[tuple[str, int]]:
    return [(shop, amount) for amount in range(count)]


class LakeContract(SourceContract):
    examples = 8
    splits_max = 2
    folder: Path

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "table"
        self.write()

    def write(self) -> None:
        raise NotImplementedError


class TestDeltaVersion(LakeContract):
    """A version, of which some files are not there any more in the newest one."""

    def write(self) -> None:
        for count, shop in ((5, "a"), (3, "b"), (4, "b")):
            write_deltalake(
                self.folder, table(*sales(count, shop)), mode="append", partition_by=["shop"]
            )
        DeltaTable(self.folder).delete("shop = 'b'")

    def make_source(self) -> Source:
        return df.ReadFromDelta(self.folder, rows=Sale, version=2).source

    def expected(self) -> Iterable[Any]:
        return [Sale(*each) for each in [*sales(5, "a"), *sales(3, "b"), *sales(4, "b")]]


class _DeltaFromTheStart(DeltaSource):
    """A job that began when the table had its first version."""

    def splits(self, desired: int) -> Sequence[Split]:
        return [(0, 1, 0, None)]


class DeltaChanges(LakeContract):
    has_feed = False
    kind: type[DeltaSource] = _DeltaFromTheStart

    def write(self) -> None:
        feed = {"delta.enableChangeDataFeed": "true"} if self.has_feed else None
        write_deltalake(self.folder, table(*sales(3, "a")), configuration=feed)
        write_deltalake(self.folder, table(*sales(3, "b")), mode="append")
        DeltaTable(self.folder).optimize.compact()
        write_deltalake(self.folder, table(*sales(2, "c")), mode="append")

    def make_source(self) -> Source:
        source = df.ReadFromDelta(self.folder, rows=Sale, changes=True, poll=0).source
        return self.kind(**attrs.asdict(source, recurse=False))

    def expected(self) -> Iterable[Any]:
        return [Sale(*each) for each in [*sales(3, "a"), *sales(3, "b"), *sales(2, "c")]]


class TestDeltaAppends(DeltaChanges):
    """A table without a change feed, that is compacted."""


class TestDeltaFeed(DeltaChanges):
    """Rows are replaced and deleted."""

    has_feed = True

    def write(self) -> None:
        super().write()
        DeltaTable(self.folder).update({"amount": "amount + 10"}, predicate="amount > 0")
        DeltaTable(self.folder).delete("shop = 'b' AND amount < 12")

    def expected(self) -> Iterable[Any]:
        return [
            Sale("a", 0),
            Sale("a", 11),
            Sale("a", 12),
            Sale("b", 12),
            Sale("c", 0),
            Sale("c", 11),
        ]


def test_what_is_written_is_read_and_an_answer_follows(tmp_path: Path) -> None:
    """By pipelines: early answers are retracted, in one table by signs and in the other by key."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }
    columns = {"shop": str, "amount": int}
    delta, by_key = tmp_path / "delta", tmp_path / "by_key"
    with df.Pipeline() as p:
        totals = (
            p
            | df.Create([("a", 1), ("b", 2), ("a", 4)])
            | df.WindowInto(
                df.GlobalWindows(),
                trigger=df.AfterWatermark(early=df.Repeatedly(df.AfterCount(1))),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | df.CombinePerKey(sum)
            | df.Map(lambda pair: Sale(*pair))
        )
        totals | df.WriteToDelta(delta, columns=columns, changelog="sign")
        totals | "by key" >> df.WriteToDelta(by_key, columns=columns, key="shop")
        totals | df.WriteToIceberg(
            "shop.totals", catalog=catalog, columns=columns, changelog="sign"
        )
        totals | df.WriteToIceberg("shop.by_key", catalog=catalog, columns=columns, key="shop")
        with pytest.raises(df.PipelineError, match="takes no retractions"):
            totals | "refused" >> df.WriteToDelta(delta, columns=columns)
    read: Any
    for read, has_sign in (
        (df.ReadFromDelta(delta), True),
        (df.ReadFromDelta(by_key), False),
        (df.ReadFromIceberg("shop.totals", catalog=catalog), True),
        (df.ReadFromIceberg("shop.by_key", catalog=catalog), False),
    ):
        with df.Pipeline() as p:
            rows = (
                p
                | "read" >> read
                | df.Map(lambda row: (row["shop"], row["amount"] * row.get("sign", 1)))
            )
            sums = rows | df.CombinePerKey(sum)
            assert_that(sums, equal_to([("a", 5), ("b", 2)]))
        assert has_sign == ("sign" in read.source.opened().schema.names)


def test_arguments_that_do_not_suit_each_other_are_refused(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"shop": str, "amount": int}
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: df.WriteToDelta("t", columns={"for": timedelta}), "timedelta"),
        (lambda: df.WriteToDelta("t", columns=columns, key=["shop"], shards=2), "2 shards"),
        (lambda: df.WriteToDelta("t", columns=columns, key=["none"]), "no column 'none'"),
        (lambda: df.WriteToIceberg("sales", catalog={}, columns=columns), "namespace"),
        (lambda: df.WriteToIceberg("s.t", catalog={}, columns=columns, key="x"), "no column 'x'"),
        (
            lambda: df.WriteToIceberg(
                "s.t", catalog={}, columns=columns, key="shop", changelog="s"
            ),
            "a key and changelog",
        ),
        (
            lambda: df.WriteToIceberg(
                "s.t", catalog={}, columns=columns, properties={"format-version": "3"}
            ),
            "format version 3",
        ),
        (lambda: df.ReadFromIceberg("s.t", catalog={}, append_only=True), "append_only without"),
        (lambda: df.ReadFromDelta("t", version=1, changes=True), "a version and changes"),
        (lambda: df.ReadFromDelta("t", changes=True, event_time="at"), "how far event time"),
    ]
    for make, what in refused:
        with pytest.raises((df.PipelineError, df.InputError), match=what):
            make()
    with pytest.raises(df.InputError, match="there is no Delta table"):
        df.Pipeline() | df.ReadFromDelta(tmp_path)
    write_deltalake(tmp_path, table(("a", 1)))
    with (
        pytest.raises(df.InputError, match="a column 'amount' of another type"),
        df.Pipeline() as p,
    ):
        p | df.Create([]) | df.WriteToDelta(tmp_path, columns={"shop": str, "amount": list[int]})


class _ForgetsRows(LakeReader):
    """Positions are of files."""

    @property
    def position(self) -> Position:
        return (*super().position[:4], 0)


class _GuessesTheNext(LakeReader):
    """What was being read is taken for read."""

    @property
    def position(self) -> Position:
        is_change, _, current, *_ = super().position
        return is_change, current, current, 0, 0


@pytest.mark.parametrize("reader", [_ForgetsRows, _GuessesTheNext])
def test_the_contract_rejects(reader: type[LakeReader], tmp_path: Path) -> None:
    class Broken(_DeltaFromTheStart):
        def open(self, split: Split, position: Any, *, fence: int) -> SourceReader:
            return reader(self, split, position)

    class Contract(DeltaChanges):
        kind = Broken

    contract = Contract()
    contract.folder = tmp_path / "table"
    contract.write()
    with pytest.raises((AssertionError, df.InputError)):
        contract.test_it_goes_on_behind_any_record()


def read_all(source: Source) -> list[Any]:
    (split,) = source.splits(1)
    reader, found = source.open(split, None, fence=0), list[Any]()
    for _ in range(10):
        found.extend(reader.read(100).values)
    return found


def test_a_version_that_takes_rows_away_needs_a_feed(tmp_path: Path) -> None:
    contract = TestDeltaAppends()
    contract.folder = tmp_path / "table"
    contract.write()
    DeltaTable(contract.folder).delete("shop = 'b'")
    with pytest.raises(df.InputError, match="version 4 takes rows away"):
        read_all(contract.make_source())


@pytest.mark.parametrize("has_feed", [False, True])
def test_a_version_that_is_gone_is_an_error_with_both_numbers(
    tmp_path: Path, has_feed: bool
) -> None:
    contract = TestDeltaFeed() if has_feed else TestDeltaAppends()
    contract.folder = tmp_path / "table"
    contract.write()
    source = contract.make_source()
    DeltaTable(contract.folder).create_checkpoint()
    (contract.folder / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(df.InputError, match="version 1 is not there any more") as raised:
        read_all(source)
    assert "0" in raised.value.detail


def test_files_that_were_vacuumed_are_an_error(tmp_path: Path) -> None:
    contract = TestDeltaVersion()
    contract.folder = tmp_path / "table"
    contract.write()
    source = contract.make_source()
    DeltaTable(contract.folder).vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(df.InputError, match="cannot be read: version 2") as raised:
        read_all(source)
    assert "newest version is" in raised.value.detail


class TestDeltaFeedThatIsAway(TestDeltaFeed):
    """Each third request finds nobody."""

    @pytest.fixture(autouse=True)
    def _away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        requests = itertools.count()

        def failing(call: Callable[..., Any]) -> Callable[..., Any]:
            def answer(*args: Any, **options: Any) -> Any:
                if next(requests) % 3 == 1:
                    raise OSError("connection refused")
                return call(*args, **options)

            return answer

        for name in ("newest", "changed_files"):
            monkeypatch.setattr(DeltaTableReader, name, failing(getattr(DeltaTableReader, name)))


class _AwayWhenOpened:
    """Two openings find nobody, and the third one somebody; a third quiet read would be the end to the contract."""

    @pytest.fixture(autouse=True)
    def _away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        open_table, openings = LakeReader._open_table, itertools.count()

        def failing(reader: LakeReader) -> None:
            is_away = reader._opened_table is None and next(openings) % 3 != 2
            with pytest.MonkeyPatch.context() as patched:
                for place in (DeltaPlace, IcebergPlace) if is_away else ():
                    patched.setattr(place, "opened", _refuse_to_connect)
                open_table(reader)

        monkeypatch.setattr(LakeReader, "_open_table", failing)


def _refuse_to_connect(*_: Any, **__: Any) -> None:
    raise OSError("connection refused")


class TestDeltaFeedThatIsOpenedWhileItIsAway(_AwayWhenOpened, TestDeltaFeed):
    """Each reader that goes on finds nobody at first."""


class IcebergContract(LakeContract):
    """A table that has been written to several times."""

    catalog: dict[str, str]

    def write(self) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder.parent}/catalog.db",
            "warehouse": f"file://{self.folder}",
        }
        with closing(load_catalog("dataflow", **self.catalog)) as catalog:
            catalog.create_namespace("shop")
            self.fill(catalog.create_table("shop.sales", table(("", 0)).schema))

    def fill(self, sales_table: Any) -> None:
        for count, shop in ((5, "a"), (3, "b"), (4, "b")):
            sales_table.append(table(*sales(count, shop)))

    def expected(self) -> Iterable[Any]:
        return [Sale(*each) for each in [*sales(5, "a"), *sales(3, "b"), *sales(4, "b")]]


class TestIcebergSnapshot(IcebergContract):
    """A snapshot that is not the newest one, with rows that were deleted."""

    snapshot: int

    def fill(self, sales_table: Any) -> None:
        super().fill(sales_table)
        sales_table.append(table(("z", 1), ("a", 99)))
        sales_table.delete("amount = 99 OR shop = 'z'")
        self.snapshot = sales_table.current_snapshot().snapshot_id
        sales_table.delete("shop = 'b'")

    def make_source(self) -> Source:
        return df.ReadFromIceberg(
            "shop.sales", catalog=self.catalog, rows=Sale, snapshot=self.snapshot
        ).source


class _IcebergFromTheStart(IcebergSource):
    """A job that began when the table was empty."""

    def splits(self, desired: int) -> Sequence[Split]:
        return [(NOTHING, 1, 0, None)]


class TestIcebergSnapshotWithDeletes(IcebergContract):
    """Rows are deleted by position, in files beside those that have them."""

    def fill(self, sales_table: Any) -> None:
        sales_table.append(table(*sales(5, "a"), ("z", 1), *sales(3, "b")))
        (first,) = files_of(sales_table)
        sales_table.append(table(*sales(4, "b"), ("z", 2)))
        (second,) = files_of(sales_table) - {first}
        delete_positions(sales_table, [(first, 5), (second, 4)])

    def make_source(self) -> Source:
        return df.ReadFromIceberg("shop.sales", catalog=self.catalog, rows=Sale).source


def files_of(sales_table: Any) -> set[str]:
    return {task.file.file_path for task in sales_table.scan().plan_files()}


class TestIcebergChanges(IcebergContract):
    """Rows are replaced and deleted, in files that are written again and beside them."""

    def fill(self, sales_table: Any) -> None:
        super().fill(sales_table)
        sales_table.append(table(("z", 1), ("a", 99), ("z", 2)))
        (last,) = [each for each in files_of(sales_table) if "z" in shops_of(sales_table, each)]
        delete_positions(sales_table, [(last, 0)])
        sales_table.overwrite(table(("z", 3)), "shop = 'a' AND amount = 99")
        sales_table.delete("shop = 'z'")

    def make_source(self) -> Source:
        source = df.ReadFromIceberg(
            "shop.sales", catalog=self.catalog, rows=Sale, changes=True, poll=0
        ).source
        return _IcebergFromTheStart(**attrs.asdict(source, recurse=False))


def shops_of(sales_table: Any, file: str) -> list[str]:
    with sales_table.io.new_input(file).open() as opened:
        found: list[str] = pq.read_table(opened).column("shop").to_pylist()
        return found


def test_a_column_that_came_between_two_snapshots_is_null_before(tmp_path: Path) -> None:
    contract = IcebergContract()
    contract.folder, contract.fill = tmp_path / "table", lambda sales_table: None  # type: ignore[method-assign]
    contract.write()
    with closing(load_catalog("dataflow", **contract.catalog)) as catalog:
        changed = catalog.load_table("shop.sales")
        changed.append(table(("a", 1), ("b", 2)))
        (snapshot,) = (each.snapshot_id for each in changed.snapshots())
        with changed.update_schema() as update:
            update.add_column("note", StringType())
        changed.overwrite(table(("a", 3)).append_column("note", [["new"]]), "shop = 'a'")
    source = df.ReadFromIceberg("shop.sales", catalog=contract.catalog, changes=True, poll=0).source
    with closing(source.open((NOTHING, 1, 0, None), None, fence=0)) as reader:
        batches = [reader.read(10) for _ in range(6)]
    assert [
        (row["shop"], row["amount"], row["note"], sign)
        for batch in batches
        for row, sign in zip(batch.values, batch.signs or (), strict=True)
    ] == [("a", 1, None, 1), ("b", 2, None, 1), ("a", 1, None, -1), ("a", 3, "new", 1)]
    first = df.ReadFromIceberg("shop.sales", catalog=contract.catalog, snapshot=snapshot).source
    assert [row["note"] for row in read_all(first)] == [None, None]


@pytest.mark.nightly
class TestIcebergChangesThatAreOpenedWhileAway(_AwayWhenOpened, TestIcebergChanges):
    """Each reader that goes on finds nobody at first."""


class TestIcebergAppends(IcebergContract):
    def make_source(self) -> Source:
        source = df.ReadFromIceberg(
            "shop.sales",
            catalog=self.catalog,
            rows=Sale,
            changes=True,
            append_only=True,
            poll=0,
        ).source
        return _IcebergFromTheStart(**attrs.asdict(source, recurse=False))


@pytest.mark.nightly
class TestIcebergAppendsThatAreOpenedWhileAway(_AwayWhenOpened, TestIcebergAppends):
    """Each reader that goes on finds nobody at first."""


@pytest.mark.parametrize("detail", ["403 Forbidden", "404 Not Found"])
def test_what_is_refused_three_times_in_a_row_is_an_error(
    detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = TestDeltaAppends()
    contract.folder = tmp_path / "table"
    contract.write()
    reader = contract.make_source().open((0, 1, 0, None), None, fence=0)
    answers = iter(["connection refused", detail, detail, "connection refused", *[detail] * 3])

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(next(answers))

    monkeypatch.setattr(DeltaPlace, "opened", refuse)
    assert [len(reader.read(1).values) for _ in range(6)] == [0] * 6
    with pytest.raises(df.InputError, match="does not reach"):
        reader.read(1)


def test_a_table_of_a_version_that_is_not_written_is_refused(tmp_path: Path) -> None:
    """Before the job begins where it is there by then, and else when it is written."""
    contract = TestIcebergAppends()
    contract.folder = tmp_path / "table"
    contract.write()
    with closing(load_catalog("dataflow", **contract.catalog)) as catalog:
        loaded = catalog.load_table("shop.sales")
        metadata = json.loads(loaded.metadata.model_dump_json())
        later = tmp_path / "00009-later.metadata.json"
        later.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
        catalog.register_table("shop.later", f"file://{later}")
    columns: dict[str, Any] = {"shop": str, "amount": int}
    write = df.WriteToIceberg("shop.later", catalog=contract.catalog, columns=columns)
    with pytest.raises(df.InputError, match="format version 3"):
        write._sink.check()
    with (
        closing(write._sink.open(lane_of(0))) as writer,
        pytest.raises(SinkRefusedError, match="format version 3"),
    ):
        writer.fence(1)


@pytest.mark.parametrize("is_change", [False, True])
def test_rows_that_are_deleted_by_equality_are_refused_in_words(
    tmp_path: Path, is_change: bool
) -> None:
    """In a snapshot that is read, in a change, and in a table that is written by key."""
    contract = TestIcebergChanges()
    contract.folder = tmp_path / "table"
    contract.write()
    read = df.ReadFromIceberg("shop.sales", catalog=contract.catalog, rows=Sale).source
    source = contract.make_source() if is_change else read
    with closing(load_catalog("dataflow", **contract.catalog)) as catalog:
        delete_equal(catalog.load_table("shop.sales"), pa.table({"shop": ["b"]}))
    with pytest.raises(df.InputError, match="deleted by equality") as raised:
        read_all(source)
    assert "rewrite" in raised.value.hint
    columns: dict[str, Any] = {"shop": str, "amount": int}
    write = df.WriteToIceberg(
        "shop.sales", catalog=contract.catalog, columns=columns, key=["shop", "amount"]
    )
    with closing(write._sink.open(lane_of(0))) as writer:
        assert writer.fence(1) == 0
        with pytest.raises(SinkRefusedError, match="deleted by equality"):
            writer.write(1, [SinkChange(("b", 1), 1)])


def test_a_snapshot_that_takes_rows_away_is_an_error(tmp_path: Path) -> None:
    contract = TestIcebergAppends()
    contract.folder = tmp_path / "table"
    contract.write()
    with closing(load_catalog("dataflow", **contract.catalog)) as catalog:
        catalog.load_table("shop.sales").delete("shop = 'b'")
    with pytest.raises(df.InputError, match="is no append"):
        read_all(contract.make_source())


def test_a_snapshot_that_has_expired_is_an_error_where_it_was_to_be_read(tmp_path: Path) -> None:
    contract = TestIcebergAppends()
    contract.folder = tmp_path / "table"
    contract.write()
    with closing(load_catalog("dataflow", **contract.catalog)) as catalog:
        kept = catalog.load_table("shop.sales")
        first, second, _ = (each.snapshot_id for each in kept.snapshots())
        for each in (first, second):
            kept.maintenance.expire_snapshots().by_id(each).commit()
    source = contract.make_source()
    assert sorted(read_all(source)) == sorted(contract.expected())
    reader = source.open((NOTHING, 1, 0, None), (True, first, first, 0, 0), fence=0)
    with pytest.raises(df.InputError, match=f"what follows snapshot {first} is not") as raised:
        reader.read(1)
    assert "oldest snapshot" in raised.value.detail
    reader = source.open((NOTHING, 1, 0, None), (True, NOTHING, first, 0, 1), fence=0)
    with pytest.raises(df.InputError, match=f"version {first} is not there any more"):
        reader.read(1)

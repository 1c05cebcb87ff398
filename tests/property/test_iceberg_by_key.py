"""A table of Iceberg that is written by key has what a dictionary has, and its changes are what differs.

Others write it, too: they append, delete by what rows have and by where they are.
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

import dataflow as df
from dataflow.lake import iceberg_rewrite
from dataflow.lake.iceberg_source import NOTHING, IcebergTableReader
from dataflow.lake.iceberg_table import IcebergPlace
from dataflow.lake.reading import SIGN
from dataflow.sink import SinkChange, SinkWriter
from dataflow.testing.sink_contract import lane_of
from tests.effort import by_profile
from tests.iceberg_deletes import delete_positions

pytestmark = pytest.mark.slow

TABLE = "shop.rows"
#: A key of each type that can be in one, and what a row has beside it.
KEYS: dict[type, Sequence[Any]] = {
    str: ["", "ü" * 20, "a", "b"],
    int: [-1, 0, 1, 1 << 62],
    bool: [False, True],
    bytes: [b"", b"\xff" * 20, b"a"],
    date: [date(1969, 12, 31), date(2026, 1, 1)],
    datetime: [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in range(3)],
    Decimal: [Decimal("0.1"), Decimal(-1), Decimal("1e9")],
}
VALUES = {"count": int, "tags": list[str]}


@attrs.frozen
class Upsert:
    """Rows by key, of which None is a retraction, in one batch."""

    rows: dict[Any, int | None]


@attrs.frozen
class Append:
    """Rows that another program adds."""

    count: int


@attrs.frozen
class Delete:
    """Rows with at least a value that another program deletes."""

    least: int


@attrs.frozen
class DeleteAt:
    """A row that another program deletes by where it is."""

    place: int


def steps(kinds: Sequence[type]) -> Any:
    keys = st.tuples(*(st.sampled_from(KEYS[kind]) for kind in kinds))
    value = st.none() | st.integers(0, 9)
    return st.lists(
        st.builds(Upsert, st.dictionaries(keys, value, min_size=1, max_size=4))
        | st.builds(Append, st.integers(1, 3))
        | st.builds(Delete, st.integers(3, 9))
        | st.builds(DeleteAt, st.integers(0, 9)),
        min_size=2,
        max_size=6,
    )


cases = st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3).flatmap(
    lambda kinds: st.tuples(st.just(kinds), steps(kinds))
)


class Table:
    """The table, and the rows that it is to have: by key, and those of other programs, which have none."""

    def __init__(self, folder: Path, kinds: Sequence[type]) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/lake",
        }
        self.key = [f"key{at}" for at in range(len(kinds))]
        columns = {**dict(zip(self.key, kinds, strict=True)), **VALUES}
        write = df.WriteToIceberg(TABLE, catalog=self.catalog, columns=columns, key=self.key)
        self.schema = write._sink.file_format.schema
        self.writer: SinkWriter = attrs.evolve(write._sink, is_retracted=True).open(lane_of(0))
        self.writer.fence(1)
        self.batches, self.more = itertools.count(1), itertools.count(100)
        self.written: dict[Any, dict[str, Any]] = {}
        self.others: list[dict[str, Any]] = []

    def step(self, step: Any) -> None:
        with closing(load_catalog("dataflow", **self.catalog)) as catalog:
            table = catalog.load_table(TABLE)
            if isinstance(step, Upsert):
                self.upsert(step)
            elif isinstance(step, Append):
                rows = [
                    self.row([None] * len(self.key), next(self.more)) for _ in range(step.count)
                ]
                self.others += rows
                table.append(pa.Table.from_pylist(rows, schema=self.schema))
            elif isinstance(step, Delete):
                with suppress_warnings():
                    table.delete(f"count >= {step.least}")
                self.keep(lambda row: row["count"] < step.least)
            else:
                self.delete_at(table, step.place)
            found = table.refresh().scan().to_arrow()
        assert counted(found) == counted(self.rows())

    def rows(self) -> pa.Table:
        return pa.Table.from_pylist([*self.others, *self.written.values()], schema=self.schema)

    def row(self, key: Sequence[Any], count: int) -> dict[str, Any]:
        values = (*key, count, [f"{count}", None])
        return dict(zip(self.schema.names, values, strict=True))

    def keep(self, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        self.others = [row for row in self.others if is_kept(row)]
        self.written = {key: row for key, row in self.written.items() if is_kept(row)}

    def upsert(self, step: Upsert) -> None:
        changes = list[SinkChange]()
        for key, count in step.rows.items():
            if key in self.written:
                changes.append(SinkChange(tuple(self.written.pop(key).values()), -1))
            if count is not None:
                self.written[key] = self.row(key, count)
                changes.append(SinkChange(tuple(self.written[key].values()), +1))
        if changes:
            self.writer.write(next(self.batches), changes)

    def delete_at(self, table: Any, place: int) -> None:
        """Delete a row by where it is; what is at a place in a file is read from the file."""
        live = counted(self.rows())
        places = list[tuple[str, int, str]]()
        for task in table.scan().plan_files():
            with table.io.new_input(task.file.file_path).open() as opened:
                rows = pq.read_table(opened).select(self.schema.names).cast(self.schema)
            places += [
                (task.file.file_path, at, row)
                for at, row in enumerate(each for each in listed(rows))
                if row in live and not task.delete_files
            ]
        if places:
            path, at, row = sorted(places)[place % len(places)]
            delete_positions(table, [(path, at)])
            self.keep(
                lambda each: listed(pa.Table.from_pylist([each], schema=self.schema)) != [row]
            )


def listed(rows: pa.Table) -> list[str]:
    return [repr(row) for row in rows.to_pylist()]


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(listed(rows))


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """pyiceberg warns of a delete that nothing matches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def changes_of(table: Table) -> list[tuple[int, Counter[str]]]:
    """Of each snapshot, the rows that it adds and takes away, with their signs, all of them."""
    place = IcebergPlace(catalog=table.catalog, table=TABLE)
    found = list[tuple[int, Counter[str]]]()
    with closing(IcebergTableReader(place, has_signs=True)) as reader:
        done = NOTHING
        while (following := reader.changed_files(done)) is not None:
            done, files = following
            signed = Counter[str]()
            for file in files:
                for batch in reader.rows(done, file, table.schema.names, is_change=True):
                    rows = pa.Table.from_batches([batch])
                    signs = [1] * rows.num_rows
                    if SIGN in rows.column_names:
                        signs = rows.column(SIGN).to_pylist()
                        rows = rows.drop_columns([SIGN])
                    for row, sign in zip(listed(rows.cast(table.schema)), signs, strict=True):
                        signed[f"{sign:+} {row}"] += 1
            found.append((done, signed))
    return found


def differences(table: Table) -> list[tuple[int, Counter[str]]]:
    """Changes as `changes_of` has them, by scans of each snapshot and of the one before."""
    found = list[tuple[int, Counter[str]]]()
    before = Counter[str]()
    with closing(load_catalog("dataflow", **table.catalog)) as catalog:
        loaded = catalog.load_table(TABLE)
        for snapshot in loaded.snapshots():
            scan = loaded.scan(snapshot_id=snapshot.snapshot_id)
            after = counted(scan.to_arrow().cast(table.schema))
            signed = Counter({f"-1 {row}": count for row, count in (before - after).items()})
            signed.update({f"+1 {row}": count for row, count in (after - before).items()})
            found.append((snapshot.snapshot_id, signed))
            before = after
    return found


@settings(max_examples=by_profile(5, nightly=1_000), deadline=None)
@given(case=cases, has_many=st.booleans())
def test_a_table_by_key_is_a_dictionary_and_its_changes_are_what_differs(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[Sequence[type], Sequence[Any]],
    has_many: bool,
) -> None:
    kinds, steps = case
    table = Table(tmp_path_factory.mktemp("lake"), kinds)
    with closing(table.writer), pytest.MonkeyPatch.context() as patched:
        if has_many:
            # As if there were too many keys to be named, and too many rows to be held.
            patched.setattr(iceberg_rewrite, "_NAMED_MAX", 1)
            patched.setattr(iceberg_rewrite, "_WRITTEN_AT_ONCE", 1)
        for step in steps:
            table.step(step)
    assert changes_of(table) == differences(table)

"""DeltaSink, and DeltaWriter: the batches of one lane as commits of a Delta table, each with its number.

A commit of Delta can name transactions of applications: an id with a version, which the table keeps.  A lane has two,
its token and its number.  The log refuses a commit if another one, behind the version of the table that it was made
from, names one of its ids; and each act of a lane names the token.

* The fence is a commit of its own, without rows, with the token.  Whoever has looked at the table before it, and is
  still at work, is refused when it commits, however often the library tries, as the fence is among what came between.
* A batch is one commit: its rows, its number, and the token again, so that of two writers that believe to have the lane
  one is refused.
* The number is read behind the fence, from when on it cannot change.

Delta transaction log protocol, section "Transaction Identifiers".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import SinkFencedError, SinkRefusedError
from dataflow.lake.delta_table import DeltaPlace
from dataflow.lake.keyed import net_rows
from dataflow.lake.table_format import LAKE_BATCHING, TableFormat
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter
from dataflow.table import ColumnType

#: The column of a merge's input that says whether a row is to be there: 1, or -1.
_LEFT = "dataflow_left"


@attrs.frozen(kw_only=True)
class DeltaSink(Sink[Any]):
    """A table of Delta Lake.

    Attributes:
        place: where it is.
        file_format: its columns.
        key: of which there is one row each; empty: rows are added.
        is_retracted: whether the input retracts.
        shards: how many lanes commit to it.
        partition_by: columns by which its files are divided, if it is created.
        configuration: of the table, if it is created.
        how_large: how large batches are, and how long changes wait for that.
    """

    place: DeltaPlace
    file_format: TableFormat
    key: tuple[str, ...] = ()
    is_retracted: bool = False
    shards: int = 1
    partition_by: tuple[str, ...] = ()
    configuration: Mapping[str, str] = attrs.field(factory=dict)
    how_large: Batching = LAKE_BATCHING

    @property
    def lanes(self) -> int:
        """The shards."""
        return self.shards

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns of the table, without the sign."""
        return self.file_format.columns

    @property
    def key_indexes(self) -> tuple[int, ...]:
        """Where the columns of the key are in a row."""
        names = list(self.columns)
        return tuple(map(names.index, self.key))

    @property
    def takes_retractions(self) -> bool:
        """Whether rows have a key, or a sign."""
        return bool(self.key) or self.file_format.sign is not None

    @property
    def batching(self) -> Batching:
        """How large batches are."""
        return self.how_large

    def check(self) -> None:
        """Check that the table can be reached, and that rows can be in it, if it is there.

        Raises:
            InputError: it cannot, or they cannot.
        """
        table = self.place.checked("WriteToDelta")
        if table is not None:
            self.file_format.check_fit(self.place.uri, self.place.schema(table))

    def opened_or_created(self) -> Any:
        """The table; where there is none, it is created with these columns."""
        return self.place.opened_or_created(
            self.file_format.schema, self.partition_by, self.configuration
        )

    def open(self, lane: Lane) -> SinkWriter:
        """A writer of a lane."""
        return DeltaWriter(self, lane)


class DeltaWriter(SinkWriter):
    """Writes one lane.

    Args:
        sink: what is written.
        lane: the lane.
    """

    def __init__(self, sink: DeltaSink, lane: Lane) -> None:
        self._sink, self._lane, self._token = sink, lane, 0
        self._token_id = f"dataflow-token/{lane.writer}"
        self._number_id = f"dataflow/{lane.writer}"
        self._table: Any = None

    def fence(self, token: int) -> int:
        """Commit the token, and then read the number.

        Raises:
            SinkFencedError: the table has this token, or a higher one.
        """
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415 - an extra

        self._table = self._sink.opened_or_created()
        while True:
            if self._known(self._token_id) >= token:
                raise self._fenced()
            try:
                self._commit_nothing({self._token_id: token})
                break
            except CommitFailedError:
                self._table.update_incremental()
        self._token = token
        self._table.update_incremental()
        if self._known(self._token_id) != token:
            raise self._fenced()
        return self._known(self._number_id)

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Commit the rows with their number.

        Raises:
            SinkFencedError: another writer has the lane.
            SinkRefusedError: the table does not take the rows.
            Exception: nobody knows; the next writer asks.
        """
        from deltalake.exceptions import CommitFailedError, SchemaMismatchError  # noqa: PLC0415 - an extra

        self._table.update_incremental()
        if self._known(self._token_id) != self._token:
            raise self._fenced()
        try:
            self._commit(changes, self._transactions(number))
        except CommitFailedError:
            self._table.update_incremental()
            if self._known(self._token_id) != self._token:
                raise self._fenced() from None
            raise
        except SchemaMismatchError as error:
            raise SinkRefusedError(
                f"{self._sink.place.uri} does not take the rows",
                detail=str(error),
                hint="change the values or the table; the rows stay in the outbox",
            ) from error

    def _transactions(self, number: int) -> dict[str, int]:
        return {self._token_id: self._token, self._number_id: number}

    def _commit(self, changes: Sequence[SinkChange], transactions: dict[str, int]) -> None:
        """Commit a batch, on the condition that nobody has committed the token since the table was looked at."""
        sink = self._sink
        if sink.key:
            self._merge(changes, transactions)
            return
        from deltalake import write_deltalake  # noqa: PLC0415 - an extra

        rows = sink.file_format.table_of(changes)
        write_deltalake(
            self._table,
            sink.file_format.fitted(sink.place.uri, rows, sink.place.schema(self._table)),
            mode="append",
            commit_properties=_properties(transactions),
        )

    def _merge(self, changes: Sequence[SinkChange], transactions: dict[str, int]) -> None:
        sink = self._sink
        upserts, deletes = net_rows(
            sink.place.uri, sink.key_indexes, changes, is_retracted=sink.is_retracted
        )
        rows = sink.file_format.table([*upserts, *deletes], [1] * (len(upserts) + len(deletes)))
        fitted = sink.file_format.fitted(sink.place.uri, rows, sink.place.schema(self._table))
        left = pa.array([1] * len(upserts) + [-1] * len(deletes), pa.int32())
        if fitted.num_rows:
            (
                self._table.merge(
                    fitted.append_column(_LEFT, left),
                    predicate=" AND ".join(
                        f"t.{_quoted(each)} = s.{_quoted(each)}" for each in sink.key
                    ),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=_properties(transactions),
                )
                .when_matched_delete(f"s.{_LEFT} = -1")
                .when_matched_update_all(except_cols=[_LEFT])
                .when_not_matched_insert_all(f"s.{_LEFT} = 1", except_cols=[_LEFT])
                .execute()
            )
            self._table.update_incremental()
        if self._known(self._number_id) != transactions[self._number_id]:
            # A merge that changes nothing is no commit.
            self._commit_nothing(transactions)

    def _commit_nothing(self, transactions: dict[str, int]) -> None:
        table = self._table
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            partition_by=list(table.metadata().partition_columns) or None,
            commit_properties=_properties(transactions),
        )

    def _known(self, app_id: str) -> int:
        return self._table.transaction_version(app_id) or 0

    def _fenced(self) -> SinkFencedError:
        return SinkFencedError(f"{self._lane.title} was fenced by another writer")


def _properties(transactions: dict[str, int]) -> Any:
    from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - an extra

    return CommitProperties(
        app_transactions=[Transaction(app_id, version) for app_id, version in transactions.items()]
    )


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'

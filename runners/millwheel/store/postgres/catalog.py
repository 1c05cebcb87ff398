"""Jobs, computations and ranges as the database numbers them.

Commits are small and frequent, so they carry numbers, not names; `JobIds` is the dictionary, read
once per connection.  A number belongs to one job for ever: a dictionary that outlived its job finds
no fence, which is what fenced means.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
from psycopg import Connection

from dataflow.table import TableSpec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.guards import (
    check_format,
    check_own,
    check_same_job,
    missing_table,
    no_result_table,
    table_of_others,
    unknown_range,
)
from runners.millwheel.store.port import (
    JobRow,
    JobSpec,
    JobSummary,
    JobUpdate,
    RangeRow,
    RangeSpec,
    ResultTable,
)
from runners.millwheel.store.postgres.arrays import ByteaArray, Int4Array, Int8Array, TextArray
from runners.millwheel.store.postgres.queries import QUERIES, job_queries
from runners.millwheel.store.postgres.tables import (
    drop_table,
    empty_table,
    ensure_table,
    has_rows,
    is_name_of,
    place_of,
    rows_in_order,
)

_SIGN = 1 << 63


def to_signed(key_hash: int) -> int:
    """An unsigned 64-bit hash as a bigint, in the same order."""
    return key_hash - _SIGN


def to_unsigned(stored: int) -> int:
    """The inverse of `to_signed`."""
    return stored + _SIGN


@attrs.frozen(kw_only=True)
class NumberedRange:
    """A range and the numbers that stand for it."""

    number: int
    computation_number: int
    keys: KeyRange | None


@attrs.frozen(kw_only=True)
class JobIds:
    """The numbers of one job.

    Attributes:
        version: of the job when they were read; in another one a number may be that of a range with another name.
    """

    job: str
    version: int
    number: int
    ranges: Mapping[RangeId, NumberedRange]
    computations: Mapping[str, int]
    by_number: Mapping[int, RangeId]

    @property
    def queries(self) -> Mapping[str, bytes]:
        """Statements on the job's own tables; the transaction must have locked a fence of the job, or its row."""
        return job_queries(self.number)

    def with_ranges(self, ranges: Mapping[RangeId, NumberedRange]) -> "JobIds":
        """Make a copy in which some ranges have the numbers and keys that they have now.

        Args:
            ranges: of the same version of the job.
        """
        computations = {r.computation: each.computation_number for r, each in ranges.items()}
        by_number = {each.number: range_id for range_id, each in ranges.items()}
        return attrs.evolve(
            self,
            ranges={**self.ranges, **ranges},
            computations={**self.computations, **computations},
            by_number={**self.by_number, **by_number},
        )

    def range(self, range_id: RangeId) -> NumberedRange:
        """The numbers of a range.

        Raises:
            StoreError: the job has no such range.
        """
        found = self.ranges.get(range_id)
        if found is None:
            raise unknown_range(self.job, range_id)
        return found


def read_job(connection: Connection[Any], job: str) -> tuple[JobRow, JobIds] | None:
    """Read the job, its ranges and their numbers.

    Args:
        connection: to the store; what is read is of one moment only inside a transaction that has the locks for it.
        job: its name.

    Returns:
        The job as the port shows it, and the numbers that the database has for its parts; None if there is no such job.
    """
    found = connection.execute(QUERIES["read_job"], {"name": job}).fetchone()
    if found is None:
        return None
    number, mode, fingerprint, is_finished, signals, version, is_drained, stored_format = found
    rows, numbered = read_ranges(connection, number)
    row = JobRow(
        job=job,
        mode=mode,
        fingerprint=fingerprint,
        is_finished=is_finished,
        is_drained=is_drained,
        ranges=rows,
        signals=frozenset(signals),
        computations=read_computations(connection, number),
        version=version,
        stored_format=stored_format,
    )
    ids = JobIds(
        job=job,
        version=version,
        number=number,
        ranges=numbered,
        computations={r.computation: n.computation_number for r, n in numbered.items()},
        by_number={each.number: range_id for range_id, each in numbered.items()},
    )
    return row, ids


def read_ranges(
    connection: Connection[Any], job_number: int, numbers: Collection[int] | None = None
) -> tuple[Mapping[RangeId, RangeRow], Mapping[RangeId, NumberedRange]]:
    """Read ranges of a job, as the port shows them and as the database numbers them.

    Args:
        connection: to the store; as for `read_job`.
        job_number: of the job.
        numbers: of the ranges; those that are not there are left out.  None: all.
    """
    asked = None if numbers is None else Int4Array.of(list(numbers))
    parameters = {"job_id": job_number, "range_ids": asked}
    cursor = connection.cursor(binary=True).execute(QUERIES["read_ranges"], parameters)
    rows: dict[RangeId, RangeRow] = {}
    heads: dict[RangeId, int] = {}
    numbered: dict[RangeId, NumberedRange] = {}
    for name, index, range_number, computation_number, first_hash, last_hash, head, *rest in cursor:
        range_id = RangeId(name, index)
        if head is not None:
            heads[range_id] = head
        keys = None
        if first_hash is not None:
            keys = KeyRange(to_unsigned(first_hash), to_unsigned(last_hash) + 1)
        rows[range_id] = _range_row(range_id, keys, rest)
        numbered[range_id] = NumberedRange(
            number=range_number, computation_number=computation_number, keys=keys
        )
    by_number = {each.number: range_id for range_id, each in numbered.items()}
    for range_id, head in heads.items():
        rows[range_id] = attrs.evolve(rows[range_id], handover_with=by_number[head])
    return rows, numbered


def create_job(connection: Connection[Any], spec: JobSpec) -> bool:
    """Create what is missing of the job and its tables; returns whether the job was.  Inside a transaction.

    Args:
        connection: to the store; locks the catalog until the transaction ends.
        spec: the job; ranges that exist win over its ranges.

    Raises:
        JobMismatchError: the name is taken by another pipeline.
        StoredFormatError: the job is in a format that the spec does not read.
        TableMismatchError: a result table exists with another shape.
    """
    connection.execute(QUERIES["lock_catalog"])
    found = connection.execute(QUERIES["read_job"], {"name": spec.job}).fetchone()
    is_new = found is None
    if found is None:
        parameters = {
            "name": spec.job,
            "mode": spec.mode,
            "fingerprint": spec.fingerprint,
            "signals": sorted(spec.signals),
            "stored_format": spec.stored_format,
        }
        found = connection.execute(QUERIES["insert_job"], parameters).fetchone()
        assert found is not None
        connection.execute(QUERIES["add_partitions"], {"job_id": found[0]})
        insert_ranges(connection, found[0], spec.ranges)
    else:
        known = read_computations(connection, found[0])
        check_same_job(spec, mode=found[1], fingerprint=found[2], computations=known)
        check_format(spec, found[7])
        parameters = {
            "job_id": found[0],
            "signals": sorted(spec.signals),
            "stored_format": spec.stored_format,
        }
        connection.execute(QUERIES["reopen"], parameters)
    describe_computations(connection, found[0], spec)
    add_tables(connection, found[0], spec)
    return is_new


def read_computations(connection: Connection[Any], number: int) -> Mapping[str, str | None]:
    """The shape of the state of each computation of a job, where it is known.

    Args:
        connection: to the store.
        number: of the job.

    Returns:
        The shape of the state by the name of the computation; None where it was never described.
    """
    return dict(connection.execute(QUERIES["read_computations"], {"job_id": number}).fetchall())


def describe_computations(connection: Connection[Any], number: int, spec: JobSpec) -> None:
    """Note what their state is made of.  Inside a transaction.

    Args:
        connection: to the store.
        number: of the job.
        spec: has the shapes, by the names of the computations.
    """
    parameters = {
        "job_id": number,
        "names": TextArray.of(list(spec.computations)),
        "state_shapes": TextArray.of(list(spec.computations.values())),
    }
    connection.execute(QUERIES["describe_computations"], parameters)


def add_tables(connection: Connection[Any], number: int, spec: JobSpec) -> None:
    """Create the result tables that are not there, and note who writes them.  Inside a transaction.

    Args:
        connection: to the store.
        number: of the job.
        spec: the job with its tables.

    Raises:
        TableMismatchError: one exists with another shape.
        TableOwnedError: one is another job's.
        TableMissingError: one was there, and is not any more.
    """
    known = set(connection.execute(QUERIES["recorded_tables"], {"job_id": number}).fetchall())
    for table in spec.tables:
        placed = ensure_table(connection, table)
        if placed.is_created and any(is_name_of(table, *each) for each in known):
            raise missing_table(spec.job, table.name)
        place = {"schema_name": placed.schema, "table_name": placed.name}
        if (placed.schema, placed.name) not in known and not table.is_shared:
            writers = connection.execute(QUERIES["writers_of_table"], place).fetchall()
            # Several transforms of the job may write to it, of which the first has been recorded.
            if others := [name for (name,) in writers if name != spec.job]:
                raise table_of_others(table.name, others)
        connection.execute(
            QUERIES["record_table"],
            {
                "job_id": number,
                "schema_name": placed.schema,
                "table_name": placed.name,
                "is_created": placed.is_created,
            },
        )


def result_tables(connection: Connection[Any], job: str) -> list[ResultTable]:
    """The tables that a job writes to.

    Args:
        connection: to the store; inside a transaction, because it changes the plans of queries until the transaction
            ends.
        job: its name; an unknown one has no tables.
    """
    found = connection.execute(QUERIES["read_result_tables"], {"name": job}).fetchall()
    connection.execute(QUERIES["allow_scans"])
    return [
        ResultTable(
            name=f"{schema}.{name}",
            is_created=is_created,
            others=others,
            has_rows=has_rows(connection, schema, name) if is_there else None,
        )
        for schema, name, is_created, others, is_there in found
    ]


def read_rows(connection: Connection[Any], table: str, count: int | None) -> list[dict[str, Any]]:
    """Rows of a result table by the names of its columns, in the order of its key if it has one.

    Args:
        connection: to the store; inside a transaction, because it changes the plans of queries until the transaction
            ends.
        table: its name, with its schema or without.
        count: at most so many; None: all.

    Raises:
        StoreError: no job of the store writes to it, or it is not a possible name.
    """
    named = connection.execute(QUERIES["read_table_names"]).fetchall()
    places = {shown: (schema, name) for schema, name, shown in named}
    places |= {f"{schema}.{name}": (schema, name) for schema, name, _ in named}
    if table not in places:
        raise no_result_table(table, [shown for *_, shown in named])
    connection.execute(QUERIES["allow_scans"])
    return rows_in_order(connection, *places[table], count)


def own_tables(
    connection: Connection[Any], job: str, tables: Sequence[TableSpec]
) -> dict[str, tuple[str, str]]:
    """Find the tables that the job alone has, and has created: schema and name, by the name in the pipeline.

    Args:
        connection: to the store.
        job: its name.
        tables: as a pipeline describes them.
    """
    found = connection.execute(QUERIES["read_result_tables"], {"name": job}).fetchall()
    own = {
        (schema, name) for schema, name, is_created, others, _ in found if is_created and not others
    }
    placed = {table.name: place_of(connection, table) for table in tables}
    return {name: place for name, place in placed.items() if place is not None and place in own}


def empty_tables(connection: Connection[Any], number: int, update: JobUpdate) -> None:
    """Empty the tables that an update empties; drop those that its pipeline does not have.  Inside a transaction.

    Args:
        connection: to the store.
        number: of the job.
        update: the update.

    Raises:
        StoreError: one of the tables is not the job's own.
    """
    job = update.spec.job
    own = own_tables(connection, job, update.emptied)
    check_own(job, update.emptied, own)
    written = {place_of(connection, table) for table in update.spec.tables}
    for schema, name in own.values():
        if (schema, name) in written:
            empty_table(connection, schema, name)
            continue
        place = {"schema_name": schema, "table_name": name}
        connection.execute(QUERIES["forget_table"], {"job_id": number, **place})
        drop_table(connection, schema, name)


def read_jobs(connection: Connection[Any]) -> list[JobSummary]:
    """A line for each job."""
    return [
        JobSummary(
            job=job,
            mode=mode,
            is_finished=is_finished,
            signals=frozenset(signals),
            ranges=ranges,
            open_ranges=open_ranges,
            watermark_us=watermark_us,
            is_drained=is_drained,
            driver=driver and driver.removeprefix("dataflow driver ").partition(" ")[0],
            stored_format=stored_format,
        )
        for (
            job,
            mode,
            is_finished,
            signals,
            ranges,
            open_ranges,
            watermark_us,
            is_drained,
            driver,
            stored_format,
        ) in connection.execute(QUERIES["read_jobs"])
    ]


def delete_job(connection: Connection[Any], number: int) -> None:
    """Delete the job, and the result tables that only it wrote.  Inside a transaction.

    What its commits wrote stays behind in tables that belong to no job: see partitions.py.

    Args:
        connection: to the store.
        number: of the job.
    """
    tables = connection.execute(QUERIES["droppable_tables"], {"job_id": number}).fetchall()
    connection.execute(QUERIES["bequeath_tables"], {"job_id": number})
    connection.execute(QUERIES["delete_job"], {"job_id": number})
    for schema, name in tables:
        drop_table(connection, schema, name)


def insert_ranges(connection: Connection[Any], number: int, ranges: Sequence[RangeSpec]) -> None:
    """Add computations with their ranges to a job.  Inside a transaction.

    Args:
        connection: to the store.
        number: of the job.
        ranges: all ranges of the computations that are new; nothing is sent if there are none.
    """
    if not ranges:
        return
    keys = [spec.keys for spec in ranges]
    connection.execute(
        QUERIES["insert_ranges"],
        {
            "job_id": number,
            "computations": TextArray.of([spec.range_id.computation for spec in ranges]),
            "range_indexes": Int4Array.of([spec.range_id.index for spec in ranges]),
            "first_hashes": Int8Array.of([k and to_signed(k.low) for k in keys]),
            "last_hashes": Int8Array.of([k and to_signed(k.high - 1) for k in keys]),
            "splits": ByteaArray.of([spec.split for spec in ranges]),
        },
    )


def _range_row(range_id: RangeId, keys: KeyRange | None, rest: Sequence[Any]) -> RangeRow:
    split, token, bundle, owner, position, watermark_us, is_finished, *rest = rest
    number, next_hash, percentile_us, firing_us, is_removed = rest
    return RangeRow(
        range_id=range_id,
        keys=keys,
        split=split,
        token=token,
        bundle=bundle,
        owner=owner,
        position=position,
        watermark_us=watermark_us,
        is_finished=is_finished,
        signal_mark=SignalMark(number, to_unsigned(next_hash)),
        percentile_us=percentile_us,
        firing_us=firing_us,
        is_removed=is_removed,
    )

"""Lanes of outboxes.  Here is SQL that is composed, because an outbox has the columns of its sink.

Ids of rows grow in the order of the commits of one range, and of commits that depend on each other; but a row may
become visible after one with a higher id.  So what is delivered is known by the ids of each batch, not by the highest.
To find the next rows without looking at all that were ever deleted, a lane has a floor: an id becomes the floor when
every transaction has ended that may have been given a lower one.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
from psycopg import Connection, sql

from dataflow.sink import LANE, Batching
from dataflow.table import Row, TableSpec
from runners.millwheel.store.guards import escape_text, unknown_job
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.tables import OUTBOX_AT, OUTBOX_ID, table_identifier
from runners.relay.job_outboxes import SCHEMA, outbox_name
from runners.relay.outbox import (
    AT_ONCE,
    PARTIAL,
    TAKEN,
    LaneFailure,
    LanePlace,
    LaneStatus,
    OutboxBatch,
    PartialBatch,
    Taken,
    TakenLane,
    VisibleBatch,
)
from windowing.timestamps import to_timestamp_us


@attrs.frozen
class _LaneState:
    """The newest row of a lane.

    Attributes:
        ids: of the rows in flight, in the text of Postgres.
        last_id: the highest of them; None: none are in flight.
        written_first: when the first row came of the last batch that the sink is known to have; None: it is not known.
        written_last: when the last one did.
        visible_at: since when it is known.
    """

    version: int = 0
    token: int = 0
    number: int = 0
    ids: str = "{}"
    last_id: int | None = None
    floor_id: int = 0
    candidate_id: int = 0
    candidate_xid: int = 0
    written_first: datetime | None = None
    written_last: datetime | None = None
    visible_at: datetime | None = None

    @property
    def is_in_flight(self) -> bool:
        """Whether a batch is not known to be delivered."""
        return self.last_id is not None


class LaneVerbs(JobReads):
    """The verbs of the port that are about outboxes."""

    def take_lane(self, place: LanePlace) -> TakenLane:
        """Take a lane, with a higher token than anybody had before."""
        return self._transact(lambda opened: _take(opened, place))

    def next_batch(
        self,
        lane: TakenLane,
        delivered: int,
        batching: Batching = AT_ONCE,
        *,
        is_due: bool = True,
    ) -> OutboxBatch | PartialBatch | Taken | None:
        """Note what is delivered, and take the batch after it.

        Args:
            lane: as it was taken.
            delivered: the number of the last batch that the sink has.
            batching: when a batch is full.
            is_due: whether a batch that is not full is taken too.
        """
        return self._transact(
            lambda opened: _next_batch(opened, lane, delivered, batching, is_due=is_due)
        )

    def count_waiting(self, place: LanePlace) -> int:
        """How many rows of the lane are not known to be delivered."""

        def work(opened: Connection[Any]) -> int:
            found = opened.execute(_COUNT.format(**_names(place.outbox)), {"lane": place.number})
            row = found.fetchone()
            return 0 if row is None else int(row[0])

        return self._transact(work, is_one_statement=True)

    def note_failure(self, place: LanePlace, reason: str | None) -> None:
        """Keep that a lane cannot be sent; None: it can."""
        self._transact(lambda opened: _note_failure(opened, place, reason))

    def read_lanes(self, job: str) -> Sequence[LaneStatus]:
        """The lanes of a job's sinks, and what waits in them."""
        return self._transact(lambda opened: _read_lanes(opened, job))


def delete_lanes(connection: Connection[Any], job_id: int, job: str, outbox: str) -> None:
    """Forget the lanes of an outbox whose rows go: the ids of its rows may begin anew.  Inside a transaction.

    Args:
        connection: to the store.
        job_id: the number of the job.
        job: its name.
        outbox: the name of the table.
    """
    # By the names of sinks: a lane need not know its outbox, if a former version has taken it last.
    for number, sink in connection.execute(QUERIES["read_lane_names"], {"job_id": job_id}):
        if outbox_name(job, sink) == outbox:
            connection.execute(QUERIES["delete_lane"], {"lane_id": number})


def _note_failure(connection: Connection[Any], place: LanePlace, reason: str | None) -> None:
    if reason is None:
        parameters = {"job": place.job, "sink": place.sink, "lane": place.number}
        connection.execute(QUERIES["forget_lane_failure"], parameters)
        return
    number, _ = _locked_lane(connection, place)
    parameters = {"lane_id": number, "reason": escape_text(reason)}
    connection.execute(QUERIES["note_lane_failure"], parameters)


def _read_lanes(connection: Connection[Any], job: str) -> list[LaneStatus]:
    connection.execute(QUERIES["allow_scans"])
    rows = connection.execute(QUERIES["read_lanes"], {"name": job})
    return [
        LaneStatus(
            outbox=f"{SCHEMA}.{outbox}",
            sink=sink,
            number=lane,
            waiting=waiting,
            oldest_us=oldest and to_timestamp_us(oldest),
            delivered=delivered,
            failure=reason
            and LaneFailure(
                since_us=to_timestamp_us(since),
                last_us=to_timestamp_us(last),
                tries=tries,
                reason=reason,
            ),
            visible=visible_at
            and VisibleBatch(
                first_us=to_timestamp_us(written_first),
                last_us=to_timestamp_us(written_last),
                visible_us=to_timestamp_us(visible_at),
            ),
        )
        for (
            outbox,
            sink,
            lane,
            waiting,
            oldest,
            delivered,
            since,
            last,
            tries,
            reason,
            written_first,
            written_last,
            visible_at,
        ) in rows
    ]


def _locked_lane(connection: Connection[Any], place: LanePlace) -> tuple[int, str]:
    job = connection.execute(QUERIES["keep_job"], {"name": place.job}).fetchone()
    if job is None:
        raise unknown_job(place.job)
    parameters = {
        "job_id": job[0],
        "sink": place.sink,
        "lane": place.number,
        "outbox": place.outbox.name.rpartition(".")[2],
    }
    connection.execute(QUERIES["add_lane"], parameters)
    number, writer = _row(connection, "lock_lane", parameters)
    return int(number), str(writer)


def _take(connection: Connection[Any], place: LanePlace) -> TakenLane:
    number, writer = _locked_lane(connection, place)
    before = _state(connection, number)
    after = attrs.evolve(before, version=before.version + 1, token=before.token + 1)
    _write(connection, number, after)
    return TakenLane(
        place=place,
        writer=writer,
        token=after.token,
        number=after.number,
        is_in_flight=after.is_in_flight,
    )


def _next_batch(
    connection: Connection[Any],
    lane: TakenLane,
    delivered: int,
    batching: Batching,
    *,
    is_due: bool,
) -> OutboxBatch | PartialBatch | Taken | None:
    place, names = lane.place, _names(lane.place.outbox)
    if _is_idle(connection, lane, delivered, names):
        return None
    found = connection.execute(QUERIES["lock_writer"], {"writer": lane.writer}).fetchone()
    state = None if found is None else _state(connection, found[0])
    if state is None or state.token != lane.token or delivered > state.number:
        return TAKEN
    assert found is not None
    parameters = {"lane": place.number, "ids": state.ids, "floor_id": state.floor_id}
    if state.is_in_flight and delivered < state.number:
        rows = _rows(connection, _IN_FLIGHT.format(**names), parameters)
        return OutboxBatch(number=state.number, rows=[row[1:] for row in rows])
    if state.is_in_flight:
        state = _delivered(connection, state, names, parameters)
    # Before the rows are looked for: whatever has ended by now is seen by that.
    xmin, xmax = _row(connection, "running_transactions", {})
    parameters |= {"rows": batching.max_rows, "bytes": batching.max_bytes}
    is_partial = not is_due and not _is_full(connection, names, parameters, batching)
    rows = () if is_partial else _rows(connection, _WAITING.format(**names), parameters)
    left = PARTIAL if is_partial else None
    if not rows and not state.is_in_flight:
        return left
    ids = [row[0] for row in rows]
    floor_id = state.floor_id
    if xmin >= state.candidate_xid and (not ids or ids[-1] >= state.candidate_id):
        floor_id = max(floor_id, state.candidate_id)
    after = attrs.evolve(
        state,
        version=state.version + 1,
        number=state.number + bool(ids),
        ids=_multirange(ids),
        floor_id=floor_id,
    )
    if state.last_id is not None and floor_id >= state.candidate_id:
        after = attrs.evolve(after, candidate_id=state.last_id, candidate_xid=xmax)
    _write(connection, found[0], after)
    return OutboxBatch(number=after.number, rows=[row[1:] for row in rows]) if rows else left


def _delivered(
    connection: Connection[Any],
    state: _LaneState,
    names: dict[str, sql.Composable],
    parameters: dict[str, Any],
) -> _LaneState:
    """Delete the rows of the batch in flight, and note when they came."""
    gone = connection.execute(_DELETE.format(**names), parameters).fetchone()
    if gone is None:
        return state
    first, last, visible_at = gone
    return attrs.evolve(state, written_first=first, written_last=last, visible_at=visible_at)


def _is_full(
    connection: Connection[Any],
    names: dict[str, sql.Composable],
    parameters: dict[str, Any],
    batching: Batching,
) -> bool:
    """Whether what waits fills a batch, or nothing waits."""
    found = connection.execute(_MEASURE.format(**names), parameters).fetchone()
    assert found is not None
    rows, size_bytes = map(int, found)
    return not rows or rows == batching.max_rows or size_bytes >= batching.max_bytes


def _multirange(ids: Sequence[int]) -> str:
    """Ids that grow, in the text of Postgres; what is without a gap is one range."""
    ranges = list[tuple[int, int]]()
    for each in ids:
        start = ranges.pop()[0] if ranges and ranges[-1][1] == each - 1 else each
        ranges.append((start, each))
    return "{" + ",".join(f"[{first},{last}]" for first, last in ranges) + "}"


def _is_idle(
    connection: Connection[Any], lane: TakenLane, delivered: int, names: dict[str, sql.Composable]
) -> bool:
    """Whether there is nothing to note and nothing to take; without a lock, as it is asked again and again."""
    found = connection.execute(QUERIES["read_lane_of"], {"writer": lane.writer}).fetchone()
    if found is None:
        return False
    state = _LaneState(*found)
    if state.is_in_flight or state.token != lane.token or state.number != delivered:
        return False
    parameters = {"lane": lane.place.number, "floor_id": state.floor_id}
    row = connection.execute(_IS_WAITING.format(**names), parameters).fetchone()
    return row is not None and not row[0]


def _state(connection: Connection[Any], number: int) -> _LaneState:
    found = connection.execute(QUERIES["read_lane"], {"lane_id": number}).fetchone()
    return _LaneState() if found is None else _LaneState(*found)


def _write(connection: Connection[Any], number: int, state: _LaneState) -> None:
    parameters = {**attrs.asdict(state), "lane_id": number}
    connection.execute(QUERIES["write_lane"], parameters)
    connection.execute(QUERIES["forget_lane_versions"], parameters)


def _row(connection: Connection[Any], query: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
    found = connection.execute(QUERIES[query], parameters).fetchone()
    assert found is not None
    return tuple(found)


def _rows(
    connection: Connection[Any], query: sql.Composed, parameters: dict[str, Any]
) -> Sequence[Row]:
    return connection.cursor(binary=True).execute(query, parameters).fetchall()


def _names(outbox: TableSpec) -> dict[str, sql.Composable]:
    return {
        "table": table_identifier(outbox),
        "id": sql.Identifier(OUTBOX_ID),
        "at": sql.Identifier(OUTBOX_AT),
        "lane": sql.Identifier(LANE),
        "columns": sql.SQL(", ").join(
            sql.Identifier(name) for name in outbox.columns if name != LANE
        ),
    }


_COUNT = sql.SQL("SELECT count(*) FROM {table} WHERE {lane} = %(lane)s")
_IS_WAITING = sql.SQL(
    "SELECT EXISTS (SELECT FROM {table} WHERE {lane} = %(lane)s AND {id} > %(floor_id)s)"
)
_IN_FLIGHT = sql.SQL(
    "SELECT {id}, {columns} FROM {table} WHERE {lane} = %(lane)s "
    "AND {id} BETWEEN lower(%(ids)s::int8multirange) AND upper(%(ids)s::int8multirange) "
    "AND {id} <@ %(ids)s::int8multirange ORDER BY {id}"
)
_DELETE = sql.SQL(
    "WITH gone AS ("
    "  DELETE FROM {table} WHERE {lane} = %(lane)s "
    "  AND {id} BETWEEN lower(%(ids)s::int8multirange) AND upper(%(ids)s::int8multirange) "
    "  AND {id} <@ %(ids)s::int8multirange RETURNING {at} AS at"
    ") SELECT min(at), max(at), clock_timestamp() FROM gone HAVING count(*) > 0"
)
_MEASURE = sql.SQL(
    "SELECT count(*), coalesce(sum(pg_column_size(w)), 0) FROM ("
    "  SELECT * FROM {table} WHERE {lane} = %(lane)s AND {id} > %(floor_id)s"
    "  ORDER BY {id} LIMIT %(rows)s"
    ") w"
)
# As many rows as fit, and at least one.
_WAITING = sql.SQL(
    "SELECT {id}, {columns} FROM ("
    "  SELECT *, sum(pg_column_size(w)) OVER (ORDER BY {id} ROWS UNBOUNDED PRECEDING) AS dataflow_bytes,"
    "         row_number() OVER (ORDER BY {id}) AS dataflow_place"
    "  FROM (SELECT * FROM {table} WHERE {lane} = %(lane)s AND {id} > %(floor_id)s"
    "        ORDER BY {id} LIMIT %(rows)s) w"
    ") b WHERE dataflow_bytes <= %(bytes)s OR dataflow_place = 1 ORDER BY {id}"
)

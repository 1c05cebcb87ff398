"""Send a transaction in one write and read its answers in one go.

psycopg's own pipeline writes to the socket after every statement; on one machine each of these
writes wakes the server, and a small commit takes twice as long.  So commits use libpq's pipeline
directly, through psycopg's public wrapper of it (`psycopg.pq`).

COPY cannot be part of such a pipeline: the statements before it and those after it are two pipelines.

A large transaction goes out in pieces in any case, and a client can die between two of them: the
server then rolls back, or `acquire` ends its session.
"""

import re
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any

import attrs
from psycopg import Connection, OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from runners.millwheel.store.postgres.tables import CopyRows, Query, Statement

_PLACEHOLDER = re.compile(rb"%\((\w+)\)b")
_ANSWERED = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})


@cache
def to_positional(query: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The query with ``$1, $2, ...`` for its ``%(name)b``, and the names in that order."""
    names = tuple(dict.fromkeys(_PLACEHOLDER.findall(query)))
    text = _PLACEHOLDER.sub(lambda match: b"$%d" % (names.index(match[1]) + 1), query)
    return text, tuple(name.decode() for name in names)


@attrs.frozen(kw_only=True)
class _Prepared:
    name: bytes
    parameters: tuple[str, ...]


class StatementPipeline:
    """Sends transactions on one connection; prepares every statement at its first use.

    Belongs to one connection and to the thread that uses it.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._prepared: dict[bytes, _Prepared] = {}
        self._prepared_count = 0
        #: The most that was sent at once: libpq keeps a buffer of that size for as long as the connection is open.
        self.largest_bytes = 0

    def run(self, statements: Sequence[Statement]) -> str:
        """Send the statements, wait for all answers, return the command tag of the last one, which is no COPY.

        After an error the server skips the rest, so a COMMIT at the end is not carried out; the
        connection is left in the failed transaction.

        Raises:
            psycopg.Error: the first statement that failed, or the connection ended.  What an error
                proves is decided in outcomes.py.
        """
        together: list[Query] = []
        for each in statements:
            if not isinstance(each, CopyRows):
                together.append(each)
                continue
            if together:
                self._run_together(together)
                together = []
            self._copy(each)
        return self._run_together(together)

    def _copy(self, copied: CopyRows) -> None:
        # The transaction is open, so psycopg opens none.
        with self._connection.cursor().copy(copied.query) as copy:
            copy.write(copied.rows)

    def _run_together(self, statements: Sequence[Query]) -> str:
        try:
            return self._exchanged(statements)
        except OperationalError as error:
            pgconn = self._connection.pgconn
            if pgconn.status != ConnStatus.BAD:
                raise
            # The next error on a connection that is gone is about how it was used, not about why it is gone.
            words = pgconn.get_error_message().strip()
            raise OperationalError(f"{words} ({error})" if words else str(error)) from error

    def _exchanged(self, statements: Sequence[Query]) -> str:
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        # For each expected answer, the query whose preparation it confirms, or None.
        expected: list[tuple[bytes, _Prepared] | None] = []
        nbytes = 0
        for query, parameters in statements:
            prepared = self._prepared.get(query)
            if prepared is None:
                text, names = to_positional(query)
                self._prepared_count += 1
                prepared = _Prepared(name=b"df%d" % self._prepared_count, parameters=names)
                types = [parameters[name].array_oid for name in names]
                pgconn.send_prepare(prepared.name, text, types)
                expected.append((query, prepared))
            values = [parameters[name] for name in prepared.parameters]
            nbytes += sum(len(value) for value in values if value is not None)
            formats = [Format.BINARY] * len(values)
            pgconn.send_query_prepared(prepared.name, values, formats, Format.BINARY)
            expected.append(None)
        self.largest_bytes = max(self.largest_bytes, nbytes)
        pgconn.pipeline_sync()
        results = self._connection.wait(_exchange(pgconn))
        pgconn.exit_pipeline_mode()
        for result, preparation in zip(results, expected, strict=True):
            if result.status not in _ANSWERED:
                raise error_from_result(result)
            # Remembered only when confirmed: a statement after an error was never prepared.
            if preparation is not None:
                self._prepared[preparation[0]] = preparation[1]
        return (results[-1].command_status or b"").decode()


def _exchange(pgconn: PGconn) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Write everything, then read up to the end of the pipeline.

    Reads while writing: a server that cannot get rid of its answers stops reading ours.
    """
    while pgconn.flush():
        ready = yield Wait.RW
        if ready & Ready.R:
            pgconn.consume_input()
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        # Between the answers of two statements, libpq returns None.
        if result is None:
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            return results
        results.append(result)

"""Send a transaction in one write and read its answers in one go.

psycopg's own pipeline writes to the socket after every statement; on one machine each of these
writes wakes the server, and a small commit takes twice as long.  So commits use libpq's pipeline
directly, through psycopg's public wrapper of it (`psycopg.pq`).

What is sent up to a Sync is one transaction, all or nothing, without BEGIN and COMMIT ("Pipelining" in the chapter on
the protocol in Postgres' manual); the answer to Sync says that it is committed, and an error before it that it is not.
COPY cannot be part of such a pipeline: the statements before it and those after it are two pipelines, and BEGIN and
COMMIT make one transaction of them.

A large transaction goes out in pieces in any case, and a client can die between two of them: the
server then rolls back, or `acquire` ends its session.
"""

import re
import select
from collections.abc import Callable, Generator, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, TypeVar

import attrs
from psycopg import Connection, OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.tables import CopyRows, Query, Statement

_T = TypeVar("_T")
#: For each expected answer, the query whose preparation it confirms, or None.
_Expected = list[tuple[bytes, "_Prepared"] | None]
_PLACEHOLDER = re.compile(rb"%\((\w+)\)b")
_ANSWERED = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})
_BEGIN: Query = (QUERIES["begin"], {})
_COMMIT: Query = (QUERIES["commit"], {})


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
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)
        self._prepared: dict[bytes, _Prepared] = {}
        self._prepared_count = 0
        #: The most that was sent at once: libpq keeps a buffer of that size for as long as the connection is open.
        self.largest_bytes = 0

    def run(self, statements: Sequence[Statement]) -> None:
        """Carry the statements out as one transaction, and wait until it is committed.

        Raises:
            psycopg.Error: the first statement that failed, and then none of them has happened; or the connection ended.
                What an error proves is decided in outcomes.py.
        """
        self.begin(statements)()

    def begin(self, statements: Sequence[Statement]) -> Callable[[], None]:
        """Send the statements, and return without the last answers; the server works on them meanwhile.

        Until these have been read nothing else may use the connection.

        Returns:
            Reads the answers, to be called once; waits until the transaction is committed, and raises what `run` does.

        Raises:
            psycopg.Error: as `run`.
        """
        queries = [each for each in statements if not isinstance(each, CopyRows)]
        if len(queries) < len(statements):
            return self._begun_with_copies(statements)
        answer = self._sent(queries)

        def committed() -> None:
            answer()

        return committed

    def _begun_with_copies(self, statements: Sequence[Statement]) -> Callable[[], None]:
        together = [_BEGIN]
        for each in statements:
            if not isinstance(each, CopyRows):
                together.append(each)
                continue
            if together:
                self._sent(together)()
                together = []
            self._copy(each)
        answer = self._sent([*together, _COMMIT])

        def committed() -> None:
            tag = answer()
            if tag != "COMMIT":
                raise OperationalError(f"COMMIT was answered with {tag}")

        return committed

    def has_answers(self) -> bool:
        """Whether there is something to read for whoever waits for answers, or nothing to wait for."""
        pgconn = self._connection.pgconn
        if pgconn.status == ConnStatus.BAD or pgconn.pipeline_status == PipelineStatus.OFF:
            return True
        return bool(self._poll.poll(0))

    def _copy(self, copied: CopyRows) -> None:
        # The transaction is open, so psycopg opens none.
        with self._connection.cursor().copy(copied.query) as copy:
            copy.write(copied.rows)

    def _sent(self, statements: Sequence[Query]) -> Callable[[], str]:
        expected = self._with_reason(lambda: self._written(statements))
        return lambda: self._with_reason(lambda: self._read(expected))

    def _with_reason(self, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except OperationalError as error:
            pgconn = self._connection.pgconn
            if pgconn.status != ConnStatus.BAD:
                raise
            # The next error on a connection that is gone is about how it was used, not about why it is gone.
            words = pgconn.get_error_message().strip()
            raise OperationalError(f"{words} ({error})" if words else str(error)) from error

    def _written(self, statements: Sequence[Query]) -> _Expected:
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        expected: _Expected = []
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
            nbytes += sum(map(len, values))
            formats = [Format.BINARY] * len(values)
            pgconn.send_query_prepared(prepared.name, values, formats, Format.BINARY)
            expected.append(None)
        self.largest_bytes = max(self.largest_bytes, nbytes)
        pgconn.pipeline_sync()
        if pgconn.flush():
            self._connection.wait(_write(pgconn))
        return expected

    def _read(self, expected: _Expected) -> str:
        pgconn = self._connection.pgconn
        results = self._connection.wait(_answers(pgconn))
        pgconn.exit_pipeline_mode()
        # What fails as the transaction is committed, at Sync, is an answer more than there are statements.
        for result, preparation in zip(results, chain(expected, repeat(None)), strict=False):
            if result.status not in _ANSWERED:
                raise error_from_result(result)
            # Remembered only when confirmed: a statement after an error was never prepared.
            if preparation is not None:
                self._prepared[preparation[0]] = preparation[1]
        return (results[-1].command_status or b"").decode()


def _write(pgconn: PGconn) -> Generator[Wait, Ready | int, None]:
    """Write everything; reads meanwhile, as a server that cannot get rid of its answers stops reading ours."""
    while pgconn.flush():
        ready = yield Wait.RW
        if ready & Ready.R:
            pgconn.consume_input()


def _answers(pgconn: PGconn) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Read up to the end of the pipeline."""
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

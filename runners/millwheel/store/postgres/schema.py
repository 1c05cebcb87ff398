"""Bring the schema ``dataflow`` up to this version of the code, or refuse.

Migrations are applied under a lock in one transaction: a crash leaves the old schema or the new
one.  A schema newer than the code is refused, because its rules are unknown here; an older program
must not commit by the old ones.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import ClientCursor, Connection

from runners.errors import UnsuitableStoreError
from runners.millwheel.store.postgres.queries import QUERIES, Migration, load_migrations

MIGRATIONS = load_migrations()


def migrate(connection: Connection[Any], migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply what is missing, in one round trip; do nothing, with one query, when nothing is.

    Safe when several programs call it at once, and on repetition.

    Args:
        connection: to the store, outside a transaction.
        migrations: by ascending version, with no version left out; the last one is what the code needs.

    Raises:
        UnsuitableStoreError: the schema is newer than the code.
        psycopg.Error: the server refused; nothing was changed.
    """
    latest = migrations[-1].version
    if _version(connection, latest) == latest:
        return
    with connection.transaction():
        connection.execute(QUERIES["lock_catalog"])
        connection.execute(QUERIES["create_schema"])
        # Another program may have migrated while this one waited for the lock.
        version = _version(connection, latest)
        missing = [each for each in migrations if each.version > version]
        if missing:
            connection.execute(_script(connection, missing))


def _script(connection: Connection[Any], missing: Sequence[Migration]) -> bytes:
    """Migrations and their records as one text: a new database gets all of them, and nobody waits for each."""
    cursor = ClientCursor(connection)
    statements = []
    for each in missing:
        row = {"version": each.version, "name": each.name}
        recorded = cursor.mogrify(QUERIES["record_migration"], row)
        statements += [each.script, recorded.encode()]
    return b"\n;\n".join(statements)


def _version(connection: Connection[Any], latest: int) -> int:
    exists = connection.execute(QUERIES["schema_exists"]).fetchone()
    if exists is None or not exists[0]:
        return 0
    row = connection.execute(QUERIES["schema_version"]).fetchone()
    version = int(row[0]) if row else 0
    if version > latest:
        raise UnsuitableStoreError(
            "the schema in this database is from a newer version of dataflow-model",
            detail=f"the database has schema version {version}, this code knows {latest}",
            hint="upgrade dataflow-model here, or use another database",
        )
    return version

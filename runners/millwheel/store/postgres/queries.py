"""The named statements of ``sql/queries.sql``, and the migrations beside it.

The file is a list of ``-- name: x`` lines, each followed by comments and one statement.
Nothing is composed here but the names of a job's own tables; statements on user tables, whose names the user chooses,
are in tables.py.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

import attrs

_SQL = files(__package__) / "sql"
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PARTITION = re.compile(rb"\{(\w+)\}")
_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")


@attrs.frozen(kw_only=True)
class Migration:
    """One step of the schema's history; applied once, never edited afterwards."""

    version: int
    name: str
    script: bytes


def parse_queries(text: str) -> Mapping[str, bytes]:
    """Split a file of named queries.

    Raises:
        ValueError: a name appears twice, or has no statement.
    """
    _, *parts = _NAME.split(text)
    queries: dict[str, bytes] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        # Comments are for readers of the file; left in, they would be sent with every Parse.
        statement = _COMMENT.sub("", body).strip().removesuffix(";")
        if name in queries or not statement:
            raise ValueError(f"query {name} appears twice or is empty")
        queries[name] = statement.encode()
    return MappingProxyType(queries)


def load_migrations() -> tuple[Migration, ...]:
    """All migrations, oldest first; versions count from 1 without a gap."""
    migrations = []
    for path in (_SQL / "migrations").iterdir():
        match = _MIGRATION.fullmatch(path.name)
        if match:
            migrations.append(
                Migration(version=int(match[1]), name=match[2], script=path.read_bytes())
            )
    return tuple(sorted(migrations, key=lambda migration: migration.version))


_ALL = parse_queries((_SQL / "queries.sql").read_text(encoding="utf-8"))
#: Every statement of the store that is the same for all jobs, by name.
QUERIES: Mapping[str, bytes] = MappingProxyType(
    {name: query for name, query in _ALL.items() if not _PARTITION.search(query)}
)


@lru_cache(maxsize=256)
def job_queries(job_number: int) -> Mapping[str, bytes]:
    """The statements on tables of which each job has its own, by name, for one job."""
    table = b"dataflow.\\1_%d" % job_number
    return MappingProxyType(
        {name: _PARTITION.sub(table, query) for name, query in _ALL.items() if name not in QUERIES}
    )

"""The Postgres adapter of the store port; the only package that knows psycopg and SQL."""

from runners.millwheel.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

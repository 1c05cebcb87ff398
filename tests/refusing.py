"""A server that refuses the document of a driver, for a reason of its own."""

from typing import Any

import psycopg

#: What it says: a rule of its operator, a full disk, a right that was revoked.
REFUSALS = ("raise_exception", "disk_full", "insufficient_privilege")


def refuse(admin: psycopg.Connection[Any], error: str) -> None:
    """Have each insert of a document fail, and count how often it was tried: a sequence does not go back."""
    admin.execute("CREATE SEQUENCE IF NOT EXISTS public.tried")
    admin.execute("SELECT setval('public.tried', 1)")
    admin.execute(
        f"""CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM nextval('public.tried');
            RAISE EXCEPTION 'refused: {error}' USING ERRCODE = '{error}';
        END $$""".encode()
    )
    admin.execute(
        "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON dataflow.job_snapshots "
        "FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    )


def allow(admin: psycopg.Connection[Any]) -> None:
    """Refuse no more."""
    admin.execute("DROP TRIGGER refuse ON dataflow.job_snapshots")


def tried(admin: psycopg.Connection[Any]) -> int:
    """How often it was tried, from 1."""
    row = admin.execute("SELECT last_value FROM public.tried").fetchone()
    assert row is not None
    return int(row[0])

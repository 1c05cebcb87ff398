"""The check of stored bytes at the end of every test with a real store: it finds bare pickles, and names of ours."""

import pickle
from collections import Counter

import psycopg
import pytest

from runners.core.ground.bundle import Bundle
from runners.stored.framing import frame
from tests.stored_bytes import complaints_of

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("blob", "complaints"),
    [
        (pickle.dumps(1, protocol=5), ["things.blob: a pickle that is in no field of a frame"]),
        (frame("position", [pickle.dumps(Counter("a"), protocol=5)]), []),
        (
            frame("position", [[pickle.dumps(Bundle([1], [2]), protocol=5)]]),
            ["things.blob, position: runners.core.ground.bundle.Bundle"],
        ),
    ],
)
@pytest.mark.parametrize("kind", ["bytea", "bytea[]"])
def test_what_is_not_of_the_format_is_found(
    postgres_dsn: str, kind: str, blob: bytes, complaints: list[str]
) -> None:
    with psycopg.connect(postgres_dsn) as store:
        assert complaints_of(store) == []
        store.execute("CREATE SCHEMA dataflow")
        store.execute(f"CREATE TABLE dataflow.things (blob {kind})")
        store.execute("INSERT INTO dataflow.things VALUES (%s)", [[blob] if "[" in kind else blob])

        assert complaints_of(store) == complaints
        store.rollback()

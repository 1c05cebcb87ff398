"""Breakages of the Postgres adapter alone: each is one change to its code or to a statement of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import attrs
import psycopg
import pytest

from runners.millwheel.model.production import Production
from runners.millwheel.store.port import Fenced
from runners.millwheel.store.postgres import (
    PostgresStore,
    catalog,
    session,
    statements,
    store,
    takeover,
)
from runners.millwheel.store.postgres.arrays import Int4Array, PackedArray
from runners.millwheel.store.postgres.catalog import JobIds
from runners.millwheel.store.postgres.outcomes import Verdict, classify
from runners.millwheel.store.postgres.pipeline_mode import StatementPipeline
from runners.millwheel.store.postgres.portions import portions
from runners.millwheel.store.postgres.queries import QUERIES, job_queries
from runners.millwheel.store.postgres.tables import CopyRows, Statement

#: What is changed, until the test ends.
Breakage = Callable[[pytest.MonkeyPatch], None]


def looks_up_fenced_ranges_only(patch: pytest.MonkeyPatch) -> None:
    """Knows a receiver of its productions only if it was there when the connection looked last."""

    def numbers(store: PostgresStore, production: Production) -> JobIds | Fenced:
        ids = store._ids.get(production.job)
        fenced = [fence.range_id for fence in production.fences]
        if ids is None or not ids.ranges.keys() >= set(fenced):
            ids = store._load(production.job)
        for range_id in fenced:
            if ids is None or range_id not in ids.ranges:
                return Fenced(range_id)
        assert ids is not None
        return ids

    patch.setattr(PostgresStore, "_ids_of", numbers)


def takes_over_by_numbers_of_whichever_version(patch: pytest.MonkeyPatch) -> None:
    """Looks for ranges by the numbers that they had when the connection looked last."""
    load = PostgresStore._load

    def known(store: PostgresStore, job: str) -> JobIds | None:
        return store._ids.get(job) or load(store, job)

    patch.setattr(PostgresStore, "_load", known)


def commits_whatever_is_relied_on(patch: pytest.MonkeyPatch) -> None:
    """Does not look whether commits of other ranges are there that a commit relies on."""
    relied_on = statements._relied_on

    def nothing(production: Production, ids: JobIds) -> Mapping[str, PackedArray]:
        return relied_on(attrs.evolve(production, origins={}, receipts={}), ids)

    patch.setattr(statements, "_relied_on", nothing)


def takes_ranges_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """Gives out ranges whose channels contradict each other."""
    patch.setattr(takeover, "check_channels", lambda *_: None)


def sends_to_the_retired(patch: pytest.MonkeyPatch) -> None:
    """Gives out productions that nobody will ever take in."""
    patch.setattr(takeover, "check_receivers", lambda *_: None)


def looks_at_fences_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    """Does not wait for a commit in flight before it looks how far a range has come."""
    query = QUERIES["lock_fences"].replace(b"FOR UPDATE", b"")
    patch.setattr(takeover, "QUERIES", {**QUERIES, "lock_fences": query})


def commits_before_a_copy(patch: pytest.MonkeyPatch) -> None:
    """What comes before the rows of a COPY is a transaction of its own."""
    copy = StatementPipeline._copy

    def committing(pipeline: StatementPipeline, copied: CopyRows) -> None:
        pipeline._sent([(QUERIES["commit"], {}), (QUERIES["begin"], {})])()
        copy(pipeline, copied)

    patch.setattr(StatementPipeline, "_copy", committing)


def repeats_a_copy_alone(patch: pytest.MonkeyPatch) -> None:
    """After a lock time-out it goes on where it was, in the transaction that is gone."""
    begin = StatementPipeline.begin
    failed = set[int]()

    def going_on(pipeline: StatementPipeline, sent: Sequence[Statement]) -> Callable[[], None]:
        rest = sent if id(sent) not in failed else sent[1:]
        failed.add(id(sent))
        return begin(pipeline, rest)

    patch.setattr(StatementPipeline, "begin", going_on)
    patch.setattr(session, "classify", lambda error, _: Verdict.RETRY)


def takes_a_cut_for_a_refusal(patch: pytest.MonkeyPatch) -> None:
    """Whoever is cut off believes that nothing happened."""

    def deduplicated(error: psycopg.Error, opened: psycopg.Connection[Any]) -> Verdict:
        verdict = classify(error, opened)
        return Verdict.REFUSED if verdict is Verdict.UNKNOWN else verdict

    patch.setattr(session, "classify", deduplicated)


def sends_what_is_too_large(patch: pytest.MonkeyPatch) -> None:
    """Leaves it to Postgres to end the connection."""
    patch.setattr(store, "check_messages", lambda *_: None)


def gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    """Repeats nothing, however sure it is that nothing has happened."""
    patch.setattr(session.Session, "_waits", lambda *_: False)


def writes_one_portion(patch: pytest.MonkeyPatch) -> None:
    """What does not fit into the first statement is forgotten."""

    def first(rows: Sequence[Any], size_of: Callable[[Any], int], bytes_max: int) -> Iterator[Any]:
        return islice(portions(rows, size_of, bytes_max), 1)

    patch.setattr(statements, "portions", first)


def _with_query(patch: pytest.MonkeyPatch, name: str, before: bytes, after: bytes) -> None:
    """Change one statement on tables of jobs."""
    queries = job_queries

    def changed(number: int) -> Mapping[str, bytes]:
        found = queries(number)
        assert before in found[name]
        return {**found, name: found[name].replace(before, after)}

    patch.setattr(catalog, "job_queries", changed)


def compacts_what_comes_with_it(patch: pytest.MonkeyPatch) -> None:
    """Takes entries of the journal for deleted that come with a compaction."""
    before = b"SET compacted = g.compacted"
    _with_query(patch, "compact_journal", before, before + b" + 1")


def numbers_each_portion_anew(patch: pytest.MonkeyPatch) -> None:
    """Entries of the journal of one commit have the numbers of others."""
    of = Int4Array.of
    patch.setattr(
        Int4Array,
        "of",
        lambda values: of(range(len(values)) if isinstance(values, range) else values),
    )

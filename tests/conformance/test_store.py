"""Both store adapters pass the shipped suite, and the suite rejects adapters that are wrong."""

from collections.abc import Callable, Iterator

import pytest

from runners.millwheel.store.memory import MemoryStore
from runners.millwheel.store.port import Store
from runners.millwheel.store.postgres import PostgresStore
from runners.testing.store_conformance import CHECKS, ConformanceError, StoreFactory
from tests.conformance.broken_adapters.acquiring import ReadsBeforeMovingTheToken, RepeatsTokens
from tests.conformance.broken_adapters.applying import (
    AcknowledgesTooMuch,
    AddsRowsInPlaceOfReplacing,
    CountsLateRows,
    ForgetsDeadLetters,
    ForgetsSentMarks,
    KeepsDeletedCells,
    LetsPercentilesGoBack,
    LetsWatermarksGoBack,
)
from tests.conformance.broken_adapters.fencing import (
    ChecksTheTokenOnly,
    CommitsHalf,
    FencesTheFirstRangeOnly,
    LeavesItsFences,
    NeverFences,
)
from tests.conformance.broken_adapters.resolving import (
    ComparesBundlesOnly,
    ForgetsFormerOwners,
    LeavesTheTokenAlone,
)
from tests.conformance.broken_adapters.signalling import (
    ForgetsSignalMarks,
    ForgetsWhichCellsHaveHeard,
    KeepsWhatItRefuses,
    LetsSignalMarksGoBack,
    NumbersAllJobsTogether,
    ShowsSignalsLate,
)

Check = Callable[[StoreFactory], None]
each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@pytest.fixture
def postgres_stores(store_dsn: str) -> Iterator[StoreFactory]:
    stores: list[PostgresStore] = []

    def connect() -> Store:
        stores.append(PostgresStore(store_dsn))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()


@each_check
def test_memory_store(check: Check) -> None:
    store = MemoryStore()
    check(lambda: store)


@each_check
@pytest.mark.postgres
def test_postgres_store(check: Check, postgres_stores: StoreFactory) -> None:
    check(postgres_stores)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (AcknowledgesTooMuch, "productions_until_acknowledged"),
        (AddsRowsInPlaceOfReplacing, "keyed_table"),
        (ChecksTheTokenOnly, "commit_needs_token_and_bundle"),
        (CommitsHalf, "all_ranges_or_none"),
        (ComparesBundlesOnly, "resolve_after_a_takeover_before_the_commit"),
        (CountsLateRows, "late_counts"),
        (FencesTheFirstRangeOnly, "all_ranges_or_none"),
        (ForgetsDeadLetters, "dead_letters"),
        (ForgetsFormerOwners, "resolve_a_commit_that_landed"),
        (ForgetsSentMarks, "sent_marks_outlive_productions"),
        (ForgetsSignalMarks, "signal_marks"),
        (ForgetsWhichCellsHaveHeard, "signal_marks"),
        (KeepsDeletedCells, "cells"),
        (KeepsWhatItRefuses, "signals_that_nobody_would_hear_are_refused"),
        (LeavesItsFences, "no_production_leaves_its_fences"),
        (LeavesTheTokenAlone, "resolve_a_commit_that_did_not_land"),
        (LetsPercentilesGoBack, "percentile_watermarks"),
        (LetsSignalMarksGoBack, "signal_marks"),
        (LetsWatermarksGoBack, "progress"),
        (NeverFences, "delayed_commit_of_a_former_owner"),
        (NumbersAllJobsTogether, "signals_are_numbered_for_each_job"),
        (ReadsBeforeMovingTheToken, "acquire_sees_every_commit_before_it"),
        (RepeatsTokens, "reset_forgets_everything"),
        (ShowsSignalsLate, "signals_by_many_senders_at_once"),
    ],
)
def test_suite_rejects(broken: type[MemoryStore], check: str) -> None:
    checks = {check.__name__: check for check in CHECKS}
    store = broken()

    with pytest.raises(ConformanceError):
        checks[f"check_{check}"](lambda: store)

"""Both store adapters pass the shipped suite, and the suite rejects adapters that are wrong."""

from collections.abc import Callable, Iterator

import pytest

from runners.errors import StoreError
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Store
from runners.millwheel.store.postgres import PostgresStore
from runners.testing.store_conformance import CHECKS, ConformanceError, StoreFactory
from tests.conformance.broken_adapters.acquiring import ReadsBeforeMovingTheToken, RepeatsTokens
from tests.conformance.broken_adapters.applying import (
    AcknowledgesTooMuch,
    AddsRowsInPlaceOfReplacing,
    AsksSendersOnly,
    CountsLateRows,
    ForgetsDeadLetters,
    ForgetsSentMarks,
    ForgetsWatermarksOfFirings,
    KeepsDeletedCells,
    LetsPercentilesGoBack,
    LetsRowsReplaceOthers,
    LetsWatermarksGoBack,
    LetsWatermarksOfFiringsGoBack,
    RetractsRowsByTheirKey,
)
from tests.conformance.broken_adapters.comparing import (
    AsksForWhatWasNeverKept,
    BelievesEveryReceipt,
    BlamesWhoAsks,
    CommitsWhateverIsReliedOn,
    ComparesNumbersOnly,
    ForgetsCuts,
    ForgetsCutsInAnUpdate,
    ForgetsWhomItHasPruned,
    KeepsTheFirstCut,
    LooksAtOwnersOfNowOnly,
    SendsToTheRetired,
    TakesRangesAsTheyAre,
)
from tests.conformance.broken_adapters.evidence import (
    CountsFailuresOnce,
    ForgetsDetailsOfEvents,
    ForgetsReshapes,
    ForgetsWhyRangesAreTaken,
    HidesAnswers,
    HoldsByTheFirstProduction,
    KeepsAllEvents,
    KeepsSnapshotsOfTheReset,
    KeepsTheFirstSnapshot,
    ShowsTheFirstEventsFirst,
)
from tests.conformance.broken_adapters.fencing import (
    ChecksTheTokenOnly,
    CommitsHalf,
    FencesTheFirstRangeOnly,
    LeavesItsFences,
    NeverFences,
    WritesManyRowsByTheWay,
)
from tests.conformance.broken_adapters.journalling import (
    CompactsAllRanges,
    CompactsTooMuch,
    KeepsWhatIsCompacted,
    SortsTheJournal,
)
from tests.conformance.broken_adapters.keeping import (
    AddsWhatIsCountedAnew,
    CountsWhatIsFenced,
    FindsLineageOfAnyKind,
    FoldsWhatRangesCount,
    FoldsWithoutDeleting,
    ForgetsHowManyWereLate,
    ForgetsMetricsOfTheGone,
    KeepsLineageForEver,
    PrunesTheLastIndex,
    PrunesWhatIsOnItsWay,
    PrunesWhatTheMasterStillHas,
    PurgesWhatCameLater,
    PurgesWhateverItsAge,
    RecordsLineageOfTheFenced,
    ReplaysWhateverThereIs,
)
from tests.conformance.broken_adapters.on_postgres import (
    Breakage,
    commits_whatever_is_relied_on,
    compacts_what_comes_with_it,
    looks_up_fenced_ranges_only,
    numbers_each_portion_anew,
    sends_to_the_retired,
    takes_over_by_numbers_of_whichever_version,
    takes_ranges_as_they_are,
    writes_one_portion,
)
from tests.conformance.broken_adapters.reading import (
    DividesTheCellsOfAHash,
    ForgetsJournalsOfKeys,
    HandsOutPages,
    LooksAtOneTokenOnly,
    LooksAtTheTokenFirst,
    ReadsOneCell,
    RepeatsPagesOfJournals,
    ShowsCellsToFormerOwners,
    ShowsWholeRanges,
    SkipsTheFirstHash,
)
from tests.conformance.broken_adapters.relaying import (
    ChoosesRowsAnew,
    HoldsNothing,
    LeavesDeliveredRows,
    LetsSeveralRelay,
    MixesLanes,
    NumbersBatchesAnew,
    RemembersLanesOfTheGone,
    SendsTheLastFirst,
)
from tests.conformance.broken_adapters.remembering import (
    ForgetsRecordIds,
    ForgetsRecordIdsAtTheHorizon,
    ForgetsRecordIdsOfAllRanges,
    SkipsRecordIdsBetweenPages,
)
from tests.conformance.broken_adapters.requesting import (
    BelievesTheLastAnswer,
    DrainsWhatIsFinished,
    ForgetsArguments,
    LeavesThemWaiting,
    NumbersAllRequestsTogether,
    TakesRequestsAfterTheEnd,
)
from tests.conformance.broken_adapters.reshaping import (
    AcceptsAnyBounds,
    ForgetsHandovers,
    KeepsHandovers,
    KnowsRangesFromItsFirstCommit,
    SendsToAnybody,
    StartsNewRangesFromNothing,
)
from tests.conformance.broken_adapters.resolving import (
    ComparesBundlesOnly,
    ForgetsFormerOwners,
    LeavesTheTokenAlone,
)
from tests.conformance.broken_adapters.signalling import (
    ForgetsSignalMarks,
    ForgetsWhichCellsHadTheSignal,
    KeepsWhatItRefuses,
    LetsSignalMarksGoBack,
    NumbersAllJobsTogether,
    ShowsSignalsLate,
)
from tests.conformance.broken_adapters.sizing import (
    FencesWhatIsTooLarge,
    TakesAnySize,
    WritesTheFirstPortion,
)
from tests.conformance.broken_adapters.submitting import (
    AnswersByTheStateOfNow,
    CommitsWhenItIsAsked,
    SendsForWhoIsNotReady,
)
from tests.conformance.broken_adapters.updating import (
    CreatesTheJobForAll,
    EmptiesTablesOfOthers,
    GivesRangesToOldVersions,
    KeepsCellsByName,
    KeepsChannelsOfTheGone,
    LeavesOwnersTheirTokens,
    LeavesRowsOfTheGone,
    UpdatesWhateverThereIs,
)
from tests.conformance.broken_adapters.upgrading import (
    LeavesOlderCodeItsRanges,
    LeavesTheFormatAsItWas,
    ReadsWhateverThereIs,
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (KeepsTheFirstSnapshot, "the_last_snapshot_is_kept"),
        (KeepsSnapshotsOfTheReset, "the_last_snapshot_is_kept"),
        (ShowsTheFirstEventsFirst, "events_are_kept"),
        (ForgetsDetailsOfEvents, "events_are_kept"),
        (ForgetsWhyRangesAreTaken, "takeovers_are_events"),
        (ForgetsReshapes, "reshaped_ranges_are_events"),
        (CountsFailuresOnce, "ends_and_failures_are_events"),
        (HidesAnswers, "requests_are_events"),
        (KeepsAllEvents, "events_are_bounded"),
        (HoldsByTheFirstProduction, "what_is_pending_has_an_age"),
        (ShowsWholeRanges, "a_key_is_read_by_anybody"),
        (ForgetsJournalsOfKeys, "a_key_is_read_by_anybody"),
        (RepeatsPagesOfJournals, "a_journal_is_read_in_pages"),
        (SendsTheLastFirst, "rows_leave_a_lane_in_order"),
        (HoldsNothing, "a_lane_waits_until_a_batch_is_full"),
        (MixesLanes, "rows_leave_a_lane_in_order"),
        (LeavesDeliveredRows, "rows_leave_a_lane_in_order"),
        (NumbersBatchesAnew, "a_batch_is_the_same_for_the_next_relay"),
        (LetsSeveralRelay, "a_batch_is_the_same_for_the_next_relay"),
        (ChoosesRowsAnew, "a_batch_is_the_same_for_the_next_relay"),
        (RemembersLanesOfTheGone, "a_lane_goes_with_its_job"),
        (KeepsWhatIsCompacted, "the_journal_goes_when_it_is_compacted"),
        (CompactsAllRanges, "the_journal_goes_when_it_is_compacted"),
        (CompactsTooMuch, "the_journal_goes_when_it_is_compacted"),
        (SortsTheJournal, "the_journal_is_in_order"),
        (FencesWhatIsTooLarge, "a_value_that_is_too_large_is_refused"),
        (TakesAnySize, "a_value_that_is_too_large_is_refused"),
        (WritesTheFirstPortion, "values_are_not_too_large_together"),
        (AddsWhatIsCountedAnew, "metrics_counted_anew"),
        (CountsWhatIsFenced, "metrics_of_a_stream"),
        (FoldsWhatRangesCount, "folded_metrics"),
        (ForgetsMetricsOfTheGone, "metrics_after_an_update"),
        (FoldsWithoutDeleting, "folded_metrics"),
        (RecordsLineageOfTheFenced, "lineage_is_read_as_it_was_recorded"),
        (FindsLineageOfAnyKind, "lineage_is_read_as_it_was_recorded"),
        (KeepsLineageForEver, "lineage_is_purged"),
        (ForgetsHowManyWereLate, "late_records_and_dead_letters_are_purged"),
        (PurgesWhatCameLater, "late_records_and_dead_letters_are_purged"),
        (PurgesWhateverItsAge, "late_records_and_dead_letters_are_purged"),
        (ReplaysWhateverThereIs, "replays_are_about_the_same_rows_until_they_end"),
        (PrunesTheLastIndex, "the_last_index_is_not_pruned"),
        (PrunesWhatTheMasterStillHas, "ranges_that_were_merged_are_pruned"),
        (PrunesWhatIsOnItsWay, "ranges_that_were_merged_are_pruned"),
        (AcceptsAnyBounds, "ranges_cover_the_same_keys_as_before"),
        (AcknowledgesTooMuch, "productions_until_acknowledged"),
        (AddsRowsInPlaceOfReplacing, "keyed_table"),
        (AsksSendersOnly, "what_a_receiver_has_is_sent"),
        (RetractsRowsByTheirKey, "changed_rows"),
        (RetractsRowsByTheirKey, "rows_are_retracted_whole"),
        (LetsRowsReplaceOthers, "changes_in_any_order"),
        (BelievesTheLastAnswer, "requests_are_answered_once"),
        (ChecksTheTokenOnly, "commit_needs_token_and_bundle"),
        (CommitsHalf, "all_ranges_or_none"),
        (ComparesBundlesOnly, "resolve_after_a_takeover_before_the_commit"),
        (CountsLateRows, "late_counts"),
        (DrainsWhatIsFinished, "a_job_that_ends_by_itself_is_not_drained"),
        (GivesRangesToOldVersions, "an_old_version_gets_no_range"),
        (KeepsCellsByName, "update_keeps_what_is_kept"),
        (KeepsChannelsOfTheGone, "update_forgets_the_rest"),
        (LeavesOwnersTheirTokens, "update_fences_everybody"),
        (WritesManyRowsByTheWay, "many_rows"),
        (UpdatesWhateverThereIs, "update_is_idempotent_and_exact"),
        (LeavesRowsOfTheGone, "update_empties_tables"),
        (EmptiesTablesOfOthers, "update_empties_tables"),
        (LeavesOlderCodeItsRanges, "newer_code_goes_on_and_older_code_gets_nothing"),
        (LeavesTheFormatAsItWas, "newer_code_goes_on_and_older_code_gets_nothing"),
        (ReadsWhateverThereIs, "a_format_that_is_not_read_is_refused"),
        (FencesTheFirstRangeOnly, "all_ranges_or_none"),
        (ForgetsArguments, "requests_are_numbered_for_each_job"),
        (ForgetsDeadLetters, "dead_letters"),
        (ForgetsFormerOwners, "resolve_a_commit_that_landed"),
        (ForgetsRecordIds, "record_ids"),
        (ForgetsRecordIdsAtTheHorizon, "record_ids_behind_the_horizon"),
        (ForgetsRecordIdsOfAllRanges, "record_ids_behind_the_horizon"),
        (ForgetsSentMarks, "sent_marks_outlive_productions"),
        (ForgetsSignalMarks, "signal_marks"),
        (ForgetsHandovers, "a_split_divides_what_a_range_has"),
        (ForgetsWhichCellsHadTheSignal, "signal_marks"),
        (KeepsDeletedCells, "cells"),
        (KeepsHandovers, "ranges_after_a_handover_have_owners_of_their_own"),
        (KeepsWhatItRefuses, "signals_that_no_trigger_listens_to_are_refused"),
        (LeavesItsFences, "no_production_leaves_its_fences"),
        (SendsForWhoIsNotReady, "nothing_is_sent_by_who_is_not_ready"),
        (CommitsWhenItIsAsked, "what_is_asked_after_a_commit_is_answered_after_it"),
        (AnswersByTheStateOfNow, "what_is_asked_after_a_commit_is_answered_after_it"),
        (LeavesThemWaiting, "a_job_that_finishes_answers"),
        (LeavesTheTokenAlone, "resolve_a_commit_that_did_not_land"),
        (AsksForWhatWasNeverKept, "channels_whose_ends_agree"),
        (BelievesEveryReceipt, "an_acknowledgement_of_a_commit_that_is_gone_is_refused"),
        (CommitsWhateverIsReliedOn, "a_delivery_of_a_commit_that_is_gone_is_refused"),
        (ComparesNumbersOnly, "ranges_that_have_gone_back_are_not_given"),
        (ForgetsWhomItHasPruned, "former_owners_that_are_pruned_are_believed"),
        (LooksAtOwnersOfNowOnly, "a_delivery_of_a_commit_that_is_gone_is_refused"),
        (BlamesWhoAsks, "acquire_needs_job_and_range"),
        (BlamesWhoAsks, "a_range_that_nobody_has_made_is_refused"),
        (ForgetsCuts, "ranges_behind_a_cut_are_not_given"),
        (KeepsTheFirstCut, "ranges_behind_a_cut_are_not_given"),
        (ForgetsCutsInAnUpdate, "an_update_keeps_what_ranges_know_of_each_other"),
        (SendsToTheRetired, "productions_to_a_retired_range_are_not_given"),
        (TakesRangesAsTheyAre, "ranges_that_have_gone_back_are_not_given"),
        (LetsPercentilesGoBack, "percentile_watermarks"),
        (ForgetsWatermarksOfFirings, "watermarks_of_firings"),
        (LetsWatermarksOfFiringsGoBack, "watermarks_of_firings"),
        (LetsSignalMarksGoBack, "signal_marks"),
        (LetsWatermarksGoBack, "progress"),
        (CreatesTheJobForAll, "open_is_idempotent_and_keeps_ranges"),
        (CreatesTheJobForAll, "open_by_many_drivers_at_once"),
        (NeverFences, "delayed_commit_of_a_former_owner"),
        (NumbersAllRequestsTogether, "requests_are_numbered_for_each_job"),
        (NumbersAllJobsTogether, "signals_are_numbered_for_each_job"),
        (DividesTheCellsOfAHash, "pages_are_all_cells_in_order"),
        (HandsOutPages, "pages_of_state_are_read_by_their_keys_alone"),
        (KnowsRangesFromItsFirstCommit, "a_commit_may_name_ranges_that_others_have_made"),
        (SendsToAnybody, "a_range_that_nobody_has_made_is_refused"),
        (LooksAtOneTokenOnly, "a_former_owner_reads_nothing"),
        (LooksAtTheTokenFirst, "owners_that_change_while_one_reads"),
        (ReadsOneCell, "cells_are_read_by_their_keys"),
        (ShowsCellsToFormerOwners, "a_former_owner_reads_nothing"),
        (SkipsTheFirstHash, "pages_are_all_cells_in_order"),
        (ReadsBeforeMovingTheToken, "acquire_sees_every_commit_before_it"),
        (RepeatsTokens, "reset_forgets_everything"),
        (SkipsRecordIdsBetweenPages, "record_ids_in_pages"),
        (StartsNewRangesFromNothing, "a_split_divides_what_a_range_has"),
        (TakesRequestsAfterTheEnd, "requests_by_many_at_once"),
        (ShowsSignalsLate, "signals_by_many_senders_at_once"),
    ],
)
def test_suite_rejects(broken: type[MemoryStore], check: str) -> None:
    checks = {check.__name__: check for check in CHECKS}
    store = broken()

    with pytest.raises((ConformanceError, StoreError)):
        checks[f"check_{check}"](lambda: store)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (numbers_each_portion_anew, "values_are_not_too_large_together"),
        (writes_one_portion, "values_are_not_too_large_together"),
        (compacts_what_comes_with_it, "the_journal_goes_when_it_is_compacted"),
        (
            takes_over_by_numbers_of_whichever_version,
            "a_connection_follows_a_job_that_is_made_anew",
        ),
        (looks_up_fenced_ranges_only, "a_commit_may_name_ranges_that_others_have_made"),
        (commits_whatever_is_relied_on, "a_delivery_of_a_commit_that_is_gone_is_refused"),
        (commits_whatever_is_relied_on, "an_acknowledgement_of_a_commit_that_is_gone_is_refused"),
        (takes_ranges_as_they_are, "ranges_that_have_gone_back_are_not_given"),
        (sends_to_the_retired, "productions_to_a_retired_range_are_not_given"),
    ],
)
@pytest.mark.postgres
def test_suite_rejects_on_postgres(
    broken: Breakage,
    check: str,
    postgres_stores: StoreFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    checks = {check.__name__: check for check in CHECKS}

    with pytest.raises((ConformanceError, StoreError)):
        checks[f"check_{check}"](postgres_stores)

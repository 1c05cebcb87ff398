"""WatermarkAuthority: minimum over all senders, monotone, a silent range counts with its last value."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from runners.core.stages.percentile_watermark import SplitProgress
from runners.millwheel.master.watermark_authority import WatermarkAuthority
from runners.millwheel.model.ids import RangeId
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

READ = [RangeId("read", index) for index in range(2)]
SUM = [RangeId("sum", index) for index in range(2)]
RANGES = (*READ, *SUM)


def authority(committed_us: dict[RangeId, int]) -> WatermarkAuthority:
    """Two ranges that read send to two that sum."""
    return WatermarkAuthority({"read": (), "sum": ("read",)}, RANGES, committed_us)


def test_a_range_that_has_not_reported_holds_time_still() -> None:
    """The consumer's input is the minimum over every sending range, whether it has reported or not."""
    ours = authority({})
    ours.report({READ[0]: 100})
    moved_alone = ours.advance()

    assert not moved_alone
    assert {"sum": MIN_TIMESTAMP_US} == ours.inputs_us
    ours.report({READ[1]: 50})
    assert ours.advance()
    assert {"sum": 50} == ours.inputs_us


def test_a_restart_begins_at_the_furthest_commit() -> None:
    """The input watermark of one range is that of its computation, so nothing on time becomes late by a restart."""
    ours = authority({SUM[0]: 70, SUM[1]: 40, READ[0]: 90, READ[1]: 80})

    assert {"sum": 70} == ours.inputs_us


def test_a_restart_begins_at_the_furthest_percentile_that_was_processed() -> None:
    """Although nobody can work it out before workers have reported where their splits are."""
    ours = WatermarkAuthority(
        {"read": (), "sum": ("read",)},
        RANGES,
        {SUM[0]: 40},
        percentiles={"sum": 50},
        committed_percentiles_us={SUM[0]: 70, SUM[1]: 60, READ[0]: None},
    )

    assert {"sum": 70} == ours.percentiles_us
    ours.advance()
    assert {"sum": 70} == ours.percentiles_us


def test_a_restart_begins_no_further_back_than_the_last_computation() -> None:
    """The input watermark of somebody was reached by everybody before it too, although with nothing to commit."""
    senders = {"read": (), "first": ("read",), "second": ("first",), "third": ("second", "first")}
    ranges = tuple(RangeId(name, 0) for name in senders)
    ours = WatermarkAuthority(senders, ranges, {RangeId("third", 0): 60, RangeId("first", 0): 20})

    assert {"first": 60, "second": 60, "third": 60} == ours.inputs_us


def test_an_idle_split_holds_nobody_back_and_the_end_of_another_does_not_end_it() -> None:
    """Idle is left out while something else moves; where nothing else does, time waits for it."""
    ours = authority({})
    ours.report({READ[0]: 100, READ[1]: 10})
    ours.advance({READ[1]})

    assert {"sum": 100} == ours.inputs_us
    ours.report({READ[0]: MAX_TIMESTAMP_US})
    ours.advance({READ[1]})
    assert {"sum": 100} == ours.inputs_us
    ours.report({READ[1]: 200})
    ours.advance()
    assert {"sum": 200} == ours.inputs_us


@given(
    reports=st.lists(
        st.dictionaries(st.sampled_from(RANGES), st.integers(0, 100), max_size=4), max_size=20
    )
)
def test_watermarks_never_go_back(reports: list[dict[RangeId, int]]) -> None:
    """Whatever workers report, inputs advance or stand, and never pass the slowest sender."""
    ours, before, highest = authority({}), MIN_TIMESTAMP_US, dict.fromkeys(READ, MIN_TIMESTAMP_US)
    for report in reports:
        ours.report(report)
        ours.advance()
        for range_id in READ:
            highest[range_id] = max(highest[range_id], report.get(range_id, MIN_TIMESTAMP_US))
        now = ours.inputs_us["sum"]

        assert before <= now
        assert now == min(highest.values())
        before = now


@given(
    reports=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(RANGES), st.integers(0, 100), max_size=4),
            st.sets(st.sampled_from(READ)),
        ),
        max_size=12,
    )
)
def test_reports_that_come_together_move_time_no_further_than_one_after_the_other(
    reports: list[tuple[dict[RangeId, int], set[RangeId]]],
) -> None:
    """What was idle only for a moment may have let time pass meanwhile; without that it is the same."""
    together, singly, known_idle = authority({}), authority({}), set[RangeId]()
    for report, idle in reports:
        reported_idle = idle & report.keys()
        known_idle = known_idle - report.keys() | reported_idle
        together.report(report)
        singly.report(report)
        singly.advance(known_idle)
    together.advance(known_idle)

    assert together.inputs_us["sum"] <= singly.inputs_us["sum"]
    if not any(idle & report.keys() for report, idle in reports):
        assert together.inputs_us == singly.inputs_us
    assert together.slowest_source_us() == singly.slowest_source_us()


def test_who_waits_for_the_slowest_source_is_notified_when_it_moves() -> None:
    """Although no computation may go further: the other one is behind it still."""
    ours = authority({})
    ours.report({READ[0]: 10, READ[1]: 30})
    ours.advance({READ[0]})
    ours.report({READ[1]: 40})

    assert ours.advance({READ[1]})
    assert not ours.advance({READ[1]})


def test_two_groupings_may_follow_the_same_percentile() -> None:
    """The second goes by the output watermark of the first, not by the watermark that the first still waits for."""
    senders = {"read": (), "first": ("read",), "second": ("first",)}
    ranges = tuple(RangeId(name, 0) for name in senders)
    for behind, known_us in ((50, 100), (49, 100), (51, MIN_TIMESTAMP_US)):
        ours = WatermarkAuthority(senders, ranges, {}, percentiles={"first": 50, "second": behind})
        ours.report({RangeId("first", 0): 10}, percentiles_us={RangeId("first", 0): 100})
        ours.advance()

        assert ours.percentiles_us["second"] == max(known_us, ours.inputs_us["second"])


def test_a_key_range_that_is_new_holds_time_still_until_it_is_reported_on() -> None:
    """Nobody knows yet what its owner sends from there."""
    senders = {"read": (), "sum": ("read",), "all": ("sum",)}
    ours = WatermarkAuthority(senders, (*RANGES, RangeId("all", 0)), {})
    ours.report(dict.fromkeys(SUM, 10))
    ours.advance()
    born = RangeId("sum", 2)
    ours.add(born)
    ours.report(dict.fromkeys(SUM, 50))
    ours.advance()

    assert ours.inputs_us["all"] == 10
    ours.report({born: 30})
    ours.advance()
    assert ours.inputs_us["all"] == 30


@given(
    acts=st.lists(st.tuples(st.booleans(), st.sampled_from(SUM), st.integers(0, 100)), max_size=20)
)
def test_a_key_range_counts_as_its_owner_reports_it(acts: list[tuple[bool, RangeId, int]]) -> None:
    """Also where that is less than before; what it sends to has come as far as it has come."""
    ours = WatermarkAuthority(
        {"read": (), "sum": ("read",), "all": ("sum",)}, (*RANGES, RangeId("all", 0)), {}
    )
    now, before_us = dict.fromkeys(SUM, MIN_TIMESTAMP_US), MIN_TIMESTAMP_US
    for is_taken, range_id, watermark_us in acts:
        if is_taken:
            ours.begin_anew([range_id, RangeId("nobody's", 0)])
        else:
            ours.report({range_id: watermark_us})
        now[range_id] = MIN_TIMESTAMP_US if is_taken else watermark_us
        ours.advance()

        before_us = max(before_us, min(now.values()))
        assert ours.inputs_us["all"] == before_us


def test_a_restart_begins_no_further_back_than_the_last_of_several() -> None:
    """All that is in front of it has been there too, however many hops away, in whatever order they are named."""
    names = ("read", "one", "two", "three")
    senders: dict[str, tuple[str, ...]] = {"read": ()}
    senders |= dict(reversed([(name, (before,)) for before, name in pairwise(names)]))
    last = RangeId("three", 0)
    ours = WatermarkAuthority(senders, tuple(RangeId(each, 0) for each in names), {last: 70})

    assert dict.fromkeys(names[1:], 70) == ours.inputs_us


def test_what_a_former_owner_has_reported_of_a_percentile_does_not_count() -> None:
    """It says nothing of what the next one sends: who follows waits until that one reports (ADR 0050)."""
    first, second = RangeId("first", 0), RangeId("second", 0)
    senders = {"read": (), "first": ("read",), "second": ("first",)}
    percentiles = {"first": 50, "second": 50}
    ours = WatermarkAuthority(senders, (READ[0], first, second), {}, percentiles=percentiles)
    ours.report({first: 10}, percentiles_us={first: 30})
    ours.begin_anew([first])
    ours.advance()
    assert ours.percentiles_us["second"] == MIN_TIMESTAMP_US
    ours.report({first: 10}, percentiles_us={first: 20})
    ours.advance()
    assert ours.percentiles_us["second"] == 20


@given(
    acts=st.lists(st.tuples(st.booleans(), st.sampled_from(SUM), st.integers(0, 100)), max_size=20)
)
# The first has a pane of before to emit when the second comes as far as it was.
@example(acts=[(False, SUM[0], 100), (False, SUM[0], 50), (False, SUM[1], 100)])
def test_the_percentile_of_a_key_range_counts_as_its_owner_reports_it(
    acts: list[tuple[bool, RangeId, int]],
) -> None:
    """Less than before too: a record that was left out has opened a window, and its pane is not to come late here."""
    ours = WatermarkAuthority(
        {"read": (), "sum": ("read",), "all": ("sum",)},
        (*RANGES, RangeId("all", 0)),
        {},
        percentiles={"sum": 50, "all": 50},
    )
    now, before_us = dict.fromkeys(SUM, MIN_TIMESTAMP_US), MIN_TIMESTAMP_US
    for is_taken, range_id, percentile_us in acts:
        if is_taken:
            ours.begin_anew([range_id])
        else:
            ours.report({}, percentiles_us={range_id: percentile_us})
        now[range_id] = MIN_TIMESTAMP_US if is_taken else percentile_us
        ours.advance()

        before_us = max(before_us, min(now.values()))
        assert ours.percentiles_us["all"] == before_us


def test_a_percentile_stays_where_it_is_while_all_splits_that_go_on_are_idle() -> None:
    """What they have had before says nothing of when more comes; and the end of another split is no news of them."""
    ours = WatermarkAuthority({"read": (), "sum": ("read",)}, RANGES, {}, percentiles={"sum": 50})
    quick, slow = SplitProgress(1_000, 10, ((0, 1.0),)), SplitProgress(10, 30, ((0, 1.0),))
    ours.report({READ[0]: 0, READ[1]: 0}, progress={READ[0]: quick, READ[1]: slow})
    ours.advance()
    assert ours.percentiles_us == {"sum": 10}

    ours.report({READ[1]: MAX_TIMESTAMP_US})
    ours.advance({READ[0]})
    assert ours.percentiles_us == {"sum": 10}
    ours.advance()
    assert ours.percentiles_us == {"sum": 1_000}

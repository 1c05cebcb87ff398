"""SignalBoard, and what a range passes on: signals follow the data, and nothing gets one twice."""

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.stages.plan import ExecutionPlan, plan
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.signals import NO_SIGNALS, Signal, SignalBoard, SignalMark
from runners.millwheel.worker.outbox import Outbox, Trail
from runners.testing.scripted_source import ScriptedSource

READ = [RangeId("read", 0), RangeId("read", 1)]
FIRST = [RangeId("first", 0), RangeId("first", 1)]
SECOND = [RangeId("second", 0)]
RANGES = [*READ, *FIRST, *SECOND]
FLUSH, PEEK = Signal(1, "flush"), Signal(2, "peek")


def two_groupings(first: str = "flush", second: str = "flush") -> ExecutionPlan:
    """One source, and two groupings in a row, each listening to a signal of its own."""
    p = df.Pipeline()
    (
        p
        | "read" >> df.Read(ScriptedSource([]))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterSignal(first)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "first" >> df.GroupByKey()
        | df.Map(lambda pair: (pair[0], sum(pair[1])))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterSignal(second)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "second" >> df.GroupByKey()
    )
    return plan(p.graph())


def board(
    first: str = "flush", second: str = "flush", committed: dict[RangeId, int] | None = None
) -> SignalBoard:
    marks = dict.fromkeys(RANGES, NO_SIGNALS)
    marks |= {each: SignalMark(number) for each, number in (committed or {}).items()}
    return SignalBoard(two_groupings(first, second), RANGES, marks)


def passes_on(ours: SignalBoard, report: dict[RangeId, int]) -> bool:
    """Whether some computation may go further by a report."""
    ours.report(report)
    return ours.pass_on()


def sent(ours: SignalBoard) -> list[int]:
    """The numbers of the signals that are sent to workers."""
    return [signal.number for signal in ours.news.signals]


def test_a_signal_passes_through_the_stages_one_after_the_other() -> None:
    """A stage may act on it when every range of every sender has passed it on."""
    ours = board()
    assert ours.is_listening
    assert ours.post([FLUSH])
    assert {"read": 1, "first": 0, "second": 0} == ours.news.inputs

    assert not passes_on(ours, {READ[0]: 1})
    assert passes_on(ours, {READ[1]: 1})
    assert {"read": 1, "first": 1, "second": 0} == ours.news.inputs
    assert not passes_on(ours, {FIRST[0]: 1})
    assert passes_on(ours, {FIRST[1]: 1})
    assert {"read": 1, "first": 1, "second": 1} == ours.news.inputs


def test_workers_are_sent_a_signal_until_all_who_listen_have_processed_it() -> None:
    """So that whoever takes a range over gets it, and nobody has to remember them for ever."""
    ours = board()
    ours.post([FLUSH, Signal(2, "flush")])
    passes_on(ours, dict.fromkeys([*READ, *FIRST], 2))
    assert [1, 2] == sent(ours)
    passes_on(ours, {SECOND[0]: 1})
    assert [2] == sent(ours)
    passes_on(ours, {SECOND[0]: 2})
    assert [] == sent(ours)


def test_what_nobody_listens_to_is_passed_over() -> None:
    """It has a number all the same, and the master must not ask for it again."""
    ours = board()
    ours.post([FLUSH, PEEK])

    assert [1] == sent(ours)
    assert 2 == ours.latest


def test_a_pipeline_that_does_not_listen_is_left_alone() -> None:
    p = df.Pipeline()
    p | "read" >> df.Read(ScriptedSource([])) | "first" >> df.GroupByKey()
    ours = SignalBoard(plan(p.graph()), [*READ, *FIRST], dict.fromkeys([*READ, *FIRST], NO_SIGNALS))

    assert not ours.is_listening
    assert {} == ours.news.inputs


def test_a_new_driver_reads_from_the_range_that_is_furthest_behind() -> None:
    """It sends again what some have not processed, and delays no stage that has gone on."""
    ours = board(committed={FIRST[0]: 4, FIRST[1]: 3, SECOND[0]: 2})
    assert 2 == ours.latest
    ours.post([Signal(3, "flush"), Signal(4, "flush"), Signal(5, "flush")])

    assert [3, 4, 5] == sent(ours)
    assert {"read": 5, "first": 4, "second": 2} == ours.news.inputs


@given(
    reports=st.lists(
        st.dictionaries(st.sampled_from(RANGES), st.integers(0, 5), max_size=5), max_size=12
    ),
    posts=st.lists(st.integers(0, 12), max_size=5),
)
def test_no_stage_is_ahead_of_its_senders(
    reports: list[dict[RangeId, int]], posts: list[int]
) -> None:
    """Whatever is reported in whatever order: inputs do not go back, and senders are always further."""
    ours, passed, before = board(), dict.fromkeys(RANGES, 0), dict.fromkeys(board().news.inputs, 0)
    for step, report in enumerate(reports):
        if step in posts:
            ours.post([Signal(ours.latest + 1, "flush")])
        passes_on(ours, report)
        passed = {each: max(passed[each], report.get(each, 0)) for each in RANGES}
        inputs = ours.news.inputs

        assert all(before[name] <= inputs[name] for name in inputs)
        assert inputs["first"] <= min(passed[each] for each in READ)
        assert inputs["second"] <= min(passed[each] for each in FIRST)
        assert max(inputs.values()) <= ours.latest
        before = dict(inputs)


def test_a_range_passes_a_signal_on_when_what_it_sent_before_is_acknowledged() -> None:
    """What it sent afterwards does not matter."""
    one, other = (Channel(READ[0], receiver) for receiver in FIRST)
    outbox = Outbox([], {})
    outbox.create(one, 0, b"1")
    outbox.create(other, 0, b"1")
    signals = Trail(outbox, 0)
    signals.note(1)
    outbox.create(one, 0, b"2")
    signals.note(2)
    assert 0 == signals.passed()
    outbox.acknowledge(one, 1)
    assert 0 == signals.passed()
    outbox.acknowledge(other, 1)
    assert 1 == signals.passed()
    outbox.acknowledge(one, 2)
    assert 2 == signals.passed()

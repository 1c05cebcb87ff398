"""The lineage of a row has exactly the records that the row was computed of: laws, and what people read."""

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.element_digests import element_digest
from dataflow.serialization import dumps, loads
from dataflow.testing import TestStream
from dataflow.testing.model_sink import ModelSink
from runners.core.ground.lineage import Lineage, SplitOrigin, TracedPane
from runners.core.panes import group_also_by_window
from runners.core.tables.row_keys import asked_keys, key_of_texts
from runners.direct import DirectRunner
from runners.observability.lineage.explained_rows import (
    PaneInput,
    RowExplanation,
    ViewUsed,
    explain_row,
)
from runners.observability.lineage.stored_lineage import finder
from runners.testing.runner_conformance import PROGRAMS, Program, check_runner
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import ALL_FAULTS, Fault
from runners.testing.simulator import batch as batch_run
from runners.testing.simulator.batch import SimulatedBatch
from runners.testing.simulator.cluster import JOB
from runners.testing.simulator.simulation import Simulation
from tests.effort import by_profile
from tests.oracle.evaluator import Arrivals, Record, Windowing
from tests.oracle.laws import microseconds, window_fn
from tests.strategies import streams, windowings

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning"),
]
SEEDS = by_profile(3, nightly=1_000)
COLUMNS = {"key": str, "start": int, "end": int, "pane": int, "timing": str, "values": list[int]}
MODES = st.sampled_from(
    [df.AccumulationMode.ACCUMULATING, df.AccumulationMode.ACCUMULATING_AND_RETRACTING]
)
TRIGGERS = st.sampled_from(
    [
        df.DefaultTrigger(),
        df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1)),
        df.Repeatedly(df.AfterAny(df.AfterCount(3), df.AfterWatermark())),
    ]
)


def row(
    pair: tuple[str, Sequence[int]],
    window: df.Window = df.DoFn.WindowParam,
    pane: df.PaneInfo = df.DoFn.PaneParam,
) -> dict[str, Any]:
    start, end = window.start_us, window.end_us
    return {
        "key": pair[0],
        "start": start,
        "end": end,
        "pane": pane.index,
        "timing": pane.timing.value,
        "values": sorted(pair[1]),
    }


def written(
    arrivals: Sequence[Arrivals],
    windowing: Windowing,
    trigger: df.Trigger,
    mode: df.AccumulationMode,
) -> Any:
    script = [
        Batch(
            [(record.key, record.value) for record in arrival.records],
            [record.timestamp_us for record in arrival.records],
            arrival.watermark_us,
        )
        for arrival in arrivals
    ]
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        (
            p
            | df.Read(ScriptedSource(script))
            | df.WindowInto(
                window_fn(windowing),
                trigger=trigger,
                allowed_lateness=microseconds(windowing.lateness_us),
                accumulation_mode=mode,
            )
            | "group" >> df.GroupByKey()
            | df.Map(row)
            | df.WriteToPostgres("rows", columns=COLUMNS, key=["key", "start", "end"])
        )
    return p.result


def values_of(explained: RowExplanation) -> Counter[int]:
    """What was emitted and not retracted among the input of a row, with what came too late."""
    assert explained.pane is not None
    found: Counter[int] = Counter()
    for each in explained.pane.inputs:
        for text in each.elements:
            _, value = text.split(" ", 1)
            found[int(value)] += -1 if text.startswith("-") else +1
    return found


def came(watermark_us: int, *records: tuple[int, int]) -> Arrivals:
    """Values with their event times, and where the watermark is behind them."""
    found = tuple(Record(key="a", value=value, timestamp_us=at_us) for value, at_us in records)
    return Arrivals(records=found, watermark_us=watermark_us)


@given(arrivals=streams(), windowing=windowings(), trigger=TRIGGERS, mode=MODES)
# A session has expired, and records that are not too late make another one that covers it.
@example(
    arrivals=[came(39), came(89, (1, 27)), came(94, (2, 27), (3, 38))],
    windowing=Windowing("sessions", 12, 0, 40),
    trigger=df.DefaultTrigger(),
    mode=df.AccumulationMode.ACCUMULATING,
)
# One that covers a part of it.
@example(
    arrivals=[
        came(6, (1, 11)),
        came(6, (2, 0), (3, 0), (4, 18)),
        came(49, (6, 0)),
        came(54, (7, 0), (8, 18)),
    ],
    windowing=Windowing("own gaps", 4, 0, 20),
    trigger=df.DefaultTrigger(),
    mode=df.AccumulationMode.ACCUMULATING,
)
def test_a_row_is_made_of_the_records_in_it(
    arrivals: list[Arrivals],
    windowing: Windowing,
    trigger: df.Trigger,
    mode: df.AccumulationMode,
) -> None:
    """The records that are shown are those of the result, and those that came too late."""
    result = written(arrivals, windowing, trigger, mode)
    for each in result.read_table("rows"):
        explained = result.explain_row("rows", f"{each['key']},{each['start']},{each['end']}")
        assert explained.row.entry.sign == +1
        assert explained.pane is not None
        pane = explained.pane.pane.entry
        assert (pane.index, pane.timing) == (each["pane"], each["timing"])
        assert (pane.window_start_us, pane.window_end_us) == (each["start"], each["end"])
        assert pane.reason
        found = values_of(explained)
        assert found.total() - explained.pane.late == len(each["values"])
        assert not Counter(each["values"]) - found
        assert str(explained)


def two_groupings(p: df.Pipeline) -> None:
    """The sums of teams by minute, and of these the largest."""
    scores = [("red", 5, 30), ("blue", 7, 70), ("red", 3, 100), ("red", 9, 80)]
    (
        p
        | df.Create([df.TimestampedValue((team, score), at) for team, score, at in scores])
        | df.WindowInto(df.FixedWindows(60))
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: ("all", pair[1]))
        | "largest" >> df.CombinePerKey(max)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "key": pair[0],
                "start": window.start,
                "n": pair[1],
            }
        )
        | df.WriteToPostgres(
            "best", columns={"key": str, "start": datetime, "n": int}, key=["key", "start"]
        )
    )


def test_a_row_is_explained_through_two_groupings() -> None:
    """Down to the split, with the panes between."""
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        two_groupings(p)
    result: Any = p.result
    explained: RowExplanation = result.explain_row("best", "all,1970-01-01T00:01:00Z")
    text = str(explained)
    assert "pane 0 (on_time) of largest, key 'all', window 1970-01-01T00:01:00+00:00" in text
    assert "fired because the watermark has reached the end of the window" in text
    assert "from pane 0 of sum, key 'red'" in text
    assert "from pane 0 of sum, key 'blue'" in text
    assert "1970-01-01T00:01:20+00:00 9" in text
    assert "1970-01-01T00:00:30+00:00 5" not in text
    inner = json.loads(json.dumps(explained.as_json()))["pane"]["inputs"]
    assert [each["pane"]["transform"] for each in inner] == ["sum", "sum"]
    assert all(each["origin"]["split"] for of in inner for each in of["pane"]["inputs"])


def test_what_replaced_what_and_why() -> None:
    """Each trigger is named by the part that was ready; what is retracted is not there any more."""
    stream = (
        TestStream()
        .add_elements([df.TimestampedValue(("red", 1), 10)])
        .add_elements([df.TimestampedValue(("red", 2), 20)])
        .advance_watermark_to(60)
        .add_elements([df.TimestampedValue(("red", 4), 30)])
        .advance_watermark_to_infinity()
    )
    with df.Pipeline(DirectRunner(lineage="panes")) as p:
        (
            p
            | stream
            | df.WindowInto(
                df.FixedWindows(60),
                trigger=df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1)),
                allowed_lateness=60,
                on_time_behavior=df.FiringBehavior.FIRE_IF_NON_EMPTY,
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | "sum" >> df.CombinePerKey(sum)
            | df.Map(lambda pair: {"key": pair[0], "n": pair[1]})
            | df.WriteToPostgres("sums", columns={"key": str, "n": int}, key=["key"])
        )
    result: Any = p.result
    explained: RowExplanation = result.explain_row("sums", "red")
    assert explained.pane is not None
    assert explained.pane.replaced is not None
    assert explained.pane.pane.entry.reason == "1 of 1 records"
    assert explained.pane.replaced.entry.reason == "2 of 2 records"
    assert [each.entry.sign for each in explained.before] == [-1, +1]
    assert explained.pane.inputs[0].elements == []


def test_nothing_is_recorded_unless_asked_for() -> None:
    """The error says what to do; another word for how much is refused."""
    with df.Pipeline() as p:
        two_groupings(p)
    result: Any = p.result
    with pytest.raises(df.PipelineError, match="lineage='panes'"):
        result.explain_row("best", "all,1970-01-01T00:01:00Z")
    with pytest.raises(df.PipelineError, match="lineage='all' is not known"):
        DirectRunner(lineage="all")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_lineage_is_exactly_once_over_faults(seed: int) -> None:
    """The last pane of each window has what its grouping was given, each record once, whoever was killed."""
    simulation = Simulation(build_simulated, seed, faults=FAULTS, lineage=Lineage.RECORDS)
    simulation.run()
    store = simulation.cluster.store
    find = finder(store, JOB)
    for key in range(3):
        for start in range(0, 300, 60):
            explained = explain_row(find, "sums", f"{key},{start}")
            expected = sorted(
                f"{stamp(value)} {value}" for value in range(RECORDS) if at(value) == (key, start)
            )
            if explained is None:
                assert not expected
                continue
            assert explained.pane is not None
            found = [text for each in explained.pane.inputs for text in each.elements]
            assert sorted(found) == expected


RECORDS = 60
#: A part of a store that has gone back by itself has lineage of what it does not know any more.
FAULTS = ALL_FAULTS - {Fault.LOST_PART}


def at(value: int) -> tuple[int, int]:
    """The key of a value, and the beginning of its window in seconds."""
    return value % 3, value * 5 // 60 * 60


def stamp(value: int) -> str:
    return datetime.fromtimestamp(value * 5, UTC).isoformat()


def build_simulated(p: df.Pipeline, random: Random) -> None:
    stamped = [df.TimestampedValue((value % 3, value), value * 5) for value in range(RECORDS)]
    (
        p
        | "read" >> df.Create(stamped)
        | df.WindowInto(df.FixedWindows(60))
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "key": pair[0],
                "start": window.start_us // 1_000_000,
                "n": pair[1],
            }
        )
        | df.WriteToPostgres(
            "sums", columns={"key": int, "start": int, "n": int}, key=["key", "start"]
        )
    )


class Prefixes(df.DoFn):
    """Emits with each value how many have come, of its key and window; in the order of event times."""

    requires_time_sorted_input = True
    SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())

    def process(
        self, pair: tuple[int, int], seen: Any = df.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[int, int]]:
        seen.add(pair[1])
        yield pair[0], seen.read()


def build_kept(p: df.Pipeline, random: Random) -> None:
    """Elements through a stateful DoFn and side inputs, both of which keep elements, to a grouping and to a table."""
    stamped = [df.TimestampedValue((value % 3, value), value * 5) for value in range(RECORDS)]
    rates = p | "rates" >> df.Create([("eur", 2), ("usd", 3)])
    changed = (
        p
        | "read" >> df.Create(stamped)
        | df.WindowInto(df.FixedWindows(60))
        | "prefixes" >> df.ParDo(Prefixes())
        | "changed"
        >> df.Map(lambda pair, rates: (pair[0], pair[1] * rates["eur"]), df.AsDict(rates))
    )
    columns = {"key": int, "start": int, "n": int}
    (
        changed
        | "sum" >> df.CombinePerKey(sum)
        | "rows" >> df.Map(kept_row)
        | df.WriteToPostgres("sums", columns=columns, key=["key", "start"])
    )
    (
        changed
        | "single rows" >> df.Map(kept_row)
        | df.WriteToPostgres("singles", columns=columns, key=["key", "start", "n"])
    )


def kept_row(pair: tuple[int, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, int]:
    return {"key": pair[0], "start": window.start_us // 1_000_000, "n": pair[1]}


def check_kept(explain: Callable[[str, str], RowExplanation | None]) -> None:
    """Each sum is made of an output for each of its records, which had been given those up to its own, and the view."""
    for key, start in sorted(set(map(at, range(RECORDS)))):
        wanted = [f"{stamp(each)} {each}" for each in range(RECORDS) if at(each) == (key, start)]
        explained = explain("sums", f"{key},{start}")
        assert explained is not None
        assert explained.pane is not None
        inputs = explained.pane.inputs
        assert [each.emitted for each in inputs] == [1] * len(wanted)
        assert sorted(map(elements_given, inputs)) == [wanted[: n + 1] for n in range(len(wanted))]
        for each in inputs:
            check_view(each.views)
        for number in range(1, len(wanted) + 1):
            single = explain("singles", f"{key},{start},{number * 2}")
            assert single is not None
            assert single.pane is not None
            assert single.pane.pane.entry.reason == "an element came"
            given = [text for each in single.pane.inputs for text in each.elements]
            assert given == wanted[:number]
            check_view(single.views)


def elements_given(each: PaneInput) -> list[str]:
    assert each.pane is not None
    return [text for given in each.pane.inputs for text in given.elements]


def check_view(views: Sequence[ViewUsed]) -> None:
    (view,) = views
    assert view.pane is not None
    given = sorted(text for each in view.pane.inputs for text in each.elements)
    assert [text.partition(" ")[2] for text in given] == ["('eur', 2)", "('usd', 3)"]


def test_what_is_kept_and_emitted_later_is_explained() -> None:
    """Through a stateful DoFn and side inputs."""
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        build_kept(p, Random(0))
    result: Any = p.result
    check_kept(result.explain_row)
    assert "which of them its code has used is not known" in str(
        result.explain_row("singles", "0,0,2")
    )


@pytest.mark.slow
@pytest.mark.parametrize("passed", [group_also_by_window.PASSED_VALUES, 1])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_lineage_through_state_is_exactly_once_over_faults(
    seed: int, passed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a stream, whoever was killed, also where the elements of a view go before its pane."""
    monkeypatch.setattr(group_also_by_window, "PASSED_VALUES", passed)
    simulation = Simulation(build_kept, seed, faults=FAULTS, lineage=Lineage.RECORDS)
    simulation.run()
    check_kept(partial(explain_row, finder(simulation.cluster.store, JOB)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_batch_records_what_a_stream_does(seed: int) -> None:
    """Each record once, whoever dies."""
    batch = SimulatedBatch(build_kept, seed, rate=0.05, lineage=Lineage.RECORDS)
    batch.run()
    check_kept(partial(explain_row, finder(batch.store, batch_run.JOB)))


@given(arrivals=streams(), windowing=windowings())
def test_a_batch_records_the_records_of_a_row(
    arrivals: list[Arrivals], windowing: Windowing
) -> None:
    """They are those of the same pipeline in memory, over the same input."""
    values = [
        df.TimestampedValue((record.key, record.value), record.timestamp_us / 1e6)
        for arrival in arrivals
        for record in arrival.records
    ]

    as_row: Any = row

    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(values)
            | df.WindowInto(window_fn(windowing))
            | "group" >> df.GroupByKey()
            | df.Map(as_row)
            | df.WriteToPostgres("rows", columns=COLUMNS, key=["key", "start", "end"])
        )

    with df.Pipeline(DirectRunner(lineage="records")) as p:
        build(p)
    batch = SimulatedBatch(build, 0, lineage=Lineage.RECORDS)
    batch.run()
    in_memory: Any = p.result
    rows = batch.rows("rows")
    assert len(rows) == len(in_memory.read_table("rows"))
    for each in rows:
        key = f"{each['key']},{each['start']},{each['end']}"
        explained = explain_row(finder(batch.store, batch_run.JOB), "rows", key)
        assert explained is not None
        assert values_of(explained) == values_of(in_memory.explain_row("rows", key))
        assert values_of(explained) == Counter(each["values"])


def test_what_goes_to_a_sink_is_explained() -> None:
    """By the label of the write, and what decides on the lane."""
    sink = ModelSink(lanes=3)
    with df.Pipeline(DirectRunner(lineage="records")) as p:
        (
            p
            | df.Create([("red", 5), ("red", 2), ("blue", 1)])
            | "sum" >> df.CombinePerKey(sum)
            | "send" >> df.Write(sink)
        )
    result: Any = p.result
    explained = result.explain_row("send", "red,7")
    assert explained.pane is not None
    assert sorted(
        text.split(" ", 1)[1] for each in explained.pane.inputs for text in each.elements
    ) == ["2", "5"]
    text = str(explained)
    lane = element_digest(("red", 7)) % 3
    assert f"it left by lane {lane} of the relay" in text
    assert "the number of its batch is not known" in text


def test_a_traced_pane_is_the_pane() -> None:
    """For whoever compares it, and in whatever is stored."""
    pane = df.PaneInfo(2, df.PaneTiming.LATE, is_first=False, is_last=True, nonspeculative_index=1)
    traced = TracedPane.of(pane, SplitOrigin.of("read", 1, 2))
    assert traced == pane
    assert pane == traced
    assert hash(traced) == hash(pane)
    assert dumps([traced]) == dumps([pane])
    assert type(loads(dumps([traced]))[0]) is df.PaneInfo
    assert attrs.evolve(pane, index=3) != traced
    assert attrs.evolve(traced, index=3) == attrs.evolve(pane, index=3)
    assert repr(traced) == repr(pane)
    for copied in (copy.copy(traced), copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert type(copied) is df.PaneInfo
        assert copied == pane


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_what_is_emitted_does_not_depend_on_lineage(program: Program) -> None:
    """Of each construct of the SDK."""
    check_runner(partial(DirectRunner, lineage="records"), [program])


def test_a_key_of_texts_is_found_however_it_is_written() -> None:
    """An instant in any form, with commas or as JSON."""
    wanted = key_of_texts(["a", "2013-01-01T12:00:00+00:00"])
    for given_key in (
        "a,2013-01-01T12:00:00Z",
        "a, 2013-01-01T13:00:00+01:00",
        '["a", "2013-01-01T12:00:00+00:00"]',
    ):
        assert wanted in asked_keys(given_key)

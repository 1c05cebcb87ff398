"""A topic has each message once, whatever fails, and whoever else writes: on a model of a cluster with transactions."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import SinkError, SinkFencedError
from dataflow.io.kafka import writer as writer_module
from dataflow.io.kafka.messages import Encoded, Mode, messages_of
from dataflow.io.kafka.write import AT_LEAST_ONCE, KafkaTopic
from dataflow.io.kafka.writer import TopicWriter
from dataflow.serialization import dumps
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter, outbox_of
from dataflow.testing.model_kafka import MESSAGE_BYTES_MAX, ModelKafka
from dataflow.testing.model_sink import Outcome
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest
from runners.core.tables.changelog import Rows
from runners.relay.lane_relay import LaneRelay
from runners.relay.memory_outbox import MemoryOutbox
from runners.relay.outbox import LanePlace
from runners.testing.manual_clock import ManualClock

TOPIC = "totals"


@pytest.fixture(autouse=True)
def _in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model always comes back, and what happens is drawn in the thread of the test."""
    monkeypatch.setattr(writer_module, "bounded", lambda call, wait_s: call())


def cluster(**more: Any) -> ModelKafka:
    kafka = ModelKafka(**more)
    kafka.make_topic(TOPIC, partitions=3)
    return kafka


def topic_of(kafka: ModelKafka, mode: Mode = Mode.CHANGELOG, **more: Any) -> KafkaTopic:
    return KafkaTopic(clients=kafka.clients, topic=TOPIC, mode=mode, **more)


def message(number: int) -> Encoded:
    return b"key %d" % number, b'{"n":%d}' % number, ()


class ModelUnderTest(SinkContract):
    """A topic of the model."""

    mode = Mode.CHANGELOG
    writer: type[TopicWriter] = TopicWriter

    def make(self) -> SinkUnderTest:
        kafka = cluster()
        sink = topic_of(kafka, self.mode)

        def read() -> list[Encoded]:
            return applied(self.mode, kafka)

        return SinkUnderTest(
            sink=sink,
            values=[message(number) for number in range(10)],
            read=read,
            open_writer=lambda lane: self.writer(kafka.clients, TOPIC, self.mode, lane),
            refused=(b"key", b"x" * (MESSAGE_BYTES_MAX + 1), ()),
        )


def applied(mode: Mode, kafka: ModelKafka) -> list[Encoded]:
    """What a reader has in the end, who follows the messages."""
    left = Counter[tuple[Any, Any]]()
    table = dict[Any, Any]()
    for found in kafka.visible(TOPIC):
        key, value = found.key(), found.value()
        if mode is Mode.CHANGELOG:
            left[key, value] += int(dict(found.headers() or ())["dataflow-sign"])  # type: ignore[arg-type]
        elif mode is Mode.UPSERT:
            table[key] = value
        else:
            change = json.loads(value or b"")
            assert change["before"] == table.get(key)
            table[key] = change["after"]
    if mode is Mode.CHANGELOG:
        return [(key, value, ()) for (key, value), count in left.items() for _ in range(count)]
    if mode is Mode.DEBEZIUM:
        table = {
            key: None if value is None else json.dumps(value, separators=(",", ":")).encode()
            for key, value in table.items()
        }
    return [(key, value, ()) for key, value in table.items() if value is not None]


class TestChangelog(ModelUnderTest):
    """Messages with signs."""


class TestUpserts(ModelUnderTest):
    """Messages that replace each other, and tombstones."""

    mode = Mode.UPSERT


class TestEnvelopes(ModelUnderTest):
    """Messages of before and after."""

    mode = Mode.DEBEZIUM


class SmallBatches(KafkaTopic):
    """A topic that is written two messages at a time."""

    @property
    def batching(self) -> Batching:
        return Batching(max_rows=2)


class World:
    """One lane, some relays that believe that it is theirs, a cluster, and chance."""

    def __init__(self, data: st.DataObject, writer: type[TopicWriter]) -> None:
        self._data, self._writer = data, writer
        self.kafka = cluster(fate=self._fate, between=self._between)
        self._sink = SmallBatches(clients=self.kafka.clients, topic=TOPIC, mode=Mode.CHANGELOG)
        self.rows: Rows = {}
        self._outbox = MemoryOutbox("run", lambda _: self.rows)
        self.appended: list[int] = []
        self._depth, self._is_calm = 0, False
        self._stepping: list[LaneRelay] = []
        self._place = LanePlace(
            job="job", sink="sink", outbox=outbox_of("outbox", self._sink), number=0
        )
        self._relays = [self._new_relay() for _ in range(2)]

    def _new_relay(self) -> LaneRelay:
        sink: Sink[Any] = self._sink
        return LaneRelay(self._outbox, sink, self._place, self._open, ManualClock())

    def _open(self, sink: Sink[Any], lane: Lane) -> SinkWriter:
        return self._writer(self.kafka.clients, TOPIC, Mode.CHANGELOG, lane)

    def _fate(self, what: str) -> Outcome:
        # Most requests are answered, so that some writer comes to its commit.
        is_odd = not self._is_calm and self._data.draw(st.integers(0, 3)) == 0
        return self._data.draw(st.sampled_from(Outcome)) if is_odd else Outcome.DONE

    def _between(self, what: str) -> None:
        if not self._is_calm and self._depth < 2 and self._data.draw(st.integers(0, 2)) == 0:
            self.act()

    def act(self) -> None:
        """Something happens, perhaps in the middle of something else."""
        self._depth += 1
        acts: Sequence[Callable[[], None]] = (
            self._append,
            self._step,
            self._step,
            self._crash,
            self.kafka.let_land,
            lambda: self.kafka.advance(6_000),
        )
        self._data.draw(st.sampled_from(acts))()
        self._depth -= 1

    def _append(self) -> None:
        self.appended.append(len(self.appended))
        value = dumps(message(self.appended[-1]))
        self.rows[next(reversed(self.rows), -1) + 1] = (0, +1, value)  # type: ignore[operator]

    def _step(self) -> None:
        relay = self._data.draw(st.sampled_from(self._relays))
        if relay not in self._stepping:
            self._stepping.append(relay)
            with suppress(Exception):
                relay.step()
            self._stepping.remove(relay)

    def _crash(self) -> None:
        self._relays[self._data.draw(st.integers(0, 1))] = self._new_relay()

    def settle(self) -> None:
        """Nothing fails any more."""
        self._is_calm = True
        relay = self._new_relay()
        while self._outbox.count_waiting(self._place):
            try:
                relay.step()
            except KafkaException:
                # Somebody's transaction is open: nobody but a broker's clock ends it.
                self.kafka.advance(11_000)
                relay.step()
        self.kafka.let_land()
        self.kafka.advance(60_000)


def run_world(data: st.DataObject, writer: type[TopicWriter] = TopicWriter) -> None:
    """Let things happen, and check that readers of the topic are given every message once."""
    world = World(data, writer)
    for _ in range(data.draw(st.integers(1, 10))):
        world.act()
    world.settle()
    assert all(log.stable_end == log.end for log in world.kafka.topics[TOPIC].logs)
    found = sorted(json.loads(each.value() or b"")["n"] for each in world.kafka.visible(TOPIC))
    assert found == world.appended


@given(st.data())
def test_the_topic_has_every_message_once(data: st.DataObject) -> None:
    run_world(data)


class _ReadsBeforeTheFence(TopicWriter):
    """Asks for the number before it has shut out who may still be committing."""

    def _fenced(self, producer: Any, token: int) -> int:
        self._consumer = self._opened(isolation_level="read_uncommitted")
        number = self._progress(self._consumer).number
        producer.init_transactions(10.0)
        return number


class _NeverFences(TopicWriter):
    """Has a transactional id of its own each time, as a sink that makes its names of process numbers."""

    made = 0

    def _opened_producer(self) -> Any:
        _NeverFences.made += 1
        name = f"{self._name} {_NeverFences.made}"
        return self._clients.producer(transactional_id=name, transaction_timeout_ms=10_000)


class _NumbersOutside(TopicWriter):
    """Commits the number behind the transaction."""

    def _transact(self, messages: Sequence[Encoded], number: int) -> None:
        producer, consumer = self._producer, self._consumer
        assert producer is not None
        assert consumer is not None
        producer.begin_transaction()
        for each in messages:
            self._produce(producer, each)
        producer.commit_transaction(10.0)
        consumer.commit(offsets=[self._place(number)], asynchronous=True)


class _WithoutTransactions(TopicWriter):
    """Sends records in no transaction."""

    def _produce(self, producer: Any, message: Encoded) -> None:
        self._clients.producer().produce(TOPIC, message[1], message[0])


class _CommitsTwice(TopicWriter):
    """Sends a batch again when its answer does not come."""

    def _transact(self, messages: Sequence[Encoded], number: int) -> None:
        try:
            super()._transact(messages, number)
        except KafkaException:
            super()._transact(messages, number)


@pytest.mark.slow
@pytest.mark.parametrize(
    "writer",
    [_ReadsBeforeTheFence, _NumbersOutside, _WithoutTransactions, _CommitsTwice],
)
def test_a_rule_that_is_broken_is_noticed(writer: type[TopicWriter]) -> None:
    @settings(
        max_examples=3_000,
        phases=[Phase.generate],
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def law(data: st.DataObject) -> None:
        run_world(data, writer)

    with pytest.raises((AssertionError, SinkError)):
        law()


def test_a_writer_that_fences_nobody_is_noticed() -> None:
    class Broken(ModelUnderTest):
        writer = _NeverFences

    with pytest.raises((AssertionError, SinkError)):
        Broken().check_all()


@given(st.data())
def test_messages_have_what_the_changes_have(data: st.DataObject) -> None:
    """Whatever batches they are cut into: whoever follows the messages has the rows that were not retracted."""
    kafka, mode = cluster(), data.draw(st.sampled_from([Mode.UPSERT, Mode.DEBEZIUM]))
    standing = dict[int, Encoded]()
    changes = list[SinkChange]()
    for _ in range(data.draw(st.integers(0, 12))):
        key = data.draw(st.integers(0, 2))
        if key in standing:
            changes.append(SinkChange(standing.pop(key), -1))
        if data.draw(st.booleans()):
            standing[key] = b"%d" % key, b'{"v":%d}' % data.draw(st.integers(0, 1)), ()
            changes.append(SinkChange(standing[key], +1))
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        for key_, value, headers in messages_of(mode, changes[:size]):
            kafka.append(TOPIC, value, key=key_, headers=headers)
        del changes[:size]
    assert Counter(applied(mode, kafka)) == Counter(standing.values())


def test_an_upsert_is_not_deleted_by_what_it_has_replaced() -> None:
    """Where another group's row of a key comes before the retraction of the former one."""
    old, new = (b"k", b"1", ()), (b"k", b"2", ())
    changes = [SinkChange(old, +1), SinkChange(new, +1), SinkChange(old, -1)]
    assert messages_of(Mode.UPSERT, changes) == [new]


def writer_of(kafka: ModelKafka, **more: Any) -> SinkWriter:
    lane = Lane(writer="w", number=0, title="lane 0")
    return topic_of(kafka, Mode.APPEND, **more).open(lane)


def test_what_may_come_twice_can_be_known() -> None:
    """At least once: a batch that comes again has the same ids."""
    kafka = cluster()
    batch = [SinkChange(message(number), +1) for number in range(2)]
    first = writer_of(kafka, delivery=AT_LEAST_ONCE)
    assert first.fence(1) == 0
    kafka.fate = lambda what: Outcome.LOST if what == "offsets" else Outcome.DONE
    with pytest.raises(Exception, match="_TIMED_OUT"):
        first.write(1, batch)
    kafka.fate = lambda what: Outcome.DONE
    second = writer_of(kafka, delivery=AT_LEAST_ONCE)
    assert second.fence(2) == 0
    second.write(1, batch)
    with pytest.raises(SinkFencedError):
        writer_of(kafka, delivery=AT_LEAST_ONCE).fence(2)
    assert writer_of(kafka, delivery=AT_LEAST_ONCE).fence(3) == 1
    ids = Counter(dict(each.headers() or ())["dataflow-id"] for each in kafka.visible(TOPIC))
    assert ids == {b"w/1/0": 2, b"w/1/1": 2}


def test_a_writer_that_stops_halfway_holds_readers_up_for_ten_seconds() -> None:
    """Its transaction is aborted by the cluster, or at once by the next writer."""
    kafka = cluster()
    writer = writer_of(kafka)
    writer.fence(1)
    kafka.fate = lambda what: Outcome.LOST if what == "commit" else Outcome.DONE
    with pytest.raises(Exception, match="_TIMED_OUT"):
        writer.write(1, [SinkChange(message(1), +1)])
    log = max(kafka.topics[TOPIC].logs, key=lambda each: each.end)
    assert log.stable_end < log.end
    kafka.advance(10_001)
    assert log.stable_end == log.end
    assert not kafka.visible(TOPIC)
    kafka.fate = lambda what: Outcome.DONE
    assert writer_of(kafka).fence(2) == 0


SUMS = {"red": 8, "blue": 4}


def totals(p: df.Pipeline, *, retracts: bool) -> df.PCollection[dict[str, Any]]:
    mode = df.AccumulationMode
    return (
        p
        | df.Create([("red", 3), ("blue", 4), ("red", 5)])
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=mode.ACCUMULATING_AND_RETRACTING if retracts else mode.DISCARDING,
        )
        | df.CombinePerKey(sum)
        | df.MapTuple(lambda team, points: {"team": team, "points": points})
    )


@pytest.mark.parametrize("mode", [None, "upsert", "debezium", "changelog"])
def test_a_pipeline_writes_what_it_has_retracted(mode: str | None) -> None:
    kafka = cluster()
    with df.Pipeline(bundle_records=1) as p:
        _ = totals(p, retracts=True) | df.WriteToKafka(
            TOPIC, bootstrap_servers=kafka.clients, key="team", mode=mode, lanes=2
        )
    found = applied(Mode(mode or "upsert"), kafka)
    rows = [json.loads(value or b"") for _, value, _ in found]
    assert {row["team"]: row["points"] for row in rows} == SUMS
    assert {json.loads(value or b"")["team"].encode() for _, value, _ in found} == {
        key for key, _, _ in found
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "append", "key": "team"}, "only adds messages"),
        ({}, "only adds messages"),
        ({"mode": "upsert"}, "without a key"),
        ({"mode": "replace"}, "mode='replace'"),
        ({"delivery": "exactly once"}, "delivery='exactly once'"),
        ({"lanes": 0}, "0 lanes"),
    ],
)
def test_what_cannot_be_written_is_refused_when_it_is_built(
    arguments: dict[str, Any], words: str
) -> None:
    kafka, p = cluster(), df.Pipeline()
    with pytest.raises(df.PipelineError, match=words):
        totals(p, retracts=True) | df.WriteToKafka(
            TOPIC, bootstrap_servers=kafka.clients, **arguments
        )


def test_a_topic_that_is_missing_is_refused_when_it_is_built() -> None:
    kafka = cluster()
    with pytest.raises(SinkError, match="no topic 'other'"):
        df.Pipeline() | df.Create([1]) | df.WriteToKafka("other", bootstrap_servers=kafka.clients)


def test_an_element_without_a_key_is_refused() -> None:
    kafka = cluster()
    with pytest.raises(df.TransformError, match="has no key"), df.Pipeline() as p:
        _ = (
            p
            | df.Create([{"team": None}])
            | df.WriteToKafka(TOPIC, bootstrap_servers=kafka.clients, key="team", mode="upsert")
        )
    assert not kafka.visible(TOPIC)


def test_rows_of_any_kind_are_json() -> None:
    """Equal elements have the same bytes, in the partition where Java's clients look for the key."""
    kafka = cluster()
    with df.Pipeline() as p:
        _ = (
            p
            | df.Create([{"b": 1, "a": [2.5, None, "x"]}, {"a": [2.5, None, "x"], "b": 1}])
            | df.WriteToKafka(
                TOPIC,
                bootstrap_servers=kafka.clients,
                key=lambda row: (row["b"], "k"),
                headers=lambda row: {"kind": "row"},
            )
        )
    found = kafka.visible(TOPIC)
    assert {(each.key(), each.value()) for each in found} == {
        (b'[1,"k"]', b'{"a":[2.5,null,"x"],"b":1}')
    }
    assert len({each.partition() for each in found}) == 1
    assert [each.headers() for each in found] == [[("kind", b"row")]] * 2
    (offset,) = kafka.groups.values()
    assert offset == (1, "token 1")

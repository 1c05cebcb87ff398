"""Partitions are read exactly once, in order, and as transactions say: on a model of a cluster."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.io import outages
from dataflow.io.kafka import reader as reader_module
from dataflow.io.kafka import source as source_module
from dataflow.io.kafka.reader import AcknowledgingReader, PartitionReader
from dataflow.io.kafka.records import KafkaRecord
from dataflow.io.kafka.source import KafkaSource
from dataflow.serialization import dumps, loads
from dataflow.source import Source, SourceBatch, SplitStatus, open_split
from dataflow.testing.model_kafka import ModelKafka, ModelTransaction
from dataflow.testing.model_sink import Outcome
from dataflow.testing.source_contract import SourceContract
from tests.effort import by_profile
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

TOPIC = "orders"
NOW_MS = 1_357_000_000_000


class Order(NamedTuple):
    """A typed row."""

    n: int
    at: int


def cluster(partitions: int = 1) -> ModelKafka:
    kafka = ModelKafka(now_ms=NOW_MS)
    kafka.make_topic(TOPIC, partitions=partitions)
    return kafka


def source_of(kafka: ModelKafka, **more: Any) -> KafkaSource:
    return df.ReadFromKafka(TOPIC, bootstrap_servers=kafka.clients, **more)._source


def split_of(source: Source, number: int = 0) -> Any:
    return source.splits(1)[number]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a topic is asked each time, and so is the end."""
    monkeypatch.setattr(reader_module, "TOPIC_AGE_MAX_S", 0.0)
    monkeypatch.setattr(reader_module, "CONFIRM_EVERY_S", 0.0)
    monkeypatch.setattr(outages, "PAUSE_MAX_S", 0.0)


def filled() -> ModelKafka:
    """Three partitions: one of plain records, one of transactions of all kinds, and one with nothing."""
    kafka = cluster(partitions=3)
    for n in range(12):
        value = b'{"n": %d, "at": %d}' % (n, n - n % 3)
        kafka.append(TOPIC, value, timestamp_ms=1_000 * (n - n % 3))
    for n in range(12, 24, 2):
        run = kafka.begin()
        for each in (n, n + 1):
            value = b'{"n": %d,\n "at": %d}' % (each, each)
            kafka.append(TOPIC, value, partition=1, timestamp_ms=1_000 * each, transaction=run)
        kafka.end(run, is_committed=n % 4 == 0)
    return kafka


NUMBERS = [*range(12), 12, 13, 16, 17, 20, 21]


class _Contract(SourceContract):
    examples = by_profile(4, nightly=500)
    splits_max = 2
    late_us = 0
    more: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def _cluster(self) -> None:
        self.kafka = filled()

    def make_source(self) -> Source:
        return source_of(self.kafka, max_disorder=2, **self.more)


class TestTheEnd(_Contract):
    """Up to now."""

    more = {"until": "now", "rows": Order}

    def expected(self) -> Iterable[Any]:
        return [Order(n, n - n % 3 if n < 12 else n) for n in NUMBERS]


class TestWithoutEnd(_Contract):
    """For ever, with offsets of a group behind it."""

    more = {"value": "json", "group_id": "shown"}

    def expected(self) -> Iterable[Any]:
        kafka = self.kafka
        return [
            KafkaRecord(
                each.key(),
                json.loads(each.value() or b""),
                (),
                TOPIC,
                each.partition() or 0,
                each.offset() or 0,
                each.timestamp()[1] * 1_000,
            )
            for each in kafka.visible(TOPIC)
        ]


class TestUncommitted(_Contract):
    """What is aborted, too; and what is expired is passed over."""

    more = {"read_committed": False, "rows": Order, "event_time": "at", "start": {1: 3, 2: 0}}

    def expected(self) -> Iterable[Any]:
        later = [n for n in range(12, 24) if n not in {12, 13}]
        return [Order(n, n - n % 3 if n < 12 else n) for n in [*range(12), *later]]


class Following:
    """A reader that may be replaced, as a job reads."""

    def __init__(self, source: Source, kind: Callable[[Any], Any] = lambda reader: reader) -> None:
        self._source, self._split, self._kind = source, split_of(source), kind
        self.position: Any = None
        self.offsets: list[int] = []
        self.open()

    def open(self) -> None:
        position = loads(dumps(self.position))
        self.reader = self._kind(open_split(self._source, self._split, position))

    def read(self, max_records: int = 1_000) -> SourceBatch:
        batch: SourceBatch = self.reader.read(max_records)
        self.position = batch.position
        self.offsets += [each.offset for each in batch.values]
        return batch


def run_world(data: st.DataObject, kind: Callable[[Any], Any] = lambda reader: reader) -> None:
    """Producers, a cluster that is away at times, and a reader that dies: each committed record is read once."""
    kafka = cluster()
    open_runs = list[ModelTransaction]()
    following = Following(source_of(kafka, group_id="shown"), kind)

    def step() -> None:
        run = data.draw(st.none() | st.sampled_from(open_runs)) if open_runs else None
        kafka.append(TOPIC, b"x", transaction=run)

    def read() -> None:
        before = {each.offset() for each in kafka.visible(TOPIC)}
        batch = following.read(data.draw(st.integers(1, 3)))
        assert set(following.offsets) <= before
        if batch.status is SplitStatus.IDLE:
            assert before == set(following.offsets)
            assert kafka.is_up
        shown = kafka.groups.get(("shown", (TOPIC, 0)), (0, ""))[0]
        assert shown <= committed[-1]

    def commit() -> None:
        if following.position is not None:
            committed.append(following.position[0])
            with suppress(KafkaException):
                following.reader.committed(following.position)

    def reopen() -> None:
        following.reader.close()
        following.open()

    committed = [0]
    acts: Sequence[Callable[[], object]] = (
        step,
        step,
        read,
        read,
        lambda: open_runs.append(kafka.begin()),
        lambda: (
            kafka.end(open_runs.pop(), is_committed=data.draw(st.booleans())) if open_runs else None
        ),
        reopen,
        lambda: setattr(kafka, "is_up", data.draw(st.booleans())),
        commit,
    )
    for _ in range(data.draw(st.integers(1, 25))):
        data.draw(st.sampled_from(acts))()
    kafka.is_up = True
    for run in open_runs:
        kafka.end(run, is_committed=True)
    for _ in range(60):
        if following.read().status is SplitStatus.IDLE:
            break
    else:
        pytest.fail("the partition never comes to its end")
    assert following.offsets == [each.offset() for each in kafka.visible(TOPIC)]


@given(st.data())
@settings(deadline=None)
def test_committed_records_are_read_once_and_in_order(data: st.DataObject) -> None:
    run_world(data)


class _Wrapped:
    """A reader that is wrong on purpose."""

    def __init__(self, inner: AcknowledgingReader) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _CommitsWhatItReads(_Wrapped):
    def read(self, max_records: int) -> SourceBatch:
        batch = self.inner.read(max_records)
        self.inner.committed(batch.position)
        return batch


class _IsIdleWhenNothingComes(_Wrapped):
    def read(self, max_records: int) -> SourceBatch:
        batch = self.inner.read(max_records)
        if not batch.values:
            object.__setattr__(batch, "status", SplitStatus.IDLE)
        return batch


class _ReadsUncommitted(_Wrapped):
    def __init__(self, inner: AcknowledgingReader) -> None:
        super().__init__(inner)
        object.__setattr__(inner._reading, "is_committed", False)


class _ForgetsMarkers(_Wrapped):
    """Counts records, and not offsets."""

    def read(self, max_records: int) -> SourceBatch:
        before = self.inner._offset
        batch = self.inner.read(max_records)
        object.__setattr__(batch, "position", (before + len(batch.values), batch.position[1]))
        return batch


class _BeginsAtTheGroup(_Wrapped):
    """Opened anew, it goes on where the group is, as consumers do."""

    def __init__(self, inner: AcknowledgingReader) -> None:
        super().__init__(inner)
        inner._offset = inner._reading.clients.kafka.groups.get(  # type: ignore[attr-defined]
            ("shown", (TOPIC, 0)), (0, "")
        )[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        _CommitsWhatItReads,
        _IsIdleWhenNothingComes,
        _ReadsUncommitted,
        _ForgetsMarkers,
        _BeginsAtTheGroup,
    ],
)
def test_a_reader_that_is_wrong_is_noticed(kind: type[_Wrapped]) -> None:
    @settings(
        max_examples=1_000,
        phases=[Phase.generate],
        derandomize=True,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def law(data: st.DataObject) -> None:
        run_world(data, kind)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law()


def test_records_that_expired_end_the_reading() -> None:
    kafka = cluster()
    for _ in range(10):
        kafka.append(TOPIC, b"x")
    following = Following(source_of(kafka))
    following.read(2)
    kafka.expire(TOPIC, 0, 7)
    following.open()
    with pytest.raises(df.InputError) as raised:
        following.read()
    assert "5 records have expired" in raised.value.fact
    assert "offset 2 is next, and the first one that is there is 7" in raised.value.detail


def test_records_that_expired_are_a_dead_letter_where_that_is_wanted() -> None:
    """Once, with the position: it does not come again, and says how many they were."""
    kafka = cluster()
    for _ in range(10):
        kafka.append(TOPIC, b"x")
    source = source_of(kafka, skip_lost=True)
    assert source.keeps_set_aside
    following = Following(source)
    following.read(2)
    kafka.expire(TOPIC, 0, 7)
    following.open()
    (lost,) = following.read().set_aside
    assert lost.is_always_kept
    assert (lost.element["lost_from_offset"], lost.element["lost_to_offset"]) == (2, 7)
    following.open()
    assert [each.offset for each in following.read().values] == [7, 8, 9]


def test_a_log_that_became_shorter_ends_the_reading() -> None:
    kafka = cluster()
    for _ in range(10):
        kafka.append(TOPIC, b"x")
    following = Following(source_of(kafka))
    following.read()
    del kafka.topics[TOPIC].logs[0].entries[4:]
    following.open()
    with pytest.raises(df.InputError, match="ends before what was read") as raised:
        following.read()
    assert "offset 10 is next, and the partition ends at 4" in raised.value.detail


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    """Though it has the same name, and as many records."""
    kafka = cluster()
    kafka.append(TOPIC, b"x")
    source = source_of(kafka)
    known = source.splits(1)
    following = Following(source)
    following.read()
    kafka.make_topic(TOPIC)
    kafka.append(TOPIC, b"y")
    kafka.append(TOPIC, b"y")
    for open_again in (False, True):
        if open_again:
            following.open()
        with pytest.raises(df.InputError, match="was deleted and made anew"):
            following.read()
    with pytest.raises(df.InputError, match="was deleted and made anew"):
        source.discover(known)
    with pytest.raises(df.InputError, match="was deleted and made anew"):
        open_split(source, split_of(source), following.position)
    del kafka.topics[TOPIC]
    with pytest.raises(df.InputError, match="is gone"):
        following.read()


def test_partitions_that_are_added_are_found() -> None:
    """It answers the same when it is asked again, and they are read from their first record."""
    kafka = cluster(partitions=2)
    source = source_of(kafka, start="latest")
    assert source.discover_every_ms == 30_000
    known = source.splits(1)
    assert not source.discover(known).added
    kafka.add_partitions(TOPIC, 2)
    kafka.append(TOPIC, b"early", partition=3)
    first = source.discover(known)
    kafka.append(TOPIC, b"later", partition=3)
    assert source.discover(known) == first
    assert len(first.added) == 2
    assert not source.discover([*known, *first.added]).added
    batch = open_split(source, first.added[1], None).read(10)
    assert [each.value for each in batch.values] == [b"early", b"later"]


def test_an_idle_partition_follows_the_clock_if_that_is_wanted() -> None:
    """And only while its broker says that there is nothing more."""
    kafka, now_us = cluster(), [NOW_MS * 1_000]
    kafka.append(TOPIC, b"x", timestamp_ms=NOW_MS - 60_000)
    source = source_of(kafka, max_disorder=10, idle_follows_clock=True)
    object.__setattr__(source.reading, "now_us", lambda: now_us[0])
    following = Following(source)
    assert following.read().watermark_us == (NOW_MS - 70_000) * 1_000
    now_us[0] += 5_000_000
    batch = following.read()
    assert (batch.status, batch.watermark_us) == (SplitStatus.IDLE, (NOW_MS - 5_000) * 1_000)
    now_us[0] += 5_000_000
    kafka.is_up = False
    away = following.read()
    assert (away.status, away.watermark_us) == (SplitStatus.ACTIVE, (NOW_MS - 5_000) * 1_000)


def test_a_transaction_that_hangs_is_the_end() -> None:
    """Records behind it are not read before it has ended, and none of it if it is aborted."""
    kafka = cluster()
    run = kafka.begin()
    kafka.append(TOPIC, b"open", transaction=run)
    kafka.append(TOPIC, b"behind")
    following = Following(source_of(kafka))
    assert [following.read().status for _ in range(2)][-1] is SplitStatus.IDLE
    kafka.end(run, is_committed=False)
    assert [each.value for each in following.read().values] == [b"behind"]


def test_a_malformed_record_is_set_aside_with_its_place() -> None:
    kafka = cluster()
    for value in (b'{"n": 1, "at": 0}', b"{", None, b'{"n": 2, "at": 0}', b'{"n": "x", "at": 0}'):
        kafka.append(TOPIC, value, key=b"k")
    found = list[Order]()
    with df.Pipeline(tries_per_record=1) as p:
        rows = p | df.ReadFromKafka(
            TOPIC, bootstrap_servers=kafka.clients, rows=Order, until="now", group_id="shown"
        )
        _ = rows | df.Map(found.append)
    assert [row.n for row in found] == [1, 2]
    assert p.result is not None
    assert len(p.result.dead_letters()) == 3
    # What is through the pipeline is committed, as far as memory knows that.
    assert kafka.groups["shown", (TOPIC, 0)] == (5, "")


def batch_of(kafka: ModelKafka, **more: Any) -> SourceBatch:
    source = source_of(kafka, **more)
    return open_split(source, split_of(source), None).read(100)


def test_dead_letters_have_the_place_of_the_record() -> None:
    kafka = cluster()
    kafka.append(TOPIC, b"1")
    kafka.append(TOPIC, b"nope", key=b"k")
    batch = batch_of(kafka, value="json")
    assert [each.value for each in batch.values] == [1]
    (aside,) = batch.set_aside
    assert aside.error.fact == "topic orders has a record that is not JSON, at offset 1"
    assert "topic orders, partition 0, offset 1" in aside.error.detail
    assert aside.element.value == b"nope"
    raising = batch_of(kafka, event_time=lambda record: 1 / (record.offset - 1))
    (aside,) = raising.set_aside
    assert "ZeroDivisionError" in aside.error.detail
    assert [each.offset for each in raising.values] == [0]


def test_backlog_is_what_is_behind_the_batch() -> None:
    kafka = cluster()
    for _ in range(10):
        kafka.append(TOPIC, b"x", timestamp_ms=NOW_MS)
    source = source_of(kafka)
    object.__setattr__(source.reading, "now_us", lambda: (NOW_MS + 7) * 1_000)
    reader = open_split(source, split_of(source), None)
    assert reader.read(4).backlog == df.Backlog(records=6, age_us=7_000)
    assert reader.read(100).backlog == df.Backlog(records=0, age_us=0)


@pytest.mark.parametrize(
    ("start", "until", "offsets"),
    [
        ("earliest", "now", range(10)),
        ("latest", "now", ()),
        (datetime.fromtimestamp(3, UTC), datetime.fromtimestamp(7, UTC), range(3, 7)),
        ("1970-01-01T00:00:02.5Z", {0: 5}, range(3, 5)),
        ({(TOPIC, 0): 8}, {0: 100}, range(8, 10)),
        ({0: 10}, {0: 10}, ()),
    ],
)
def test_where_it_begins_and_ends(start: Any, until: Any, offsets: Iterable[int]) -> None:
    """It is decided when the input is divided: what comes later is not read."""
    kafka = cluster()
    for n in range(10):
        kafka.append(TOPIC, b"x", timestamp_ms=1_000 * n)
    if until == {0: 100}:
        until = {0: 10}
    source = source_of(kafka, start=start, until=until)
    split = split_of(source)
    kafka.append(TOPIC, b"later", timestamp_ms=0)
    batch = open_split(source, split, None).read(100)
    assert [each.offset for each in batch.values] == list(offsets)
    assert batch.status is SplitStatus.FINISHED
    assert batch.watermark_us == MAX_TIMESTAMP_US


def test_a_record_without_a_timestamp_is_at_the_beginning_of_time() -> None:
    kafka = cluster()
    kafka.append(TOPIC, b"x", timestamp_ms=-1)
    batch = batch_of(kafka, max_disorder=0)
    assert list(batch.timestamps_us) == [MIN_TIMESTAMP_US]
    assert batch.values[0].timestamp_us is None


def test_an_offset_of_a_group_that_is_not_answered_is_committed_again() -> None:
    """By raising what became of the commit before: whoever notifies the reader tries again."""
    kafka = cluster()
    kafka.append(TOPIC, b"x")
    following = Following(source_of(kafka, group_id="shown"))
    following.read()
    kafka.fate = lambda what: Outcome.LOST if what == "offsets" else Outcome.DONE
    following.reader.committed(following.position)
    kafka.fate = lambda what: Outcome.DONE
    with pytest.raises(Exception, match="_TIMED_OUT"):
        following.reader.committed(following.position)
    following.reader.committed(following.position)
    assert kafka.groups["shown", (TOPIC, 0)] == (1, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start": "tomorrow"}, "start='tomorrow'"),
        ({"until": {0: -1}}, "until="),
        ({"value": "xml"}, "value='xml'"),
        ({"event_time": "at"}, "rows=..."),
        ({"rows": Order, "value": "json"}, "key= or value="),
        ({"rows": Order, "event_time": "gone"}, "cannot take event times"),
        ({"idle_follows_clock": True}, "without max_disorder"),
        ({"max_disorder": -1}, "negative max_disorder"),
        ({"topics": []}, r"cannot read \[\]"),
        ({"bootstrap_servers": ""}, "cannot be reached"),
        (
            {"bootstrap_servers": "x:1", "config": {"enable.auto.commit": True}},
            "enable.auto.commit",
        ),
    ],
)
def test_what_does_not_suit_is_refused(arguments: dict[str, Any], words: str) -> None:
    kafka = cluster()
    given_ = {"topics": TOPIC, "bootstrap_servers": kafka.clients, **arguments}
    with pytest.raises(df.PipelineError, match=words):
        df.ReadFromKafka(**given_)


def test_a_stream_is_refused_in_batch_and_a_missing_topic_when_it_is_built() -> None:
    kafka = cluster()
    with pytest.raises(df.PipelineError, match="cannot be read in batch"):
        source_of(kafka).repeatable()
    with pytest.raises(df.InputError, match="no topic 'gone'"):
        df.Pipeline() | df.ReadFromKafka("gone", bootstrap_servers=kafka.clients)
    kafka.is_up = False
    with pytest.raises(df.InputError, match="does not answer"):
        df.Pipeline() | df.ReadFromKafka(TOPIC, bootstrap_servers=kafka.clients)


def test_a_record_is_plain_data_that_outlives_the_package() -> None:
    record = KafkaRecord(b"k", {"a": 1}, (("h", b"v"),), TOPIC, 3, 7, 1_000)
    assert loads(dumps(record)) == record
    assert b"dataflow.io" not in dumps(record)
    assert issubclass(PartitionReader, df.SourceReader)
    assert source_module.DISCOVER_EVERY_MS == 30_000

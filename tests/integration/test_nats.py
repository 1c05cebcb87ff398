"""Streams of NATS on a real server: the contracts of source and sink, what has expired, and what ends the reading."""

import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Thread
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.errors import InputError, PipelineError, SinkError, SinkFencedError, SinkRefusedError
from dataflow.graph import Read
from dataflow.io.nats_streams import sink as sinks
from dataflow.io.nats_streams.client import NatsApiError, NatsClient, NatsServer, lost_errors
from dataflow.io.nats_streams.sink import NatsSink, NatsWriter, matches
from dataflow.io.nats_streams.source import NatsReader, NatsSource
from dataflow.io.nats_streams.transform import ReadFromNats
from dataflow.io.trusted_watermark import opened
from dataflow.sink import SinkChange
from dataflow.source import Source, SplitStatus
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest, changes, lane_of
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError
from runners.direct import DirectRunner
from tests.effort import by_profile
from tests.stream_servers import NatsTestServer, running
from tests.waiting import until
from windowing.timestamps import US_PER_SECOND

pytestmark = pytest.mark.slow

_NAMES = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[NatsTestServer]:
    with running(NatsTestServer) as started:
        yield started


@pytest.fixture
def client(server: NatsTestServer) -> Iterator[NatsClient]:
    opened = NatsServer(url=server.url).connect()
    yield opened
    opened.close()


@pytest.fixture
def stream(client: NatsClient) -> str:
    return made(client)


def made(client: NatsClient, name: str | None = None, **config: Any) -> str:
    """A new stream, with subjects of its own, as docs/connectors/nats.md has it."""
    name = name or f"S{next(_NAMES)}"
    subjects = [f"{name}.>", f"dataflow.progress.{name}.>"]
    settings = {"allow_direct": True, "allow_atomic": True, "storage": "file"}
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **settings, **config})
    return name


def publish(client: NatsClient, stream: str, bodies: Sequence[Any], word: str = "a") -> None:
    # Each by itself, acknowledged: `publish_all` is of the sink.
    for body in bodies:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        client._wait_for(client._ask(f"{stream}.{word}", raw))


def source_of(transform: ReadFromNats) -> NatsSource:
    return transform._source


def reader_of(
    server: NatsTestServer, stream: str, position: int | None = None, **options: Any
) -> NatsReader:
    source = source_of(ReadFromNats(stream, url=server.url, **options))
    return source.open(source.splits(1)[0], position, fence=1)


def read_all(client: NatsClient, stream: str) -> list[tuple[str, bytes, dict[str, str]]]:
    found = client.messages(stream, start=1, subject=f"{stream}.>", count=5_000)
    return [
        ((headers := dict(each.headers or {}))["Nats-Subject"], each.data, headers)
        for each in found
    ]


def test_wrong_times_of_messages_do_no_harm(
    server: NatsTestServer, client: NatsClient, stream: str
) -> None:
    """In the future, before 1970 and jumping back: the watermark follows those that can be, as declared."""
    now_s, day_s = int(time.time()), 86_400
    wrong_s = [now_s + 400 * day_s, now_s * 1_000, -day_s]
    times_s = [now_s - 100, wrong_s[0], now_s - 200, wrong_s[1], now_s - 90, wrong_s[2], now_s - 50]
    publish(client, stream, [{"at": each} for each in times_s])
    source = source_of(
        ReadFromNats(
            stream, url=server.url, event_time=lambda row: row["at"], max_disorder=timedelta(0)
        )
    )
    reader = opened(Read(source, None, day_s * US_PER_SECOND), source.splits(1)[0], None)
    found, aside, watermarks_us = list[int](), 0, list[int]()

    def read() -> int:
        nonlocal aside
        batch = reader.read(2)
        found.extend(row["at"] for row in batch.values)
        aside += len(batch.set_aside)
        watermarks_us.append(batch.watermark_us)
        assert batch.watermark_us == max(found, default=now_s) * US_PER_SECOND or not found
        return len(found) + aside

    until(lambda: read() == len(times_s))
    assert found == [each for each in times_s if each not in wrong_s[:2]]
    assert aside == 2
    publish(client, stream, [{"at": now_s}])
    until(lambda: read() == len(times_s) + 1)
    assert watermarks_us == sorted(watermarks_us)
    assert watermarks_us[-1] == now_s * US_PER_SECOND
    reader.close()


class NatsSourceUnderTest(SourceContract):
    """Two subjects, and a message that is malformed; some sequences are deleted on the way."""

    until: str | None = None
    examples = by_profile(10, nightly=100)
    splits_max = 2

    @pytest.fixture(autouse=True)
    def _stream(self, server: NatsTestServer, client: NatsClient) -> None:
        self.url, self.stream = server.url, made(client)
        for number in range(9):
            body = b"{" if number == 4 else number
            publish(client, self.stream, [body], word="ab"[number % 2])
        client.api(f"STREAM.MSG.DELETE.{self.stream}", {"seq": 3})

    def make_source(self) -> Source:
        subjects = [f"{self.stream}.{word}" for word in "ab"]
        return source_of(
            ReadFromNats(self.stream, url=self.url, subjects=subjects, until=self.until)
        )

    def expected(self) -> Sequence[int]:
        return [0, 1, 3, 5, 6, 7, 8]


class TestNatsSource(NatsSourceUnderTest):
    """Without an end."""


class TestNatsSourceUntilNow(NatsSourceUnderTest):
    """With one."""

    until = "now"


def test_the_contract_rejects_a_reader_that_goes_on_one_too_far(
    monkeypatch: pytest.MonkeyPatch, server: NatsTestServer, client: NatsClient, stream: str
) -> None:
    messages = NatsClient.messages

    def skipping(opened: NatsClient, name: str, *, start: int, subject: str, count: int) -> Any:
        return messages(opened, name, start=start + (start > 1), subject=subject, count=count)

    monkeypatch.setattr(NatsClient, "messages", skipping)
    publish(client, stream, range(4))

    class Broken(SourceContract):
        def make_source(self) -> Source:
            return source_of(ReadFromNats(stream, url=server.url))

        def expected(self) -> Sequence[int]:
            return range(4)

    with pytest.raises(BrokenRuleError):
        Broken().test_it_goes_on_behind_any_record()


def test_the_watermark_follows_the_servers_clock_where_nothing_is_left(
    server: NatsTestServer, client: NatsClient, stream: str
) -> None:
    publish(client, stream, [1, 2])
    publish(client, stream, [3], word="b")
    reader = reader_of(server, stream, subjects=f"{stream}.a", max_disorder=5)
    assert reader.read(1).backlog == df.Backlog(records=1)
    batch = reader.read(10)
    assert batch.position == 2
    idle = reader.read(10)
    assert idle.backlog == df.Backlog(records=0)
    assert (idle.status, idle.position) == (SplitStatus.IDLE, 3)  # there is nothing of ours up to 3
    assert idle.watermark_us > batch.watermark_us
    publish(client, stream, [4])
    later = reader.read(1)
    assert later.timestamps_us[0] - 5 * US_PER_SECOND >= idle.watermark_us
    reader.close()


def test_messages_have_subjects_headers_and_event_times(
    server: NatsTestServer, client: NatsClient, stream: str
) -> None:
    publish(client, stream, [10, "x", 30])
    reader = reader_of(
        server,
        stream,
        format="message",
        event_time=lambda message: json.loads(message.data),
        max_disorder=1,
    )
    batch = reader.read(10)
    assert [(each.subject, each.sequence, each.data) for each in batch.values] == [
        (f"{stream}.a", 1, b"10"),
        (f"{stream}.a", 3, b"30"),
    ]
    assert batch.watermark_us == 29 * US_PER_SECOND
    (aside,) = batch.set_aside
    assert "sequence 2" in str(aside.error)
    reader.close()


def test_what_has_expired_before_it_was_read_is_an_error(
    server: NatsTestServer, client: NatsClient, caplog: pytest.LogCaptureFixture
) -> None:
    stream = made(client, max_msgs=6)
    publish(client, stream, range(6))
    reader = reader_of(server, stream)
    position = reader.read(3).position
    publish(client, stream, range(6, 12))  # 1 to 6 are gone, of which 4 to 6 were not read
    first = source_of(ReadFromNats(stream, url=server.url)).splits(1)[0]
    assert first[2] == 6
    with pytest.raises(InputError, match="4 to 6 are gone") as raised:
        reader.read(100)
    assert "the first one that is there 7" in str(raised.value)
    with caplog.at_level(logging.WARNING):
        skipping = reader_of(server, stream, position, missing="skip")
        assert list(skipping.read(100).values) == list(range(6, 12))
    assert "sequences 4 to 6" in caplog.text
    client.api(f"STREAM.PURGE.{stream}")
    publish(client, stream, [12, 13, 14])
    client.api(f"STREAM.PURGE.{stream}")
    with pytest.raises(InputError, match="13 to 15 are gone"):
        reader_of(server, stream, 12).read(1)
    for each in (reader, skipping):
        each.close()


def test_expiry_that_nobody_looks_for_is_silent(
    monkeypatch: pytest.MonkeyPatch, server: NatsTestServer, client: NatsClient
) -> None:
    """The stream's first sequence finds the loss, and nothing else would."""
    monkeypatch.setattr(NatsReader, "_check_gap", lambda *_: None)
    stream = made(client, max_msgs=3)
    publish(client, stream, range(3))
    reader = reader_of(server, stream)
    reader.read(1)
    publish(client, stream, range(3, 6))
    assert list(reader.read(100).values) == [3, 4, 5]
    reader.close()


def test_a_stream_that_was_made_anew_or_lost_its_end_is_an_error(
    server: NatsTestServer, client: NatsClient, stream: str
) -> None:
    publish(client, stream, range(3))
    source = source_of(ReadFromNats(stream, url=server.url))
    (split,) = source.splits(1)
    with pytest.raises(InputError, match="has lost messages"):
        source.open(split, 4, fence=1).read(1)
    client.api(f"STREAM.DELETE.{stream}")
    with pytest.raises(InputError, match="is not there any more"):
        source.open(split, 2, fence=1).read(1)
    made(client, stream)
    publish(client, stream, range(9))
    with pytest.raises(InputError, match="another one of the same name"):
        source.open(split, 2, fence=1).read(1)


def test_what_is_durable_is_removed_from_a_work_queue(
    server: NatsTestServer, client: NatsClient
) -> None:
    stream = made(client, retention="workqueue")
    publish(client, stream, range(5))
    reader = reader_of(server, stream, removes_committed=True)
    first = reader.read(2)
    assert client.info(stream).first == 1
    reader.committed(first.position)
    assert client.info(stream).first == 3
    assert list(reader.read(10).values) == [2, 3, 4]
    reader.committed(first.position)
    assert client.info(stream).first == 3
    # What others consume of other subjects is not missing here.
    publish(client, stream, [5, 6], word="b")
    publish(client, stream, [7])
    ours = reader_of(server, stream, 5, subjects=f"{stream}.a", removes_committed=True)
    ours.committed(5)
    client.api(f"STREAM.PURGE.{stream}", {"filter": f"{stream}.b"})
    assert client.info(stream).first == 8
    assert list(ours.read(10).values) == [7]
    for each in (reader, ours):
        each.close()


def test_a_server_that_was_killed_is_asked_again() -> None:
    with running(NatsTestServer) as own:
        opened = NatsServer(url=own.url).connect()
        stream = made(opened)
        publish(opened, stream, range(4))
        opened.close()
        reader = reader_of(own, stream)
        found = [*reader.read(2).values]
        own.kill()
        assert reader.read(2).status is SplitStatus.ACTIVE
        own.start()
        while len(found) < 4:
            found += reader.read(2).values
        assert found == [0, 1, 2, 3]
        reader.close()


def test_a_server_that_cannot_answer_for_the_moment_is_asked_again(
    server: NatsTestServer, client: NatsClient, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, stream, [1])
    reader = reader_of(server, stream)

    def unavailable(*_: Any) -> Any:
        raise NatsApiError(10008, "JetStream system temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(NatsClient, "info", unavailable)
        batch = reader.read(10)
        assert (batch.records, batch.status) == (0, SplitStatus.ACTIVE)
    until(lambda: list(reader.read(10).values) == [1])
    reader.close()


class NatsSinkUnderTest(SinkContract):
    """Messages with signs."""

    rounds = 3
    part = sinks._MESSAGES_MAX

    @pytest.fixture(autouse=True)
    def _server(
        self, server: NatsTestServer, client: NatsClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.url, self.client = server.url, client
        monkeypatch.setattr(sinks, "_MESSAGES_MAX", self.part)

    def make(self) -> SinkUnderTest:
        stream = made(self.client)

        def read() -> Sequence[Any]:
            left = list[Any]()
            for subject, body, headers in read_all(self.client, stream):
                if headers["Dataflow-Sign"] == "+1":
                    left.append((subject, body))
                else:
                    left.remove((subject, body))
            return left

        return SinkUnderTest(
            sink=NatsSink(stream=stream, server=NatsServer(url=self.url), lanes=2),
            values=[(f"{stream}.{n % 2}", b"%d" % n) for n in range(10)],
            read=read,
            refused=("elsewhere", b"0"),
        )


class TestNatsSink(NatsSinkUnderTest):
    """A batch is one atomic act."""


class TestNatsSinkInParts(NatsSinkUnderTest):
    """A batch is several, of one message each."""

    part = 1


class _NoCompareAndSet(NatsWriter):
    def _publish(self, messages: Any, progress: Any) -> None:
        assert self._client is not None
        stored = self._client.stored(self._sink.stream, last_by_subj=self._subject)
        self._sequence = 0 if stored is None else stored.sequence
        super()._publish(messages, progress)


class _ForgetsTheNumber(NatsWriter):
    def _publish(self, messages: Any, progress: Any) -> None:
        super()._publish(messages, progress if not messages else self._progress)


class _DoesNotFence(NatsWriter):
    def fence(self, token: int) -> int:
        client = self._client = self._sink.server.connect()
        self._patterns = self._sink.patterns(client)
        stored = client.stored(self._sink.stream, last_by_subj=self._subject)
        if stored is None:
            return super().fence(token)
        self._sequence = stored.sequence
        self._progress = sinks._Progress(
            **{name: value for name, value in json.loads(stored.body).items() if name != "title"}
        )
        return self._progress.number


@pytest.mark.parametrize("writer", [_NoCompareAndSet, _ForgetsTheNumber, _DoesNotFence])
def test_the_contract_rejects_writers_that_are_wrong(
    writer: type[NatsWriter], server: NatsTestServer, client: NatsClient
) -> None:
    class Broken(NatsSinkUnderTest):
        rounds = 1

        def make(self) -> SinkUnderTest:
            under_test = super().make()
            sink: Any = under_test.sink
            return attrs.evolve(under_test, open_writer=lambda lane: writer(sink, lane))

    broken = Broken()
    broken.url, broken.client = server.url, client
    with pytest.raises((AssertionError, SinkError)):
        broken.check_all()


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_batch_that_was_cut_off_between_its_parts_goes_on_there(
    is_answered: bool,
    server: NatsTestServer,
    client: NatsClient,
    stream: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "_MESSAGES_MAX", 3)
    under_test = SinkUnderTest(
        sink=NatsSink(stream=stream, server=NatsServer(url=server.url)),
        values=[(f"{stream}.x", b"%d" % n) for n in range(10)],
        read=list,
    )
    batch = changes(under_test, 0, 10)
    former = under_test.opened(lane_of(0))
    assert former.fence(1) == 0
    publish_all, acts = NatsClient.publish_all, itertools.count()

    def dying(opened: NatsClient, messages: Any, batch_id: str) -> int:
        is_last = next(acts) == 2
        if is_last and not is_answered:
            raise TimeoutError
        sequence = publish_all(opened, messages, batch_id)
        if is_last:
            raise TimeoutError
        return sequence

    with monkeypatch.context() as patch:
        patch.setattr(NatsClient, "publish_all", dying)
        with pytest.raises(TimeoutError):
            former.write(1, batch)
    writer = under_test.opened(lane_of(0))
    assert writer.fence(2) == 0
    assert len(read_all(client, stream)) == (9 if is_answered else 6)
    with pytest.raises(SinkFencedError):
        former.write(1, batch)
    writer.write(1, batch)
    writer.write(2, changes(under_test, 0, 1))
    assert [body for _, body, _ in read_all(client, stream)] == [b"%d" % n for n in range(10)] + [
        b"0"
    ]
    under_test.close()


def test_batches_are_whole_though_the_server_is_killed_at_any_moment() -> None:
    """Of a batch that it stored when it died, it stores the rest when it starts."""
    with running(NatsTestServer) as own:
        target = NatsServer(url=own.url)
        opened = target.connect()
        stream = made(opened)
        opened.close()
        body = b"x" * 1_000
        batch = [SinkChange((f"{stream}.x", body), +1)] * sinks._MESSAGES_MAX
        number = 0
        for token in range(1, 6):
            writer = NatsSink(stream=stream, server=target).open(lane_of(0))
            number = writer.fence(token)
            opened = target.connect()
            request = {"subjects_filter": f"{stream}.x"}
            subjects = opened.api(f"STREAM.INFO.{stream}", request)["state"].get("subjects", {})
            assert subjects.get(f"{stream}.x", 0) == number * len(batch)
            opened.close()
            killing = Thread(target=_kill_soon, args=(own, target, stream))
            killing.start()
            with suppress(*lost_errors(), SinkError):
                for each in itertools.count(number + 1):
                    writer.write(each, batch)
            killing.join()
            writer.close()
            own.start()
        assert number


def _kill_soon(own: NatsTestServer, target: NatsServer, stream: str) -> None:
    """Kill the server when it has got some more."""
    opened = target.connect()
    before = opened.info(stream).last
    until(lambda: opened.info(stream).last > before + 1_500)
    own.kill()
    opened.close()


def test_what_the_stream_does_not_take_is_refused(
    server: NatsTestServer, client: NatsClient
) -> None:
    stream = made(client, max_msg_size=1_000)
    under_test = SinkUnderTest(
        sink=NatsSink(stream=stream, server=NatsServer(url=server.url)), values=[], read=list
    )
    writer = under_test.opened(lane_of(0))
    writer.fence(1)
    for value in [
        (f"{stream}.a", b"x" * 2_000),
        (f"{stream}.a", b"x" * 2_000_000),
        (f"{stream}.a.", b"x"),
        (f"{stream}.a b", b"x"),
        (f"dataflow.progress.{stream}.x", b"x"),
    ]:
        with pytest.raises(SinkRefusedError):
            writer.write(1, [SinkChange((f"{stream}.a", b"good"), +1), SinkChange(value, +1)])
    assert read_all(client, stream) == []
    under_test.close()


def test_a_reader_follows_a_sink_from_an_empty_stream(server: NatsTestServer, stream: str) -> None:
    """What sinks keep for themselves in the stream is neither an element nor missing."""
    reader = reader_of(server, stream)
    assert reader.read(10).status is SplitStatus.IDLE
    under_test = SinkUnderTest(
        sink=NatsSink(stream=stream, server=NatsServer(url=server.url)),
        values=[(f"{stream}.x", b"%d" % n) for n in range(6)],
        read=list,
    )
    found = list[int]()
    for token in (1, 2, 3):
        writer = under_test.opened(lane_of(0))
        number = writer.fence(token)
        for each in (1, 2):
            writer.write(number + each, changes(under_test, number + each - 1, number + each))
            found += reader.read(10).values
        writer.close()
    assert found == [0, 1, 2, 3, 4, 5]
    reader.close()


@pytest.mark.slow
def test_the_number_of_a_lane_with_nothing_to_write_does_not_expire(
    server: NatsTestServer, client: NatsClient
) -> None:
    stream = made(client, max_age=1_000_000_000)
    under_test = SinkUnderTest(
        sink=NatsSink(stream=stream, server=NatsServer(url=server.url)),
        values=[(f"{stream}.x", b"%d" % n) for n in range(3)],
        read=list,
    )
    writer = under_test.opened(lane_of(0))
    writer.fence(1)
    writer.write(1, changes(under_test, 0, 1))
    until(lambda: not read_all(client, stream))  # the message has expired
    first = client.info(stream).first
    until(lambda: client.info(stream).first > first + 4)  # and several numbers
    writer.write(2, changes(under_test, 1, 2))
    assert under_test.opened(lane_of(0)).fence(2) == 2
    under_test.close()


def test_subjects_match_patterns_as_the_server_has_it() -> None:
    assert matches("a.>", "a.b.c")
    assert not matches("a.>", "a")
    assert matches("a.*.c", "a.b.c")
    assert not matches("a.*", "a.b.c")
    assert matches(">", "a")
    assert matches("a.b.>", "a.b.>")
    assert not matches("a.b", "a.b.c")


def test_a_pipeline_reads_one_stream_and_writes_another(
    server: NatsTestServer, client: NatsClient, stream: str
) -> None:
    other = made(client)
    publish(client, stream, [{"user": f"u{number % 3}", "n": number} for number in range(20)])
    with df.Pipeline(DirectRunner()) as p:
        (
            p
            | df.ReadFromNats(stream, url=server.url, until="now")
            | df.Map(lambda row: (row["user"], row["n"]))
            | df.CombinePerKey(sum)
            | df.WriteToNats(other, url=server.url, subject=lambda pair: f"{other}.{pair[0]}")
        )
    found = [(subject, body) for subject, body, _ in read_all(client, other)]
    assert Counter(found) == Counter(
        [
            (f"{other}.u0", b'["u0",63]'),
            (f"{other}.u1", b'["u1",70]'),
            (f"{other}.u2", b'["u2",57]'),
        ]
    )
    # What the sink keeps in the stream for itself is no element.
    with df.Pipeline(DirectRunner()) as p:
        (
            p
            | df.ReadFromNats(other, url=server.url, until="now")
            | df.WriteToNats(stream, url=server.url, subject=f"{stream}.again")
        )
    again = [body for subject, body, _ in read_all(client, stream) if subject.endswith("again")]
    assert sorted(again) == sorted(body for _, body in found)


def test_what_cannot_be_is_refused_when_the_pipeline_is_built(
    server: NatsTestServer, client: NatsClient
) -> None:
    with pytest.raises(InputError, match="stream not found"):
        df.Pipeline(DirectRunner()) | df.ReadFromNats("none", url=server.url)
    with pytest.raises(InputError, match="cannot be reached"):
        df.Pipeline(DirectRunner()) | df.ReadFromNats("none", url="nats://127.0.0.1:1")
    indirect = made(client, allow_direct=False)
    with pytest.raises(InputError, match="allow-direct"):
        df.Pipeline(DirectRunner()) | df.ReadFromNats(indirect, url=server.url)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"allow_atomic": False}, "allow_atomic"),
        ({"subjects": [f"other{next(_NAMES)}.>"]}, "dataflow.progress"),
        ({"retention": "workqueue"}, "by limits"),
    ]
    for config, text in refused:
        wrong = made(client, **config)
        write = df.WriteToNats(wrong, url=server.url, subject="x")
        with pytest.raises(InputError, match=text):
            df.Pipeline(DirectRunner()) | df.Create([1]) | write
    wrong_options: list[dict[str, Any]] = [
        {"until": "later"},
        {"missing": "ignore"},
        {"format": "xml"},
        {"subjects": []},
    ]
    for options in wrong_options:
        with pytest.raises(PipelineError):
            df.ReadFromNats("x", url=server.url, **options)

"""Streams of Redis on a real server: the contracts of source and sink, what was trimmed, and what ends the reading."""

import itertools
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

import dataflow as df
from dataflow.errors import InputError, PipelineError, SinkError, SinkFencedError, SinkRefusedError
from dataflow.io.redis_streams import sink as sinks
from dataflow.io.redis_streams import source as sources
from dataflow.io.redis_streams.client import RedisServer
from dataflow.io.redis_streams.sink import RedisSink
from dataflow.io.redis_streams.source import RedisReader, RedisSource
from dataflow.io.redis_streams.transform import ReadFromRedis
from dataflow.source import Source, SplitStatus
from dataflow.testing.sink_contract import SinkContract, SinkUnderTest, changes, lane_of
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError
from runners.direct import DirectRunner
from tests.effort import by_profile
from tests.stream_servers import RedisTestServer, running
from windowing.timestamps import US_PER_SECOND

pytestmark = pytest.mark.slow

_NAMES = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisTestServer]:
    with running(RedisTestServer) as started:
        yield started


@pytest.fixture
def client(server: RedisTestServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as opened:
        yield opened


@pytest.fixture
def key() -> str:
    """A key that nothing has used."""
    return f"stream{next(_NAMES)}"


def source_of(transform: ReadFromRedis) -> RedisSource:
    return transform._source


def reader_of(
    server: RedisTestServer, key: str, position: Any = None, **options: Any
) -> RedisReader:
    source = source_of(ReadFromRedis(key, url=server.url, **options))
    (split,) = source.splits(1)
    return source.open(split, position, fence=1)


def add(client: Any, key: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        client.xadd(key, {"n": f"{number}"})


class RedisSourceUnderTest(SourceContract):
    """Two streams; one entry is malformed."""

    until: str | None = None
    examples = by_profile(10, nightly=100)
    splits_max = 2

    @pytest.fixture(autouse=True)
    def _streams(self, server: RedisTestServer, client: Any) -> None:
        self.url, self.keys = server.url, [f"stream{next(_NAMES)}" for _ in range(2)]
        for number in range(9):
            client.xadd(self.keys[number % 2], {"value": f"{number}" if number != 4 else "{"})

    def make_source(self) -> Source:
        read = ReadFromRedis(self.keys, url=self.url, field="value", until=self.until)
        return source_of(read)

    def expected(self) -> Sequence[int]:
        return [0, 1, 2, 3, 5, 6, 7, 8]


class TestRedisSource(RedisSourceUnderTest):
    """Without an end."""


class TestRedisSourceUntilNow(RedisSourceUnderTest):
    """With one."""

    until = "now"


def test_the_contract_rejects_a_reader_that_goes_on_at_its_last_entry(
    monkeypatch: pytest.MonkeyPatch, server: RedisTestServer, client: Any, key: str
) -> None:
    asked = sources.asked

    def repeating(opened: Any, stream: str, behind: str, count: int) -> Any:
        milliseconds, number = sources.id_key(behind)
        return asked(opened, stream, f"{milliseconds}-{max(0, number - 1)}", count)

    monkeypatch.setattr(sources, "asked", repeating)
    for number in range(4):
        client.xadd(key, {"n": f"{number}"}, id=f"5-{number + 1}")

    class Broken(SourceContract):
        def make_source(self) -> Source:
            return source_of(ReadFromRedis(key, url=server.url))

    with pytest.raises((BrokenRuleError, InputError)):
        Broken().test_it_goes_on_behind_any_record()


def test_the_watermark_follows_the_servers_clock_where_nothing_is_left(
    server: RedisTestServer, client: Any, key: str
) -> None:
    add(client, key, [1, 2])
    reader = reader_of(server, key, max_disorder=5)
    batch = reader.read(10)
    assert batch.status is SplitStatus.ACTIVE
    assert batch.backlog == df.Backlog(records=0)
    idle = reader.read(10)
    assert idle.status is SplitStatus.IDLE
    seconds, micros = client.time()
    assert batch.watermark_us <= idle.watermark_us
    assert idle.watermark_us <= seconds * US_PER_SECOND + micros - 5 * US_PER_SECOND
    add(client, key, [3])
    later = reader.read(1)
    assert later.timestamps_us[0] - 5 * US_PER_SECOND >= idle.watermark_us
    reader.close()


def test_event_times_are_of_the_user_and_a_bad_one_is_set_aside(
    server: RedisTestServer, client: Any, key: str
) -> None:
    for number in ("1", "x", "3"):
        client.xadd(key, {"n": number})
    reader = reader_of(server, key, event_time=lambda row: float(row["n"]), max_disorder=1)
    batch = reader.read(10)
    assert list(batch.values) == [{"n": "1"}, {"n": "3"}]
    assert batch.watermark_us == 2 * US_PER_SECOND
    (aside,) = batch.set_aside
    (bad_id, _) = client.xrange(key)[1]
    assert f"entry {bad_id.decode()}" in str(aside.error)
    assert reader.read(10).watermark_us == 2 * US_PER_SECOND
    reader.close()


@pytest.mark.parametrize("how", ["trimmed", "deleted", "deleted behind"])
def test_what_was_removed_before_it_was_read_is_an_error(
    how: str,
    server: RedisTestServer,
    client: Any,
    key: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add(client, key, range(10))
    ids = [entry_id for entry_id, _ in client.xrange(key)]
    reader = reader_of(server, key)
    position = reader.read(3).position
    if how == "trimmed":
        client.xtrim(key, maxlen=5, approximate=False)
    elif how == "deleted":
        client.xdel(key, *ids[3:5])
    else:
        client.xdel(key, *ids[8:])
    for each in (reader, reader_of(server, key, position)):
        with pytest.raises(InputError, match=r"2 entries behind .* are gone"):
            each.read(100)
        each.close()
    with caplog.at_level(logging.WARNING):
        skipping = reader_of(server, key, position, missing="skip")
        batch = skipping.read(100)
    left = {"trimmed": range(5, 10), "deleted": range(5, 10), "deleted behind": range(3, 8)}[how]
    assert [int(each["n"]) for each in batch.values] == list(left)
    assert "2 entries" in caplog.text
    assert batch.position[1] == 10
    add(client, key, [10])
    assert list(skipping.read(100).values) == [{"n": "10"}]
    skipping.close()


def test_what_was_read_may_be_removed(server: RedisTestServer, client: Any, key: str) -> None:
    add(client, key, range(6))
    client.xdel(key, client.xrange(key)[3][0])  # before the reading begins
    reader = reader_of(server, key)
    assert len(reader.read(3).values) == 3
    client.xtrim(key, maxlen=2, approximate=False)
    assert [each["n"] for each in reader.read(10).values] == ["4", "5"]
    client.xtrim(key, maxlen=0, approximate=False)
    assert reader.read(10).status is SplitStatus.IDLE
    reader.close()


@pytest.mark.parametrize("ids", [("1-1", "1-2"), ("9-1", "9-2", "9-3", "9-4", "9-5")])
def test_a_stream_that_was_made_anew_is_an_error(
    ids: Sequence[str], server: RedisTestServer, client: Any, key: str
) -> None:
    for each in ("5-1", "5-2", "5-3"):
        client.xadd(key, {"n": each}, id=each)
    reader = reader_of(server, key)
    reader.read(10)
    client.delete(key)
    for each in ids:
        client.xadd(key, {"n": each}, id=each)
    with pytest.raises(InputError, match="is not the one that was read"):
        reader.read(10)
    reader.close()


def test_trimming_that_nobody_looks_for_is_silent(
    monkeypatch: pytest.MonkeyPatch, server: RedisTestServer, client: Any, key: str
) -> None:
    """The count of what was added finds the loss, and nothing else would."""
    monkeypatch.setattr(RedisReader, "_found_missing", lambda *_: None)
    add(client, key, range(10))
    reader = reader_of(server, key)
    reader.read(3)
    client.xtrim(key, maxlen=5, approximate=False)
    assert [int(each["n"]) for each in reader.read(100).values] == [5, 6, 7, 8, 9]
    reader.close()


def test_a_server_that_was_killed_is_asked_again(client: Any, key: str) -> None:
    with running(RedisTestServer) as own, redis.Redis.from_url(own.url) as opened:
        add(opened, key, range(4))
        reader = reader_of(own, key)
        found = [*reader.read(2).values]
        own.kill()
        assert reader.read(2).status is SplitStatus.ACTIVE
        own.start()
        while len(found) < 4:
            found += reader.read(2).values
        assert [int(each["n"]) for each in found] == [0, 1, 2, 3]
        reader.close()


class RedisSinkUnderTest(SinkContract):
    """Entries with signs."""

    ids = "number"
    fsync = False
    rounds = 3

    @pytest.fixture(autouse=True)
    def _server(self, server: RedisTestServer) -> None:
        self.url = server.url

    def make(self) -> SinkUnderTest:
        key = f"stream{next(_NAMES)}"
        sink = RedisSink(
            stream=key,
            server=RedisServer(url=self.url),
            lanes=2,
            changelog="sign",
            ids=self.ids,
            fsync=self.fsync,
        )

        def read() -> Sequence[Any]:
            left = list[Any]()
            with redis.Redis.from_url(self.url) as opened:
                for lane in range(2):
                    for _, fields in opened.xrange(f"{key}:{lane}"):
                        value = ("", [b"n", fields[b"n"]])
                        if fields[b"sign"] == b"+1":
                            left.append(value)
                        else:
                            left.remove(value)
            return left

        return SinkUnderTest(
            sink=sink, values=[("", [b"n", b"%d" % n]) for n in range(10)], read=read
        )


class TestRedisSink(RedisSinkUnderTest):
    """Ids are the numbers of batches."""


class TestRedisSinkWithIdsOfTheClock(RedisSinkUnderTest):
    """Ids are of the server, and batches wait for its disk."""

    ids = "clock"
    fsync = True


@pytest.mark.parametrize("what", ["no token", "number is not kept", "token fences again"])
def test_the_contract_rejects_scripts_that_are_wrong(
    what: str, monkeypatch: pytest.MonkeyPatch, server: RedisTestServer
) -> None:
    name, right, wrong = {
        "no token": ("_WRITE", "held[1] ~= ARGV[1]", "false"),
        "number is not kept": ("_WRITE", "redis.call('HSET', KEYS[1], 'number', ARGV[2])", ""),
        "token fences again": ("_FENCE", ">=", ">"),
    }[what]
    script: str = getattr(sinks, name)
    assert right in script
    monkeypatch.setattr(sinks, name, script.replace(right, wrong))

    class Broken(RedisSinkUnderTest):
        rounds = 1
        url = server.url

    with pytest.raises((AssertionError, SinkError, redis.ResponseError)):
        Broken().check_all()


def test_a_number_that_is_read_before_the_fence_loses_or_doubles(
    server: RedisTestServer, key: str
) -> None:
    """The order of the two is what counts: here the former writer commits between them."""
    sink = RedisSink(stream=key, server=RedisServer(url=server.url), ids="clock")
    under_test = SinkUnderTest(
        sink=sink, values=[("", [b"n", b"%d" % n]) for n in range(10)], read=list
    )
    former, wrong = under_test.opened(lane_of(0)), under_test.opened(lane_of(0))
    assert former.fence(1) == 0
    with redis.Redis.from_url(server.url) as opened:
        found: Any = opened.hget(sinks.progress_key(key, lane_of(0).writer), "number")
        early = int(found or 0)
        former.write(1, changes(under_test, 0, 1))
        assert wrong.fence(2) == 1 != early  # whoever goes by the early one would send it again
    under_test.close()


def test_ids_refuse_what_is_there_even_without_the_number(
    server: RedisTestServer, client: Any, key: str
) -> None:
    under_test = SinkUnderTest(
        sink=RedisSink(stream=key, server=RedisServer(url=server.url)),
        values=[("", [b"n", b"%d" % n]) for n in range(10)],
        read=list,
    )
    first = under_test.opened(lane_of(0))
    first.fence(1)
    first.write(1, changes(under_test, 0, 3))
    client.delete(sinks.progress_key(key, lane_of(0).writer))
    second = under_test.opened(lane_of(0))
    second.fence(2)
    with pytest.raises(SinkFencedError):
        first.write(2, changes(under_test, 3, 4))
    with pytest.raises(SinkRefusedError, match="equal or smaller"):
        second.write(1, changes(under_test, 0, 3))
    assert client.xlen(key) == 3
    under_test.close()


def test_a_pipeline_reads_one_stream_and_writes_another(
    server: RedisTestServer, client: Any, key: str
) -> None:
    for number in range(20):
        client.xadd(key, {"user": f"u{number % 3}", "n": f"{number}"})
    with df.Pipeline(DirectRunner()) as p:
        (
            p
            | df.ReadFromRedis(key, url=server.url, until="now")
            | df.Map(lambda row: (row["user"], int(row["n"])))
            | df.CombinePerKey(sum)
            | df.WriteToRedis(f"{key}.sums", url=server.url, field="sum")
        )
    found = [fields[b"sum"] for _, fields in client.xrange(f"{key}.sums")]
    assert Counter(found) == Counter([b'["u0",63]', b'["u1",70]', b'["u2",57]'])


def test_what_cannot_be_is_refused_when_the_pipeline_is_built(
    server: RedisTestServer, client: Any, key: str
) -> None:
    client.set(key, "no stream")
    with pytest.raises(InputError, match="has no stream"):
        df.Pipeline(DirectRunner()) | df.ReadFromRedis(key, url=server.url)
    with pytest.raises(InputError, match="cannot be reached"):
        df.Pipeline(DirectRunner()) | df.ReadFromRedis(key, url="redis://127.0.0.1:1")
    client.config_set("maxmemory", "1gb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(InputError, match="may drop it"):
            df.Pipeline(DirectRunner()) | df.Create([1]) | df.WriteToRedis("x", url=server.url)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "0")
    wrong_options: list[dict[str, Any]] = [
        {"until": "later"},
        {"missing": "ignore"},
        {"format": "xml"},
        {"max_disorder": -1},
    ]
    for wrong in wrong_options:
        with pytest.raises(PipelineError):
            df.ReadFromRedis(key, url=server.url, **wrong)

"""Requests of HTTP over real sockets: a receiver that answers when it has kept them, and a sink that sends again."""

import itertools
import json
import shutil
import socket
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
import urllib3

import dataflow as df
from dataflow.errors import InputError, PipelineError, SinkRefusedError
from dataflow.io.arrival import system_now_us
from dataflow.io.http import sink as sinks
from dataflow.io.http import source as sources
from dataflow.io.http.sink import AtLeastOnceHttp, HttpWriter
from dataflow.io.http.source import HttpReader, HttpSource
from dataflow.io.http.spool import Spool, SpoolFullError
from dataflow.sink import Lane, SinkChange
from dataflow.source import Source, SplitStatus
from dataflow.testing.source_contract import SourceContract
from dataflow.testing.source_laws import BrokenRuleError, ReadStep
from tests.effort import by_profile
from tests.http_server import Target, http_target
from tests.processes import in_a_group, kill
from tests.waiting import until

pytestmark = pytest.mark.slow

YEAR_US = 366 * 86_400_000_000


def spool_of(folder: Path, **options: Any) -> Spool:
    return Spool(folder, system_now_us, **{"keep_keys_us": YEAR_US, **options})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def source_of(folder: Path, **options: Any) -> HttpSource:
    source = df.ReceiveHttp(folder, **options)._source
    assert isinstance(source, HttpSource)
    return source


def reader_of(source: HttpSource, position: int | None = None) -> HttpReader:
    (split,) = source.splits(1)
    return source.open(split, position, fence=1)


class TestSpoolContract(SourceContract):
    """What a spool has; one request is malformed, as a version before may have taken it."""

    examples = by_profile(10, nightly=100)
    splits_max = 1

    @pytest.fixture(autouse=True)
    def _spool(self, tmp_path: Path) -> None:
        self.fill(tmp_path)

    def fill(self, folder: Path) -> None:
        self.folder = folder
        spool = spool_of(folder / "full")
        for number in range(9):
            spool.add(f"{number}".encode() if number != 4 else b"{")
        spool.close()

    def copied(self) -> Path:
        """A spool that no notification has emptied."""
        shutil.rmtree(self.folder / "spool", ignore_errors=True)
        return Path(shutil.copytree(self.folder / "full", self.folder / "spool"))

    def make_source(self) -> Source:
        return source_of(self.copied(), until="now")

    def expected(self) -> list[int]:
        return [number for number in range(9) if number != 4]


class TestReceiverContract(TestSpoolContract):
    """A spool that is read while it receives, so that the input has no end."""

    examples = by_profile(3, nightly=50)

    def make_source(self) -> Source:
        return source_of(self.copied(), port=free_port())

    def test_it_goes_on_behind_any_record(self) -> None:
        self._check(1, [ReadStep(2, reopens=True)] * 6)


class _ForgetsMoreThanIsDurable(HttpReader):
    def committed(self, position: int) -> None:
        super().committed(position + 1)


class _PositionBehind(HttpReader):
    def poll(self, max_records: int) -> Any:
        poll = super().poll(max_records)
        object.__setattr__(poll, "position", poll.position + len(poll.messages))
        return poll


@pytest.mark.parametrize("broken", [_ForgetsMoreThanIsDurable, _PositionBehind])
def test_a_reader_that_is_broken_is_noticed(
    broken: type[HttpReader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "HttpReader", broken)
    contract = TestSpoolContract()
    contract.fill(tmp_path)

    def check() -> None:
        contract.test_it_goes_on_behind_any_record()
        contract.test_it_is_notified_of_any_position()

    with pytest.raises((BrokenRuleError, InputError)):
        check()


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as made:
        yield made


def test_what_was_answered_is_there_once_and_the_rest_is_refused(
    tmp_path: Path, pool: urllib3.PoolManager
) -> None:
    port = free_port()
    source = source_of(tmp_path, port=port, path="/in", token="secret", max_request_bytes=1_000)
    reader = reader_of(source)
    # Until a port is free the reader reads what another process has received.
    with socket.create_server(("127.0.0.1", port)):
        assert reader.read(10).status is SplitStatus.IDLE
    until(lambda: reader.read(10) and reader._receiver)

    def post(body: Any, path: str = "/in", method: str = "POST", **headers: str) -> int:
        headers = {"Authorization": "Bearer secret", **headers}
        url = f"http://127.0.0.1:{port}{path}"
        in_chunks = not isinstance(body, bytes)
        return pool.request(method, url, body=body, headers=headers, chunked=in_chunks).status

    key = {"Idempotency-Key": "a"}
    assert [post(b"1", **key), post(b"1", **key), post(b"2", **key)] == [200, 200, 422]
    assert post(iter([b"[", b"3]"])) == 200
    assert post(b"{") == 400
    assert post(b"1", Authorization="Bearer secre") == 401
    assert post(b"1", path="/") == 404
    assert post(b"", method="PUT") == 405
    assert post(b" " * 1_001) == post(iter([b" " * 600] * 2)) == 413
    with socket.create_connection(("127.0.0.1", port)) as half:
        half.sendall(
            b"POST /in HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer secret\r\n"
            b"Content-Length: 5\r\n\r\n12"
        )
        half.shutdown(socket.SHUT_WR)
        assert b" 400 " in half.recv(1_000)
    batch = reader.read(10)
    assert (batch.values, batch.position) == ([1, [3]], 2)
    assert batch.timestamps_us == sorted(batch.timestamps_us)
    quiet = reader.read(10)
    assert quiet.status is SplitStatus.IDLE
    assert quiet.watermark_us >= batch.timestamps_us[-1]
    assert post(b"4") == 200
    (late,) = reader.read(10).timestamps_us
    assert late >= quiet.watermark_us
    reader.close()
    with pytest.raises(urllib3.exceptions.HTTPError):
        post(b"5")


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, Path]:
    """An authority of its own, and a certificate of this machine by it."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    found = {each: tmp_path / f"{each}.pem" for each in ("ca", "certificate", "private_key")}
    authority.cert_pem.write_to_path(str(found["ca"]))
    for pem in issued.cert_chain_pems:
        pem.write_to_path(str(found["certificate"]), append=True)
    issued.private_key_pem.write_to_path(str(found["private_key"]))
    return found


def test_requests_come_and_go_with_tls(tmp_path: Path, certificate: dict[str, Path]) -> None:
    """From our sink to our receiver, who know each other by the certificate; nobody else gets through."""
    port, authority = free_port(), certificate.pop("ca")
    reader = reader_of(source_of(tmp_path / "spool", port=port, path="/in", **certificate))
    until(lambda: reader.read(1) and reader._receiver)
    with df.Pipeline() as p:
        url = f"https://localhost:{port}/in"
        elements(p) | df.WriteToHttp(url, delivery="at-least-once", ca_file=str(authority))
    batch = reader.read(100)
    assert batch.values == [{"n": number} for number in range(20)]
    with urllib3.PoolManager(retries=False) as stranger:
        with pytest.raises(urllib3.exceptions.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.request("POST", url, body=b"1")
        with pytest.raises(urllib3.exceptions.ProtocolError):
            stranger.request("POST", f"http://localhost:{port}/in", body=b"1")
    # Clients that connect and say nothing keep nobody else waiting: the server would give each of them ten seconds.
    with (
        ExitStack() as silent,
        urllib3.PoolManager(ca_certs=str(authority), retries=False, timeout=60) as friend,
    ):
        for _ in range(8):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert friend.request("POST", url, body=b"7").status == 200
    assert reader.read(100).values == [7]
    reader.close()


def test_a_certificate_that_is_none_is_an_error_when_the_pipeline_is_built(
    tmp_path: Path, certificate: dict[str, Path]
) -> None:
    """Not a port that is asked for again and again."""
    other = trustme.CA().issue_cert("localhost").private_key_pem
    other.write_to_path(str(tmp_path / "other.pem"))
    for wrong in (tmp_path / "none.pem", certificate["ca"], tmp_path / "other.pem"):
        files: Any = {"certificate": certificate["certificate"], "private_key": wrong}
        with pytest.raises(InputError, match=r"(?s)cannot be received with TLS.*PEM files"):
            df.Pipeline() | df.ReceiveHttp(tmp_path / "spool", port=free_port(), **files)


def test_many_clients_are_answered_and_all_are_there(
    tmp_path: Path, pool: urllib3.PoolManager
) -> None:
    port = free_port()
    reader = reader_of(source_of(tmp_path, port=port))
    until(lambda: reader.read(1) and reader._receiver)
    answered: list[int] = []

    def client(number: int) -> None:
        with urllib3.PoolManager(retries=False) as mine:
            for each in range(number, number + 20):
                url = f"http://127.0.0.1:{port}/"
                answer = mine.request("POST", url, body=f"{each}".encode())
                if answer.status == 200:
                    answered.append(each)

    threads = [threading.Thread(target=client, args=(number * 20,)) for number in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found: list[int] = []
    while batch := reader.read(70).values:
        found += batch
    assert sorted(found) == sorted(answered) == list(range(400))
    reader.close()


def lost_by_a_kill(folder: Path, *lazy: str) -> set[int]:
    """Kill a receiver in the middle of its answers: the requests that it has answered with 200, and does not have."""
    port = free_port()
    command = [sys.executable, "-m", "tests.http_receiver", str(folder), f"{port}", *lazy]
    answered: list[int] = []

    def client(first: int) -> None:
        with urllib3.PoolManager(retries=False) as mine, suppress(urllib3.exceptions.HTTPError):
            for number in itertools.count(first, 4):
                url = f"http://127.0.0.1:{port}/"
                if mine.request("POST", url, body=f"{number}".encode()).status == 200:
                    answered.append(number)

    with in_a_group(command, folder.with_suffix(".log")) as family:
        until(lambda: is_listening(port))
        threads = [threading.Thread(target=client, args=(first,)) for first in range(4)]
        for each in threads:
            each.start()
        until(lambda: len(answered) > 40)
        kill([family])
        for each in threads:
            each.join()
    reader = reader_of(source_of(folder, until="now"))
    kept: list[int] = []
    while values := reader.read(1_000).values:
        kept += values
    reader.close()
    assert len(kept) == len(set(kept))
    return set(answered) - set(kept)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    assert lost_by_a_kill(tmp_path / "spool") == set()
    assert lost_by_a_kill(tmp_path / "lazy", "lazy"), "the test sees nothing"


def test_a_spool_that_is_full_sends_back(tmp_path: Path, pool: urllib3.PoolManager) -> None:
    port = free_port()
    reader = reader_of(source_of(tmp_path, port=port, format="bytes", max_spool_bytes=200_000))
    until(lambda: reader.read(1) and reader._receiver)
    url, taken = f"http://127.0.0.1:{port}/", 0
    while (answer := pool.request("POST", url, body=bytes(20_000))).status == 200:
        taken += 1
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert 2 < taken <= 10
    batch = reader.read(100)
    assert len(batch.values) == taken
    reader.committed(batch.position)
    assert pool.request("POST", url, body=b"1").status == 200
    reader.close()


def test_positions_are_of_one_spool_and_nothing_behind_them_is_gone(tmp_path: Path) -> None:
    source = source_of(tmp_path / "spool", until="now")
    spool = spool_of(tmp_path / "spool")
    for number in range(3):
        spool.add(f"{number}".encode(), f"key {number}")
    (split,) = source.splits(1)
    spool.forget(2)
    with pytest.raises(InputError, match="has not what comes behind request 1"):
        source.open(split, 1, fence=1).read(10)
    with pytest.raises(InputError, match="has not what comes behind request 4"):
        source_of(tmp_path / "spool", port=free_port()).open(split, 4, fence=1).read(10)
    assert source.open(split, 2, fence=1).read(10).values == [2]
    # A key is known longer than its request.
    assert spool.add(b"0", "key 0") == (1, False, True)
    spool.close()
    with pytest.raises(InputError, match="is not the one that the job has read"):
        source_of(tmp_path / "other", until="now").open(split, 2, fence=1)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be kept"):
        df.Pipeline() | df.ReceiveHttp(tmp_path / "file")


def test_a_transaction_that_fails_answers_nobody_and_keeps_nothing(tmp_path: Path) -> None:
    spool = spool_of(tmp_path)
    spool._database.execute(
        "CREATE TRIGGER no BEFORE INSERT ON keys BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    with pytest.raises(SpoolFullError, match="full"):
        spool.add(b"1", "key")
    assert (spool.last(), spool.read(0, 10)) == (0, [])
    assert spool.add(b"1").number == 1
    # The clock is set back: what was received is not earlier than what was before.
    spool._now_us = lambda: 0
    spool.add(b"2")
    first, second = spool.read(0, 10)
    assert second.received_us == first.received_us
    spool.close()
    spool.close()
    with pytest.raises(sqlite3.Error):
        spool.last()


def elements(p: df.Pipeline, number: int = 20) -> df.PCollection[dict[str, int]]:
    return p | df.Create(range(number)) | df.Map(lambda each: {"n": each})


def send(target: Target, **options: Any) -> Callable[[df.PCollection[Any]], None]:
    write = df.WriteToHttp(target.url, delivery="at-least-once", **options)
    return lambda pcoll: pcoll | write


@pytest.mark.parametrize("batch", [1, 7])
def test_a_receiver_that_keeps_keys_has_each_element_once(batch: int) -> None:
    """Though it fails in each way that there is, in turn."""
    fates = iter([None, 500, 429, 503, 200, None, 409, 408, 200])
    with http_target(lambda _: next(fates, 200)) as target, df.Pipeline() as p:
        send(target, batch=batch, headers={"Authorization": "Bearer secret"})(elements(p))
    found = [each["n"] for value in target.values for each in (value if batch > 1 else [value])]
    assert found == list(range(20))
    assert max(target.requests.values()) > 1
    assert target.headers["Authorization"] == "Bearer secret"
    assert target.headers["Content-Type"] == "application/json"


def test_retractions_are_sent_with_their_sign() -> None:
    with http_target() as target, df.Pipeline() as p:
        sums = (
            p
            | df.Create([1, 2, 3])
            | df.WindowInto(
                df.GlobalWindows(),
                trigger=df.Repeatedly(df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | df.CombineGlobally(sum)
            | df.Map(lambda total: {"total": total})
        )
        send(target, changelog="sign", lanes=2, key=lambda _: "all")(sums)
    net = Counter[int]()
    for each in target.values:
        net[each["total"]] += each["sign"]
        assert net[each["total"]] >= 0
    assert +net == {6: 1}


def test_a_refusal_ends_the_run_or_is_a_dead_letter(tmp_path: Path) -> None:
    def fate(body: bytes) -> int:
        return 422 if json.loads(body)["n"] % 10 == 3 else 200

    with http_target(fate) as target:
        with pytest.raises(SinkRefusedError, match="does not take"), df.Pipeline() as p:
            send(target)(elements(p))
        assert [each["n"] for each in target.values] == [0, 1, 2]
        with df.Pipeline() as p:
            send(target, dead_letters=tmp_path / "letters")(elements(p))
        letters = [json.loads(each.read_text()) for each in (tmp_path / "letters").glob("*.json")]
        assert sorted(json.loads(each["body"])["n"] for each in letters) == [3, 13]
        assert {(each["status"], each["answer"]) for each in letters} == {(422, "no")}
        assert Counter(each["n"] for each in target.values)[19] == 1
    # Whoever may not send, or sends elsewhere, is no dead letter.
    for status in (307, 403, 404):
        with (
            http_target(lambda _, status=status: status) as target,  # type: ignore[misc]
            pytest.raises(SinkRefusedError, match=f"{status}"),
            df.Pipeline() as p,
        ):
            send(target, dead_letters=tmp_path / "none")(elements(p))
    assert not (tmp_path / "none").exists()


def written(sink: AtLeastOnceHttp, number: int, changes: Sequence[SinkChange]) -> None:
    """Write a batch, as a relay does that knows of the one before."""
    writer: HttpWriter = sink.open(
        Lane(writer="lane", number=0, title="lane", delivered=number - 1)
    )
    assert writer.fence(1) == number - 1
    try:
        writer.write(number, changes)
    finally:
        writer.close()


def test_a_batch_has_the_same_keys_whoever_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_TRIES", 1)
    changes = [SinkChange(("", f"{number}".encode()), +1) for number in range(5)]
    with http_target(lambda body: None if body == b"[4]" else 200) as target:
        sink = AtLeastOnceHttp(url=target.url, batch=2)
        with pytest.raises(urllib3.exceptions.HTTPError):
            written(sink, 7, changes)
        target.fate = lambda _: 200
        # Another process sends all of it again; the same one what was not answered.
        written(AtLeastOnceHttp(url=target.url, batch=2), 7, changes)
        written(sink, 7, changes)
        assert target.values == [[0, 1], [2, 3], [4]]
        assert list(target.requests.values()) == [2, 2, 3]
        # In other parts they are other requests: some come twice, and none is left out.
        written(AtLeastOnceHttp(url=target.url, batch=3), 7, changes)
        assert target.values[3:] == [[0, 1, 2], [3, 4]]
        written(sink, 8, changes)
        assert target.values[5:] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "exactly-once"}, "nowhere to keep a number"),
        ({"url": "ftp://host/"}, "cannot send to"),
        ({"url": "host/path"}, "cannot send to"),
        ({"format": "text", "batch": 2}, "batch=2"),
        ({"format": "text", "changelog": "sign"}, "changelog"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_arguments_that_do_not_suit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        df.WriteToHttp(**{"url": "http://here/", "delivery": "at-least-once", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"certificate": "a"}, "private key"),
        ({"token": ""}, "empty token"),
        ({"path": "in"}, "path 'in'"),
        ({"max_request_bytes": 0}, "max_request_bytes"),
    ],
)
def test_arguments_of_a_receiver_that_do_not_suit_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=message):
        df.ReceiveHttp(tmp_path, **options)

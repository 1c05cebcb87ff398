"""RequestResponse and Enrichment against a server of HTTP that fails, stalls and counts."""

import asyncio
import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError

import pytest

import dataflow as df
from dataflow.testing import assert_that, contains_in_any_order
from dataflow.transforms.request_response import Cache, RequestOptions, Spread, Throttle
from runners.direct import DirectRunner

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"backoff": 0.01, "backoff_max": 0.05, "throttle": False}


class Server(ThreadingHTTPServer):
    """Squares numbers; what it does before is in the path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[str] = Counter()
        self.now = self.most = 0
        self.lock, self.over = threading.Lock(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        _, how, numbers = self.path.split("/")
        server = self.server
        with server.lock:
            server.asked[self.path] += 1
            server.now += 1
            server.most = max(server.most, server.now)
            times = server.asked[self.path]
        try:
            if how == "stall" or (how == "stalls-once" and times == 1):
                server.over.wait(5)
            if how == "slow":
                server.over.wait(0.05)
            fails = how == "fail" or (how == "fails-twice" and times <= 2)
            body = json.dumps([int(each) ** 2 for each in numbers.split(",")]).encode()
            self.send_response(503 if fails else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # whoever asked has gone
        finally:
            with server.lock:
                server.now -= 1

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.over.set()
        found.shutdown()
        thread.join()


class Squares:
    """A caller that blocks, as most clients do."""

    def __init__(self, server: Server, how: str = "ok", *, is_batched: bool = False) -> None:
        self.url, self.how, self.is_batched = server.url, how, is_batched

    def __call__(self, request: Any) -> Any:
        numbers = ",".join(map(str, request if self.is_batched else [request]))
        try:
            with urllib.request.urlopen(f"{self.url}/{self.how}/{numbers}", timeout=10) as answer:
                found = json.load(answer)
        except HTTPError as error:
            error.close()
            raise
        return found if self.is_batched else found[0]


def run(caller: Any, values: Any, expected: Any, **options: Any) -> None:
    with df.Pipeline(DirectRunner(bundle_records=100)) as p:
        found = p | df.Create(values) | df.RequestResponse(caller, **{**QUICK, **options})
        assert_that(found, contains_in_any_order(expected))


def test_each_request_has_its_response(server: Server) -> None:
    run(Squares(server, "slow"), range(20), [n * n for n in range(20)], max_concurrency=4)

    assert sum(server.asked.values()) == 20
    # The server may take a moment to see that a request has ended.
    assert 1 < server.most <= 2 * 4


def test_requests_go_in_batches(server: Server) -> None:
    run(Squares(server, is_batched=True), range(20), [n * n for n in range(20)], batch_size=8)

    assert sorted(len(path.split(",")) for path in server.asked) == [4, 8, 8]


def test_what_fails_is_tried_again(server: Server) -> None:
    run(Squares(server, "fails-twice"), range(5), [n * n for n in range(5)], tries=3)

    assert set(server.asked.values()) == {3}


def test_what_stalls_is_tried_again(server: Server) -> None:
    run(Squares(server, "stalls-once"), [3], [9], timeout=0.3, tries=2)

    assert set(server.asked.values()) == {2}


def test_a_batch_that_fails_is_tried_again_as_a_whole(server: Server) -> None:
    run(Squares(server, "fails-twice", is_batched=True), range(4), [0, 1, 4, 9], batch_size=4)

    assert dict(server.asked) == {"/fails-twice/0,1,2,3": 3}


@pytest.mark.parametrize(
    ("how", "options", "text"),
    [
        (
            "fail",
            {"tries": 3},
            "a request has failed 3 times; the last time: HTTPError HTTP Error 503",
        ),
        (
            "fail",
            {"should_retry": lambda e: not isinstance(e, HTTPError)},
            "a request has failed HTTPError",
        ),
        (
            "stall",
            {"tries": 1, "timeout": 0.2},
            "a request has failed no response within 0.2 seconds",
        ),
    ],
)
def test_an_error_names_transform_line_and_element(
    server: Server, how: str, options: dict[str, Any], text: str
) -> None:
    p = df.Pipeline()
    p | df.Create([7]) | "Ask" >> df.RequestResponse(Squares(server, how), **{**QUICK, **options})

    with pytest.raises(
        df.TransformError, match=r"'Ask.*' \(.*test_request_response\.py:\d+\)"
    ) as caught:
        p.run()

    assert text in caught.value.fact
    assert "element: 7" in caught.value.detail


def test_what_fails_for_good_is_a_dead_letter(server: Server) -> None:
    p = df.Pipeline(DirectRunner(tries_per_record=1))
    p | df.Create([1, 2]) | df.RequestResponse(Squares(server, "fail"), **{**QUICK, "tries": 2})
    result = p.run()

    assert {1, 2} == {letter["element"].value for letter in result.dead_letters()}


def test_equal_requests_are_sent_once_while_they_are_remembered(server: Server) -> None:
    run(Squares(server), [1, 2, 1, 1, 2], [1, 4, 1, 1, 4], cache_ttl=60)

    assert sum(server.asked.values()) == 2


async def priced(names: list[str]) -> list[dict[str, Any]]:
    await asyncio.sleep(0)
    return [{"name": "of the other side", "price": len(name)} for name in names]


def test_elements_are_enriched() -> None:
    with df.Pipeline() as p:
        orders = p | df.Create([{"name": "tea"}, {"name": "beans"}])
        found = orders | df.Enrichment(
            priced, lambda order: order["name"], batch_size=10, cache_ttl=1
        )
        expected = [{"name": "tea", "price": 3}, {"name": "beans", "price": 5}]
        assert_that(found, contains_in_any_order(expected), label="merged")
        named = orders | "own" >> df.Enrichment(
            priced, lambda o: o["name"], lambda o, found: (o["name"], found["price"]), batch_size=2
        )
        assert_that(named, contains_in_any_order([("tea", 3), ("beans", 5)]), label="joined")


async def too_few(names: list[str]) -> list[str]:
    return names[1:]


@pytest.mark.parametrize(
    ("caller", "values", "options", "text"),
    [
        (too_few, ["a", "b"], {"batch_size": 2, "tries": 1}, "as many responses"),
        (priced, [["a"]], {"cache_ttl": 1}, "has to be hashable, and not a list"),
    ],
)
def test_callers_that_are_wrong(
    caller: Any, values: Any, options: dict[str, Any], text: str
) -> None:
    p = df.Pipeline()
    p | df.Create(values) | df.RequestResponse(caller, **options)
    with pytest.raises(df.TransformError, match=text):
        p.run()


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"tries": 0}, {"timeout": 0}, {"cache_ttl": -1}, {"max_concurrency": 0}],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(df.PipelineError, match="too little"):
        df.RequestResponse(priced, **options)


def test_a_caller_must_be_callable() -> None:
    with pytest.raises(df.PipelineError, match="needs a function of a request, not 5"):
        df.RequestResponse(5)  # type: ignore[arg-type]


def test_the_cache_forgets_what_is_old_and_what_is_not_used() -> None:
    now = [0.0]
    cache = Cache(10, 2, lambda: now[0])
    for key in "ab":
        cache.put(key, key.upper())
    assert cache.get("a") == ("A",)
    cache.put("c", None)
    assert [cache.get(key) for key in "abc"] == [("A",), None, (None,)]

    now[0] = 10
    assert cache.get("a") is None
    assert len(cache) == 1


def test_the_throttle_adapts() -> None:
    """Nothing is kept back while half of the requests succeed; nearly all when none does; and it recovers."""
    throttle = Throttle(Spread(1), window_s=60)
    for at in range(20):
        throttle.count(at, is_accepted=at % 2 == 0)
    assert throttle.probability(20) == 0
    for at in range(20, 40):
        throttle.count(at, is_accepted=False)
    assert 0.4 < throttle.probability(40) < 0.6
    refused = sum(throttle.is_refused(40) for _ in range(100))
    assert 60 < refused < 100
    assert throttle.probability(101) == 0
    assert RequestOptions.of().is_throttled

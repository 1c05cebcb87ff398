"""Spans on their way to a collector: what arrives is what was begun, and a collector that is dead holds nobody up."""

import logging
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runners.streaming.otel_spans import QUEUE_MAX, OtelSpans, traces_url
from tests.otlp_receiver import Receiver, receiving
from tests.waiting import until

NOW_US = 1_700_000_000_000_000


@contextmanager
def sending(address: str, ratio: float = 1.0) -> Iterator[OtelSpans]:
    spans = OtelSpans(address, ratio, {"dataflow.job": "scores"})
    try:
        yield spans
    finally:
        spans.close()


def chain(spans: OtelSpans) -> list[bytes]:
    """A trace of three spans, the last of which is linked with another trace."""
    other = spans.begin("other", NOW_US, {}, None)
    first = spans.begin("read", NOW_US, {"dataflow.records": 3}, None)
    assert first is not None
    assert other is not None
    second = spans.begin("deliver", NOW_US + 5, {}, first.context, [other.context])
    assert second is not None
    second.end(NOW_US + 7, {"dataflow.ranges": ["sum[0]"], "dataflow.is_retried": True})
    first.end(NOW_US + 9, {}, is_error=True)
    return [each.context for each in (first, second, other)]


def test_what_arrives_is_what_was_begun() -> None:
    """Names, times, parents, links, attributes and failures; what is never ended does not arrive."""
    with receiving() as receiver:
        with sending(f"{receiver.address}/") as spans:
            first, second, other = chain(spans)
        found = {span.name: span for span in receiver.spans}
    assert found.keys() == {"read", "deliver"}
    read, deliver = found["read"], found["deliver"]
    assert (read.trace + read.span, read.parent) == (first.hex(), "")
    assert (deliver.trace + deliver.span, deliver.parent) == (second.hex(), read.span)
    assert deliver.links == (other[:16].hex(),)
    assert (read.began_ns, read.ended_ns) == (NOW_US * 1_000, (NOW_US + 9) * 1_000)
    assert (read.is_error, deliver.is_error) == (True, False)
    assert deliver.attributes == {"dataflow.ranges": ["sum[0]"], "dataflow.is_retried": True}
    assert read.resource["service.name"] == "dataflow"
    assert read.resource["dataflow.job"] == "scores"


def test_a_ratio_is_of_traces_and_what_follows_is_never_left_out() -> None:
    with receiving() as receiver, sending(receiver.address, 0.2) as spans:
        begun = [spans.begin("read", NOW_US, {}, None) for _ in range(2_000)]
        kept = [each for each in begun if each is not None]
        assert 250 < len(kept) < 550
        assert all(spans.begin("commit", NOW_US, {}, each.context) for each in kept)
    with receiving() as receiver, sending(receiver.address, 0.0) as spans:
        assert spans.begin("read", NOW_US, {}, None) is None


def test_no_seed_of_user_code_has_two_workers_make_one_trace() -> None:
    with (
        receiving() as receiver,
        sending(receiver.address) as one,
        sending(receiver.address) as two,
    ):
        random.seed(7)
        first = one.begin("read", NOW_US, {}, None)
        random.seed(7)
        second = two.begin("read", NOW_US, {}, None)
        assert first is not None
        assert second is not None
        assert first.context != second.context


def flooded(spans: OtelSpans, count: int) -> float:
    """Seconds for so many spans."""
    began_s = time.monotonic()
    for _ in range(count):
        span = spans.begin("read", NOW_US, {}, None)
        assert span is not None
        span.end(NOW_US, {})
    return time.monotonic() - began_s


def news_of(spans: OtelSpans) -> list[str]:
    found: list[str] = []

    def has_come() -> bool:
        found.extend(spans.take_news())
        return bool(found)

    until(has_come)
    return found


@pytest.mark.slow
def test_a_dead_collector_holds_nobody_up_and_is_reported_once_until_it_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that takes the connection and nothing else: whoever waited for it would wait for seconds each time."""
    with socket.create_server(("127.0.0.1", 0)) as dead:
        address = f"http://user:secret@127.0.0.1:{dead.getsockname()[1]}"
        with sending(address) as spans:
            assert flooded(spans, 2 * QUEUE_MAX) < 60
            [news] = news_of(spans)
            flooded(spans, QUEUE_MAX)
    assert "cannot be sent" in news
    assert "secret" not in news
    logged = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [text for text in logged if "cannot be sent" in text] == [news]
    assert all("secret" not in text for text in logged)


@pytest.mark.slow
def test_it_is_reported_when_a_collector_takes_spans_again() -> None:
    with receiving() as receiver:
        receiver.status = 400
        with sending(receiver.address) as spans:
            flooded(spans, 10)
            [lost] = news_of(spans)
            receiver.status = None
            flooded(spans, 10)
            [again] = news_of(spans)
    assert "cannot be sent" in lost
    assert "sent again" in again
    assert receiver.spans


def test_a_process_that_is_forked_has_nothing_of_its_parent_to_send() -> None:
    """User code is tried in one: what the worker has in its queue is not sent twice."""
    with receiving() as receiver:
        with sending(receiver.address) as spans:
            flooded(spans, 5)
            pid = os.fork()
            if pid == 0:
                spans.close()
                os._exit(0)
            os.waitpid(pid, 0)
        assert len(sent(receiver)) == len(receiver.spans) == 5


def sent(receiver: Receiver) -> set[str]:
    return {span.span for span in receiver.spans}


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://otel.example.org/own/traces", "https://otel.example.org/own/traces"),
    ],
)
def test_an_address_without_a_path_is_that_of_otlp(given: str, used: str) -> None:
    assert used == traces_url(given)

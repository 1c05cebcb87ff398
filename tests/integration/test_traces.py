"""Traces of a real stream: one bundle from its read to the acknowledgement, over two stages and two workers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import dataflow as df
from runners.millwheel.model.events import EventKind
from runners.millwheel.store.postgres import PostgresStore
from tests.otlp_receiver import ReceivedSpan, Receiver, receiving
from tests.streaming_jobs import Streaming, write_events

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def sums(path: Path) -> Callable[[df.Pipeline], None]:
    def build(p: df.Pipeline) -> None:
        (
            p
            | "read"
            >> df.ReadFromCsv(path, event_time=lambda row: float(row["time"]), max_disorder=300)
            | "pair" >> df.Map(lambda row: (row["user"], int(row["value"])))
            | "hours" >> df.WindowInto(df.FixedWindows(3600))
            | "sum" >> df.CombinePerKey(sum)
            | "key" >> df.Map(lambda pair: ("all", pair[1]))
            | "total" >> df.CombinePerKey(sum)
            | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
            | "write" >> df.WriteToPostgres("totals", columns={"key": str, "total": int})
        )

    return build


def chain(spans: Mapping[str, ReceivedSpan], last: ReceivedSpan) -> Sequence[str]:
    """The names from the beginning of a trace to a span, each the parent of the next."""
    names = [last.name]
    while last.parent:
        if last.parent not in spans:
            return ["?", *names]
        last = spans[last.parent]
        names.insert(0, last.name)
    return names


def by_id(receiver: Receiver) -> Mapping[str, ReceivedSpan]:
    return {span.span: span for span in receiver.spans}


def test_a_bundle_is_followed_from_its_read_to_the_acknowledgement(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """Over workers and stages it is one trace; commits have their fences, and deliveries how often they were tried."""
    build = sums(write_events(tmp_path / "events.csv"))
    with receiving() as receiver:
        Streaming(store_dsn, spark_master).run(
            build, trace_to=receiver.address, trace_ratio=1.0, gather=False, workers=2
        )
        spans = by_id(receiver)
    chains = {tuple(chain(spans, span)) for span in spans.values()}
    [read] = [first for first, *rest in chains if not rest and first.startswith("read ")]
    process = read.replace("read", "process", 1)
    assert (read, process, "commit") in chains
    taken = (read, process, "deliver", "process sum")
    assert {(*taken, "commit"), (*taken, "acknowledge")} <= chains
    # Panes of one stage are input of the next one.
    fired = ("fire sum", "deliver", "process total")
    assert {("fire sum",), (*fired, "commit"), (*fired, "acknowledge")} <= chains
    assert not any("?" in each for each in chains), "a span whose parent was never sent"

    crossing = [
        span
        for span in spans.values()
        if span.name == "process sum"
        and spans[span.parent].resource["service.instance.id"]
        != span.resource["service.instance.id"]
    ]
    assert crossing, "no trace went from one worker to another"
    for span in spans.values():
        assert span.resource["dataflow.job"] == "job"
        if span.name == "commit":
            assert span.attributes["dataflow.outcome"] == "committed"
            assert all(number > 0 for number in span.attributes["dataflow.bundles"])
            assert len(span.attributes["dataflow.tokens"]) == len(
                span.attributes["dataflow.ranges"]
            )
        if span.name == "deliver":
            assert span.attributes["dataflow.attempts"] >= 1
            assert span.attributes["dataflow.production"] >= 1
            parent = spans[span.parent]
            assert parent.began_ns <= span.began_ns <= span.ended_ns
    sent = [
        tuple(span.attributes[f"dataflow.{name}"] for name in ("sender", "receiver", "production"))
        for span in spans.values()
        if span.name == "deliver"
    ]  # fmt: skip
    assert len(sent) == len({*sent}), "a production was delivered in two spans"


def test_a_dead_collector_costs_no_record_and_is_reported_once(
    store_dsn: str, spark_master: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is lost are spans; one event and one line of the log for each worker, however many batches fail."""
    path = write_events(tmp_path / "events.csv")
    with receiving() as receiver:
        receiver.status = 400
        result = Streaming(store_dsn, spark_master).start(
            sums(path), trace_to=receiver.address, trace_ratio=1.0, records_per_second=4_000
        )
        result.wait_until_finish()
        assert sum(row["total"] for row in result.read_table("totals")) == total_of(path)
        assert not receiver.spans
    with closing(PostgresStore(store_dsn)) as store:
        events = [
            each.event
            for each in store.read_events("job", 100)
            if each.event.kind is EventKind.TRACES
        ]
    assert events
    assert len({event.who for event in events}) == len(events), "a worker has reported it twice"
    assert all(receiver.address in event.reason for event in events)
    logged = [record for record in caplog.records if "cannot be sent" in record.getMessage()]
    assert len(logged) == len(events)


def total_of(path: Path) -> int:
    return sum(int(line.rpartition(",")[2]) for line in path.read_text().splitlines()[1:])

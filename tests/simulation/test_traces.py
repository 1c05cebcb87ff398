"""Traces over faults of every kind: what is sampled is followed, and nothing depends on it."""

from collections import Counter
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.millwheel.worker.courier import RESEND_INTERVAL_MS
from runners.millwheel.worker.tracing import Attributes
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import ALL_FAULTS
from runners.testing.simulator.fault import NO_FAULTS, Fault
from runners.testing.simulator.simulation import Simulation
from tests.effort import by_profile

SEEDS = by_profile(4, nightly=2_000)
RECORDS = 60
#: All but those in which the store loses what it had: what is lost is done once more.
FAULTS = ALL_FAULTS - {Fault.LOST_COMMITS, Fault.LOST_PART}


@attrs.define
class Recorded:
    """A span, as it was begun and ended."""

    name: str
    context: bytes
    parent: bytes | None
    links: Sequence[bytes]
    attributes: dict[str, Any]
    began_us: int
    ended_us: int | None = None
    is_error: bool = False

    def end(self, ended_us: int, attributes: Attributes, *, is_error: bool = False) -> None:
        assert self.ended_us is None, f"{self.name} is ended twice"
        self.ended_us, self.is_error = ended_us, is_error
        self.attributes |= attributes


class Recorder:
    """Makes spans of some of the traces."""

    def __init__(self, random: Random, ratio: float) -> None:
        self._random, self._ratio = random, ratio
        self.spans: dict[bytes, Recorded] = {}

    def begin(
        self,
        name: str,
        began_us: int,
        attributes: Attributes,
        parent: bytes | None,
        links: Sequence[bytes] = (),
    ) -> Recorded | None:
        if parent is None and self._random.random() >= self._ratio:
            return None
        number = len(self.spans) + 1
        trace = number.to_bytes(16, "big") if parent is None else parent[:16]
        context = trace + number.to_bytes(8, "big")
        span = Recorded(name, context, parent, links, dict(attributes), began_us)
        self.spans[context] = span
        return span


def build(p: df.Pipeline, random: Random) -> None:
    """Two stages behind a read of two splits."""
    scripts = [
        [
            Batch([value], [value * 1_000_000], value * 1_000_000)
            for value in range(split, RECORDS, 2)
        ]
        for split in range(2)
    ]
    pairs: Any = p | "read" >> df.Read(ScriptedSource(*scripts)) | df.Map(lambda n: (n % 5, n))
    sums: Any = pairs | df.WindowInto(df.FixedWindows(10)) | "sum" >> df.CombinePerKey(sum)
    totals: Any = sums | df.Map(lambda pair: ("all", pair[1])) | "total" >> df.CombinePerKey(sum)
    rows: Any = totals | df.Map(lambda pair: {"total": pair[1]})
    rows | df.WriteToPostgres("totals", columns={"total": int})


def traced(
    seed: int, ratio: float, faults: Collection[Fault] = FAULTS, workers: int = 2
) -> list[Recorded]:
    """The spans of a run, whose answers and invariants are checked as those of every other."""
    recorder = Recorder(Random(seed), ratio)
    Simulation(build, seed, faults=faults, spans=recorder, workers=workers).run()
    check(recorder.spans, seed)
    return list(recorder.spans.values())


def check(spans: dict[bytes, Recorded], seed: int) -> None:
    """What is true of every trace, whoever has died."""
    seen: Counter[Any] = Counter()
    for span in spans.values():
        where = f"{span.name} {span.attributes} of seed={seed}"
        for each in (*filter(None, [span.parent]), *span.links):
            assert each in spans, f"made of nothing: {where}"
        if span.parent is not None:
            parent = spans[span.parent]
            assert span.context[:16] == parent.context[:16], where
            kind, of = span.name.partition(" ")[0], parent.name.partition(" ")[0]
            assert (kind, of) in {
                *(("process", "read"), ("process", "deliver")),
                *((each, of) for each in ("commit", "deliver", "acknowledge") for of in ("process", "fire")),
            }, where  # fmt: skip
        else:
            assert span.name.startswith(("read ", "fire ")), where
        if span.name == "commit" and not span.is_error:
            marks = zip(*_of(span, "ranges", "tokens", "bundles"), strict=True)
            seen.update((span.context[:16], *mark) for mark in marks)
        if span.name == "deliver" and span.ended_us is not None:
            attempts = span.attributes["dataflow.attempts"]
            assert span.attributes["dataflow.is_retried"] == (attempts > 1), where
            if span.attributes["dataflow.outcome"] == "acknowledged":
                seen[_of(span, "sender", "receiver", "production")] += 1
    assert all(count == 1 for count in seen.values()), f"seed={seed}: {seen.most_common(3)}"


def _of(span: Recorded, *names: str) -> tuple[Any, ...]:
    return tuple(span.attributes[f"dataflow.{name}"] for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_span_has_its_place_and_commits_and_deliveries_are_there_once(seed: int) -> None:
    spans = traced(seed, ratio=1.0)
    taken_in = {each for span in spans for each in (span.parent, *span.links)}
    for span in spans:
        if span.name == "deliver" and span.attributes.get("dataflow.outcome") == "acknowledged":
            assert span.context in taken_in, (
                f"{span.attributes} went on without its trace, seed={seed}"
            )
    kinds = {span.name.partition(" ")[0] for span in spans}
    assert {"read", "process", "commit", "deliver", "fire"} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_not_sampled_where_it_begins_is_not_traced_anywhere(seed: int) -> None:
    spans = traced(seed, ratio=0.3)
    begun = {span.context[:16] for span in spans if span.parent is None}
    assert begun == {span.context[:16] for span in spans}
    assert not traced(seed, ratio=0.0)


@pytest.mark.slow
def test_where_nothing_fails_each_production_is_delivered_at_the_first_attempt() -> None:
    """Also what a worker sends to itself, which it may have taken in before the commit."""
    for seed in range(6):
        sent = [each for each in traced(seed, 1.0, NO_FAULTS) if each.name == "deliver"]
        assert sent
        for span in sent:
            [outcome, attempts] = _of(span, "outcome", "attempts")
            assert outcome == "acknowledged", f"seed={seed}"
            # Whatever is unacknowledged at that moment is sent again.
            if span.ended_us is not None and span.ended_us < RESEND_INTERVAL_MS * 1_000:
                assert attempts == 1, f"seed={seed}"


@pytest.mark.slow
def test_what_a_worker_with_all_ranges_makes_for_itself_is_followed_too() -> None:
    """It would be on no channel otherwise, and a trace would end where it was read."""
    spans = traced(1, 1.0, NO_FAULTS, workers=1)
    sent = [each for each in spans if each.name == "deliver"]
    assert {str(each.attributes["dataflow.receiver"])[:3] for each in sent} == {"sum", "tot"}
    reads = {each.context[:16] for each in spans if each.name.startswith("read ")}
    assert reads <= {each.context[:16] for each in sent}


@pytest.mark.slow
def test_what_is_lost_on_the_way_is_seen_to_be_tried_again() -> None:
    """Of these seeds some lose messages; and a receiver that has taken in the first copy acknowledges once."""
    found = [span for seed in range(8) for span in traced(seed, 1.0) if span.name == "deliver"]
    assert any(span.attributes.get("dataflow.is_retried") for span in found)
    assert any(
        span.ended_us is not None and span.attributes["dataflow.attempts"] == 1 for span in found
    )

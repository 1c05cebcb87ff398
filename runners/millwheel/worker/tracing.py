"""Tracing: the spans of a bundle, from the read to the acknowledgement, also over workers and stages.

Whether a bundle is traced is decided once, where it begins: with a read, or with windows that fire.  From there on its
trace goes with its productions: a delivery of a bundle that is traced carries the span that it comes of, and any other
carries nothing, so nobody decides again.  A step that takes in deliveries of several traces goes on with that of the
first one, and is linked with the others.

Off, it costs a comparison for each step.  Nothing here knows where spans go (`SpanMaker`), and no result depends on
them.  What was on its way when its sender died is sent again by the next owner, without a trace.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from dataflow.metric_updates import running
from runners.core.ground.clock import Clock
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint, Production
from runners.millwheel.store.commit_or_resolve import CommitResult
from runners.millwheel.store.port import Committed
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.worker_step import WorkerStep

#: What is known of a span.
Attributes = Mapping[str, str | int | bool | Sequence[str] | Sequence[int]]
#: Productions that are traced and not acknowledged; more are sent without a trace.
OPEN_MAX = 10_000


class TraceSpan(Protocol):
    """One span of a trace."""

    @property
    def context(self) -> bytes:
        """Its name for other processes: 16 bytes of the trace, 8 of the span."""

    def end(self, ended_us: int, attributes: Attributes, *, is_error: bool = False) -> None:
        """End it; one that is never ended is not sent.

        Args:
            ended_us: when, in microseconds since 1970.
            attributes: that are known now.
            is_error: whether what it is of has failed.
        """


class SpanMaker(Protocol):
    """Makes spans, and sends them without ever waiting for it."""

    def begin(
        self,
        name: str,
        began_us: int,
        attributes: Attributes,
        parent: bytes | None,
        links: Sequence[bytes] = (),
    ) -> TraceSpan | None:
        """Begin a span; None: its trace is not sampled.

        Args:
            name: what is done.
            began_us: when, in microseconds since 1970.
            attributes: that are known already.
            parent: the context of what it is a part of; None: a trace begins, if it is sampled.
            links: contexts of other spans that it comes of.
        """


@attrs.define
class _Sent:
    """A production that is traced.

    Attributes:
        parent: the context of the step that made it.
        span: of its delivery, from the first attempt on.
        is_handed_on: whether its receiver has it before the commit; to send it then is not another attempt.
    """

    sequence: int
    parent: bytes
    span: TraceSpan | None = None
    attempts: int = 0
    is_handed_on: bool = False


class BundleTracer:
    """Traces the bundles of one worker; not thread-safe.

    Args:
        spans: makes spans; None: nothing is traced.
        clock: for when they begin and end.
    """

    def __init__(self, spans: SpanMaker | None, clock: Clock) -> None:
        self._spans, self._clock = spans, clock
        #: Of the step that is under way: when it began, and the span of its user code.
        self._began_us = 0
        self._process: TraceSpan | None = None
        self._sent: dict[Channel, deque[_Sent]] = {}
        self._sent_count = 0

    @property
    def is_on(self) -> bool:
        """Whether anything may be traced."""
        return self._spans is not None

    def begin(self) -> None:
        """Note that a step begins, which may be traced."""
        if self._spans is not None:
            self._began_us, self._process = self._clock.now_us(), None

    def has_read(self, owned: OwnedRange, records: int) -> None:
        """Note that a split was read; with records a trace begins, if it is sampled.

        Args:
            owned: the split.
            records: how many it had.
        """
        if self._spans is None or not records:
            return
        known = {**_of([owned]), "dataflow.records": records}
        read = self._spans.begin(_name("read", owned.range_id), self._began_us, known, None)
        if read is not None:
            now_us = self._clock.now_us()
            read.end(now_us, {})
            self._run(_name("process", owned.range_id), now_us, known, read.context)

    def take_in(self, ranges: Mapping[RangeId, OwnedRange], deliveries: Sequence[Deliver]) -> None:
        """Note that a step takes deliveries in; it is traced if one of them is.

        Args:
            ranges: those of the worker.
            deliveries: in their order.
        """
        if self._spans is None:
            return
        contexts = list(dict.fromkeys(each.trace for each in deliveries if each.trace is not None))
        if contexts:
            receivers = dict.fromkeys(each.channel.receiver for each in deliveries)
            known = _of([ranges[each] for each in receivers if each in ranges])
            numbers = [f"{each.channel.sender} {each.sequence}" for each in deliveries]
            self._run(
                _name("process", next(iter(receivers))), self._began_us,
                {**known, "dataflow.productions": numbers}, contexts[0], contexts[1:],
            )  # fmt: skip

    def fire(self, owned: Sequence[OwnedRange]) -> None:
        """Note that windows fire in ranges of one stage: a trace begins, if it is sampled.

        Args:
            owned: the ranges.
        """
        if self._spans is not None and owned:
            self._run(_name("fire", owned[0].range_id), self._began_us, _of(owned), None)

    def _run(
        self,
        name: str,
        began_us: int,
        attributes: Attributes,
        parent: bytes | None,
        links: Sequence[bytes] = (),
    ) -> None:
        assert self._spans is not None
        self._process = self._spans.begin(name, began_us, attributes, parent, links)
        if self._process is not None:
            running().trace = self._process.context[:16].hex()

    def done(self, step: WorkerStep | None) -> WorkerStep | None:
        """The step that was under way, with its trace if it has one.

        Args:
            step: what it has done; None: nothing, and then it is not traced.
        """
        process, self._process = self._process, None
        if process is None:
            return step
        running().trace = ""
        if step is None:
            return None
        process.end(self._clock.now_us(), {"dataflow.productions.made": len(step.checkpoints)})
        for channel, sequence, _, _ in step.checkpoints:
            if self._sent_count < OPEN_MAX:
                self._sent.setdefault(channel, deque()).append(_Sent(sequence, process.context))
                self._sent_count += 1
        return attrs.evolve(step, traces=(process.context,))

    def failed(self) -> None:
        """Note that user code of the step that is under way has failed."""
        process, self._process = self._process, None
        if process is not None:
            running().trace = ""
            process.end(self._clock.now_us(), {}, is_error=True)

    def committed(
        self, step: WorkerStep, production: Production, began_us: int, result: CommitResult
    ) -> None:
        """Note what became of a commit.

        Args:
            step: that was committed, with its traces.
            production: what the store was given.
            began_us: when it was, in microseconds since 1970.
            result: its outcome.
        """
        if self._spans is None:
            return
        ended_us, is_committed = self._clock.now_us(), isinstance(result.outcome, Committed)
        known: Attributes = {
            "dataflow.ranges": [str(fence.range_id) for fence in production.fences],
            "dataflow.tokens": [fence.token for fence in production.fences],
            "dataflow.bundles": [fence.bundle for fence in production.fences],
            "dataflow.outcome": type(result.outcome).__name__.lower(),
            "dataflow.is_resolved": result.answer != result.outcome,
        }
        for parent, links in _by_trace(step.traces):
            span = self._spans.begin("commit", began_us, known, parent, links)
            if span is not None:
                span.end(ended_us, {}, is_error=not is_committed)

    def has_acknowledged(self, step: WorkerStep, began_us: int) -> None:
        """Note that what a step has taken in was acknowledged to its senders.

        Args:
            step: the step, with its traces.
            began_us: when that began, in microseconds since 1970.
        """
        if self._spans is None or not step.taken_in:
            return
        numbers = [f"{channel.sender} {number}" for channel, number in step.taken_in.items()]
        known = {"dataflow.productions": numbers}
        for parent, links in _by_trace(step.traces):
            span = self._spans.begin("acknowledge", began_us, known, parent, links)
            if span is not None:
                span.end(self._clock.now_us(), {})

    def send(self, checkpoint: Checkpoint, *, is_handed_on: bool = False) -> bytes | None:
        """Note an attempt to deliver a production; returns the context that goes with it.

        Args:
            checkpoint: the production.
            is_handed_on: whether that is before its commit, to a range of the same worker.
        """
        found = self._find(checkpoint) if self._sent else None
        if found is None:
            return None
        if found.span is None:
            channel, sequence, _, _ = checkpoint
            known: Attributes = {
                "dataflow.sender": str(channel.sender),
                "dataflow.receiver": str(channel.receiver),
                "dataflow.production": sequence,
            }
            assert self._spans is not None
            found.span = self._spans.begin("deliver", self._clock.now_us(), known, found.parent)
        found.attempts += not found.is_handed_on
        found.is_handed_on = is_handed_on
        return None if found.span is None else found.span.context

    def _find(self, checkpoint: Checkpoint) -> _Sent | None:
        waiting = self._sent.get(checkpoint.channel, ())
        return next((each for each in waiting if each.sequence == checkpoint.sequence), None)

    def acknowledged(self, channel: Channel, sequence: int) -> None:
        """Note that everything on a channel up to a sequence is acknowledged.

        Args:
            channel: from a range of this worker.
            sequence: of the last production that is.
        """
        waiting = self._sent.get(channel)
        while waiting and waiting[0].sequence <= sequence:
            self._end(waiting.popleft(), "acknowledged")
        if waiting is not None and not waiting:
            del self._sent[channel]

    def forget(self, range_id: RangeId) -> None:
        """End what a range has on its way, since another worker will send it again."""
        for channel in [each for each in self._sent if each.sender == range_id]:
            for sent in self._sent.pop(channel):
                self._end(sent, "handed over")

    def _end(self, sent: _Sent, outcome: str) -> None:
        self._sent_count -= 1
        if sent.span is not None:
            known: Attributes = {
                "dataflow.outcome": outcome,
                "dataflow.attempts": sent.attempts,
                "dataflow.is_retried": sent.attempts > 1,
            }
            sent.span.end(self._clock.now_us(), known)


def _name(what: str, range_id: RangeId) -> str:
    return f"{what} {range_id.computation}"


def _of(
    ranges: Sequence[OwnedRange],
) -> dict[str, str | int | bool | Sequence[str] | Sequence[int]]:
    """Which commit of which ranges it is to be: the next one of each, under the token of its owner."""
    marks = [owned.next_mark for owned in ranges]
    return {
        "dataflow.stage": ranges[0].range_id.computation if ranges else "",
        "dataflow.ranges": [str(owned.range_id) for owned in ranges],
        "dataflow.tokens": [mark.token for mark in marks],
        "dataflow.bundles": [mark.bundle for mark in marks],
    }


def _by_trace(contexts: Iterable[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """The first span of each trace, with the first ones of the others."""
    first: dict[bytes, bytes] = {}
    for context in contexts:
        first.setdefault(context[:16], context)
    firsts = list(first.values())
    return [(each, [other for other in firsts if other != each]) for each in firsts]

"""Laws of pipelines, as functions that a test calls (`dataflow.testing.laws`).

A pipeline is given as a fragment: a function from a collection to a collection, such as
``lambda scores: scores | df.WindowInto(df.FixedWindows(60)) | df.CombinePerKey(sum)``.  What is compared is its final
fold (`dataflow.testing.fold`): each window with its final contents.

Nothing may be dropped as late, so the streams made here never let the watermark pass an element that is still to come;
bring such streams where you bring your own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import attrs

from dataflow.do_fn import TimestampedValue
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection, Pipeline
from dataflow.recording import Recording
from dataflow.runner import Runner, create_runner
from dataflow.signed_sum import FoldError, Multiset, shown
from dataflow.testing.fold import Combine, Folding, KeyOf
from dataflow.testing.test_stream import TestStream
from dataflow.transforms.changelog import Change
from triggers.accumulation import AccumulationMode
from windowing.timestamps import MIN_TIMESTAMP_US, to_datetime

#: A fragment of a pipeline.
Build = Callable[[PCollection[Any]], PCollection[Any]]
#: A runner that has not run anything yet: the name of one, or a function that makes one.
RunnerLike = str | Callable[[], Runner]

_JOB = "dataflow-testing-law"


class LawViolationError(AssertionError):
    """A law of pipelines does not hold; its arguments are attributes too.

    Args:
        message: the counterexample in words.
        build: the fragment that it was checked with.
        streams: the counterexample: one stream, or two that should have had one result.
        keys: of what is not as it should be.
    """

    def __init__(
        self, message: str, build: Build, streams: Sequence[TestStream], keys: Sequence[Any]
    ) -> None:
        super().__init__(message)
        self.build = build
        self.streams = streams
        self.keys = keys


@attrs.frozen
class _Run:
    """A stream, also in words, and what the pipeline emitted for it."""

    build: Build
    stream: TestStream
    how: str
    changes: list[Change[Any]]
    folding: Folding

    def fold(self) -> list[Change[Any]]:
        return self.folding.fold(self.changes)

    def key(self, change: Change[Any]) -> Any:
        """The key of an output; itself where it has none."""
        try:
            return self.folding.key(change.value)
        except FoldError:
            return change.value


def check_order_insensitive(
    build: Build,
    elements: Iterable[Any],
    *,
    key_of: KeyOf | None = None,
    combine: Combine | None = None,
) -> None:
    """Check that the result is the same in whatever order elements come, one by one or all together.

    Args:
        build: the fragment.
        elements: `TimestampedValue`, or values that are all at the beginning of time.
        key_of: from an output to its key, where outputs of an accumulating grouping are not ``(key, value)`` pairs.
        combine: for discarding panes, when there can be several of one window: from their values to one.

    Raises:
        AssertionError: two orders give two results; shows both streams, and the difference.
    """
    items = [_stamped(each) for each in elements]
    by_time = sorted(items, key=lambda each: each.timestamp_us)
    half = len(items) // 2
    orders = [items, items[::-1], by_time, by_time[::-1], items[half:] + items[:half]]
    streams = [
        *(_one_by_one(order) for order in orders),
        *(TestStream().add_elements(order) for order in orders),
    ]
    check_same_answer(build, *streams, key_of=key_of, combine=combine)


def check_bundle_insensitive(
    build: Build,
    elements: Iterable[Any],
    *,
    key_of: KeyOf | None = None,
    combine: Combine | None = None,
) -> None:
    """Check that the result is the same in whatever bundles elements come, from all together to each alone.

    Errors are those of `check_order_insensitive`.

    Args:
        build: the fragment, from a PCollection to its result.
        elements: of the input; `TimestampedValue` where they have event times.
        key_of: from an element to its key, where results are not ``(key, value)`` pairs.
        combine: from the values of several panes to one value, such as ``sum``, where panes are discarding.
    """
    items = [_stamped(each) for each in elements]
    streams = []
    for size in dict.fromkeys([len(items), 2, 3, 1]):
        stream = TestStream()
        for start in range(0, len(items), size or 1):
            stream = stream.add_elements(items[start : start + size])
        streams.append(stream)
    check_same_answer(build, *streams, _one_by_one(items), key_of=key_of, combine=combine)


def check_same_answer(
    build: Build,
    *streams: TestStream,
    key_of: KeyOf | None = None,
    combine: Combine | None = None,
) -> None:
    """Check that these streams, of the same elements, have the same result: for streams of your own making or drawing.

    Other arguments and errors are those of `check_order_insensitive`.

    Args:
        build: the fragment, from a PCollection to its result.
        *streams: at least two, of the same elements.
        key_of: from an element to its key, where results are not ``(key, value)`` pairs.
        combine: from the values of several panes to one value, such as ``sum``, where panes are discarding.
    """
    runs = [_run(build, stream, key_of=key_of, combine=combine) for stream in streams]
    for other in runs[1:]:
        _check_same(runs[0], other)


def check_batch_equals_streaming(
    build: Build,
    elements: Iterable[Any] | TestStream,
    *,
    runners: Sequence[RunnerLike] = ("direct", "batch"),
    key_of: KeyOf | None = None,
    combine: Combine | None = None,
) -> None:
    """Check that several runners have the same result.

    Args:
        build: the fragment.
        elements: as for `check_order_insensitive`, or a whole stream.
        runners: names, or functions that make a runner; a runner with a store has to start afresh.  By name they use
            the embedded store, or that of the environment variable DATAFLOW_STORE, and a job of this law's own.
        key_of: as for `check_order_insensitive`.
        combine: as for `check_order_insensitive`.

    Raises:
        AssertionError: two runners have two results; shows the difference.
    """
    stream = (
        elements
        if isinstance(elements, TestStream)
        else _one_by_one([_stamped(each) for each in elements])
    )
    runs = [
        _run(build, stream, runner=runner, key_of=key_of, combine=combine) for runner in runners
    ]
    for other in runs[1:]:
        _check_same(runs[0], other)


def check_retracting_prefixes(
    build: Build, stream: TestStream, *, key_of: KeyOf | None = None
) -> None:
    """Check that a retracting pipeline is right at every moment, not only in the end.

    * At every prefix of its output, each key and window has at most one element that is not retracted.
    * A retraction is of exactly what was emitted, for the same window and pane.
    * In the end the output is the same as when all the elements come at once.

    Args:
        build: the fragment; its last grouping accumulates and retracts, and what follows makes one element of one.
        stream: the elements and how they come.
        key_of: from an output to its key; by default the first of a pair.

    Raises:
        AssertionError: one of these does not hold; shows the stream and the change.
        PipelineError: the fragment does not accumulate and retract.
    """
    run = _run(build, stream, key_of=key_of)
    if run.folding.mode is not AccumulationMode.ACCUMULATING_AND_RETRACTING:
        raise PipelineError(
            "check_retracting_prefixes needs a pipeline that retracts what it emitted",
            detail=f"the accumulation mode is {run.folding.mode.name}",
            hint="pass accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING to its WindowInto",
        )
    standing: dict[Any, Change[Any]] = {}
    for change in run.changes:
        place = run.folding.key(change.value), change.window
        before = standing.get(place)
        if change.sign > 0:
            if before is not None:
                raise _violation(
                    run,
                    change,
                    "a second element was emitted without the first having been retracted\n"
                    f"  first {shown(before)}\n  then {shown(change)}",
                )
            standing[place] = change
            continue
        if before is None:
            raise _violation(
                run, change, f"something was retracted that had not been emitted: {shown(change)}"
            )
        if (before.value, before.pane) != (change.value, change.pane):
            raise _violation(
                run,
                change,
                "something else was retracted than what was emitted\n"
                f"  emitted {shown(before)}\n  retracted {shown(change)}",
            )
        del standing[place]
    _check_same(_run(build, _at_once(stream), key_of=key_of), run)


def _violation(run: _Run, change: Change[Any], message: str) -> LawViolationError:
    return LawViolationError(
        "\n".join([message, f"  {run.how}"]), run.build, [run.stream], [run.key(change)]
    )


def _run(
    build: Build,
    stream: TestStream,
    *,
    runner: RunnerLike = "direct",
    key_of: KeyOf | None = None,
    combine: Combine | None = None,
) -> _Run:
    """Run the fragment and record what it emits, in order where the runner is direct."""
    pipeline = _pipeline(runner)
    pcoll = build(pipeline | stream)
    recording = Recording()
    pcoll | recording
    folding = attrs.evolve(Folding.of(pcoll), key_of=key_of, combine=combine)
    result = pipeline.run()
    result.wait_until_finish()
    if late := result.late_records():
        raise PipelineError(
            "the law was checked with a stream in which elements come too late, and it does not cover these",
            detail=f"{len(late)} dropped, e.g. {late[0]}; {stream!r}",
            hint="draw streams with late=False, or give the WindowInto more allowed_lateness",
        )
    name = runner if isinstance(runner, str) else type(pipeline.runner).__name__
    how = f"{stream!r}" if runner == "direct" else f"on {name}, {stream!r}"
    return _Run(build, stream, how, recording.changes(result), folding)


def _pipeline(runner: RunnerLike) -> Pipeline:
    if not isinstance(runner, str):
        return Pipeline(runner())
    if runner == "direct":
        return Pipeline(_direct_runner())
    return Pipeline(runner, job=f"{_JOB}-{runner}", fresh=True, show_progress=False)


@cache
def _direct_runner() -> Runner:
    """One for all examples: it keeps nothing, and to find it by name takes longer than a small run."""
    return create_runner("direct")


def _check_same(one: _Run, other: _Run) -> None:
    second = Multiset(other.fold())
    missing = [change for change in one.fold() if not second.take(change)]
    unexpected = list(second)
    if missing or unexpected:
        lines = ["the same elements have two results", *_listed("only in one", missing)]
        lines += [f"  one: {one.how}", *_listed("only in the other", unexpected)]
        keys = [one.key(change) for change in [*missing, *unexpected]]
        message = "\n".join([*lines, f"  other: {other.how}"])
        raise LawViolationError(message, one.build, [one.stream, other.stream], keys)


def _listed(title: str, changes: Sequence[Change[Any]]) -> Iterator[str]:
    if changes:
        yield f"  {title}:"
        yield from (f"    {shown(change)}" for change in changes)


def _one_by_one(items: Sequence[TimestampedValue]) -> TestStream:
    """Each element alone, with the watermark as far ahead as it can be without making one late."""
    stream = TestStream()
    coming_us = MIN_TIMESTAMP_US
    for index, item in enumerate(items):
        stream = stream.add_elements([item])
        coming_us = min((each.timestamp_us for each in items[index + 1 :]), default=coming_us)
        if coming_us > MIN_TIMESTAMP_US:
            stream = stream.advance_watermark_to(to_datetime(coming_us))
    return stream


def _at_once(stream: TestStream) -> TestStream:
    by_time = sorted(stream.elements(), key=lambda each: each.timestamp_us)
    return TestStream().add_elements(by_time)


def _stamped(element: Any) -> TimestampedValue:
    if isinstance(element, TimestampedValue):
        return element
    return TimestampedValue(element, to_datetime(MIN_TIMESTAMP_US))

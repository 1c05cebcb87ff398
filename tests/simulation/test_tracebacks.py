"""What user code raises in a worker is raised by the driver, with the user's own lines behind it."""

import traceback
from collections.abc import Callable
from typing import Any, Never

import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.task_traceback import TaskTraceback
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator.batch import SimulatedBatch
from tests.simulation.test_worker_crashes import Cluster


def divide(number: int) -> int:
    return 1 // number


class Divided(df.DoFn):
    SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())

    def process(self, element: Any, /, seen: Any = df.DoFn.StateParam(SEEN)) -> Any:
        seen.add(1)
        yield divide(element[1])


@pytest.mark.parametrize(
    "transform",
    [df.Map(lambda pair: divide(pair[1])), df.ParDo(Divided())],
    ids=["function", "stateful"],
)
def test_the_drivers_error_has_the_users_lines(transform: Any) -> None:
    source = ScriptedSource([Batch([("k", 1), ("k", 0)], [0, 0], 1)])
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Read(source) | "divide" >> transform
    cluster = Cluster(pipeline.graph(), seed=0, crash_rate=0)
    with pytest.raises(df.DataflowError) as caught:
        cluster.run()

    shown = "".join(traceback.format_exception(caught.value))
    assert "'divide'" in shown
    assert "in divide" in shown
    assert "return 1 // number" in shown
    assert TaskTraceback.__name__ in shown


class CodedError(df.TransformError):
    """A user's error with another constructor."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}", hint="look it up")


class LockedError(df.TransformError):
    """A user's error that cannot be pickled."""

    def __reduce__(self) -> Never:
        raise RuntimeError("not picklable, I")


class LostError(df.TransformError):
    """A user's error whose pickle cannot be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, ()


class SpeechlessError(Exception):
    """Has no text."""

    def __str__(self) -> Never:
        raise ValueError("no words")


def _read() -> Never:
    raise ModuleNotFoundError("No module named 'theirs'")


def on_direct(build: Callable[[df.Pipeline], None]) -> None:
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline)
    pipeline.run()


def in_batch(build: Callable[[df.Pipeline], None]) -> None:
    SimulatedBatch(build, 0, rate=0.0).run()


def streaming(build: Callable[[df.Pipeline], None]) -> None:
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline)
    Cluster(pipeline.graph(), seed=0, crash_rate=0).run()


@pytest.mark.parametrize("run", [on_direct, in_batch, streaming])
@pytest.mark.parametrize(
    ("make", "kinds", "words"),
    [
        (lambda: CodedError(7), [CodedError] * 3, "code 7"),
        (
            lambda: LockedError("locked"),
            [LockedError, df.TransformError, df.TransformError],
            "locked",
        ),
        (lambda: LostError("lost"), [LostError, df.TransformError, df.TransformError], "lost"),
        (SpeechlessError, [df.TransformError] * 3, "'refuse'.*raised SpeechlessError"),
        (
            lambda: df.InputError("fact", hint="h"),
            [df.TransformError] * 3,
            "'refuse'.*InputError: fact",
        ),
    ],
    ids=["coded", "locked", "lost", "speechless", "another of ours"],
)
def test_no_exception_of_a_user_hides_what_was_wrong(
    run: Callable[[Any], None], make: Callable[[], Exception], kinds: list[type], words: str
) -> None:
    """Each runner raises the same error; of a class that does not travel, the nearest one of this package."""

    def build(pipeline: df.Pipeline) -> None:
        def refuse(_: object) -> Never:
            raise make()

        source = ScriptedSource([Batch([("k", 1)], [0], 1)])
        pipeline | df.Read(source) | "refuse" >> df.Map(refuse)

    with pytest.raises(df.DataflowError, match=words) as caught:
        run(build)

    place = ["on_direct", "in_batch", "streaming"].index(run.__name__)
    assert type(caught.value).__name__ == kinds[place].__name__
    if run is not on_direct:
        assert "in refuse" in str(caught.value.__cause__)

"""Each transform: what it does on the direct runner, and what it refuses."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

import dataflow as df
from runners.direct import DirectRunner
from tests.ids import shown
from tests.pane_log import run_logged


def run(*transforms: Any, values: Iterable[Any] = (1, 2, 3), bundle_records: int = 2) -> list[Any]:
    """What comes out behind some transforms."""
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    collection: Any = pipeline | df.Create(values)
    for transform in transforms:
        collection = collection | transform
    collection | "see" >> df.Map(seen.append)
    pipeline.run()
    return seen


class Life(df.DoFn):
    """Writes down what happens to it."""

    log: list[str]

    def __init__(self, log: list[str], fail_in: str = "") -> None:
        self.log, self.fail_in = log, fail_in

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what == self.fail_in:
            raise RuntimeError("broken")

    def setup(self) -> None:
        self._note("setup")

    def start_bundle(self) -> None:
        self._note("start_bundle")

    def process(self, element: Any, /) -> Iterable[Any]:
        self._note(f"process {element}")
        return [element]

    def finish_bundle(self) -> None:
        self._note("finish_bundle")

    def teardown(self) -> None:
        self._note("teardown")


def test_map_filter_flat_map() -> None:
    """One, some, or any number of outputs; None is no output of a FlatMap."""
    assert [2, 4, 6] == run(df.Map(lambda x: 2 * x))
    assert [1, 3] == run(df.Filter(lambda x: x % 2))
    assert [1, 2, 3] == run(df.Filter(lambda x: True))
    assert [] == run(df.Filter(lambda x: False))
    assert [2, 3, 3] == run(df.FlatMap(lambda x: [x] * (x - 1) if x > 1 else None))
    assert ["1", "2", "3"] == run(df.Map(str), df.Map(str.strip))


def test_life_of_a_do_fn() -> None:
    """Setup, then bundles, then teardown."""
    log: list[str] = []

    assert [1, 2, 3] == run(df.ParDo(Life(log)))
    assert (
        "setup, start_bundle, process 1, process 2, finish_bundle, "
        "start_bundle, process 3, finish_bundle, teardown"
    ) == ", ".join(log)


@pytest.mark.parametrize("hook", ["setup", "start_bundle", "finish_bundle", "teardown"])
def test_errors_in_the_life_of_a_do_fn_are_located(hook: str) -> None:
    log: list[str] = []
    with pytest.raises(df.TransformError, match=r"'ParDo\(Life\)' \(.*:\d+\) raised") as caught:
        run(df.ParDo(Life(log, hook)))

    assert f"in Life.{hook}" == caught.value.detail


def test_teardown_follows_setup_when_something_fails() -> None:
    """Of the DoFns whose setup succeeded."""
    log: list[str] = []
    with pytest.raises(df.TransformError):
        run(df.ParDo(Life(log)), df.Map(lambda x: 1 // 0))

    assert "teardown" == log[-1]


class See(df.DoFn):
    """Asks for everything there is."""

    def process(
        self,
        element: Any,
        /,
        window: Any = df.DoFn.WindowParam,
        timestamp: Any = df.DoFn.TimestampParam,
        pane: Any = df.DoFn.PaneParam,
    ) -> Iterable[Any]:
        yield element, window, timestamp, pane.index


def test_params() -> None:
    """Each element's own window, time and pane; in DoFns and in plain functions."""
    values = [df.TimestampedValue("a", 5), df.TimestampedValue("b", 65)]
    minute = df.WindowInto(df.FixedWindows(60))
    expected = [
        ("a", (0, 60_000_000), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), 0),
        ("b", (60_000_000, 120_000_000), datetime(1970, 1, 1, 0, 1, 5, tzinfo=UTC), 0),
    ]

    assert expected == run(minute, df.ParDo(See()), values=values)
    assert [("a", 5), ("b", 65)] == run(
        df.Map(lambda x, at=df.DoFn.TimestampParam: (x, at.timestamp())), values=values
    )
    assert ["b"] == run(
        minute, df.Filter(lambda x, window=df.DoFn.WindowParam: window.start_us), values=values
    )


@pytest.mark.parametrize("transform", [df.Map, df.FlatMap, df.Filter])
@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no")], ids=shown)
@pytest.mark.parametrize("with_params", [False, True])
def test_errors_name_transform_line_and_element(
    transform: Any, error: Exception, with_params: bool
) -> None:
    """StopIteration as well, which would else end the bundle early in silence."""

    def plain(x: int) -> list[int]:
        if x == 3:
            raise error
        return [x]

    def asking(x: int, window: Any = df.DoFn.WindowParam) -> list[int]:
        return plain(x)

    with pytest.raises(df.TransformError) as caught:
        run("bad" >> transform(asking if with_params else plain), values=range(9), bundle_records=9)

    assert caught.value.fact.startswith("transform 'bad' (tests")
    assert type(error).__name__ in caught.value.fact
    assert "element: 3" == caught.value.detail


def test_long_elements_are_cut_in_errors() -> None:
    with pytest.raises(df.TransformError, match=r"\(1002 characters\)"):
        run(df.Map(int), values=["x" * 1_000])


def test_flat_map_that_returns_no_iterable() -> None:
    with pytest.raises(df.TransformError, match="cannot be iterated"):
        run(df.FlatMap(lambda x: x))


def test_errors_downstream_are_not_blamed_upstream() -> None:
    with pytest.raises(df.TransformError, match=r"^transform 'second'"):
        run("first" >> df.Map(abs), "second" >> df.Map(lambda x: 1 // 0))


class Route(df.DoFn):
    def process(self, element: int, /) -> Iterable[Any]:
        if element % 2:
            yield df.TaggedOutput("odd", df.TimestampedValue(element, 7))
        else:
            yield element
        if element == 3:
            yield df.TaggedOutput("three", "!")


def test_tagged_outputs() -> None:
    """Each value goes to its output, with its own event time; what nobody reads is no error."""
    odd: list[Any] = []
    rest: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    outputs = (
        pipeline
        | df.Create([1, 2, 3])
        | "route" >> df.ParDo(Route()).with_outputs("odd", "three", main="even")
    )
    timed = outputs.odd | df.Map(lambda x, at=df.DoFn.TimestampParam: (x, at.timestamp()))
    timed | df.Map(odd.append)
    outputs["even"] | "even" >> df.Map(rest.append)
    pipeline.run()

    assert [(1, 7), (3, 7)] == odd
    assert [2] == rest
    assert "route" == pipeline.graph().transforms[1].label


def test_unknown_tag() -> None:
    with pytest.raises(df.TransformError, match="yielded to the output 'odd'") as caught:
        run(df.ParDo(Route()))

    assert "with_outputs('odd')" in caught.value.hint
    with pytest.raises(df.PipelineError, match="are not all different"):
        df.ParDo(Route()).with_outputs("a", "a")


def test_timestamped_values_may_move_later_only() -> None:
    later = df.Map(lambda x: df.TimestampedValue(x, x))
    with pytest.raises(df.TransformError, match="an earlier event time") as caught:
        run(later, df.Map(lambda x: df.TimestampedValue(x, 2)))

    assert "element: 3" in caught.value.detail
    assert [5] == run(
        later, df.Map(lambda x, at=df.DoFn.TimestampParam: int(at.timestamp())), values=[5]
    )


class NoElement(df.DoFn):
    def process(self) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: df.Map(lambda: 1),  # type: ignore[misc, arg-type]
        lambda: df.Map(lambda x, y: 1),
        lambda: df.Filter(lambda x, *, y: 1),
        lambda: df.ParDo(NoElement()),
    ],
)
def test_calls_that_cannot_take_one_element_are_refused(make: Any) -> None:
    with pytest.raises(df.PipelineError, match="cannot be called with one element"):
        df.Pipeline(DirectRunner()) | df.Create([1]) | make()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: df.Map(cast(Any, 5)), "Map needs a function, not 5"),
        (lambda: df.ParDo(cast(Any, len)), "ParDo needs a DoFn"),
        (lambda: df.WindowInto(cast(Any, df.FixedWindows)), "WindowInto needs a window function"),
    ],
)
def test_what_is_not_code_is_refused(make: Any, what: str) -> None:
    with pytest.raises(df.PipelineError, match=what):
        make()


def test_group_by_key() -> None:
    pairs = [("a", 1), ("b", 2), ("a", 3)]

    assert [("a", [1, 3]), ("b", [2])] == sorted(run(df.GroupByKey(), values=pairs))


class Longest(df.CombineFn):
    """The longest text."""

    def create_accumulator(self) -> str:
        return ""

    def add_input(self, accumulator: str, value: str) -> str:
        return max(accumulator, value, key=len)

    def merge_accumulators(self, accumulators: Iterable[str]) -> str:
        return max(accumulators, key=len)

    def extract_output(self, accumulator: str) -> str:
        return accumulator


def test_combine_per_key() -> None:
    """With a function, and with a CombineFn; equal keys of different types are one key."""
    assert [("a", 6)] == run(df.CombinePerKey(sum), values=[("a", 1), ("a", 2), ("a", 3)])
    assert [("a", "xxx")] == run(
        df.CombinePerKey(Longest()), values=[("a", "x"), ("a", "xxx"), ("a", "yy")]
    )
    assert [(1, 6)] == run(
        df.CombinePerKey(sum), values=[(1, 1), (1.0, 2), (True, 3)], bundle_records=1
    )


@pytest.mark.parametrize(
    ("key", "error", "what"),
    [
        ({1}, df.TransformError, "key that cannot be hashed"),
        ([1], df.TransformError, "key that cannot be hashed"),
        (object(), df.KeyEncodingError, "cannot be a key"),
        (float("nan"), df.KeyEncodingError, "NaN is not equal to itself"),
        (datetime(2024, 1, 1), df.KeyEncodingError, "no time zone"),  # noqa: DTZ001 - without a time zone, as the test says
    ],
    ids=shown,
)
def test_bad_keys(key: Any, error: type[Exception], what: str) -> None:
    """The error names the transform and its line."""
    with pytest.raises(error, match=r"^transform 'group' \(tests.*:\d+\)") as caught:
        run("group" >> df.GroupByKey(), values=[("fine", 0), (key, 1)], bundle_records=1)

    assert what in str(caught.value)


class Fails(Longest):
    """Breaks when asked for the result, that is, in the grouping and not before it."""

    def extract_output(self, accumulator: str) -> str:
        raise RuntimeError("broken")


def test_errors_of_a_combine_fn_are_located() -> None:
    with pytest.raises(df.TransformError, match=r"^transform 'c' \(tests.* RuntimeError: broken"):
        run("c" >> df.CombinePerKey(Fails()), values=[("a", "x")])
    with pytest.raises(df.TransformError, match=r"^transform 'c' \(tests.* TypeError") as caught:
        run("c" >> df.CombinePerKey(sum), values=[("a", "x")])

    assert "while combining 1 value, the first 'x'" == caught.value.detail


def test_flatten() -> None:
    """Every element of every input, also of an input that is named twice."""
    seen: list[int] = []
    pipeline = df.Pipeline(DirectRunner())
    a, b = pipeline | df.Create([1]), pipeline | df.Create([2, 3])
    (a, b, a) | df.Flatten() | df.Map(seen.append)
    pipeline.run()

    assert [1, 1, 2, 3] == sorted(seen)
    with pytest.raises(df.PipelineError, match="at least one"):
        () | df.Flatten()


def test_flatten_feeds_one_grouping_from_several_sources() -> None:
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    a, b = pipeline | df.Create([("k", 1)]), pipeline | df.Create([("k", 2)])
    (a, b) | df.Flatten() | df.CombinePerKey(sum) | df.Map(seen.append)
    pipeline.run()

    assert [("k", 3)] == seen


def test_flatten_of_different_windows_is_refused() -> None:
    pipeline = df.Pipeline(DirectRunner())
    a, b = (pipeline | df.Create([df.TimestampedValue(each, each)]) for each in (1, 2))
    with pytest.raises(df.PipelineError, match="windowed differently") as caught:
        (a, b | df.WindowInto(df.FixedWindows(60))) | df.Flatten()

    assert "FixedWindows" in caught.value.detail


def test_window_into_refuses_what_it_cannot_mean() -> None:
    with pytest.raises(df.PipelineError, match="has no accumulation mode"):
        df.WindowInto(df.FixedWindows(60), allowed_lateness=1)
    with pytest.raises(df.WindowError, match="cannot be negative"):
        df.WindowInto(df.FixedWindows(60), allowed_lateness=-1)
    with pytest.raises(df.TimeError):
        df.WindowInto(df.FixedWindows(60), allowed_lateness="one day")


class TwoWindows(df.WindowFn):
    """Each record in none, one or two windows."""

    def assign_windows(self, timestamp_us: int, value: int) -> list[df.Window]:
        return [df.Window(0, 10), df.Window(0, 20)][: value - 1]


def test_a_record_can_be_in_any_number_of_windows() -> None:
    """In none it is dropped from grouping, in two it is in both."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Create([df.TimestampedValue(value, 0) for value in (1, 2, 3)])
        | df.WindowInto(TwoWindows())
        | df.Map(lambda x: ("k", x))
        | df.GroupByKey()
    )
    emitted = {tuple(pane.window): pane.value for pane in run_logged(pipeline).panes}

    assert {(0, 10): [2, 3], (0, 20): [3]} == emitted


def test_what_beam_asks_for_by_other_names() -> None:
    class Asking(df.DoFn):
        def process(
            self,
            element: int = df.DoFn.ElementParam,
            pane: Any = df.DoFn.PaneInfoParam,
        ) -> list[Any]:
            return [(element, pane.is_first)]

    class Remembering(Asking):
        SEEN = df.ReadModifyWriteStateSpec("seen")

        def process(
            self,
            element: Any = df.DoFn.ElementParam,
            seen: Any = df.DoFn.StateParam(SEEN),
        ) -> list[Any]:
            return [(element, seen.read())]

    assert df.TimestampCombiner("end of window") is df.TimestampCombiner.OUTPUT_AT_EOW
    assert df.CombineFn.from_callable(sum).extract_output([1, 2]) == 3
    assert run(df.ParDo(Asking()), values=[7]) == [(7, True)]
    assert run(df.ParDo(Remembering()), values=[("a", 1)]) == [(("a", 1), None)]

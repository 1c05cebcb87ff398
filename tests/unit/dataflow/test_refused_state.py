"""What a stateful DoFn may not ask for, refused on the line that asks."""

from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from tests.unit.dataflow.test_user_state import BAG, END, NO_BAG, Remember, retracting, run


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: df.BagStateSpec(""), "needs a name"),
        (lambda: df.ReadModifyWriteStateSpec(3), "needs a name"),  # type: ignore[arg-type]
        (lambda: df.CombiningValueStateSpec("n", df.MeanCombineFn), "needs a CombineFn"),
        (lambda: df.TimerSpec("n", "event"), "needs a time domain"),  # type: ignore[arg-type]
        (lambda: df.TimerFamilySpec("", df.TimeDomain.EVENT), "needs a name"),
        (lambda: df.TimerFamilySpec("n", "event"), r"TimerFamilySpec.*needs a time domain"),  # type: ignore[arg-type]
        (lambda: df.DoFn.StateParam(END), "needs the spec of a state"),
        (lambda: df.DoFn.TimerParam(BAG), "needs the spec of a timer"),
        (lambda: df.on_timer(BAG), "needs the spec of a timer"),  # type: ignore[arg-type]
    ],
)
def test_wrong_specs_are_refused(make: Any, message: str) -> None:
    with pytest.raises(df.PipelineError, match=message) as caught:
        make()
    assert caught.value.hint


def test_a_timer_of_a_do_fn_follows_the_watermark_or_the_clock() -> None:
    """Whatever further domains the engine has for triggers."""
    for domain in df.TimeDomain:
        if domain not in {df.TimeDomain.EVENT, df.TimeDomain.PROCESSING}:
            with pytest.raises(df.PipelineError, match="needs a time domain"):
                df.TimerSpec("n", domain)


def refused(fn: Any, *before: Any) -> df.DataflowError:
    pipeline = df.Pipeline(DirectRunner())
    collection: Any = pipeline | df.Create([df.TimestampedValue(("a", 1), 1)])
    for transform in before:
        collection = collection | transform
    with pytest.raises(df.PipelineError) as caught:
        collection | "bad" >> (fn if isinstance(fn, df.PTransform) else df.ParDo(fn))
    error = caught.value
    assert error.fact.startswith("transform 'bad")
    assert "test_refused_state.py:" in error.fact
    assert error.hint
    return error


class NoMethod(df.DoFn):
    def process(self, element: Any, /, end: Any = df.DoFn.TimerParam(END)) -> None: ...


class TwoMethods(NoMethod):
    @df.on_timer(END)
    def one(self) -> None: ...

    @df.on_timer(END)
    def two(self) -> None: ...


class NeedsArgument(NoMethod):
    @df.on_timer(END)
    def ended(self, element: Any) -> None: ...


class WantsPane(NoMethod):
    @df.on_timer(END)
    def ended(self, pane: Any = df.DoFn.PaneParam) -> None: ...


class WantsTag(NoMethod):
    @df.on_timer(END)
    def ended(self, tag: Any = df.DoFn.DynamicTimerTagParam) -> None: ...


class WantsTagOfElement(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        tag: Any = df.DoFn.DynamicTimerTagParam,
        bag: Any = df.DoFn.StateParam(BAG),
    ) -> None: ...


class WantsFireTime(df.DoFn):
    def process(self, element: Any, /, time: Any = df.DoFn.FireTimestampParam) -> None: ...


class WantsWatermark(df.DoFn):
    def process(self, element: Any, /, watermark: Any = df.DoFn.WatermarkParam) -> None: ...


class TwoSpecs(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        one: Any = df.DoFn.StateParam(BAG),
        two: Any = df.DoFn.StateParam(NO_BAG),
    ) -> None: ...


class WantsKey(df.DoFn):
    def process(self, element: Any, /, key: Any = df.DoFn.KeyParam) -> None: ...


class WantsSign(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        sign: Any = df.DoFn.SignParam,
        bag: Any = df.DoFn.StateParam(BAG),
    ) -> None: ...


class NeedsMore(df.DoFn):
    def process(self, element: Any, more: Any, bag: Any = df.DoFn.StateParam(BAG)) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (NoMethod(), "has no methods for the timer 'end'"),
        (TwoMethods(), "has 2 methods for the timer 'end'"),
        (NeedsArgument(), "cannot be called without arguments"),
        (WantsPane(), "asks for ElementParam, PaneInfoParam or SignParam in a timer method"),
        (WantsTag(), "asks for DynamicTimerTagParam in the method of a timer that has no tag"),
        (WantsTagOfElement(), "DynamicTimerTagParam outside the method of a timer"),
        (WantsFireTime(), "asks for FireTimestampParam or DynamicTimerTagParam outside"),
        (WantsWatermark(), "which only a stateful DoFn can have"),
        (TwoSpecs(), "uses the name 'bag' for two different things"),
        (WantsKey(), "which only a stateful DoFn can have"),
        (WantsSign(), "does not declare that it handles retractions"),
        (NeedsMore(), "cannot be called with one element"),
        (df.Map(lambda x, bag=df.DoFn.StateParam(BAG): x), "a plain function cannot have"),
        (df.Map(lambda x, tag=df.DoFn.DynamicTimerTagParam: x), "a plain function cannot have"),
        (df.Filter(lambda x, key=df.DoFn.KeyParam: x), "a plain function cannot have"),
    ],
)
def test_what_cannot_be_had_is_refused_when_it_is_built(fn: Any, message: str) -> None:
    assert message in refused(fn).fact


def test_windows_that_merge_are_refused_where_state_has_no_merge_function() -> None:
    """After a grouping they are what they are, and fine."""
    error = refused(Remember(), df.WindowInto(df.Sessions(60)))
    assert "does not say how its state merges: 'value'" in error.fact
    assert "Sessions" in str(error.detail)
    assert "ReadModifyWriteStateSpec('value', merge=" in str(error.hint)
    of_the_sdk = refused(df.GroupIntoBatches(2), df.WindowInto(df.Sessions(60)))
    assert of_the_sdk.hint == "group first: after df.GroupByKey() windows stay as they are"

    seen = run(
        df.WindowInto(df.Sessions(60)),
        df.CombinePerKey(sum),
        df.ParDo(Remember()),
        values=[df.TimestampedValue(("a", each), each) for each in (1, 2)],
    )
    assert [("a", 3, [3], 3.0)] == seen


def test_input_that_may_be_retracted_is_refused() -> None:
    error = refused(Remember(), *retracting())

    assert "may be retracted by transform 'sum' (" in error.fact
    assert "handles_retractions = True" in str(error.hint)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: df.BagStateSpec("n", ttl=0),
            r"BagStateSpec\('n'\) needs a positive ttl, not 0",
        ),
        (lambda: df.MapStateSpec("n", ttl="-1 h"), "needs a positive ttl"),
        (lambda: df.SetStateSpec("n", ttl=1, ttl_domain="event"), "needs a time domain"),  # type: ignore[arg-type]
    ],
)
def test_a_time_to_live_is_one(make: Any, message: str) -> None:
    with pytest.raises(df.DataflowError, match=message) as caught:
        make()
    assert caught.value.hint


PAGES, COUNTS = df.SetStateSpec("pages"), df.MapStateSpec("counts")
TIMES = df.OrderedListStateSpec("times")


class Misused(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        pages: Any = df.DoFn.StateParam(PAGES),
        counts: Any = df.DoFn.StateParam(COUNTS),
        times: Any = df.DoFn.StateParam(TIMES),
    ) -> None:
        element[1](pages, counts, times)


@pytest.mark.parametrize(
    ("misuse", "fact", "hint"),
    [
        (
            lambda pages, *_: pages.add(["home"]),
            "state 'pages' cannot have ['home']: values of this type cannot be hashed",
            "use a tuple for a list, and a frozen class for one that can be changed",
        ),
        (
            lambda _, counts, __: counts.get({}),
            "state 'counts' cannot have {}: values of this type cannot be hashed",
            "use a tuple for a list, and a frozen class for one that can be changed",
        ),
        (
            lambda *handles: handles[2].add("home"),
            "state 'times' takes a pair of timestamp and value, not 'home'",
            "e.g. prices.add((timestamp, value))",
        ),
    ],
)
def test_what_a_kind_of_state_cannot_have_is_refused(misuse: Any, fact: str, hint: str) -> None:
    with pytest.raises(df.DataflowError) as caught:
        run(df.ParDo(Misused()), values=[("a", misuse)])
    assert fact in str(caught.value)
    assert hint in str(caught.value)


ANCHORED = df.TimerSpec("anchored", df.TimeDomain.EVENT, holds_watermark=True)


class TwoExpirations(df.DoFn):
    def process(self, element: Any, /, bag: Any = df.DoFn.StateParam(BAG)) -> None: ...

    @df.on_window_expiration
    def one(self) -> None: ...

    @df.on_window_expiration
    def two(self) -> None: ...


class ExpirationOfAnElement(df.DoFn):
    def process(self, element: Any, /, bag: Any = df.DoFn.StateParam(BAG)) -> None: ...

    @df.on_window_expiration
    def gone(self, element: Any) -> None: ...


class ExpirationWithTimer(df.DoFn):
    def process(self, element: Any, /, bag: Any = df.DoFn.StateParam(BAG)) -> None: ...

    @df.on_window_expiration
    def gone(self, end: Any = df.DoFn.TimerParam(ANCHORED)) -> None: ...


@pytest.mark.parametrize(
    ("fn", "fact", "detail"),
    [
        (TwoExpirations(), "has 2 methods for the expiration of windows", "one, two"),
        (
            ExpirationOfAnElement(),
            "has an expiration method that cannot be called without arguments",
            "ExpirationOfAnElement.gone: missing a required argument: 'element'",
        ),
        (
            ExpirationWithTimer(),
            "asks for a timer, or for what an element or a timer has, when a window expires",
            "ExpirationWithTimer.gone: nothing fires in a window that has expired",
        ),
    ],
)
def test_methods_of_expiration_that_cannot_be(fn: df.DoFn, fact: str, detail: str) -> None:
    error = refused(fn)
    assert fact in error.fact
    assert detail in error.detail


class SetsAhead(df.DoFn):
    def process(
        self,
        element: Any,
        /,
        end: Any = df.DoFn.TimerParam(END),
        kept: Any = df.DoFn.TimerParam(ANCHORED),
    ) -> None:
        name, fire, output = element[1]
        (end if name == "end" else kept).set(fire, output_timestamp=output)

    @df.on_timer(END)
    def ended(self) -> None: ...

    @df.on_timer(ANCHORED)
    def let_go(self) -> None: ...


@pytest.mark.parametrize(
    ("setting", "fact", "hint"),
    [
        (
            ("end", 9, 9),
            "timer 'end' is set with an output timestamp, and its spec does not declare that it holds the watermark",
            "add holds_watermark=True: df.TimerSpec('end', df.TimeDomain.EVENT, holds_watermark=True)",
        ),
        (
            ("anchored", 9, 4),
            "is set with an output timestamp before the event time that it is set at, 1970-01-01T00:00:05",
            "between that of what sets it (TimestampParam) and that at which it fires",
        ),
        (
            ("anchored", 9, 10),
            "timer 'anchored' is set with an output timestamp after it fires, at 1970-01-01T00:00:09",
            "between that of what sets it (TimestampParam) and that at which it fires",
        ),
    ],
)
def test_an_output_timestamp_is_within_its_bounds(setting: Any, fact: str, hint: str) -> None:
    with pytest.raises(df.DataflowError) as caught:
        run(df.ParDo(SetsAhead()), values=[df.TimestampedValue(("a", setting), 5)])
    assert fact in str(caught.value)
    assert hint in str(caught.value)


COUNTS = df.MapStateSpec("counts")


class WithMap(df.DoFn):
    def process(self, element: Any, counts: Any = df.DoFn.StateParam(COUNTS)) -> Any:
        yield element


def test_a_map_in_windows_that_merge_needs_a_merge_function() -> None:
    error = refused(WithMap(), df.WindowInto(df.Sessions(60)))

    assert "does not say how its state merges: 'counts'" in error.fact
    assert "df.MapStateSpec('counts', merge=" in str(error.hint)


class HandlesAll(df.DoFn):
    handles_retractions = True

    def process(self, element: Any, bag: Any = df.DoFn.StateParam(BAG)) -> Any:
        yield element


def test_sessions_that_may_split_again_are_refused() -> None:
    """Even for code that handles retractions: state that has merged cannot be divided."""
    error = refused(HandlesAll(), *retracting(), df.WindowInto(df.Sessions(60)))

    assert "keeps state in windows that merge, and its input may be retracted by" in error.fact
    assert "split again" in str(error.detail)


@pytest.mark.parametrize("spec", [df.ReadModifyWriteStateSpec, df.MapStateSpec])
def test_merge_is_a_function(spec: Any) -> None:
    with pytest.raises(
        df.PipelineError, match="needs a function of two values as its merge, not 3"
    ):
        spec("name", merge=3)


class MergesTwice(df.DoFn):
    def process(self, element: Any, bag: Any = df.DoFn.StateParam(BAG)) -> Any:
        yield element

    @df.on_window_merge
    def one(self) -> None:
        """Nothing."""

    @df.on_window_merge
    def other(self) -> None:
        """Nothing."""


class MergesPanes(df.DoFn):
    def process(self, element: Any, bag: Any = df.DoFn.StateParam(BAG)) -> Any:
        yield element

    @df.on_window_merge
    def merged(self, pane: Any = df.DoFn.PaneParam) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (MergesTwice(), "has 2 methods for the merging of windows"),
        (MergesPanes(), "asks for what an element or a timer has when windows merge"),
    ],
)
def test_a_merge_method_is_one_and_has_no_element(fn: df.DoFn, message: str) -> None:
    assert message in refused(fn).fact


@pytest.mark.parametrize("kind", [df.TimerSpec, df.TimerFamilySpec])
def test_only_a_timer_that_holds_the_watermark_keeps_its_window(kind: Any) -> None:
    with pytest.raises(df.PipelineError, match="late behind its window") as caught:
        kind("soon", df.TimeDomain.PROCESSING, keeps_window=True)
    assert "holds_watermark=True, keeps_window=True" in str(caught.value)
    with pytest.raises(df.PipelineError, match="no timer of processing time"):
        kind("soon", df.TimeDomain.EVENT, holds_watermark=True, keeps_window=True)


def test_a_timer_in_windows_that_merge_keeps_none() -> None:
    class Keeping(df.DoFn):
        spec = df.TimerSpec(
            "soon", df.TimeDomain.PROCESSING, holds_watermark=True, keeps_window=True
        )

        def process(self, element: Any, /, soon: Any = df.DoFn.TimerParam(spec)) -> None: ...

        @df.on_timer(spec)
        def fire(self) -> None: ...

    error = refused(Keeping(), df.WindowInto(df.Sessions(60)))

    assert "has a timer that keeps its window, and its windows merge: 'soon'" in error.fact


class Kept(df.DoFn):
    has_retractable_outputs = True

    def process(self, element: Any, /, bag: Any = df.DoFn.StateParam(BAG)) -> Any:
        bag.add(element)
        bag.clear()
        yield element


class KeptFromBundles(Kept):
    def finish_bundle(self) -> Any:
        yield df.TimestampedValue("b", 1)


class KeptWithoutState(df.DoFn):
    has_retractable_outputs = True

    def process(self, element: Any, /) -> Any:
        yield element


def test_outputs_that_belong_to_no_key_or_window_cannot_be_kept() -> None:
    assert "emits from finish_bundle" in refused(KeptFromBundles()).fact
    assert "keeps no state" in refused(KeptWithoutState()).fact
    assert "in windows that merge" in refused(Kept(), df.WindowInto(df.Sessions(10))).fact
    discarded = refused(df.GroupByKey(), df.ParDo(Kept()))
    assert "groups elements that may be retracted" in discarded.fact


def test_outputs_of_a_bundle_that_were_not_foreseen_are_an_error() -> None:
    """Returned, and not yielded, so that it is not known before it runs."""

    class Returns(Kept):
        def finish_bundle(self) -> Any:
            return [df.TimestampedValue("b", 1)]

    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([("a", 1)]) | df.ParDo(Returns())
    with pytest.raises(df.TransformError, match="emitted something from finish_bundle"):
        pipeline.run()


def test_what_is_kept_of_outputs_is_no_state_that_expires() -> None:
    class Expires(Kept):
        @df.on_window_expiration
        def expire(self, key: Any = df.DoFn.KeyParam) -> Any:
            yield key, "expired"

    pipeline = df.Pipeline(DirectRunner())
    found = pipeline | df.Create([("a", 1)]) | df.ParDo(Expires())
    assert df.collect(found) == [("a", 1)]

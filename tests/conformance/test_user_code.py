"""What user code emits is there on every runner, and what it cannot emit is refused with the transform and the line."""

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import pytest

import dataflow as df
from tests.conformance.conftest import MakeRunner

SCORES = [
    df.TimestampedValue((f"user{number % 3}", number), 7 * number % 200) for number in range(60)
]
COLUMNS = {"user": str, "start": datetime, "at": datetime, "value": int}
SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())


#: An error of the user's takes no more lines than this.
LINES_MAX = 20


class Refusing(df.CombineFn[int, int, int]):
    """A sum without the numbers that three divides."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        if value % 3 == 0:
            raise ValueError(f"{value} is refused")
        return accumulator + value

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


class Sale(NamedTuple):
    shop: str
    amount: int


class Gathered(df.DoFn):
    """Emits the sums of a bundle when it ends, one for each key and window, at the latest time that it has seen."""

    def start_bundle(self) -> None:
        self.sums: dict[Any, int] = defaultdict(int)
        self.latest: dict[Any, datetime] = {}

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
    ) -> None:
        place = element[0], window
        self.sums[place] += element[1]
        self.latest[place] = max(at, self.latest.get(place, at))

    def finish_bundle(self) -> Iterator[Any]:
        for (key, window), total in self.sums.items():
            yield df.WindowedValue((key, total), self.latest[key, window], window)
            yield df.TaggedOutput("keys", df.WindowedValue((key, 1), window.start, window))


class GatheredWithState(Gathered):
    """Gathers beside state."""

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
        seen: Any = df.DoFn.StateParam(SEEN),
    ) -> None:
        seen.add(1)
        super().process(element, at, window)


def row(
    pair: tuple[str, int],
    window: df.Window = df.DoFn.WindowParam,
    at: datetime = df.DoFn.TimestampParam,
) -> dict[str, Any]:
    return {"user": pair[0], "start": window.start, "at": at, "value": pair[1]}


@pytest.mark.parametrize("gather", [Gathered, GatheredWithState])
def test_what_a_bundle_ends_with_is_emitted(
    gather: type[Gathered], make_runner: MakeRunner
) -> None:
    """However the input is cut into bundles, the sums of the sums are those of the input."""
    p = df.Pipeline(make_runner())
    windowed: Any = p | df.Create(SCORES) | df.WindowInto(df.FixedWindows(60))
    gathered: Any = windowed | df.ParDo(gather(), allowed_timestamp_skew=60).with_outputs("keys")
    for name, pcoll in {"sums": gathered.main, "ones": gathered.keys}.items():
        combine = sum if name == "sums" else max
        totals: Any = pcoll | f"total {name}" >> df.CombinePerKey(combine)
        totals | f"row {name}" >> df.Map(row) | name >> df.WriteToPostgres(name, columns=COLUMNS)
    result = p.run()
    result.wait_until_finish()

    expected: dict[Any, int] = defaultdict(int)
    for score in SCORES:
        user, value = score.value
        expected[user, score.timestamp_us // 60_000_000 * 60] += value
    sums = {
        (each["user"], each["start"].timestamp()): each["value"]
        for each in result.read_table("sums")
    }
    assert expected == sums
    assert len(expected) == len(result.read_table("sums")) == len(result.read_table("ones"))
    assert [] == list(result.late_records())


def divide(element: Any) -> Any:
    return 1 // (element[1] - 7)


def test_an_error_shows_the_users_own_lines(make_runner: MakeRunner) -> None:
    """The lines of the function that raised, and of what called it, behind the error that names the transform."""
    p = df.Pipeline(make_runner())
    outputs: Any = p | df.Create(SCORES) | "divide" >> df.Map(lambda element: divide(element) + 1)
    outputs | df.Map(lambda each: {"n": each}) | df.WriteToPostgres("t", columns={"n": int})

    with pytest.raises(df.TransformError, match="'divide'") as caught:
        p.run().wait_until_finish()
    shown = "".join(traceback.format_exception(caught.value))
    assert "in divide" in shown
    assert "return 1 // (element[1] - 7)" in shown
    assert "in <lambda>" in shown
    assert "element: ('user1', 7)" in shown
    assert len(shown.splitlines()) <= LINES_MAX


def test_too_many_failures_end_the_run_and_name_the_transform(make_runner: MakeRunner) -> None:
    """Of 60 elements each third is bad; nothing of it is the user's code, so no frame but the user's is shown."""
    p = df.Pipeline(make_runner())
    handled = df.CombinePerKey(Refusing()).with_exception_handling(
        threshold=0.3, threshold_windowing=df.FixedWindows(200)
    )
    good, _ = p | df.Create(SCORES) | df.WindowInto(df.FixedWindows(60)) | "sum" >> handled
    rows = good | df.Map(lambda pair: {"user": pair[0], "n": pair[1]})
    rows | df.WriteToPostgres("t", columns={"user": str, "n": int})

    with pytest.raises(
        df.TooManyFailuresError, match=r"'sum/check' \(.*failed on 20 of 60 el"
    ) as caught:
        p.run().wait_until_finish()
    shown = "".join(traceback.format_exception(caught.value))
    assert len(shown.splitlines()) <= LINES_MAX
    assert "runners/core" not in shown
    assert "worker" not in shown


def text(element: Any) -> Any:
    return "two words"


def mapping(element: Any) -> Any:
    return {"user": element[0]}


def typed_row(element: Any) -> Any:
    return Sale("Oslo", 3)


@pytest.mark.parametrize("returned", [text, mapping, typed_row])
def test_one_value_in_place_of_outputs_is_refused(
    returned: Callable[[Any], Any], make_runner: MakeRunner
) -> None:
    p = df.Pipeline(make_runner())
    outputs: Any = p | df.Create(SCORES) | "explode" >> df.FlatMap(returned)
    (
        outputs
        | df.Map(lambda each: {"text": str(each)})
        | df.WriteToPostgres("t", columns={"text": str})
    )

    with pytest.raises(
        df.DataflowError, match=r"'explode' \(.*test_user_code.py:\d+\) returned one value"
    ):
        p.run().wait_until_finish()

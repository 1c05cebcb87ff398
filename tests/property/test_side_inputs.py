"""In the end elements are there with the last views, whatever came first; and each is there once at every moment."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import SideInputs
from dataflow.testing import TestStream
from dataflow.transforms import side_inputs
from runners.core.ground.cells import PageId
from runners.core.panes import group_also_by_window
from runners.core.side_inputs import arriving_views, side_inputs_machine
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.core.stateful.cell_pages import all_are_there
from runners.direct import DirectRunner
from runners.stored.journal import encode_changes
from runners.testing.scripted_source import ScriptedSource
from tests.effort import by_profile
from windowing.pane import NO_FIRING
from windowing.time_domain import TimeDomain
from windowing.window import GLOBAL_WINDOW

MODE = df.AccumulationMode
#: An example takes some ten milliseconds.
EFFORT = settings(max_examples=by_profile(30, nightly=3_000), deadline=None)
WINDOW = 10
PAGES = st.sampled_from([None, 1, 60])
TRIGGERS = st.sampled_from(
    [
        None,
        df.Always(),
        df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
        df.AfterWatermark(early=df.AfterCount(2)),
    ]
)


@attrs.frozen
class Script:
    """What comes, with event times in seconds, in parts; between two parts the watermark moves to that second."""

    parts: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]

    def stream(self) -> TestStream:
        stream, reached = TestStream(), 0
        for moves, elements in self.parts:
            stream = stream.add_elements([df.TimestampedValue(*each) for each in elements])
            reached += moves
            stream = stream.advance_watermark_to(reached)
        return stream

    @property
    def elements(self) -> list[tuple[str, int]]:
        return [each for _, elements in self.parts for each in elements]


def scripts(letters: str) -> st.SearchStrategy[Script]:
    element = st.tuples(st.sampled_from(letters), st.integers(0, 39))
    part = st.tuples(st.integers(0, 15), st.lists(element, max_size=3).map(tuple))
    return st.lists(part, min_size=1, max_size=5).map(lambda parts: Script(tuple(parts)))


@contextmanager
def in_pages(page_bytes: int | None) -> Iterator[None]:
    """Have every grouping keep what is larger in pages, as in a stream, and views come in parts; None: neither."""
    make = GroupingStage.__init__

    def made(stage: GroupingStage, *args: Any, **more: Any) -> None:
        make(stage, *args, **more)
        if page_bytes is not None:
            stage.keep_in_pages(page_bytes, all_are_there)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupingStage, "__init__", made)
        if page_bytes is not None:
            patch.setattr(side_inputs, "PART_VALUES", 1)
            patch.setattr(group_also_by_window, "PASSED_VALUES", 2)
            patch.setattr(arriving_views, "FEW", 1)
            patch.setattr(arriving_views, "MADE_PAGES", 1)
            patch.setattr(arriving_views, "BUCKET_PAGES", 1)
        patch.setattr(side_inputs_machine, "FEW", 1)
        yield


def changes(
    main: Script, side: Script, trigger: Any, size: int, page_bytes: int | None, **more: Any
) -> list[Any]:
    """Signs and values of elements with the sorted side input; nothing is too late."""
    with in_pages(page_bytes):
        return _changes(main, side, trigger, size, **more)


def _changes(main: Script, side: Script, trigger: Any, size: int, **more: Any) -> list[Any]:
    found: list[Any] = []
    windowed = df.WindowInto(
        df.FixedWindows(size),
        trigger=trigger,
        allowed_lateness=1_000,
        accumulation_mode=more.pop("mode", MODE.ACCUMULATING_AND_RETRACTING),
    )
    own = df.WindowInto(
        df.FixedWindows(WINDOW), allowed_lateness=1_000, accumulation_mode=MODE.ACCUMULATING
    )
    with df.Pipeline(DirectRunner()) as p:
        letters = p | "side" >> side.stream() | "side windows" >> windowed
        (
            p
            | "main" >> main.stream()
            | "windows" >> own
            | df.Map(
                lambda x, all_of_it, at=df.DoFn.TimestampParam: (
                    x,
                    int(at.timestamp()),
                    "".join(sorted(all_of_it)),
                ),
                df.AsList(letters, shards=3, **more),
            )
            | df.ToChangelog()
            | df.Map(lambda each: found.append((each.sign, each.value)))
        )
    return found


@pytest.mark.slow
@EFFORT
@given(
    main=scripts("ab"),
    side=scripts("xyz"),
    trigger=TRIGGERS,
    size=st.sampled_from([WINDOW, 20]),
    page_bytes=PAGES,
)
def test_in_the_end_elements_are_there_with_the_last_views(
    main: Script, side: Script, trigger: Any, size: int, page_bytes: int | None
) -> None:
    net: Counter[Any] = Counter()
    there: Counter[Any] = Counter()
    of_script = Counter(main.elements)
    for sign, value in changes(main, side, trigger, size, page_bytes):
        net[value] += sign
        there[value[:2]] += sign
        assert min(net[value], there[value[:2]]) >= 0, "retracted before it was emitted"
        assert there[value[:2]] <= of_script[value[:2]]

    assert (
        Counter(
            (x, t, "".join(sorted(y for y, at in side.elements if at // size == t // size)))
            for x, t in main.elements
        )
        == +net
    )


@pytest.mark.slow
@EFFORT
@given(main=scripts("ab"), side=scripts("xyz"), trigger=TRIGGERS, page_bytes=PAGES)
@pytest.mark.parametrize("mode", MODE)
def test_what_is_not_retracted_is_emitted_once(
    mode: MODE, main: Script, side: Script, trigger: Any, page_bytes: int | None
) -> None:
    found = changes(main, side, trigger, WINDOW, page_bytes, mode=mode, retracts=False)

    assert Counter(main.elements) == Counter(value[:2] for _, value in found)
    assert all(sign > 0 for sign, _ in found)


def test_elements_that_wait_are_written_once_or_so() -> None:
    """Where a shard has a large view and many elements that wait, one more costs about a page."""
    p = df.Pipeline()
    sides: Any = (
        p
        | "read" >> df.Read(ScriptedSource([]))
        | "side windows" >> df.WindowInto(df.FixedWindows(10))
    )
    mains: Any = (
        p | "main" >> df.Read(ScriptedSource([])) | "windows" >> df.WindowInto(df.FixedWindows(10))
    )
    mains | "beside" >> df.Map(lambda x, view: (x, len(view)), df.AsList(sides))
    execution = plan(p.graph())
    (stage,) = (
        each for each in execution.groupings() if isinstance(each.root.operation, SideInputs)
    )
    grouping, page_bytes = GroupingStage(execution, stage), 4_096
    grouping.keep_in_pages(page_bytes, all_are_there)
    cells: dict[Any, Any] = {}
    clocks = df.Clocks(watermark_us=0, now_us=0)
    first, second = df.Window(0, 10_000_000), df.Window(10_000_000, 20_000_000)

    def written(value: tuple[int | None, Any], window: df.Window) -> int:
        """The bytes that are committed when this comes."""
        one: Any = (0, window, [(value, window.start_us, NO_FIRING, +1)], 1)
        touched = grouping.machine.add(cells, [one], clocks).touched
        return len(encode_changes([(each, cells.get(each)) for each in touched], ()))

    assert written((0, [f"{each:0100}" for each in range(2_000)]), first) > 200_000
    costs = [written((None, f"{each:0100}"), second) for each in range(1_000)]
    assert max(costs) < 4 * page_bytes
    assert sum(isinstance(each, PageId) for each in cells) > 50

    fired: Any = [(((0, None)), GLOBAL_WINDOW, TimeDomain.EVENT)]
    later = df.Clocks(watermark_us=second.end_us, now_us=0)
    effects = grouping.machine.fire_timers(cells, fired, later)
    assert len(effects.values) == 1_000
    assert cells == {}

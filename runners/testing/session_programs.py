"""Programs of state in windows that merge for `runners.testing.runner_conformance`."""

from collections.abc import Iterator
from typing import Any

import dataflow as df
from dataflow.testing import TestStream

_STEPS = df.BagStateSpec("steps")
_PAID = df.ReadModifyWriteStateSpec("paid", merge=lambda earlier, later: earlier or later)
_COUNTS = df.MapStateSpec("counts", merge=lambda earlier, later: earlier + later)
_PAGES = df.SetStateSpec("pages")
_TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
_TIMES = df.OrderedListStateSpec("times")
_END = df.TimerSpec("end", df.TimeDomain.EVENT)
_PAUSES = df.TimerFamilySpec("pauses", df.TimeDomain.EVENT)


class _Funnel(df.DoFn):
    """Emits each step with the session so far, and how far the session came when it is over."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, str],
        /,
        window: Any = df.DoFn.WindowParam,
        steps: Any = df.DoFn.StateParam(_STEPS),
        paid: Any = df.DoFn.StateParam(_PAID),
        end: Any = df.DoFn.TimerParam(_END),
    ) -> Iterator[Any]:
        """Note a step."""
        user, step = element
        if steps.is_empty:
            end.set(window.end)
        steps.add(step)
        paid.write(step == "pay" or bool(paid.read()))
        yield user, step, window.start_us // 1_000_000, window.end_us // 1_000_000

    @df.on_window_merge
    def grown(self, window: Any = df.DoFn.WindowParam, end: Any = df.DoFn.TimerParam(_END)) -> None:
        """Wait for the new end."""
        end.set(window.end)

    @df.on_timer(_END)
    def over(
        self,
        user: Any = df.DoFn.KeyParam,
        steps: Any = df.DoFn.StateParam(_STEPS),
        paid: Any = df.DoFn.StateParam(_PAID),
    ) -> Iterator[Any]:
        """Tell how far the session came."""
        yield user, tuple(steps.read()), bool(paid.read())


class _Bridged(df.DoFn):
    """Emits what each session has when it expires, and once for each tag after a pause: all that has no order."""

    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        steps: Any = df.DoFn.StateParam(_STEPS),
        counts: Any = df.DoFn.StateParam(_COUNTS),
        pages: Any = df.DoFn.StateParam(_PAGES),
        total: Any = df.DoFn.StateParam(_TOTAL),
        times: Any = df.DoFn.StateParam(_TIMES),
        pauses: Any = df.DoFn.TimerParam(_PAUSES),
    ) -> None:
        """Note an element in every kind of state."""
        value = element[1]
        steps.add(value)
        counts.put(value % 2, counts.get(value % 2, 0) + 1)
        pages.add(value % 3)
        total.add(value)
        times.add((at, value))
        pauses.get(str(value)).set(at.timestamp() + 3)

    @df.on_timer(_PAUSES)
    def paused(self, tag: Any = df.DoFn.DynamicTimerTagParam) -> Iterator[Any]:
        """Tell the tag."""
        yield "pause", int(tag)

    @df.on_window_expiration
    def left(
        self,
        window: Any = df.DoFn.WindowParam,
        steps: Any = df.DoFn.StateParam(_STEPS),
        counts: Any = df.DoFn.StateParam(_COUNTS),
        pages: Any = df.DoFn.StateParam(_PAGES),
        total: Any = df.DoFn.StateParam(_TOTAL),
        times: Any = df.DoFn.StateParam(_TIMES),
    ) -> Iterator[Any]:
        """Tell all of it."""
        yield (
            (window.start_us // 1_000_000, window.end_us // 1_000_000),
            tuple(sorted(steps.read())),
            tuple(sorted(counts.items())),
            tuple(sorted(pages.read())),
            total.read(),
            tuple(value for _, value in times.read()),
        )


def sessions_in_order(p: df.Pipeline) -> df.PCollection[Any]:
    """Sessions that grow element by element, whatever has come and waits."""
    visits = [("ann", "pay", 24), ("ann", "look", 0), ("bob", "look", 3), ("ann", "fill", 8)]
    visits += [("ann", "look", 60), ("ann", "go", 15)]
    pairs = df.Create([df.TimestampedValue((user, step), at) for user, step, at in visits])
    return p | pairs | df.WindowInto(df.Sessions(10)) | df.ParDo(_Funnel())


def sessions_that_are_bridged(p: df.Pipeline) -> df.PCollection[Any]:
    """Sessions of which two have state when an element comes that lies between them."""
    stream = TestStream()
    for value, at in ((1, 100), (2, 115), (3, 130), (4, 122), (5, 108), (6, 190)):
        stream = stream.add_elements([df.TimestampedValue(("k", value), at)])
    stream = stream.advance_watermark_to(300)
    return p | stream | df.WindowInto(df.Sessions(10)) | df.ParDo(_Bridged())

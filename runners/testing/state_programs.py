"""Programs of state and timers for `runners.testing.runner_conformance`."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import dataflow as df
from dataflow.testing import TestStream

_PAGES = df.SetStateSpec("pages")
_COUNTS = df.MapStateSpec("counts")
_TIMES = df.OrderedListStateSpec("times")
_ITEMS = df.BagStateSpec("items")
_FIRST = df.WatermarkHoldStateSpec("first")
_LATER = df.TimerFamilySpec("later", df.TimeDomain.EVENT, holds_watermark=True)
_END = df.TimerSpec("end", df.TimeDomain.EVENT)
_BALANCE = df.ReadModifyWriteStateSpec("balance")
_LAST = df.ReadModifyWriteStateSpec("last", ttl=10)


class _KindsOfState(df.DoFn):
    """Emits what a set, a map and an ordered list have after each visit of a page."""

    def process(
        self,
        element: tuple[str, str],
        /,
        at: Any = df.DoFn.TimestampParam,
        pages: Any = df.DoFn.StateParam(_PAGES),
        counts: Any = df.DoFn.StateParam(_COUNTS),
        times: Any = df.DoFn.StateParam(_TIMES),
    ) -> Iterator[Any]:
        """Count a visit."""
        _, page = element
        is_new = pages.add(page)
        counts.put(page, counts.get(page, 0) + 1)
        # By the length of the name, so that they are not added in order.
        times.add((len(page), page))
        times.clear_range(0, 2)
        names = [name for _, name in times.read_range(3, 10)]
        yield is_new, tuple(pages.read()), tuple(counts.items()), tuple(names)


class _Forgetful(df.DoFn):
    """Emits each element with the one before it, which it has forgotten after ten seconds."""

    def process(
        self,
        element: tuple[str, int],
        /,
        last: Any = df.DoFn.StateParam(_LAST),
    ) -> Iterator[Any]:
        """Remember an element."""
        yield last.read(), element[1]
        last.write(element[1])


class _Basket(df.DoFn):
    """Gathers what a user puts in; it is bought when the user says so, and else lost when the window expires."""

    def process(
        self,
        element: tuple[str, str],
        /,
        basket: Any = df.DoFn.StateParam(_ITEMS),
    ) -> Iterator[Any]:
        """Put something in, or buy all of it."""
        user, item = element
        if item == "buy":
            yield user, "bought", tuple(basket.read())
            basket.clear()
        else:
            basket.add(item)

    @df.on_window_expiration
    def lost(
        self,
        user: Any = df.DoFn.KeyParam,
        window: Any = df.DoFn.WindowParam,
        basket: Any = df.DoFn.StateParam(_ITEMS),
    ) -> Iterator[Any]:
        """Tell what is left."""
        yield user, f"lost in {window.start_us // 1_000_000}", tuple(basket.read())


class _Delayed(df.DoFn):
    """Emits each element a minute later, with the event time that it has."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        items: Any = df.DoFn.StateParam(_ITEMS),
        later: Any = df.DoFn.TimerParam(_LATER),
    ) -> None:
        """Keep an element."""
        items.add(element[1])
        later.get(str(element[1])).set(at + timedelta(minutes=1), output_timestamp=at)

    @df.on_timer(_LATER)
    def emit(
        self,
        key: Any = df.DoFn.KeyParam,
        tag: str = df.DoFn.DynamicTimerTagParam,
    ) -> Iterator[Any]:
        """Emit one of them."""
        yield key, int(tag)


class _FirstOfMinute(df.DoFn):
    """Emits the sum of a minute with the event time of its first element, long after it."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[str, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        items: Any = df.DoFn.StateParam(_ITEMS),
        first: Any = df.DoFn.StateParam(_FIRST),
        end: Any = df.DoFn.TimerParam(_END),
    ) -> None:
        """Keep an element, and hold the watermark at the first."""
        items.add(element[1])
        if first.is_empty:
            end.set(at + timedelta(minutes=1))
        first.add(at)

    @df.on_timer(_END)
    def emit(
        self,
        key: Any = df.DoFn.KeyParam,
        items: Any = df.DoFn.StateParam(_ITEMS),
        first: Any = df.DoFn.StateParam(_FIRST),
    ) -> Iterator[Any]:
        """Emit the sum."""
        yield df.TimestampedValue((key, sum(items.read())), first.read())
        items.clear()
        first.clear()


def kinds_of_state(p: df.Pipeline) -> df.PCollection[Any]:
    """A set, a map and an ordered list."""
    visits = enumerate(["till", "x", "home", "till"])
    return p | _created((("ann", page), at) for at, page in visits) | df.ParDo(_KindsOfState())


def time_to_live(p: df.Pipeline) -> df.PCollection[Any]:
    """State that is cleared ten seconds after it was written."""
    pairs = ((("k", at), at) for at in (40, 0, 19, 9, 50, 51))
    return p | _created(pairs) | df.ParDo(_Forgetful())


def window_expiration(p: df.Pipeline) -> df.PCollection[Any]:
    """What is left of a key and window is emitted when the window expires."""
    items = [("ann", "tea", 1), ("bob", "nut", 2), ("ann", "buy", 3), ("ann", "jam", 4)]
    pairs = _created(((user, item), at) for user, item, at in [*items, ("ann", "oil", 61)])
    return p | pairs | df.WindowInto(df.FixedWindows(60)) | df.ParDo(_Basket())


def output_timestamps(p: df.Pipeline) -> df.PCollection[Any]:
    """What a timer emits has a time that the watermark has long passed, and is not late."""
    return _by_ten_seconds(p | _in_time() | df.ParDo(_Delayed()))


def watermark_holds(p: df.Pipeline) -> df.PCollection[Any]:
    """The watermark is held for an output that is as old as the first element of several."""
    return _by_ten_seconds(p | _in_time() | df.ParDo(_FirstOfMinute()))


def _in_time() -> TestStream:
    stream = TestStream()
    for value, at in ((1, 5), (2, 12), (4, 31), (8, 140)):
        element = df.TimestampedValue(("k", value), at)
        stream = stream.add_elements([element]).advance_watermark_to(at + 1)
    return stream.advance_watermark_to(500)


def _by_ten_seconds(pairs: df.PCollection[Any]) -> df.PCollection[Any]:
    strategy = df.WindowInto(df.FixedWindows(10), accumulation_mode=df.AccumulationMode.DISCARDING)
    sums = pairs | strategy | df.CombinePerKey(sum) | df.Reify.Window()
    return sums | df.MapTuple(lambda pair, _, window: (window.start_us // 1_000_000, pair[1]))


def _created(values: Iterable[tuple[Any, int]]) -> df.PTransform[df.Pipeline, df.PCollection[Any]]:
    return df.Create([df.TimestampedValue(value, at) for value, at in values])


class _Paying(df.DoFn):
    """Emits the balance of an account after each payment; has written it when a payment is too large."""

    def process(
        self,
        element: tuple[str, int],
        /,
        balance: Any = df.DoFn.StateParam(_BALANCE),
        items: Any = df.DoFn.StateParam(_ITEMS),
    ) -> Iterator[Any]:
        """Pay."""
        _, amount = element
        balance.write((balance.read() or 10) - amount)
        items.add(amount)
        yield balance.read(), tuple(items.read())
        if balance.read() < 0:
            raise ValueError("overdrawn")


def failed_calls(p: df.Pipeline) -> df.PCollection[Any]:
    """Balances, and the payments that were not made: each is as if it had never come."""
    stream = TestStream()
    for at, amount in enumerate((3, 9, 4, 5, 3)):
        stream = stream.add_elements([df.TimestampedValue(("account", amount), at)])
    handled = df.ParDo(_Paying()).with_exception_handling(threshold=0.5)
    good, bad = p | "payments" >> stream | "pay" >> handled
    elements = bad | df.Map(lambda each: (each.element, each.failure.message))
    return [good, elements] | df.Flatten()

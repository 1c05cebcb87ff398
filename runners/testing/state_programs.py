"""Programs of state and timers for `runners.testing.runner_conformance`."""

from collections.abc import Iterable, Iterator
from typing import Any

import dataflow as df

_PAGES = df.SetStateSpec("pages")
_COUNTS = df.MapStateSpec("counts")
_TIMES = df.OrderedListStateSpec("times")
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


def kinds_of_state(p: df.Pipeline) -> df.PCollection[Any]:
    """A set, a map and an ordered list."""
    visits = enumerate(["till", "x", "home", "till"])
    return p | _created((("ann", page), at) for at, page in visits) | df.ParDo(_KindsOfState())


def time_to_live(p: df.Pipeline) -> df.PCollection[Any]:
    """State that is cleared ten seconds after it was written."""
    pairs = ((("k", at), at) for at in (40, 0, 19, 9, 50, 51))
    return p | _created(pairs) | df.ParDo(_Forgetful())


def _created(values: Iterable[tuple[Any, int]]) -> df.PTransform[df.Pipeline, df.PCollection[Any]]:
    return df.Create([df.TimestampedValue(value, at) for value, at in values])

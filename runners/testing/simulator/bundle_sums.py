"""BundleSums: a DoFn that emits at the ends of bundles, for pipelines of the simulator."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import dataflow as df


class BundleSums(df.DoFn):
    """Emits the sums of a bundle when it ends, each at the time of one of its elements."""

    def start_bundle(self) -> None:
        """Clear what a bundle that failed has left."""
        self._sums: dict[Any, tuple[int, datetime]] = {}

    def process(
        self,
        element: tuple[int, int],
        /,
        at: datetime = df.DoFn.TimestampParam,
        window: df.Window = df.DoFn.WindowParam,
    ) -> None:
        """Add up the values.

        Args:
            element: key and value.
            at: the event time of the element.
            window: that of the element; the values of each key are added up by window.
        """
        place = element[0], window
        total, _ = self._sums.get(place, (0, at))
        self._sums[place] = total + element[1], at

    def finish_bundle(self) -> Iterator[Any]:
        """Emit the sums."""
        for (key, window), (total, at) in self._sums.items():
            yield df.WindowedValue((key, total), at, window)

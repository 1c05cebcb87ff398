"""HandledCombineFn: a combine function whose exceptions are part of its accumulators, and of its results.

Which elements it fails on must not depend on how a runner divides a group into partials.  So an element is bad if the
function fails on it alone, with an accumulator of nothing (`check`), wherever that is asked.  Values that fail only
with others have no first one: then the group fails, whichever two of them met first.

**Invariant:** an accumulator that has failed stays failed, however it is merged and pickled; where values may be
retracted none is ever kept, as the multiset of the values is folded anew for each pane.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from dataflow.canonical_keys import key_text
from dataflow.combine_fn import CombineFn
from dataflow.exception_handling import ExceptionHandling, Failure, failure_of
from dataflow.metric_updates import uncounted

#: A result and None, or the text of what was being combined and why that failed; a plain tuple, as it is stored.
Handled = tuple[Any, Failure | None]
#: An accumulator of the user's function, or a text of what it failed on; the failure; and whether there is a value.
HandledAccumulator = tuple[Any, Failure | None, bool]


class HandledCombineFn(CombineFn):
    """Combines as another function does; what that raises is a result that is `Handled`.

    Args:
        combine_fn: the user's.
        handling: which exceptions are handled, and how often a call is tried again.
        transform: the label of the transform, for failures.
    """

    def __init__(self, combine_fn: CombineFn, handling: ExceptionHandling, transform: str) -> None:
        self._combine_fn, self._handling, self._transform = combine_fn, handling, transform

    def check(self, value: Any) -> None:
        """Fail as the user's function does on a value alone; what it counts there it does not count."""
        with uncounted():
            self._combine_fn.add_inputs(self._combine_fn.create_accumulator(), [value])

    def create_accumulator(self) -> HandledAccumulator:
        """One of the function, without a failure."""
        return self._combine_fn.create_accumulator(), None, False

    def add_input(self, accumulator: HandledAccumulator, value: Any) -> HandledAccumulator:
        """Add one value."""
        return self.add_inputs(accumulator, (value,))

    def add_inputs(
        self, accumulator: HandledAccumulator, values: Iterable[Any]
    ) -> HandledAccumulator:
        """Add values, unless it has failed."""
        inner, failure, has_values = accumulator
        values = list(values)
        if failure is not None or not values:
            return accumulator
        kept, failure = self._tried(
            lambda: self._combine_fn.add_inputs(self._fresh(inner), values),
            lambda: f"{key_text(inner)} and {key_text(values)}" if has_values else key_text(values),
        )
        return kept, failure, True

    def merge_accumulators(self, accumulators: Iterable[HandledAccumulator]) -> HandledAccumulator:
        """Merge them, unless one has failed; of several failures the same one in any order."""
        found = list(accumulators)
        failed = [each for each in found if each[1] is not None]
        if failed:
            return min(failed, key=lambda each: (each[1], each[0]))
        full = [inner for inner, _, has_values in found if has_values]
        if len(full) <= 1:
            return next((each for each in found if each[2]), None) or self.create_accumulator()
        kept, failure = self._tried(
            lambda: self._combine_fn.merge_accumulators([self._fresh(each) for each in full]),
            lambda: " and ".join(map(key_text, full)),
        )
        return kept, failure, True

    def extract_output(self, accumulator: HandledAccumulator) -> Handled:
        """The result, or the failure; of nothing what the function says of it, also where that is an exception."""
        inner, failure, has_values = accumulator
        if failure is not None:
            return inner, failure
        if not has_values:
            return self._extracted(inner), None
        return self._tried(lambda: self._extracted(inner), lambda: key_text(inner))

    def _extracted(self, inner: Any) -> Any:
        output = self._combine_fn.extract_output(inner)
        # What was emitted does not change with the accumulator.
        return copy.deepcopy(output) if output is inner else output

    def _fresh(self, inner: Any) -> Any:
        """The accumulator, or a copy of it, if a call that may have changed it is tried again."""
        return copy.deepcopy(inner) if self._handling.retries else inner

    def _tried(
        self, call: Callable[[], Any], described: Callable[[], str]
    ) -> tuple[Any, Failure | None]:
        """Call it, again while retries are left: its result and None, or a text of its input and the failure."""
        # What has failed is seldom as it was.
        what = described() if self._handling.retries else ""
        attempt = 0
        while True:
            try:
                return call(), None
            except self._handling.exc_class as error:
                if attempt == self._handling.retries:
                    what = what or described()
                    if self._handling.on_failure_callback is not None:
                        self._handling.on_failure_callback(error, what)
                    return what, failure_of(error, self._transform)
            attempt += 1
            self._handling.wait(attempt)

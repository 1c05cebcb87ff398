"""Combine functions that are approximate, for accumulators of a few kilobytes: distinct values, and quantiles.

They are sketches of Apache DataSketches, the library ``datasketches``, which is optional:
``pip install "dataflow-model[sketches]"``.  The ones chosen here throw no dice, so that a task that is run again has
the same accumulators.  Accumulators are the library's own bytes, a format that its other versions and languages read,
and values that are not in them yet.

A sketch cannot forget a value, so none of them retracts: where values may be retracted all are kept, and the sketch is
made anew for each pane.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from dataflow.combine_fn import CombineFn
from dataflow.distribution import install_command
from dataflow.element_digests import element_digest
from dataflow.errors import PipelineError, TransformError

#: So many values are kept as they are until they are put into the sketch.
_BUFFER_VALUES_MAX = 1_024
_HALF = 1 << 63
#: The compression of t-digests: they have at most twice as many centroids.
_COMPRESSION = 200

#: The bytes of a sketch, empty if there is none yet, and what is still to be put into it.
_Accumulator = tuple[bytes, list[Any]]


def _library(what: str) -> Any:
    try:
        return import_module("datasketches")
    except ImportError:
        raise PipelineError(
            f"{what} needs the library datasketches, which is not installed",
            hint=f"{install_command('sketches')}; workers need it too",
        ) from None


class _SketchCombineFn(CombineFn):
    """Puts values into a sketch, many at once."""

    def __init__(self) -> None:
        _library(type(self).__name__)

    def create_accumulator(self) -> _Accumulator:
        """No sketch, and no value."""
        return b"", []

    def add_input(self, accumulator: _Accumulator, value: Any) -> _Accumulator:
        """Add one value."""
        accumulator[1].append(self._item(value))
        return self._cut(accumulator)

    def add_inputs(self, accumulator: _Accumulator, values: Iterable[Any]) -> _Accumulator:
        """Add values, and put them into the sketch if they are many."""
        accumulator[1].extend(map(self._item, values))
        return self._cut(accumulator)

    def merge_accumulators(self, accumulators: Iterable[_Accumulator]) -> _Accumulator:
        """Merge the sketches, if there are several."""
        several = list(accumulators)
        sketches = [sketch for sketch, _ in several if sketch]
        items = [item for _, buffered in several for item in buffered]
        if len(sketches) > 1:
            return self._sketch(sketches, items), []
        return self._cut((sketches[0] if sketches else b"", items))

    def extract_output(self, accumulator: _Accumulator) -> Any:
        """The estimate of the sketch."""
        sketch, items = accumulator
        if not sketch and not items:
            return self._of_nothing()
        if items:
            sketch = self._sketch([sketch] if sketch else [], items)
        return self._estimate(sketch)

    def _cut(self, accumulator: _Accumulator) -> _Accumulator:
        sketch, items = accumulator
        if len(items) < _BUFFER_VALUES_MAX:
            return accumulator
        return self._sketch([sketch] if sketch else [], items), []

    @abstractmethod
    def _item(self, value: Any) -> Any:
        """The item that stands for a value in the sketch."""

    @abstractmethod
    def _sketch(self, sketches: Sequence[bytes], items: Sequence[Any]) -> bytes:
        """One sketch of others and of items."""

    @abstractmethod
    def _estimate(self, sketch: bytes) -> Any:
        """The result."""

    @abstractmethod
    def _of_nothing(self) -> Any:
        """The result where there is no value."""


class ApproximateUniqueCombineFn(_SketchCombineFn):
    """About how many distinct values; exact while they are few.  Beam's ``ApproximateUnique``.

    A theta sketch of digests of the values, so the order in which they come makes no difference, nor how often.

    Args:
        error: the relative error that 95 results in 100 stay below: 0.01 to 0.5.  An accumulator has up to
            32 / error² bytes, or twice that.

    Raises:
        PipelineError: ``error`` is another number, or the library is not installed.
    """

    def __init__(self, *, error: float = 0.05) -> None:
        super().__init__()
        if not isinstance(error, int | float) or not 0.01 <= error <= 0.5:
            raise PipelineError(
                f"the relative error of approximate counts cannot be {error!r}",
                hint="give a number between 0.01 and 0.5",
            )
        # Two standard deviations, each the inverse of the root of the number of digests.
        self._lg_k = max(5, math.ceil(math.log2(4 / error**2)))

    def _item(self, value: Any) -> int:
        return element_digest(value) - _HALF

    def _sketch(self, sketches: Sequence[bytes], items: Sequence[int]) -> bytes:
        library = _library(type(self).__name__)
        union = library.theta_union(self._lg_k)
        for sketch in sketches:
            union.update(library.compact_theta_sketch.deserialize(sketch))
        if items:
            of_items = library.update_theta_sketch(self._lg_k)
            for item in items:
                of_items.update(item)
            union.update(of_items)
        return bytes(union.get_result().serialize())

    def _estimate(self, sketch: bytes) -> int:
        library = _library(type(self).__name__)
        estimate: float = library.compact_theta_sketch.deserialize(sketch).get_estimate()
        return round(estimate)

    def _of_nothing(self) -> int:
        return 0


class ApproximateQuantilesCombineFn(_SketchCombineFn):
    """About the least, the greatest, and the numbers between that divide all into equal parts, in a list.

    With 5 quantiles: the least, the quartiles and the greatest; the first and the last are exact.  Of no number the
    list is empty.  Beam's ``ApproximateQuantiles``.

    A t-digest, of about 5 kilobytes: it is best near the least and the greatest, and its results may differ a little
    between orders in which the numbers come.

    Args:
        num_quantiles: how many numbers the list has, at least 2.

    Raises:
        PipelineError: ``num_quantiles`` is no integer, or below 2; or the library is not installed.
    """

    def __init__(self, num_quantiles: int) -> None:
        super().__init__()
        if not isinstance(num_quantiles, int) or num_quantiles < 2:
            raise PipelineError(
                f"there cannot be {num_quantiles!r} quantiles",
                hint="give 2 for the least and the greatest, 3 for the median between them, 5 for quartiles",
            )
        self._num_quantiles = num_quantiles

    def _item(self, value: Any) -> float:
        number = float(value)
        if math.isnan(number):
            raise TransformError(
                "NaN has no place among quantiles", hint="leave it out before, with df.Filter"
            )
        return number

    def _sketch(self, sketches: Sequence[bytes], items: Sequence[float]) -> bytes:
        library = _library(type(self).__name__)
        merged = library.tdigest_double(_COMPRESSION)
        for sketch in sketches:
            merged.merge(library.tdigest_double.deserialize(sketch))
        for item in items:
            merged.update(item)
        return bytes(merged.serialize())

    def _estimate(self, sketch: bytes) -> list[float]:
        digest = _library(type(self).__name__).tdigest_double.deserialize(sketch)
        last = self._num_quantiles - 1
        inner = [digest.get_quantile(number / last) for number in range(1, last)]
        return [digest.get_min_value(), *inner, digest.get_max_value()]

    def _of_nothing(self) -> list[float]:
        return []

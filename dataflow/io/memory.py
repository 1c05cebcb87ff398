"""MemorySource: values that are part of the pipeline itself."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dataflow.do_fn import TimestampedValue
from dataflow.errors import PipelineError
from dataflow.source import Backlog, Source, SourceBatch, SourceReader, SplitStatus
from dataflow.type_hints import ELEMENTS_MAX, type_of, union_of
from windowing.location import user_location
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: The bytes of a value are the same in every process; of what is no plain value, its class alone is compared.
_encode = msgspec.msgpack.Encoder(
    order="deterministic", enc_hook=lambda value: type(value).__qualname__
).encode


def digest_of(values: Iterable[Any]) -> str:
    """A digest of what is part of a pipeline, for `Source.input_name`: other values have another one.

    Plain values are compared (numbers, texts, times, and lists, dicts and dataclasses of these), of others their
    classes.

    Args:
        values: each is compared by itself.
    """
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        try:
            digest.update(_encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Such as an integer of more than 64 bits.
            digest.update(_encode(["a value of class", type(value).__qualname__]))
    return digest.hexdigest()


def listed_elements(given: Iterable[Any], what: str) -> list[Any]:
    """The elements that were given; of a dict its items.

    Args:
        given: as the user gave it.
        what: the transform, for messages.

    Raises:
        PipelineError: it is a single value.
    """
    if isinstance(given, dict):
        return list(given.items())
    is_row = isinstance(given, tuple) and hasattr(type(given), "_fields")
    if is_row or isinstance(given, str | bytes | bytearray) or not isinstance(given, Iterable):
        raise PipelineError(
            f"{what} needs several elements, not one value ({user_location()})",
            detail=f"it was given {given!r:.200}",
            hint=f"put it into a list: [{given!r:.60}]",
        )
    return list(given)


class MemorySource(Source):
    """A bounded source over a list; its watermark stays at the beginning of time until it has ended."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = [_plain(value) for value in values]
        self._timestamps_us = [
            value.timestamp_us if isinstance(value, TimestampedValue) else MIN_TIMESTAMP_US
            for value in values
        ]

    @property
    def element_type(self) -> Any:
        """The types of the values; Any if they are very many."""
        if len(self._values) > ELEMENTS_MAX:
            return Any
        return union_of(map(type_of, self._values))

    @property
    def input_name(self) -> str:
        """How many elements there are, and a digest of them."""
        return f"{len(self._values)} elements ({digest_of([*self._values, self._timestamps_us])})"

    @property
    def has_event_times(self) -> bool:
        """Whether a value has one, or there is none."""
        return not self._values or any(each > MIN_TIMESTAMP_US for each in self._timestamps_us)

    def splits(self, desired: int) -> Sequence[tuple[int, int]]:
        """Runs of the list, as (start, end) indexes."""
        size = max(1, -(-len(self._values) // desired))
        ends = range(0, max(len(self._values), 1), size)
        return [(start, min(start + size, len(self._values))) for start in ends]

    def open(self, split: tuple[int, int], position: int | None, *, fence: int) -> SourceReader:
        """Read from an index on."""
        start, end = split
        return _MemoryReader(
            self._values, self._timestamps_us, start if position is None else position, end
        )


class _MemoryReader(SourceReader):
    def __init__(
        self, values: Sequence[Any], timestamps_us: Sequence[int], start: int, end: int
    ) -> None:
        self._values, self._timestamps_us = values, timestamps_us
        self._next, self._end = start, end

    def read(self, max_records: int) -> SourceBatch:
        start = self._next
        self._next = min(start + max_records, self._end)
        is_finished = self._next == self._end
        return SourceBatch(
            values=self._values[start : self._next],
            timestamps_us=self._timestamps_us[start : self._next],
            position=self._next,
            watermark_us=MAX_TIMESTAMP_US if is_finished else MIN_TIMESTAMP_US,
            status=SplitStatus.FINISHED if is_finished else SplitStatus.ACTIVE,
            backlog=Backlog(records=self._end - self._next),
        )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, TimestampedValue) else value

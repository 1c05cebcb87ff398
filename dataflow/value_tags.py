"""The tags by which values of this package's own classes are stored in pickles.

A store outlives the layout of the package, so these values are written as a tag and fields (`dataflow.serialization`).
**Invariant:** a tag is never given to another class, and its fields are only added to, at their end and with a default
in the class; `docs/stored-format.md` has the list.

Imported with `dataflow`, so that every reader of a value knows its tag.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any

import attrs

from dataflow.computations.computation import Record, Timer
from dataflow.computations.file_injector import InjectorSplit
from dataflow.computations.folder_reader import FolderPosition
from dataflow.do_fn import TaggedOutput, TimestampedValue, WindowedValue
from dataflow.exception_handling import BadElement, Failure
from dataflow.io.arrival import ArrivalPosition, ArrivalSplit
from dataflow.io.kafka.records import KafkaRecord
from dataflow.io.parquet_files import ParquetSplit
from dataflow.io.text_files import FileSplit
from dataflow.key_forms import key_of_form
from dataflow.paged_state import CountedBag, JoinedBag, PagedBag, PagedList, PagedMap
from dataflow.serialization import read_as, written_as
from dataflow.set_aside import Origin
from dataflow.transforms.changelog import Change
from dataflow.typed_keys import TypedKey
from dataflow.unbounded_sums import UnboundedSum
from dataflow.views import SignedViewPart, View, ViewEnd, ViewPart, WithViews
from triggers.after_watermark import Phases
from triggers.parts import Fired
from triggers.repeatedly import Finished
from triggers.trigger import Progress, TriggerTimers
from windowing.pane import PaneInfo, PaneTiming
from windowing.time_domain import TimeDomain
from windowing.window import Window
from windowing.window_fn import Merge

#: Classes that are tuples, by their tags.
TUPLES: dict[str, type] = {
    "window": Window,
    "merge": Merge,
    "progress": Progress,
    "wakeup": TriggerTimers,
    "phases": Phases,
    "fired": Fired,
    "finished": Finished,
    "failure": Failure,
    "bad element": BadElement,
    "kafka record": KafkaRecord,
}
#: Classes whose fields are the arguments that make them, by their tags.
ATTRS: dict[str, type] = {
    "pane": PaneInfo,
    "tagged output": TaggedOutput,
    "change": Change,
    "file split": FileSplit,
    "parquet split": ParquetSplit,
    "injector split": InjectorSplit,
    "folder position": FolderPosition,
    "arrival split": ArrivalSplit,
    "arrival position": ArrivalPosition,
    "origin": Origin,
    "computation record": Record,
    "computation timer": Timer,
    "timestamped value": TimestampedValue,
    "windowed value": WindowedValue,
    "unbounded sum": UnboundedSum,
    "view part": ViewPart,
    "signed view part": SignedViewPart,
    "view end": ViewEnd,
}
#: Classes with other fields than those that are written, which are the arguments that make them, by their tags.
OTHERS: dict[str, tuple[type, tuple[str, ...]]] = {
    "view": (View, ("contents",)),
    "with views": (WithViews, ("element", "views")),
    "paged bag": (PagedBag, PagedBag.FIELDS),
    "counted bag": (CountedBag, CountedBag.FIELDS),
    "joined bag": (JoinedBag, JoinedBag.FIELDS),
    "paged map": (PagedMap, PagedMap.FIELDS),
    "paged list": (PagedList, PagedList.FIELDS),
}
#: Classes of names, by their tags.
ENUMS: dict[str, type[Enum]] = {"pane timing": PaneTiming, "time domain": TimeDomain}


def tag_tuples(tags: Mapping[str, type]) -> None:
    """Give tags to classes that are tuples."""
    for tag, kind in tags.items():
        written_as(tag, kind, tuple)
        read_as(tag, kind)


def tag_attrs(tags: Mapping[str, type]) -> None:
    """Give tags to attrs classes; their fields are as they are in an instance."""
    for tag, kind in tags.items():
        fields = attrs.fields(kind)
        written_as(tag, kind, _fields_of([field.name for field in fields]))
        is_positional = not any(field.kw_only for field in fields)
        # The public one may take something else, such as an instant in seconds.
        is_public = not hasattr(kind, "__attrs_init__")
        names = [field.alias for field in fields]
        read_as(tag, kind if is_positional and is_public else partial(_made, kind, names))


def tag_others(tags: Mapping[str, tuple[type, Sequence[str]]]) -> None:
    """Give tags to classes, of which the fields that are named are written."""
    for tag, (kind, names) in tags.items():
        written_as(tag, kind, _fields_of(names))
        read_as(tag, kind)


def tag_enums(tags: Mapping[str, type[Enum]]) -> None:
    """Give tags to enums, whose members are their values."""
    for tag, kind in tags.items():
        written_as(tag, kind, _enum_fields)
        read_as(tag, kind)


def _fields_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _made(kind: type, names: Sequence[str], *fields: Any) -> Any:
    value: Any = object.__new__(kind)
    init: Any = getattr(value, "__attrs_init__", value.__init__)
    init(**dict(zip(names, fields, strict=False)))
    return value


def _enum_fields(value: Enum) -> tuple[Any, ...]:
    return (value.value,)


def _encoded_of(key: TypedKey) -> tuple[Any, ...]:
    return (key.encoded,)


written_as("key", TypedKey, _encoded_of)
read_as("key", key_of_form)
tag_tuples(TUPLES)
tag_attrs(ATTRS)
tag_others(OTHERS)
tag_enums(ENUMS)

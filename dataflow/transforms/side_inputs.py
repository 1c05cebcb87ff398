"""Side inputs: collections that user code is given beside each element, as arguments.

``df.Map(f, df.AsDict(rates))`` calls ``f(element, rates)``, with the elements of ``rates`` as a dict.

**Which window.**  An element in window *w* sees the window of the side input that contains the last instant of *w*; the
earliest, if there are several; the only one, if the side input is in the global window.

**When.**  The elements of a side input are grouped by its windows and fire by its trigger: a pane is a *view*.  An
element waits until there is a view of its window: the first pane, or the watermark at the end of that window, and then
it is empty.  While it waits it holds the watermark behind the transform.  Then it goes on with the newest view, as it
is: with its event time, window and pane.  Where the input ends by itself, and in batch, it waits for the last pane
that is on time, so that all runners emit the same; but for what its trigger makes of the order of arrival.

**What a later pane does** is what the accumulation mode of the side input says.  `DISCARDING` and `ACCUMULATING`:
elements after it see it, and what was emitted before stays.  `ACCUMULATING_AND_RETRACTING`: what depended on the former
pane is retracted, and said again with the new one, as long as the window of the element has not expired; unless the
side input is given with ``retracts=False``.

**How.**  Elements are divided into shards by their values, and a view is sent to every shard, its elements before its
pane where they are many, and of a pane that accumulates what has come and gone since the one before; the shard keeps it
until the window of the side input has expired.  So state is bounded by the open windows: in each shard the views, the
elements that wait, and, where they may be retracted, those that have been emitted.  What is large of it is in pages in
a stream, and of these as many in memory as fit; so it is in batch, in a file, where it does not fit.

Dataflow Model, section 2.1 (ParDo), for the transform; side inputs are of FlumeJava and Beam.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar
from zlib import crc32

import attrs

from dataflow.combine_fn import CombineFn
from dataflow.do_fn import CallableDoFn, DoFn, Shape
from dataflow.element_digests import element_digest
from dataflow.errors import PipelineError
from dataflow.extra_arguments import ExtraArguments
from dataflow.graph import MAIN, ParDo, SideInputs, SideWindows
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.counted import counted_at_the_end
from dataflow.transforms.flatten import Flatten
from dataflow.transforms.group import CombinePerKey, PassOn
from dataflow.transforms.rewindowed import Rewindowed
from dataflow.type_vars import T
from dataflow.upstream import windows_of
from dataflow.views import (
    AsOne,
    SignedViewPart,
    ViewArgument,
    ViewEnd,
    ViewForm,
    ViewPart,
    as_dict,
    as_iterable,
    as_list,
    as_multi_map,
)
from triggers.accumulation import AccumulationMode
from triggers.trigger import EarlyFirings
from triggers.windowing_strategy import WindowingStrategy
from windowing.global_windows import GlobalWindows
from windowing.pane import PaneInfo
from windowing.window_fn import MergingWindowFn, WindowFn

#: How many shards elements are divided into: enough to keep some workers busy, and each has the views.
SHARDS = 16

#: Elements of a part, for each shard: what an engine keeps in memory of all parts are as many records as it likes.
PART_VALUES = 4

#: Not None, which is a default like any other.
_NO_DEFAULT: Any = object()

_MASK = (1 << 64) - 1
_ODD = 0x9E37_79B9_7F4A_7C15


class SideInput(ABC):
    """A collection as an argument of `Map`, `FlatMap`, `Filter` or `ParDo`; one of `AsSingleton`, `AsDict` and so on.

    Args:
        pcollection: the collection; its windows do not merge.
        shards: how many shards the elements that see it are divided into; each keeps the view.
        retracts: whether a pane of a side input that accumulates and retracts retracts what depended on the former
            one.  False: what was emitted stays.

    Raises:
        PipelineError: an argument is wrong.

    Attributes:
        form: how it is seen where it is large; None: as a whole.
    """

    form: ClassVar[ViewForm | None] = None

    def __init__(
        self, pcollection: PCollection[Any], *, shards: int = SHARDS, retracts: bool = True
    ) -> None:
        name = type(self).__name__
        if not isinstance(pcollection, PCollection):
            raise PipelineError(
                f"{name} needs a PCollection, not {pcollection!r}",
                hint=f"e.g. df.Map(function, df.{name}(rates)), where rates is what a transform has returned; what is "
                "no PCollection is given as it is",
            )
        if not isinstance(shards, int) or shards < 1:
            raise PipelineError(f"{name} needs a positive number of shards, not {shards!r}")
        self.pcollection, self.shards, self.retracts = pcollection, shards, retracts
        #: Whether of a pane that does not retract the former one the latest element alone counts.
        self.is_latest = False

    @abstractmethod
    def argument(self, number: int) -> ViewArgument:
        """What stands for it among the arguments.

        Args:
            number: of the side input, among those of its transform.
        """


class AsList(SideInput):
    """All elements of the window, as a sequence; their order means nothing.

    It is a `Sequence` that is indexed, iterated and compared like a list, whether it is large or small; what needs a
    `list`, such as `json.dumps`, is given ``list(view)``.  Of a large view the elements are read where they are used,
    as long as the call lasts that it is given to: in a stream, and in batch where it does not fit.
    """

    form = ViewForm.SEQUENCE

    def argument(self, number: int) -> ViewArgument:
        """What stands for it among the arguments."""
        return ViewArgument(number, as_list, "AsList")


class AsIter(SideInput):
    """All elements of the window, to iterate any number of times; their order means nothing.

    Those of a large view are read while they are iterated, in a stream, and in batch where it does not fit.
    """

    form = ViewForm.ITERABLE

    def argument(self, number: int) -> ViewArgument:
        """What stands for it among the arguments."""
        return ViewArgument(number, as_iterable, "AsIter")


class AsDict(SideInput):
    """The values of ``(key, value)`` pairs by their keys, as a dict.

    A key that is there twice in a window is an error where the view is used: `AsMultiMap` has all values.
    A large view is a mapping that looks keys up, as long as the call lasts that it is given to: in a stream, and in
    batch where it does not fit.
    """

    form = ViewForm.DICT

    def argument(self, number: int) -> ViewArgument:
        """What stands for it among the arguments."""
        return ViewArgument(number, as_dict, "AsDict")


class AsMultiMap(SideInput):
    """The lists of values of ``(key, value)`` pairs by their keys, as a dict; large ones as for `AsDict`."""

    form = ViewForm.MULTI_MAP

    def argument(self, number: int) -> ViewArgument:
        """What stands for it among the arguments."""
        return ViewArgument(number, as_multi_map, "AsMultiMap")


class AsSingleton(SideInput):
    """The only element of the window, such as `CombineGlobally` emits.

    Several elements are an error where the view is used; and so is none, if there is no default.
    Where a window fires more than once, and does not retract, it is the latest of the newest pane that has any: by
    event time, and then by pane.  So a value that is read again and again, or a total that is emitted early, is what it
    was last.

    Args:
        pcollection: the collection; its windows do not merge.
        default_value: what stands for the element where the window has none; may be None.
        shards: as for `SideInput`.
        retracts: as for `SideInput`.

    Raises:
        PipelineError: an argument is wrong.
    """

    def __init__(
        self,
        pcollection: PCollection[Any],
        default_value: Any = _NO_DEFAULT,
        *,
        shards: int = SHARDS,
        retracts: bool = True,
    ) -> None:
        super().__init__(pcollection, shards=shards, retracts=retracts)
        self._default = () if default_value is _NO_DEFAULT else (default_value,)
        self.is_latest = True

    def argument(self, number: int) -> ViewArgument:
        """What stands for it among the arguments."""
        return ViewArgument(number, AsOne(self._default), "AsSingleton")


def with_views(
    pcoll: PCollection[Any], arguments: ExtraArguments
) -> tuple[PCollection[Any], ExtraArguments]:
    """The elements with the views of the side inputs among the arguments; and arguments that stand for these.

    What is known of the type of the elements is that of the elements without their views, as user code sees them.

    Args:
        pcoll: the elements.
        arguments: of the transform that is being applied; one of them at least is a side input.

    Raises:
        PipelineError: the windows of a side input merge, or do not fit those of the elements.
    """
    sides = [
        each
        for each in (*arguments.args, *arguments.kwargs.values())
        if isinstance(each, SideInput)
    ]
    numbers = iter(range(len(sides)))

    def stand_in(each: Any) -> Any:
        return each.argument(next(numbers)) if isinstance(each, SideInput) else each

    args = tuple([stand_in(each) for each in arguments.args])
    kwargs = {name: stand_in(each) for name, each in arguments.kwargs.items()}
    seeing = beside(pcoll, sides).of_type(pcoll.element_type, pcoll.made_by)
    return seeing, ExtraArguments(args, kwargs)


def beside(pcoll: PCollection[Any], sides: Sequence[SideInput]) -> PCollection[Any]:
    """The elements as `WithViews` of side inputs; for the `expand` of transforms.

    Args:
        pcoll: the elements.
        sides: one at least.

    Raises:
        PipelineError: as `with_views`.
    """
    pipeline = pcoll.pipeline
    window_fns = [_window_fn(pcoll, each, number) for number, each in enumerate(sides, 1)]
    shards = max(each.shards for each in sides)
    panes = [
        pcoll.pipeline.apply(
            f"side input {number + 1}"
            >> _Panes(number, each, shards, is_watched=not pcoll.is_bounded),
            each.pcollection,
        )
        for number, each in enumerate(sides)
    ]
    windows = [_side_windows(*each) for each in zip(sides, window_fns, panes, strict=True)]
    elements = pipeline.apply("divide" >> _Mapped(_Divide(shards), Shape.MAP), pcoll)
    retracted_by = [pcoll.node.retracted_by]
    retracted_by += [
        pane.node.retracted_by
        for pane, each in zip(panes, windows, strict=True)
        if each.is_retracted
    ]
    operation = SideInputs(
        tuple(windows),
        shards,
        waits_for_end=not any(
            each.node.has_arrival_order for each in (pcoll, *(side.pcollection for side in sides))
        ),
        forms=tuple([each.form for each in sides]),
    )
    attach = _Attach(operation, panes, next(filter(None, retracted_by), None))
    return pipeline.apply("side inputs" >> attach, elements)


class _Attach(PTransform[PCollection[Any], PCollection[Any]]):
    def __init__(
        self,
        operation: SideInputs,
        panes: Sequence[PCollection[Any]],
        retracted_by: str | None,
    ) -> None:
        self._operation, self._panes, self._retracted_by = operation, panes, retracted_by

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        return pcoll.pipeline.add_operation(
            self._operation,
            [pcoll, *self._panes],
            pcoll.node.strategy,
            retracted_by=self._retracted_by,
        )[MAIN]


class _Mapped(PTransform[PCollection[Any], PCollection[Any]]):
    def __init__(self, fn: Callable[..., Any], shape: Shape) -> None:
        self._operation = ParDo(CallableDoFn(fn, shape))

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        node = pcoll.node
        return pcoll.pipeline.add_operation(
            self._operation, [pcoll], node.strategy, retracted_by=node.retracted_by
        )[MAIN]


class _Panes(PTransform[PCollection[Any], PCollection[Any]]):
    """The panes of a side input, each for every shard.

    An input that ends, in the global window, has one where it is empty too, if it is watched by elements that do not
    end: their watermark never says that nothing comes any more.
    """

    def __init__(self, number: int, side: SideInput, shards: int, *, is_watched: bool) -> None:
        self._number, self._side, self._shards = number, side, shards
        self._is_watched = is_watched

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        strategy = _strategy_of(self._side)
        has_latest = _has_latest(self._side)
        keyed = pcoll | "key" >> Rewindowed(
            _with_its_time if has_latest else _with_no_key, strategy
        )
        groups: PCollection[Any] = keyed | _panes_of(keyed, has_latest=has_latest)
        has_ends = windows_of(pcoll.pipeline.graph(), pcoll.node) != {GlobalWindows()}
        if self._is_watched and pcoll.is_bounded and not has_ends:
            empty = (
                counted_at_the_end(pcoll)
                | "of nothing" >> _Mapped(_nothing_of_none, Shape.FLAT_MAP)
                | "windows" >> Rewindowed(_same, groups.node.strategy)
            )
            groups = (groups, empty) | Flatten()
        everywhere = _Everywhere(self._number, self._shards)
        return groups | "everywhere" >> _Mapped(everywhere, Shape.FLAT_MAP)


def _panes_of(keyed: PCollection[Any], *, has_latest: bool) -> PTransform[Any, Any]:
    """A transform from elements to the panes of a view, which go in parts where they may be large."""
    if has_latest:
        return "latest" >> CombinePerKey(_LatestFn())
    # What either has in a store, and has sent, the other cannot read.
    return "PassOnChanges" >> PassOn() if keyed.node.retracted_by else PassOn()


def _window_fn(pcoll: PCollection[Any], side: SideInput, number: int) -> WindowFn:
    here, graph = pcoll.pipeline.here(), pcoll.pipeline.graph()
    if side.pcollection.pipeline is not pcoll.pipeline:
        raise PipelineError(
            f"side input {number} of {here} is a PCollection of another pipeline",
            hint="build all of it on one Pipeline object",
        )
    found = sorted(windows_of(graph, side.pcollection.node), key=repr)
    what_to_do = (
        "give it one WindowInto before, e.g. df.WindowInto(df.GlobalWindows()) or "
        "df.WindowInto(df.FixedWindows(60))"
    )
    if len(found) > 1:
        raise PipelineError(
            f"side input {number} of {here} has elements that are windowed differently",
            detail=f"the windows are {' and '.join(map(repr, found))}",
            hint=what_to_do,
        )
    (window_fn,) = found
    if isinstance(window_fn, MergingWindowFn):
        raise PipelineError(
            f"side input {number} of {here} has windows that merge",
            detail=f"the windows are {window_fn!r}: which of them belongs to an element is not known in advance",
            hint=what_to_do,
        )
    is_global = isinstance(window_fn, GlobalWindows)
    if not is_global and any(
        isinstance(each, GlobalWindows) for each in windows_of(graph, pcoll.node)
    ):
        raise PipelineError(
            f"side input {number} of {here} has windows, and the elements that are to see it are in the global one",
            detail=f"its windows are {window_fn!r}; none of them has the end of time in it",
            hint="apply a WindowInto to the elements, or df.WindowInto(df.GlobalWindows()) to the side input",
        )
    return window_fn


def _fires_once(strategy: WindowingStrategy) -> bool:
    return (
        strategy.trigger.early_firings is EarlyFirings.NEVER
        and not strategy.allowed_lateness_us
        and not strategy.follows_percentile
    )


def _has_latest(side: SideInput) -> bool:
    """Whether a window may have several panes, of which the latest element counts."""
    node = side.pcollection.node
    is_retracting = node.strategy.is_retracting or node.retracted_by is not None
    return side.is_latest and not _fires_once(node.strategy) and not is_retracting


def _strategy_of(side: SideInput) -> WindowingStrategy:
    """The windowing of the panes of a side input."""
    strategy = side.pcollection.node.strategy
    if not _has_latest(side):
        return strategy
    return attrs.evolve(strategy, accumulation_mode=AccumulationMode.DISCARDING)


def _side_windows(side: SideInput, window_fn: WindowFn, panes: PCollection[Any]) -> SideWindows:
    strategy = _strategy_of(side)
    fires_once = _fires_once(strategy)
    return SideWindows(
        window_fn,
        strategy.allowed_lateness_us,
        fires_once=fires_once,
        is_retracted=side.retracts and not fires_once and panes.node.retracted_by is not None,
        is_cumulative=strategy.accumulation_mode is not AccumulationMode.DISCARDING,
    )


@attrs.frozen
class _Everywhere:
    """A pane of a side input, or a part of one, for every shard; parts are smaller where there are fewer shards."""

    number: int
    shards: int

    def __call__(self, group: tuple[None, Any], /) -> Iterable[Any]:
        _, content = group
        if isinstance(content, ViewPart):
            return self._parts(content)
        if isinstance(content, tuple):
            count, content = content
            if count:
                return self._to_all(ViewEnd(count, content))
        return self._to_all(content)

    def _parts(self, whole: ViewPart) -> Iterator[Any]:
        size = PART_VALUES * self.shards
        for start in range(0, len(whole.values), size):
            span = slice(start, start + size)
            if isinstance(whole, SignedViewPart):
                yield from self._to_all(SignedViewPart(whole.values[span], signs=whole.signs[span]))
            else:
                yield from self._to_all(ViewPart(whole.values[span]))

    def _to_all(self, content: Any) -> list[Any]:
        return [(shard, (self.number, content)) for shard in range(self.shards)]


@attrs.frozen
class _Divide:
    """An element with its shard as key.

    It follows from the value alone, so a task that is run again sends each element to the same place, and the
    retraction of an element goes where the element has gone.
    """

    shards: int

    def __call__(self, element: Any, /) -> tuple[int, tuple[None, Any]]:
        return ((_number(element) * _ODD & _MASK) >> 32) % self.shards, (None, element)


def _number(value: Any) -> int:
    """A number for a value, the same in every process; quicker than a digest for values of the usual types."""
    kind = type(value)
    if kind is str:
        return crc32(value.encode(errors="surrogatepass"))
    if kind is int or kind is bool:
        return int(value)
    if kind is tuple:
        number = len(value)
        for each in value:
            number = (number * 1_000_003 ^ _number(each)) & _MASK
        return number
    if kind is dict and all(type(name) is str for name in value):
        # In no order, as equal dicts may have different ones.
        return sum(_number(each) for each in value.items()) & _MASK
    if value is None:
        return 0
    if kind is float:
        return int(value) if value.is_integer() else crc32(repr(value).encode())
    return element_digest(value)


def _with_no_key(element: Any) -> tuple[None, Any]:
    return None, element


def _with_its_time(
    element: Any, /, at: datetime = DoFn.TimestampParam, pane: PaneInfo = DoFn.PaneParam
) -> tuple[None, tuple[datetime, int, Any]]:
    return None, (at, pane.index, element)


#: An element with its event time and the number of its pane.
_Timed = tuple[datetime, int, Any]


class _LatestFn(CombineFn[_Timed, list[_Timed], list[Any]]):
    """The latest element alone, in a list; of equally late ones the same one in every process."""

    def create_accumulator(self) -> list[_Timed]:
        return []

    def add_input(self, accumulator: list[_Timed], value: _Timed) -> list[_Timed]:
        return self.merge_accumulators((accumulator, [value]))

    def merge_accumulators(self, accumulators: Iterable[list[_Timed]]) -> list[_Timed]:
        found = list(chain.from_iterable(accumulators))
        last = max((each[:2] for each in found), default=None)
        found = [each for each in found if each[:2] == last]
        return found if len(found) < 2 else [max(found, key=_digest_of_element)]

    def extract_output(self, accumulator: list[_Timed]) -> list[Any]:
        return [element for _, _, element in accumulator]


def _digest_of_element(timed: _Timed) -> int:
    return element_digest(timed[2])


def _nothing_of_none(counted: tuple[None, int]) -> list[Any]:
    return [] if counted[1] else [(None, [])]


def _same(element: T) -> T:
    return element

"""ParDo and its short forms Map, FlatMap, Filter, WithTimestamps: user code on each element.

Dataflow Model, section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import isgeneratorfunction
from typing import Any, Concatenate, Generic, Self, TypeVarTuple, Unpack, cast, overload

import attrs

from dataflow.async_calls import async_calls
from dataflow.do_fn import (
    CallableDoFn,
    DoFn,
    OutputTag,
    Shape,
    TaggedOutput,
    TimestampedValue,
    has_process_batch,
    is_nondeterministic,
    requested_params,
    tag_name,
)
from dataflow.errors import PipelineError
from dataflow.exception_handling import BadElement, HandlingOptions
from dataflow.extra_arguments import NO_ARGUMENTS, ExtraArguments
from dataflow.graph import MAIN
from dataflow.graph import ParDo as ParDoOperation
from dataflow.graph import StatefulParDo as StatefulParDoOperation
from dataflow.one_output import OneOutput
from dataflow.pipeline import Outputs, PCollection, PCollectionTuple
from dataflow.ptransform import DeclaredTypes, PTransform, called
from dataflow.serialization import dumps_code
from dataflow.signature_types import FunctionTypes, function_types
from dataflow.stateful import check_merging, check_order, is_asking_for_state, stateful_signature
from dataflow.transforms.side_inputs import SideInput, with_views
from dataflow.transforms.wrapped import Wrapped
from dataflow.type_vars import V2, V3, OutputsT, OutT, P, ReturnT, T, V
from dataflow.user_code import check_user_code, no_function
from windowing.location import user_location
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us

OutputTs = TypeVarTuple("OutputTs")


class ParDo(OneOutput[PCollection[T], OutT], Generic[T, OutT]):
    """Run a `DoFn` on each element.

    Retractions pass through like any element: what ``process`` returns for them is retracted downstream.

    A DoFn that asks for state or timers (`dataflow.user_state`) is run where the state of the key is: its input are
    ``(key, value)`` pairs, whose keys are as for `GroupByKey`, in windows that do not merge.  What comes after its
    window has expired is a late record.

    Args:
        fn: the user code.
        *args: given to ``process`` behind the element, each time; a collection as `AsSingleton`, `AsList` or the like.
        allowed_timestamp_skew: how much earlier than its element an output may be; overrides that of the `DoFn`.
        **kwargs: likewise, by name.

    Raises:
        PipelineError: ``fn`` is no `DoFn`, or the skew is negative; when applied, the arguments do not fit ``process``,
            or a stateful ``fn`` cannot have what it asks for, or has input that may be retracted and does not handle
            that.
        TimeError: the skew is not a duration.
    """

    def __init__(
        self,
        fn: DoFn[T, OutT],
        *args: Any,
        allowed_timestamp_skew: DurationLike | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(fn, DoFn):
            raise _no_do_fn(fn)
        self._fn = fn
        skew = (
            fn.allowed_timestamp_skew if allowed_timestamp_skew is None else allowed_timestamp_skew
        )
        self._skew_us = _skew_us("ParDo", skew)
        self._arguments = _extra(self, args, kwargs)

    def default_label(self) -> str:
        """``ParDo(ClassName)``."""
        return f"ParDo({type(self._fn).__name__})"

    @overload
    def with_outputs(
        self, tag: OutputTag[V] | str, /, *, main: str = ...
    ) -> MultiOutputParDo[T, PCollectionTuple[PCollection[OutT], PCollection[V]]]: ...
    @overload
    def with_outputs(
        self, tag: OutputTag[V] | str, another: OutputTag[V2] | str, /, *, main: str = ...
    ) -> MultiOutputParDo[
        T, PCollectionTuple[PCollection[OutT], PCollection[V], PCollection[V2]]
    ]: ...
    @overload
    def with_outputs(
        self, *tags: OutputTag[Any] | str, main: str = ...
    ) -> MultiOutputParDo[T, Outputs]: ...
    def with_outputs(
        self, *tags: OutputTag[Any] | str, main: str = MAIN
    ) -> MultiOutputParDo[T, Any]:
        """Give the transform more outputs.

        ``process`` yields `TaggedOutput` for ``tags``, everything else goes to ``main``.  The result has the outputs by
        tag, and unpacks, the main output first: ``good, bad = pcoll | df.ParDo(fn).with_outputs("bad")``.

        Args:
            *tags: of the further outputs, as in `TaggedOutput`: their names, or each an `OutputTag`.
            main: the tag of the main output in the result.
        """
        named: MultiOutputParDo[T, Any] = MultiOutputParDo(
            self._fn, main, tags, self._skew_us, self._arguments
        )
        named.label = self.label
        return named.with_types_of(tags, self.declared_types)

    def expand(self, pcoll: PCollection[T]) -> PCollection[OutT]:
        """Add the primitive."""
        return _add(self._fn, pcoll, skew_us=self._skew_us, arguments=self._arguments)[MAIN]


class MultiOutputParDo(PTransform[PCollection[T], OutputsT], Generic[T, OutputsT]):
    """A `ParDo` with several outputs, as `ParDo.with_outputs` returns it.

    Type checkers know the type of the main output, and of those that have an `OutputTag`; of the others
    ``with_output_types(bad=str)`` says what comes out when the pipeline is built, and runs.

    Args:
        fn: the `DoFn`, or function.
        main: the tag of the main output in the result.
        tags: of the further outputs.
        skew_us: how far outputs may lie before their element, in microseconds.
        arguments: given to ``process`` behind the element.

    Raises:
        PipelineError: a tag is there twice.
    """

    def __init__(
        self,
        fn: DoFn | CallableDoFn,
        main: str,
        tags: tuple[OutputTag[Any] | str, ...],
        skew_us: int = 0,
        arguments: ExtraArguments = NO_ARGUMENTS,
    ) -> None:
        names = tuple(map(tag_name, tags))
        if len({main, *names}) != 1 + len(names):
            raise PipelineError(f"the outputs {[main, *names]} are not all different")
        self._fn, self._main, self._tags, self._skew_us = fn, main, names, skew_us
        self._arguments = arguments

    def default_label(self) -> str:
        """``ParDo(name)``, of the class of the `DoFn` or of the function."""
        fn = self._fn
        return f"ParDo({_name(fn.function) if isinstance(fn, CallableDoFn) else type(fn).__name__})"

    def with_types_of(self, tags: Iterable[OutputTag[Any] | str], declared: DeclaredTypes) -> Self:
        """Declare the types of outputs that have an `OutputTag`, beside those that are declared.

        Args:
            tags: of the outputs.
            declared: counts before the types of tags.
        """
        types = {each.name: each.element_type for each in tags if isinstance(each, OutputTag)}
        known = {name: each for name, each in types.items() if each is not Any}
        self.declared_types = attrs.evolve(declared, tagged={**known, **declared.tagged})
        return self

    def with_output_types(self, element_type: Any = Any, /, **tagged: Any) -> Self:
        """Declare the types of the elements that it emits; see `PTransform.with_output_types`."""
        return cast("Self", super().with_output_types(element_type, **tagged))

    def with_exception_handling(
        self: MultiOutputParDo[T, PCollectionTuple[*OutputTs]],
        main_tag: str = "good",
        dead_letter_tag: str = "bad",
        **options: Unpack[HandlingOptions],
    ) -> PTransform[PCollection[T], PCollectionTuple[*OutputTs, PCollection[BadElement]]]:
        """Have elements that it fails on as the last output; see `PTransform.with_exception_handling`.

        Args:
            main_tag: of the main output in the result.
            dead_letter_tag: of the output of bad elements.
            **options: its other arguments.
        """
        return super().with_exception_handling(main_tag, dead_letter_tag, **options)

    def expand(self, pcoll: PCollection[T]) -> OutputsT:
        """Add the primitive."""
        tags = (self._main, *self._tags)
        outputs = _add(self._fn, pcoll, tags=tags, skew_us=self._skew_us, arguments=self._arguments)
        return cast("OutputsT", PCollectionTuple(outputs))


class _CallableTransform(OneOutput[PCollection[T], OutT], Generic[T, ReturnT, OutT]):
    shape: Shape

    # The second is for functions with further parameters.  Whichever it is, the element is checked.
    @overload
    def __init__(
        self, fn: Callable[[T], ReturnT], *, allowed_timestamp_skew: DurationLike = ...
    ) -> None: ...
    @overload
    def __init__(
        self,
        fn: Callable[Concatenate[T, P], ReturnT],
        *args: Any,
        allowed_timestamp_skew: DurationLike = ...,
        **kwargs: Any,
    ) -> None: ...
    def __init__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        allowed_timestamp_skew: DurationLike = 0,
        **kwargs: Any,
    ) -> None:
        if not callable(fn):
            raise no_function(self, fn)
        self._fn, self._skew_us = fn, _skew_us(type(self).__name__, allowed_timestamp_skew)
        self._arguments = _extra(self, args, kwargs)

    def default_label(self) -> str:
        return f"{type(self).__name__}({_name(self._fn)})"

    @overload
    def with_outputs(
        self: _CallableTransform[T, Any, V3 | TaggedOutput],
        tag: OutputTag[V] | str,
        /,
        *,
        main: str = ...,
    ) -> MultiOutputParDo[T, PCollectionTuple[PCollection[V3], PCollection[V]]]: ...
    @overload
    def with_outputs(
        self: _CallableTransform[T, Any, V3 | TaggedOutput],
        tag: OutputTag[V] | str,
        another: OutputTag[V2] | str,
        /,
        *,
        main: str = ...,
    ) -> MultiOutputParDo[
        T, PCollectionTuple[PCollection[V3], PCollection[V], PCollection[V2]]
    ]: ...
    @overload
    def with_outputs(
        self, tag: OutputTag[V] | str, /, *, main: str = ...
    ) -> MultiOutputParDo[T, PCollectionTuple[PCollection[OutT], PCollection[V]]]: ...
    @overload
    def with_outputs(
        self, tag: OutputTag[V] | str, another: OutputTag[V2] | str, /, *, main: str = ...
    ) -> MultiOutputParDo[
        T, PCollectionTuple[PCollection[OutT], PCollection[V], PCollection[V2]]
    ]: ...
    @overload
    def with_outputs(
        self, *tags: OutputTag[Any] | str, main: str = ...
    ) -> MultiOutputParDo[T, Outputs]: ...
    def with_outputs(
        self, *tags: OutputTag[Any] | str, main: str = MAIN
    ) -> MultiOutputParDo[T, Any]:
        """Give the transform more outputs, for the `TaggedOutput` that the function returns.

        Args:
            *tags: of the further outputs: their names, or each an `OutputTag`.
            main: the tag of the main output in the result.
        """
        called = CallableDoFn(self._fn, self.shape)
        named: MultiOutputParDo[T, Any] = MultiOutputParDo(
            called, main, tags, self._skew_us, self._arguments
        )
        named.label = self.label or self.default_label()
        return named.with_types_of(tags, self.declared_types)

    @overload
    def expand(
        self: _CallableTransform[T, Any, TimestampedValue[V]], pcoll: PCollection[T]
    ) -> PCollection[V]: ...
    @overload
    def expand(self, pcoll: PCollection[T]) -> PCollection[OutT]: ...
    def expand(self, pcoll: PCollection[T]) -> PCollection[Any]:
        called = CallableDoFn(self._fn, self.shape)
        return _add(called, pcoll, skew_us=self._skew_us, arguments=self._arguments)[MAIN]


class Map(_CallableTransform[T, OutT, OutT], Generic[T, OutT]):
    """One output per element: ``fn(element)``, or with further arguments ``fn(element, *args, **kwargs)``.

    Args:
        fn: called with each element.
        *args: given to the function behind the element, each time; a collection as `AsSingleton`, `AsList` or the like.
        allowed_timestamp_skew: how far the event time of an output may lie before that of its element; seconds where it
            is a number.
        **kwargs: given to the function by name.

    Raises:
        PipelineError: ``fn`` is no function, or the skew is negative; when applied, the arguments do not fit it.
        TimeError: the skew is not a duration.
    """

    shape = Shape.MAP


class FlatMap(_CallableTransform[T, Iterable[OutT] | None, OutT], Generic[T, OutT]):
    """Any number of outputs per element: those of the iterable ``fn(element, *args, **kwargs)``.

    Args:
        fn: called with each element; returns an iterable.
        *args: given to the function behind the element, each time; a collection as `AsSingleton`, `AsList` or the like.
        allowed_timestamp_skew: how far the event time of an output may lie before that of its element; seconds where it
            is a number.
        **kwargs: given to the function by name.

    Raises:
        PipelineError: ``fn`` is no function, or the skew is negative; when applied, the arguments do not fit it.
        TimeError: the skew is not a duration.
    """

    shape = Shape.FLAT_MAP


class Filter(_CallableTransform[T, object, T], Generic[T]):
    """The elements for which ``fn(element, *args, **kwargs)`` is true.

    Args:
        fn: called with each element.
        *args: given to the function behind the element, each time; a collection as `AsSingleton`, `AsList` or the like.
        **kwargs: given to the function by name.

    Raises:
        PipelineError: ``fn`` is no function; when applied, the arguments do not fit it.
    """

    shape = Shape.FILTER

    @overload
    def __init__(self, fn: Callable[[T], object]) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[Concatenate[T, P], object], *args: Any, **kwargs: Any
    ) -> None: ...
    def __init__(self, fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        super().__init__(fn)
        self._arguments = _extra(self, args, kwargs)


class WithTimestamps(_CallableTransform[T, TimestampLike, T], Generic[T]):
    """Give each element the event time ``fn(element)``.

    Prefer ``event_time=`` of the source where it has one: the watermark follows what the source knows, so a time that
    is set here behind it is late.  Windows that the elements are in already stay as they are.

    Args:
        fn: an aware datetime, text, or seconds since 1970, for each element.
        allowed_timestamp_skew: how much earlier the event time of an element may become.

    Raises:
        PipelineError: ``fn`` is not callable, or the skew is negative.
        TimeError: the skew is not a duration.
    """

    shape = Shape.MAP

    def __init__(
        self,
        fn: Callable[Concatenate[T, P], TimestampLike],
        *,
        allowed_timestamp_skew: DurationLike = 0,
    ) -> None:
        super().__init__(fn, allowed_timestamp_skew=allowed_timestamp_skew)

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Add the primitive."""
        check_user_code(CallableDoFn(self._fn, self.shape), pcoll.pipeline.here())
        stamped = CallableDoFn(_Stamping(self._fn), self.shape)
        return _add(stamped, pcoll, skew_us=self._skew_us)[MAIN]


class _Stamping(Wrapped):
    def __call__(self, element: Any, /, **params: Any) -> TimestampedValue:
        return TimestampedValue(element, self.function(element, **params))

    def function_types(self, given: Any) -> FunctionTypes:
        found = function_types(self.function, given)
        return FunctionTypes(found.accepts, given)


def _add(
    fn: DoFn | CallableDoFn,
    pcoll: PCollection[Any],
    *,
    tags: tuple[str, ...] = (MAIN,),
    skew_us: int = 0,
    arguments: ExtraArguments = NO_ARGUMENTS,
) -> dict[str, PCollection[Any]]:
    pipeline = pcoll.pipeline
    here = pipeline.here()
    check_user_code(fn, here, may_be_async=True)
    has_side_inputs = arguments.has(SideInput)
    if isinstance(fn, DoFn) and stateful_signature(fn, here, arguments) is not None:
        if has_side_inputs:
            raise _stateful_with_side_inputs(fn, here)
        check_user_code(fn, here)
        return _add_stateful(fn, pcoll, tags, skew_us, arguments)
    _check_that_arguments_arrive(fn, arguments, here)
    if has_side_inputs:
        arguments.bound(fn.process if isinstance(fn, DoFn) else fn.function, here)
        pcoll, arguments = with_views(pcoll, arguments)
    if has_process_batch(fn) and is_nondeterministic(fn) and pcoll.node.retracted_by:
        raise PipelineError(
            f"{here} is non-deterministic and takes batches, and its input may be retracted by "
            f"{pcoll.node.retracted_by}",
            detail="what it made of each element would have to be remembered",
            hint="define process instead of process_batch",
        )
    if isinstance(fn, DoFn) and pcoll.node.retracted_by and isgeneratorfunction(fn.finish_bundle):
        raise PipelineError(
            f"{here} emits from finish_bundle, and its input may be retracted by {pcoll.node.retracted_by}",
            detail="what was made of a bundle could not be retracted with one of its elements",
            hint="emit from process; or put df.ToChangelog() before it; or, if that is a grouping, set its "
            "accumulation_mode to ACCUMULATING or DISCARDING",
        )
    if isinstance(fn, DoFn) and fn.has_retractable_outputs:
        raise PipelineError(
            f"{here} has retractable outputs, and keeps no state",
            detail=f"{type(fn).__name__} asks for no state and no timer: what it emits is retracted with its elements",
            hint="leave has_retractable_outputs out",
        )
    call = arguments.bound(fn.process if isinstance(fn, DoFn) else fn.function, here)
    requested_params(call, here)
    if isinstance(fn, CallableDoFn) and is_asking_for_state(call):
        raise PipelineError(
            f"{here} asks for state, a timer, a key or a sign, which a plain function cannot have",
            hint="write a DoFn with a process method, and apply it with df.ParDo",
        )
    # Pickled here for its error alone: a lambda that cannot travel should fail on the line that wrote it.
    dumps_code((fn, arguments), here)
    return pipeline.add_operation(
        ParDoOperation(fn, tags, skew_us, arguments, async_calls(fn)),
        [pcoll],
        pcoll.node.strategy,
        tags=tags,
        retracted_by=pcoll.node.retracted_by,
    )


def _add_stateful(
    fn: DoFn,
    pcoll: PCollection[Any],
    tags: tuple[str, ...],
    skew_us: int,
    arguments: ExtraArguments,
) -> dict[str, PCollection[Any]]:
    pipeline, strategy = pcoll.pipeline, pcoll.node.strategy
    here = pipeline.here()
    if strategy.is_merging:
        check_merging(fn, pcoll, here, arguments)
    if pcoll.node.retracted_by and not fn.handles_retractions:
        raise PipelineError(
            f"{here} keeps state, and its input may be retracted by {pcoll.node.retracted_by}",
            detail=f"{type(fn).__name__} does not declare that it handles retractions: state that was made of an "
            "element would stay when the element is retracted",
            hint="set handles_retractions = True in the class, and ask for df.DoFn.SignParam; or put df.ToChangelog() "
            "before it; or, if that is a grouping, set its accumulation_mode to ACCUMULATING or DISCARDING",
        )
    if fn.has_retractable_outputs:
        _check_outputs_can_be_kept(fn, pcoll, here)
    dumps_code((fn, arguments), here)
    is_sorted = fn.requires_time_sorted_input
    if is_sorted is None:
        check_order(fn, pcoll, here, arguments)
        is_sorted = not pcoll.node.has_arrival_order
    operation = StatefulParDoOperation(fn, tags, skew_us, is_sorted, arguments)
    retracted_by = here if fn.has_retractable_outputs else None
    return pipeline.add_operation(
        operation, [pcoll], strategy, tags=tags, retracted_by=retracted_by
    )


def _check_outputs_can_be_kept(fn: DoFn, pcoll: PCollection[Any], here: str) -> None:
    """Refuse retractable outputs of a stateful DoFn that belong to no key, or to windows that merge."""
    if isgeneratorfunction(fn.finish_bundle):
        raise PipelineError(
            f"{here} has retractable outputs, and emits from finish_bundle",
            detail="what is made of a bundle belongs to no key, and could not be kept with the state of one",
            hint="emit from process, or from a timer",
        )
    strategy = pcoll.node.strategy
    if strategy.is_merging:
        raise PipelineError(
            f"{here} has retractable outputs, and keeps state in windows that merge",
            detail=f"the windows are {strategy.window_fn!r}",
            hint="group first: after df.GroupByKey() windows stay as they are; or leave has_retractable_outputs out",
        )


def _stateful_with_side_inputs(fn: DoFn, here: str) -> PipelineError:
    return PipelineError(
        f"{here} keeps state and has a side input, which would have to be kept for each key",
        detail=f"{type(fn).__name__} asks for state or timers",
        hint="put what it needs of the side input into the values before it: "
        "pairs | df.MapTuple(lambda key, value, side: (key, (value, side)), df.AsSingleton(side)) | ...",
    )


def _no_do_fn(given: object) -> PipelineError:
    if isinstance(given, type) and issubclass(given, DoFn):
        return PipelineError(
            f"ParDo needs a DoFn, and {given.__name__} is a class ({user_location()})",
            hint=f"call it: df.ParDo({called(given)})",
        )
    return PipelineError(
        f"ParDo needs a DoFn, not {given!r} ({user_location()})",
        hint="for a plain function use df.Map, df.FlatMap or df.Filter",
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _extra(
    transform: PTransform[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExtraArguments:
    for name, given in (*enumerate(args, 1), *kwargs.items()):
        if isinstance(given, PCollection | PCollectionTuple):
            raise PipelineError(
                f"{type(transform).__name__} was given a PCollection as an argument, and not how to see it",
                detail=f"argument {name}: {given!r}",
                hint="give it as df.AsSingleton(pcollection), df.AsList, df.AsIter, df.AsDict or df.AsMultiMap; what "
                "is large is brought together by a key, with df.CoGroupByKey() or df.Join()",
            )
    return ExtraArguments(args, kwargs)


def _check_that_arguments_arrive(
    fn: DoFn | CallableDoFn, arguments: ExtraArguments, here: str
) -> None:
    if arguments and has_process_batch(fn):
        raise PipelineError(
            f"{here} was given arguments, and its DoFn takes batches",
            detail=f"{type(fn).__name__}.process_batch is given the batch alone",
            hint="give them to the constructor of the DoFn",
        )


def _skew_us(what: str, skew: DurationLike) -> int:
    skew_us = to_duration_us(skew)
    if skew_us < 0:
        raise PipelineError(
            f"{what} has a negative allowed_timestamp_skew, {skew!r}",
            hint="it is how much earlier than its element an output may be: zero or more",
        )
    return skew_us

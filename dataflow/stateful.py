"""Stateful DoFns: which DoFns are stateful, what they ask for, and what is refused when they are built.

A DoFn is stateful if ``process`` asks for state or a timer, if a method is marked with `on_timer`, or if it wants its
input in time order.  Its elements are ``(key, value)`` pairs, and it is run where the state of their key is.

**The order** in which the elements and timers of a key and window are seen is one of two.

*Of event time*: in batch; on every runner where the input ends by itself; anywhere if
`DoFn.requires_time_sorted_input` is true.  An element waits until the watermark has passed it.  Elements come by their
event times, with the timers of event time in between, as if the watermark had come slowly.  At one instant: first the
timers that are set for it, in the order in which they were set; then the elements, in an order that depends on their
values alone; a timer that an element sets for this instant, or for the past, fires before the next element.  So all
runners emit the same, as long as nothing is late: a late element is seen when it comes.  State whose time to live
is over is cleared as by a timer of that instant.  In the end, when the watermark has reached the expiry of the window:
timers that are still set fire a last time, those of event time first; then the method for the expiration of the window
is called, with all state that was not cleared by then.

*Of arrival*: in a stream otherwise.  An element is seen when it comes, and a timer of event time fires when the
watermark has reached it: after all elements that had come by then, at that very instant and later ones too, and before
those that come afterwards.  What is emitted then depends on how the records came, and differs between two runs.

Timers of processing time fire by the clock, which in batch does not move until all input is there.  One that keeps its
window (`TimerSpec`) is not among those that fire a last time: it is waited for, as long as its job is not drained.

**Where windows merge** the order is that of all elements and timers of a key, and not of a window: each element comes
with the window that it was assigned, and merges with the open windows when it is seen, and not before.  So in the order
of event time a session grows element by element, and what an element sees does not depend on what has arrived and is
still to be seen.  Timers of several windows of a key fire in the order of their instants, and of one instant in that of
their windows; a window expires between the elements too.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from dataflow.do_fn import DoFn, DoFnParam, requested_params
from dataflow.errors import ArrivalOrderWarning, PipelineError
from dataflow.extra_arguments import NO_ARGUMENTS, ExtraArguments
from dataflow.pipeline import PCollection
from dataflow.signatures import signature_of
from dataflow.user_state import (
    AnyTimerSpec,
    MapStateSpec,
    ReadModifyWriteStateSpec,
    StateParam,
    StateSpec,
    TimerFamilySpec,
    TimerParam,
    WatermarkHoldStateSpec,
    is_of_expiration,
    is_of_merge,
    members_of_class,
    timer_of,
)
from windowing.location import user_stacklevel
from windowing.time_domain import TimeDomain

SpecT = TypeVar("SpecT", bound=StateSpec | AnyTimerSpec)

#: Defaults of parameters that ask for something.
Request = DoFnParam | StateParam | TimerParam

#: What only an element has.
_OF_ELEMENTS = frozenset((DoFnParam.ELEMENT, DoFnParam.PANE, DoFnParam.SIGN))
_OF_STATE = (DoFnParam.KEY, DoFnParam.SIGN, DoFnParam.WATERMARK)
_OF_TIMERS = (DoFnParam.FIRE_TIMESTAMP, DoFnParam.TIMER_TAG)


@attrs.frozen
class UserMethod:
    """A method of a DoFn, and what its parameters ask for."""

    name: str
    requests: Mapping[str, Request]


@attrs.frozen
class StatefulSignature:
    """The state, timers and parameters that a stateful DoFn asks for.

    Attributes:
        callbacks, timers: by the timers' names.
        states: by their names.
        expiration: the method that is called when a window expires; None: there is none.
        merge: the method that is called when windows have become another one; None: there is none.
    """

    process: UserMethod
    callbacks: Mapping[str, UserMethod]
    timers: Mapping[str, AnyTimerSpec]
    states: Mapping[str, StateSpec]
    expiration: UserMethod | None = None
    merge: UserMethod | None = None

    @property
    def can_hold(self) -> bool:
        """Whether it can hold the watermark behind the DoFn."""
        return any(
            isinstance(each, WatermarkHoldStateSpec) for each in self.states.values()
        ) or any(each.holds_watermark for each in self.timers.values())


def stateful_signature(
    fn: DoFn, what: str, arguments: ExtraArguments = NO_ARGUMENTS
) -> StatefulSignature | None:
    """The state, timers and parameters that a DoFn asks for; None if it is not stateful.

    Args:
        fn: the DoFn.
        what: how to name it in an error.
        arguments: given to ``process`` behind the element.

    Raises:
        PipelineError: two specs share a name, a timer has no method or two of them, or a parameter asks for something
            that it cannot have.
    """
    call = arguments.bound(fn.process, what)
    asked_of_process = _requests(call).items()
    process = UserMethod(
        "process", {name: each for name, each in asked_of_process if each is not DoFnParam.ELEMENT}
    )
    callbacks, expiration, merge = (
        list(_callbacks(fn, what)),
        _expiration(fn, what),
        _merge(fn, what),
    )
    methods = [*(method for _, method in callbacks), *filter(None, (expiration, merge))]
    asked = list(process.requests.values())
    is_stateful = methods or any(isinstance(each, StateParam | TimerParam) for each in asked)
    if not is_stateful and not fn.requires_time_sorted_input:
        _check_plain(asked, fn, what)
        return None
    requested_params(call, what)  # for its error alone
    _check_not_of_timers(asked, fn, what)
    if DoFnParam.SIGN in asked and not fn.handles_retractions:
        raise PipelineError(
            f"{what} asks for SignParam, but does not declare that it handles retractions",
            hint=f"set handles_retractions = True in class {type(fn).__name__}, or leave SignParam out",
        )
    asked.extend(each for method in methods for each in method.requests.values())
    states = _by_name((each.spec for each in asked if isinstance(each, StateParam)), what)
    marked = [spec for spec, _ in callbacks]
    asked_for = [each.spec for each in asked if isinstance(each, TimerParam)]
    timers = _by_name([*marked, *asked_for], what)
    _check_callbacks(timers, marked, what)
    return StatefulSignature(
        process=process,
        callbacks={spec.name: method for spec, method in callbacks},
        timers=timers,
        states=states,
        expiration=expiration,
        merge=merge,
    )


def check_order(
    fn: DoFn, pcoll: PCollection[Any], what: str, arguments: ExtraArguments = NO_ARGUMENTS
) -> None:
    """Warn where the order of arrival decides what a DoFn emits, and the DoFn does not declare which order it wants.

    Args:
        fn: a stateful DoFn.
        pcoll: its input.
        what: how to name it in the warning.
        arguments: given to ``process`` behind the element.
    """
    signature = stateful_signature(fn, what, arguments)
    assert signature is not None
    names = [
        name for name, spec in signature.timers.items() if spec.time_domain is TimeDomain.EVENT
    ]
    ending = [
        name
        for name, spec in signature.states.items()
        if spec.ttl_us is not None and spec.ttl_domain is TimeDomain.EVENT
    ]
    if pcoll.is_bounded or not (names or ending) or fn.is_made_for_arrival_order:
        return
    has = "timers of event time" if names else "state with a time to live in event time"
    warnings.warn(
        ArrivalOrderWarning(
            f"{what} has {has}, and sees the elements of its input, which has no end, as they arrive",
            detail=f"{'timers' if names else 'state'} {names or ending} of {type(fn).__name__}; "
            "its results may differ from run to run, and from batch",
            hint="set requires_time_sorted_input = True in the class, and elements wait for the watermark and come in "
            "the order of event times; or False, if the order of arrival is what is wanted",
        ),
        stacklevel=user_stacklevel(),
    )


def check_merging(
    fn: DoFn, pcoll: PCollection[Any], what: str, arguments: ExtraArguments = NO_ARGUMENTS
) -> None:
    """Refuse a DoFn in windows that merge if its state cannot.

    Args:
        fn: a stateful DoFn.
        pcoll: its input.
        what: how to name it in the error.
        arguments: given to ``process`` behind the element.

    Raises:
        PipelineError: the input may be retracted, so that windows split again; or a state needs a function that merges
            two values, and has none; or a timer keeps its window.
    """
    window_fn, retracted_by = pcoll.node.strategy.window_fn, pcoll.node.retracted_by
    if retracted_by:
        raise PipelineError(
            f"{what} keeps state in windows that merge, and its input may be retracted by {retracted_by}",
            detail=f"the windows are {window_fn!r}: without a retracted element they split again, and state that has "
            "merged cannot be divided",
            hint="group first: after df.GroupByKey() windows stay as they are; or put df.ToChangelog() before it; or "
            "set that grouping's accumulation_mode to ACCUMULATING or DISCARDING",
        )
    signature = stateful_signature(fn, what, arguments)
    assert signature is not None
    keeping = [name for name, spec in signature.timers.items() if spec.keeps_window]
    if keeping:
        raise PipelineError(
            f"{what} has a timer that keeps its window, and its windows merge: {', '.join(map(repr, keeping))}",
            detail=f"the windows are {window_fn!r}",
            hint="group first: after df.GroupByKey() windows stay as they are; or put "
            "df.WindowInto(df.GlobalWindows()) before it",
        )
    unmerged = [
        spec
        for spec in signature.states.values()
        if isinstance(spec, ReadModifyWriteStateSpec | MapStateSpec) and spec.merge is None
    ]
    if unmerged:
        raise PipelineError(
            f"{what} keeps state in windows that may merge, and does not say how its state merges: "
            f"{', '.join(repr(spec.name) for spec in unmerged)}",
            detail=f"the windows are {window_fn!r}; {type(fn).__name__} has {unmerged[0]!r}",
            hint=_how_to_merge(fn, unmerged[0]),
        )


def _how_to_merge(fn: DoFn, spec: StateSpec) -> str:
    group_first = "group first: after df.GroupByKey() windows stay as they are"
    if type(fn).__module__.startswith(f"{__package__}."):
        return group_first  # a transform of the SDK is not its user's to change
    return (
        f"say what becomes of two values: df.{type(spec).__name__}({spec.name!r}, merge=max), or use "
        f"df.CombiningValueStateSpec, which merges by itself; or {group_first}"
    )


def is_asking_for_state(call: Callable[..., Any]) -> bool:
    """Whether a plain function asks for what only a stateful DoFn can have."""
    return any(map(_is_of_state, _requests(call).values()))


def _is_of_state(request: Request) -> bool:
    return isinstance(request, StateParam | TimerParam) or request in (*_OF_STATE, *_OF_TIMERS)


def _requests(call: Callable[..., Any]) -> dict[str, Request]:
    signature = signature_of(call)
    if signature is None:
        return {}
    return {
        each.name: each.default
        for each in signature.parameters.values()
        if isinstance(each.default, DoFnParam | StateParam | TimerParam)
    }


def _callbacks(fn: DoFn, what: str) -> Iterable[tuple[AnyTimerSpec, UserMethod]]:
    for name, member in members_of_class(type(fn)).items():
        spec = timer_of(member)
        if spec is None:
            continue
        requests = _requests_without_element(fn, name, "timer", what)
        if not _OF_ELEMENTS.isdisjoint(requests.values()):
            raise PipelineError(
                f"{what} asks for ElementParam, PaneInfoParam or SignParam in a timer method",
                detail=f"{type(fn).__name__}.{name}: a timer brings no element that could have them",
                hint="keep what you need of the element in state",
            )
        if DoFnParam.TIMER_TAG in requests.values() and not isinstance(spec, TimerFamilySpec):
            raise PipelineError(
                f"{what} asks for DynamicTimerTagParam in the method of a timer that has no tag",
                detail=f"{type(fn).__name__}.{name}: {spec!r}",
                hint="declare a family of timers, df.TimerFamilySpec(name, domain), or leave it out",
            )
        yield spec, UserMethod(name, requests)


def _requests_without_element(fn: DoFn, name: str, kind: str, what: str) -> dict[str, Request]:
    """What a method asks for that is called for no element."""
    method = getattr(fn, name)
    try:
        inspect.signature(method).bind()
    except TypeError as error:
        raise PipelineError(
            f"{what} has {'an' if kind[0] in 'aeiou' else 'a'} {kind} method that cannot be called without arguments",
            detail=f"{type(fn).__name__}.{name}: {error}",
            hint=f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} brings no element; give every parameter but self a "
            "default, such as key=df.DoFn.KeyParam",
        ) from None
    return _requests(method)


def _expiration(fn: DoFn, what: str) -> UserMethod | None:
    """The method that is called when a window expires."""
    name = _only_marked(fn, what, is_of_expiration, "expiration of windows", "expiration")
    if name is None:
        return None
    requests = _requests_without_element(fn, name, "expiration", what)
    refused = {DoFnParam.PANE, DoFnParam.SIGN, *_OF_TIMERS}
    if any(isinstance(each, TimerParam) or each in refused for each in requests.values()):
        raise PipelineError(
            f"{what} asks for a timer, or for what an element or a timer has, when a window expires",
            detail=f"{type(fn).__name__}.{name}: nothing fires in a window that has expired",
            hint="ask for state, KeyParam, WindowParam, TimestampParam or WatermarkParam",
        )
    return UserMethod(name, requests)


def _merge(fn: DoFn, what: str) -> UserMethod | None:
    """The method that is called when windows have become another one."""
    name = _only_marked(fn, what, is_of_merge, "merging of windows", "merge")
    if name is None:
        return None
    requests = _requests_without_element(fn, name, "merge", what)
    if not {DoFnParam.PANE, DoFnParam.SIGN, *_OF_TIMERS}.isdisjoint(requests.values()):
        raise PipelineError(
            f"{what} asks for what an element or a timer has when windows merge",
            detail=f"{type(fn).__name__}.{name} is called before the element is processed",
            hint="ask for state, timers, KeyParam, WindowParam, TimestampParam or WatermarkParam",
        )
    return UserMethod(name, requests)


def _only_marked(
    fn: DoFn, what: str, is_marked: Callable[[object], bool], occasion: str, kind: str
) -> str | None:
    names = [name for name, member in members_of_class(type(fn)).items() if is_marked(member)]
    if len(names) > 1:
        raise PipelineError(
            f"{what} has {len(names)} methods for the {occasion}",
            detail=f"{type(fn).__name__}: {', '.join(names)}",
            hint=f"mark exactly one method with @df.on_window_{kind}",
        )
    return names[0] if names else None


def _by_name(specs: Iterable[SpecT], what: str) -> dict[str, SpecT]:
    by_name: dict[str, SpecT] = {}
    for spec in specs:
        other = by_name.setdefault(spec.name, spec)
        if other != spec:
            raise PipelineError(
                f"{what} uses the name {spec.name!r} for two different things",
                detail=f"{other!r} and {spec!r}",
                hint="state and timers are found again by their names; give each one of its own",
            )
    return by_name


def _check_callbacks(
    timers: Mapping[str, AnyTimerSpec], marked: Iterable[AnyTimerSpec], what: str
) -> None:
    names = [spec.name for spec in marked]
    for name, spec in timers.items():
        if names.count(name) != 1:
            raise PipelineError(
                f"{what} has {names.count(name) or 'no'} methods for the timer {name!r}",
                detail=f"{spec!r}",
                hint="mark exactly one method with @df.on_timer(...); it is called when the timer fires",
            )


def _check_not_of_timers(params: Iterable[Request], fn: DoFn, what: str) -> None:
    if not set(_OF_TIMERS).isdisjoint(params):
        raise PipelineError(
            f"{what} asks for FireTimestampParam or DynamicTimerTagParam outside the method of a timer",
            detail=f"{type(fn).__name__}.process is called for an element",
            hint="ask for it in a method that is marked with @df.on_timer(...)",
        )


def _check_plain(params: Sequence[Request], fn: DoFn, what: str) -> None:
    _check_not_of_timers(params, fn, what)
    if any(map(_is_of_state, params)):
        raise PipelineError(
            f"{what} asks for KeyParam, SignParam or WatermarkParam, which only a stateful DoFn can have",
            detail=f"{type(fn).__name__}.process asks for no state and no timer",
            hint="the key is the first part of the element; retractions run user code again by themselves",
        )

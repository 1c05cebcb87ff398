"""StatefulInvoker: calls the methods of a stateful DoFn with the parameters that they request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

import attrs

from dataflow.do_fn import DoFn, DoFnParam
from dataflow.errors import DataflowError, PipelineError, TransformError
from dataflow.graph import StatefulParDo, TransformNode
from dataflow.metric_updates import RunningAs, attempt, uncounted
from dataflow.serialization import dumps, loads
from dataflow.state_handles import Lifetime, handles_of
from dataflow.state_merging import merge_state, merge_timers
from dataflow.stateful import Request, StatefulSignature
from dataflow.user_state import (
    EMITTED,
    AnyTimerSpec,
    StateParam,
    StateSpec,
    TimerFamilySpec,
    TimerHandle,
    TimerMap,
    TimerName,
    TimerParam,
)
from runners.core.ground.dead_letters import DeadLetter, dead_letter
from runners.core.ground.element_text import shown
from runners.core.stateful.cell_pages import raising_unread
from runners.core.stateful.keyed_state import KeyedState, UserTimers, spec_name
from runners.core.user_code.do_fn_outputs import failure, hook_failure, naming_hook
from runners.core.user_code.handled import Handled
from runners.core.user_code.poison import Trial
from runners.core.user_code.returned import BundleEnd, FinishBundleOutput, check_silent, outputs_of
from windowing.pane import NO_FIRING, PaneInfo
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, clamp_timestamp_us, to_datetime
from windowing.window import Window


@attrs.define(on_setattr=attrs.setters.NO_OP)  # one is made for every record
class Call:
    """The context of a call of user code; the event time is that of the element, or that of the timer.

    Attributes:
        fire_us: the instant that the timer was set for, in microseconds.
        tag: which one of its family the timer is.
    """

    key: Any
    window: Window
    timestamp_us: int
    now_us: int
    pane: PaneInfo = NO_FIRING
    sign: int = +1
    watermark_us: int = MIN_TIMESTAMP_US
    fire_us: int = MIN_TIMESTAMP_US
    tag: str = ""


#: What stands for the name of a timer where a window has expired.
_EXPIRATION = "window expiration"

_Resolve = Callable[[KeyedState, Call], Any]


class StatefulInvoker:
    """Runs one stateful DoFn.  A bundle begins with the first call in a step.

    Args:
        node: the transform.
        fn: its DoFn.
        signature: the parameters that its methods request.
        tries: how often it is tried on an element or a timer before that becomes a dead letter; each call then costs a
            copy of the cell's state.  None: the first failure is raised.
    """

    def __init__(
        self,
        node: TransformNode,
        fn: DoFn,
        signature: StatefulSignature,
        *,
        tries: int | None = None,
    ) -> None:
        assert isinstance(node.operation, StatefulParDo)
        self._node, self._operation, self._fn, self._tries = node, node.operation, fn, tries
        self._dead: list[DeadLetter] = []
        #: Runs user code on trial first, where failing elements are left out; None: it is run here at once.
        self.trial: Trial | None = None
        self._process = node.operation.arguments.bound(fn.process, str(node))
        self._process_params = tuple(_resolvers(signature.process.requests).items())
        self._callbacks: dict[str, tuple[str, Callable[..., Any], dict[str, _Resolve]]] = {
            timer: (method.name, getattr(fn, method.name), _resolvers(method.requests))
            for timer, method in signature.callbacks.items()
        }
        self._expiration: tuple[str, Callable[..., Any], dict[str, _Resolve]] | None = None
        if (last := signature.expiration) is not None:
            self._expiration = last.name, getattr(fn, last.name), _resolvers(last.requests)
        self._handled: Handled | None = None
        if node.operation.handling is not None:
            self._handled = Handled(node, node.operation.handling)
        self._merge: tuple[str, Callable[..., Any], dict[str, _Resolve]] | None = None
        if (merge := signature.merge) is not None:
            self._merge = merge.name, getattr(fn, merge.name), _resolvers(merge.requests)
        self._states = tuple(signature.states.values())
        self._is_in_bundle = False
        #: The earliest event time and the windows of this bundle's calls are kept if the end of a bundle can emit
        #: something.
        self._emits_at_end = type(fn).finish_bundle is not DoFn.finish_bundle
        self._earliest_us, self._windows = MAX_TIMESTAMP_US, set[Window]()

    def setup(self) -> None:
        """Call the DoFn's setup on this worker."""
        with RunningAs(self._node.label), uncounted():
            self._call_silent_hook("setup")

    def teardown(self) -> None:
        """Call the DoFn's teardown."""
        with RunningAs(self._node.label), uncounted():
            self._call_silent_hook("teardown")

    def finish_bundle(self) -> tuple[list[FinishBundleOutput], list[DeadLetter]]:
        """End the bundle, if one has begun, and return its last outputs and its dead letters.

        Raises:
            TransformError: ``finish_bundle`` raised, or emitted something that is not allowed.
        """
        outputs: list[FinishBundleOutput] = []
        if self._is_in_bundle:
            self._is_in_bundle = False
            if self._emits_at_end:
                with naming_hook(self._node, self._fn, "finish_bundle"):
                    end = BundleEnd(self._node, self._operation, self._earliest_us, self._windows)
                    outputs = list(end.outputs(self._fn.finish_bundle()))
                self._earliest_us, self._windows = MAX_TIMESTAMP_US, set()
        dead, self._dead = self._dead, []
        return outputs, dead

    def process(self, cell: KeyedState, value: Any, call: Call) -> list[Any]:
        """The outputs for one element.

        Args:
            cell: state and timers; changed in place.
            value: of the element.
            call: the context.

        Raises:
            TransformError: what ``process`` raised, if failing elements do not become dead letters.
        """
        if self._tries is not None:
            return self._tried(
                lambda: self._processed(cell, value, call), cell, (call.key, value), call
            )
        if self._handled is not None:
            return self._processed(cell, value, call)
        # The same with fewer calls of our own, which would take as long as the user's.
        if self._emits_at_end or not self._is_in_bundle:
            self._begin(call)
        element = (call.key, value)
        try:
            params = {}
            for name, resolve in self._process_params:
                params[name] = resolve(cell, call)
            returned = self._process(element, **params)
            if type(returned) is not GeneratorType:
                returned = outputs_of(self._node, returned, "process")
            return list(returned)
        except Exception as error:
            raise failure(self._node, error, element) from error

    def _processed(self, cell: KeyedState, value: Any, call: Call) -> list[Any]:
        return self._for_element(lambda: self._call_process(cell, value, call), cell, value, call)

    def _call_process(self, cell: KeyedState, value: Any, call: Call) -> Any:
        params = {name: resolve(cell, call) for name, resolve in self._process_params}
        return self._process((call.key, value), **params)

    def _for_element(
        self, returned: Callable[[], Any], cell: KeyedState, value: Any, call: Call
    ) -> list[Any]:
        self._begin(call)
        element = (call.key, value)
        try:
            return self._listed(returned, "process", cell, element)
        except Exception as error:
            raise failure(self._node, error, element) from error

    def process_merging(
        self, sources: Sequence[KeyedState], cell: KeyedState, value: Any, call: Call
    ) -> tuple[list[Any], bool]:
        """The outputs for an element by which windows have become another one, and whether they have.

        They have not if the element fails each time, and is a dead letter or a failure that is handled: it merges
        nothing, and the sources are as they were.

        Args:
            sources: state and timers of these windows, in the order of time; not to be used afterwards, if they have
                merged.  None of them: it is the first element of a window.
            cell: given those of the new window, which are empty before.
            value: of the element.
            call: the context, with the new window.

        Raises:
            TransformError: what user code raised, if failing elements are neither dead letters nor handled.
        """
        has_merged = False
        may_fail = self._tries is not None or self._handled is not None
        before = dumps([(s.values, dict(s.timers)) for s in sources]) if may_fail else b""

        def outputs() -> Iterator[Any]:
            nonlocal has_merged
            parts = sources
            if may_fail:
                parts = [KeyedState(*each) for each in loads(before)]
                for part in parts:
                    part.pages = cell.pages
                    part.find_pages()
            self._merge_into(cell, parts, call)
            returned = self._call_process(cell, value, call)
            yield from () if returned is None else outputs_of(self._node, returned, "process")
            has_merged = True

        def run() -> list[Any]:
            return self._for_element(outputs, cell, value, call)

        if self._tries is None:
            return run(), has_merged
        return self._tried(run, cell, (call.key, value), call), has_merged

    def _merge_into(self, cell: KeyedState, sources: Sequence[KeyedState], call: Call) -> None:
        if not sources:
            return
        first, *later = sources
        cell.values, cell.timers, cell.sizes = first.values, first.timers, first.sizes
        try:
            merge_state(self._states, cell.values, [each.values for each in later])
        except PipelineError as error:
            if self._handled is not None and error.__cause__ is not None:
                # As user code raised it: which exceptions are handled, their class decides.
                raise error.__cause__ from None
            raise
        for each in later:
            each.drop_pages()
        merge_timers(
            cell.timers_to_set(), cell.values, [(each.timers, each.values) for each in later]
        )
        if self._merge is not None:
            name, callback, resolvers = self._merge
            params = {name: resolve(cell, call) for name, resolve in resolvers.items()}
            check_silent(self._node, callback(**params), name)

    def fire(self, cell: KeyedState, timer: TimerName, call: Call) -> list[Any]:
        """The outputs of the method of a timer.

        Args:
            cell: state and timers; changed in place.
            timer: its name.
            call: the context.

        Raises:
            TransformError: what the method raised, if failing timers do not become dead letters.
        """
        if self._tries is None:
            return self._fired(cell, timer, call)
        return self._tried(lambda: self._fired(cell, timer, call), cell, (call.key, timer), call)

    def _fired(self, cell: KeyedState, timer: TimerName, call: Call) -> list[Any]:
        where = f"timer {timer!r} of key {shown(call.key)}"
        return self._called(self._callbacks[spec_name(timer)], cell, call, where, timer)

    @property
    def has_expiration(self) -> bool:
        """Whether a method is called when a window expires."""
        return self._expiration is not None

    def expire(self, cell: KeyedState, call: Call) -> list[Any]:
        """The outputs of the method that is called when a window expires.

        Args:
            cell: its state.
            call: the context.

        Raises:
            TransformError: what the method raised, if failing calls do not become dead letters.
        """
        if self._tries is None:
            return self._expired(cell, call)
        return self._tried(lambda: self._expired(cell, call), cell, (call.key, _EXPIRATION), call)

    def _expired(self, cell: KeyedState, call: Call) -> list[Any]:
        assert self._expiration is not None
        where = f"when {call.window!r} of key {shown(call.key)} expired"
        return self._called(self._expiration, cell, call, where, _EXPIRATION)

    def _called(
        self,
        method: tuple[str, Callable[..., Any], dict[str, _Resolve]],
        cell: KeyedState,
        call: Call,
        what: str,
        timer: TimerName,
    ) -> list[Any]:
        self._begin(call)
        name, callback, resolvers = method

        def returned() -> Any:
            return callback(**{name: resolve(cell, call) for name, resolve in resolvers.items()})

        try:
            return self._listed(returned, name, cell, (call.key, timer))
        except TransformError:
            raise
        except Exception as error:
            where = f"{type(self._fn).__name__}.{name}, {what}"
            raise hook_failure(self._node, error, where) from error

    def _tried(
        self, run: Callable[[], list[Any]], cell: KeyedState, element: Any, call: Call
    ) -> list[Any]:
        """The outputs of user code; none if it fails each time, and then state and timers are as they were."""
        assert self._tries is not None
        undo = _undo(cell)
        for number in range(1, self._tries + 1):
            try:
                if self.trial is not None:
                    self.trial(partial(raising_unread, run))
                with attempt():
                    return run()
            except DataflowError as error:
                undo()
                if number == self._tries:
                    letter = dead_letter(
                        error,
                        stage=self._node.label,
                        element=element,
                        timestamp_us=call.timestamp_us,
                        window=call.window,
                        sign=call.sign,
                        tries=self._tries,
                    )
                    self._dead.append(letter)
        return []

    def _begin(self, call: Call) -> None:
        if not self._is_in_bundle:
            self._call_silent_hook("start_bundle")
            self._is_in_bundle = True
        if self._emits_at_end:
            self._earliest_us = min(self._earliest_us, call.timestamp_us)
            self._windows.add(call.window)

    def _call_silent_hook(self, name: str) -> None:
        with naming_hook(self._node, self._fn, name):
            check_silent(self._node, getattr(self._fn, name)(), name)

    def _listed(
        self, returned: Callable[[], Any], where: str, cell: KeyedState, element: Any
    ) -> list[Any]:
        """The outputs of a call; listed at once, because a generator changes state while it runs.

        Args:
            returned: calls the user's code.
            where: the method, as an error names it.
            cell: state and timers; what a call that is handled has changed is undone.
            element: of which a failure is.
        """
        if self._handled is None:
            outputs = returned()
            return [] if outputs is None else list(outputs_of(self._node, outputs, where))
        return self._handled.outputs(
            element,
            lambda outputs: outputs.extend(outputs_of(self._node, returned(), where)),
            _undo(cell),
        )


def _undo(cell: KeyedState) -> Callable[[], None]:
    """A function that gives a cell the state and the timers that it has now."""
    # What it has emitted before is no part of it: it stays the very objects that code behind still has.
    values = {name: value for name, value in cell.values.items() if name != EMITTED}
    before, pages = dumps((values, dict(cell.timers))), cell.pages
    undo_pages = None if pages is None else pages.undo()

    def undo() -> None:
        emitted = {name: value for name, value in cell.values.items() if name == EMITTED}
        values, timers = loads(before)
        cell.values = {**values, **emitted}
        cell.timers = UserTimers(timers)
        if undo_pages is not None:
            undo_pages()
            cell.find_pages()

    return undo


def _resolvers(requests: Mapping[str, Request]) -> dict[str, _Resolve]:
    return {name: _resolver(request) for name, request in requests.items()}


def _resolver(request: Request) -> _Resolve:
    if isinstance(request, StateParam):
        return _state_resolver(request.spec)
    if isinstance(request, TimerParam):
        return _timer_resolver(request.spec)
    return _OF_THE_CALL[request]


def _state_resolver(spec: StateSpec) -> _Resolve:
    handle = handles_of(spec)
    if spec.ttl_us is None:
        return lambda cell, _: handle(cell.values, None)
    return lambda cell, call: handle(
        cell.values, Lifetime.of(spec, cell.timers_to_set(), call.timestamp_us, call.now_us)
    )


def _timer_resolver(spec: AnyTimerSpec) -> _Resolve:
    def holds(cell: KeyedState) -> dict[Any, Any] | None:
        return cell.values if spec.holds_watermark else None

    if isinstance(spec, TimerFamilySpec):
        return lambda cell, call: TimerMap(
            cell.timers_to_set(), spec, call.timestamp_us, call.now_us, holds(cell)
        )
    name, domain = spec.name, spec.time_domain
    return lambda cell, call: TimerHandle(
        cell.timers_to_set(), name, domain, call.timestamp_us, call.now_us, holds(cell)
    )


_OF_THE_CALL: dict[DoFnParam, _Resolve] = {
    DoFnParam.WINDOW: lambda _, call: call.window,
    DoFnParam.TIMESTAMP: lambda _, call: to_datetime(call.timestamp_us),
    DoFnParam.PANE: lambda _, call: call.pane,
    DoFnParam.KEY: lambda _, call: call.key,
    DoFnParam.SIGN: lambda _, call: call.sign,
    DoFnParam.WATERMARK: lambda _, call: to_datetime(call.watermark_us),
    # A timer that was set relative to an event time may have been set for an instant beyond the end of time.
    DoFnParam.FIRE_TIMESTAMP: lambda _, call: to_datetime(clamp_timestamp_us(call.fire_us)),
    DoFnParam.TIMER_TAG: lambda _, call: call.tag,
}

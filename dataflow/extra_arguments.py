"""ExtraArguments: what a transform was given beside its function, and how the function is called with it.

``df.Map(f, 3, unit="m")`` calls ``f(element, 3, unit="m")``.  A parameter whose default asks for something, such as
``window=df.DoFn.WindowParam``, takes no positional argument: the runner fills it in.  The request may also be given as
an argument, ``df.Map(f, at=df.DoFn.TimestampParam)``.

An argument may stand for the view of a side input (`dataflow.views`): then the function is called with what the element
is with, and the views that belong to it take the places of these arguments.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from dataflow.do_fn import DoFnParam, nondeterministic
from dataflow.errors import PipelineError
from dataflow.signatures import signature_of
from dataflow.user_state import StateParam, TimerParam
from dataflow.views import View, ViewArgument, WithViews

_Parameters = list[inspect.Parameter]
_ONE_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@attrs.frozen
class ExtraArguments:
    """Positional and keyword arguments that follow the element."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self.args or self.kwargs)

    def has(self, kind: type) -> bool:
        """Whether an argument is of a class."""
        return any(isinstance(each, kind) for each in (*self.args, *self.kwargs.values()))

    def bound(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        """A function of the element, and of what the runner fills in, that adds the arguments; ``call`` if none.

        Args:
            call: the user's function, or ``process`` of a DoFn.
            what: how to name it in an error.

        Raises:
            PipelineError: the arguments do not fit its signature.
        """
        if not self:
            return call
        signature = signature_of(call)
        if signature is None:
            # A built-in: unknown until it is called.
            return self._made(call, dict(self.kwargs), self.args, None, what)
        try:
            named, behind = self._placed(signature)
            signature.bind(object(), *behind, **named)
        except TypeError as error:
            raise _misfit(call, signature, self, error, what) from None
        return self._made(call, named, behind, signature, what)

    def _made(
        self,
        call: Callable[..., Any],
        named: dict[str, Any],
        behind: tuple[Any, ...],
        signature: inspect.Signature | None,
        what: str,
    ) -> Callable[..., Any]:
        make = partial(_with_arguments, call, signature)
        made: Any = make(named, behind)
        if self.has(ViewArgument):
            made = _Seeing(make, named, behind, what)
        made.__name__ = getattr(call, "__name__", type(call).__name__)
        if getattr(call, "__dataflow_nondeterministic__", False):
            nondeterministic(made)
        return made  # type: ignore[no-any-return]

    def _placed(self, signature: inspect.Signature) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The arguments by the names of their parameters, and those that have to be positional.

        Raises:
            TypeError: there are too many, or one is given twice.
        """
        named, behind = dict(self.kwargs), list[Any]()
        left = list(self.args)
        for parameter in _behind_the_element(signature):
            if not left:
                break
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                # Those before it are positional then, too.
                places = [
                    each.name for each in _behind_the_element(signature) if each.kind in _ONE_PLACE
                ]
                behind += [named.pop(name) for name in places if name in named]
                if len(behind) < len(places):
                    raise TypeError(
                        f"what is filled in has to come after {parameter}, so that it is given by name"
                    )
                behind += left
                left = []
            elif _is_request(parameter.default):
                continue
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                behind.append(left.pop(0))
            elif parameter.name in self.kwargs:
                raise TypeError(f"multiple values for argument {parameter.name!r}")
            else:
                named[parameter.name] = left.pop(0)
        if left:
            raise TypeError(f"too many positional arguments: {len(left)} have no parameter")
        return named, tuple(behind)


#: For a transform that was given its function alone.
NO_ARGUMENTS = ExtraArguments()


@attrs.frozen
class _Followed:
    """A function with more positional arguments behind the element."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    _signature: inspect.Signature | None

    def __call__(self, element: Any, /, **others: Any) -> Any:
        return self.function(element, *self.args, **others)

    @property
    def __signature__(self) -> inspect.Signature | None:
        """The signature without the arguments that are given already, for `inspect.signature`."""
        if self._signature is None:
            return None
        first, *others = self._signature.parameters.values()
        behind = [each for each in others if each.kind not in _ONE_PLACE]
        kept = [each for each in behind if each.kind is not inspect.Parameter.VAR_POSITIONAL]
        positional = [each for each in others if each.kind in _ONE_PLACE][len(self.args) :]
        named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in positional]
        if first.kind not in _ONE_PLACE:
            first = inspect.Parameter("element", inspect.Parameter.POSITIONAL_ONLY)
        return self._signature.replace(parameters=[first, *named, *kept])


def _with_arguments(
    call: Callable[..., Any],
    signature: inspect.Signature | None,
    named: Mapping[str, Any],
    behind: tuple[Any, ...],
) -> Callable[..., Any]:
    plain = _Followed(call, behind, signature) if behind or signature is None else call
    return partial(plain, **named)


class _Seeing:
    """A function of an element that is with its views, which are arguments.

    Args:
        make: adds arguments, by their names and behind the element, to the user's function.
        named: the arguments by their names.
        behind: those behind the element.
        what: names the transform in an error.
    """

    def __init__(
        self,
        make: Callable[[Mapping[str, Any], tuple[Any, ...]], Callable[..., Any]],
        named: Mapping[str, Any],
        behind: tuple[Any, ...],
        what: str,
    ) -> None:
        self._make, self._named, self._behind, self._what = make, named, behind, what
        self._call = make(named, behind)
        self._views: tuple[View, ...] | None = None

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature without the arguments that are given already, for `inspect.signature`."""
        return inspect.signature(self._make(self._named, self._behind))

    def __call__(self, element: WithViews, /, **others: Any) -> Any:
        # The elements of a window follow each other, and share the tuple of their views.
        if element.views is not self._views:
            self._look_at(element.views)
        return self._call(element.element, **others)

    def _look_at(self, views: tuple[View, ...]) -> None:
        def seen(argument: Any) -> Any:
            is_view = isinstance(argument, ViewArgument)
            return argument.seen(views, self._what) if is_view else argument

        self._views = None
        self._call = self._make(
            {name: seen(each) for name, each in self._named.items()},
            tuple([seen(each) for each in self._behind]),
        )
        self._views = views


def _behind_the_element(signature: inspect.Signature) -> Iterator[inspect.Parameter]:
    parameters = iter(signature.parameters.values())
    first = next(parameters, None)
    if first is not None and first.kind is inspect.Parameter.VAR_POSITIONAL:
        yield first
    yield from (
        each for each in parameters if each.kind in (*_ONE_PLACE, inspect.Parameter.VAR_POSITIONAL)
    )


def _is_request(default: object) -> bool:
    return isinstance(default, DoFnParam | StateParam | TimerParam)


def _misfit(
    call: Callable[..., Any],
    signature: inspect.Signature,
    given: ExtraArguments,
    error: TypeError,
    what: str,
) -> PipelineError:
    name = getattr(call, "__name__", type(call).__name__)
    shown = ", ".join(
        [*map(repr, given.args), *(f"{key}={value!r}" for key, value in given.kwargs.items())]
    )
    return PipelineError(
        f"{what} was given arguments that do not fit its function",
        detail=f"{name}{signature} is called with the element, {shown:.200}: {error}",
        hint="the element comes first, then what was given after the function; a parameter with a default such as "
        "window=df.DoFn.WindowParam is filled in by the runner",
    )

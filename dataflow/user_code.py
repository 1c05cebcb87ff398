"""User code that would not run, or whose results would go nowhere, is refused when it is applied.

Calling a function with ``yield`` in it runs nothing before its values are asked for, and calling one that is
``async`` runs nothing before it is awaited.  The results of hooks of a `DoFn` but for ``finish_bundle`` are not used,
and of asynchronous code only what says so here is awaited.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from dataflow.do_fn import CallableDoFn, DoFn, Shape, has_process_batch, is_async
from dataflow.errors import PipelineError
from dataflow.user_state import members_of_class, timer_of
from windowing.location import user_location

#: Hooks whose results are not used.
_SILENT_HOOKS = ("setup", "start_bundle", "teardown")
#: Those of them that may be asynchronous where ``process`` is.
_AWAITED_HOOKS = ("setup", "teardown")


def check_user_code(fn: DoFn | CallableDoFn, what: str, *, may_be_async: bool = False) -> None:
    """Check user code that is about to become a part of the pipeline.

    Args:
        fn: the code.
        what: how to name it in an error.
        may_be_async: whether the function, or ``process``, is awaited if it is asynchronous.

    Raises:
        PipelineError: a part of it is asynchronous, or a generator whose values nobody would ask for; or a `DoFn` has
            no ``process``.
    """
    if isinstance(fn, CallableDoFn):
        name = getattr(fn.function, "__name__", type(fn.function).__name__)
        is_iterated = fn.shape is Shape.FLAT_MAP
        check_runs(fn.function, name, what, is_iterated=is_iterated, may_be_async=may_be_async)
        return
    if type(fn).process is DoFn.process and not has_process_batch(fn):
        raise PipelineError(
            f"{what} has a DoFn without process, so it would do nothing with an element",
            detail=f"{type(fn).__name__} defines {_own_methods(fn) or 'no method'}",
            hint="define process(self, element), which yields outputs or returns a list of them",
        )
    members = members_of_class(type(fn))
    callbacks = [name for name, member in members.items() if timer_of(member)]
    check_runs(fn.process, f"{type(fn).__name__}.process", what, may_be_async=may_be_async)
    for name in ("finish_bundle", *callbacks):
        check_runs(getattr(fn, name), f"{type(fn).__name__}.{name}", what)
    is_awaited = may_be_async and is_async(fn.process)
    check_hooks(fn, _SILENT_HOOKS, what, awaited=_AWAITED_HOOKS if is_awaited else ())
    if is_awaited and fn.max_concurrency < 1:
        raise PipelineError(
            f"{what} has a DoFn with a max_concurrency of {fn.max_concurrency}, so nothing could be called",
            hint="it is how many calls of process are awaited together: one or more",
        )
    if inspect.isgeneratorfunction(fn.process_batch):
        raise PipelineError(
            f"{what} has a process_batch with a yield in it",
            detail=f"{type(fn).__name__}.process_batch: it returns one batch, and is not iterated",
            hint="return the batch, or (batch, indexes)",
        )


def no_function(transform: object, given: object) -> PipelineError:
    """The error for a transform that was given something that cannot be called.

    Args:
        transform: made by the user just now.
        given: as its function.
    """
    name = type(transform).__name__
    hint = (
        f"give the function itself and not what it returns: df.{name}(f), and not df.{name}(f(x))"
    )
    if isinstance(given, DoFn):
        hint = f"a DoFn is applied with df.ParDo({type(given).__name__}(...))"
    return PipelineError(
        f"{name} needs a function, not {given!r:.200} ({user_location()})", hint=hint
    )


def check_hooks(
    owner: object, names: tuple[str, ...], what: str, awaited: tuple[str, ...] = ()
) -> None:
    """Check methods that return nothing.

    Args:
        owner: the user's object.
        names: of the methods that are checked, as far as it has them.
        what: the transform, for messages.
        awaited: those of them that may be asynchronous.

    Raises:
        PipelineError: one is asynchronous, or has a ``yield`` in it.
    """
    for name in names:
        shown = f"{type(owner).__name__}.{name}"
        is_awaited = name in awaited
        check_runs(getattr(owner, name), shown, what, is_iterated=False, may_be_async=is_awaited)


def check_runs(
    call: Callable[..., Any],
    name: str,
    what: str,
    *,
    is_iterated: bool = True,
    may_be_async: bool = False,
) -> None:
    """Check that calling a function runs it.

    Args:
        call: the function.
        name: of the function in an error.
        what: the transform that it belongs to, as an error names it.
        is_iterated: whether what it returns is iterated.
        may_be_async: whether what it returns is awaited.

    Raises:
        PipelineError: calling it does not run it.
    """
    code = _code_of(call)
    if is_async(call) and not may_be_async:
        raise PipelineError(
            f"{what} has an async function, which would never be awaited",
            detail=f"{name} would never be run",
            hint="write it without async; what is awaited are the functions of df.Map, df.FlatMap and df.Filter, and "
            "process of a DoFn without state, with its setup and teardown",
        )
    if not is_iterated and (inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)):
        raise PipelineError(
            f"{what} has a yield where nothing is emitted",
            detail=f"{name} would be called, and never be run",
            hint="use no yield here: outputs come from process, finish_bundle and the timer methods of a df.DoFn, from "
            "the function of a df.FlatMap, and from produce of a Computation",
        )


def _own_methods(fn: DoFn) -> str:
    return ", ".join(name for name in vars(type(fn)) if not name.startswith("__"))


def _code_of(call: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(call, partial):
        call = call.func
    if inspect.isroutine(call) or isinstance(call, type):
        return call
    return type(call).__call__

"""The types of elements, as they flow through the operations of a pipeline that is being built.

Every operation says what it takes and what it emits: by the annotations of user code (`dataflow.signature_types`), and
by what it is given.  What is given and contradicts what is taken is refused here (`dataflow.type_contradictions`).
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterable, Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin

import attrs

from dataflow.do_fn import CallableDoFn, DoFn, Shape
from dataflow.errors import PipelineError
from dataflow.exception_handling import FAILURES, BadElement
from dataflow.graph import (
    MAIN,
    AssignWindows,
    Flatten,
    Group,
    Operation,
    ParDo,
    Read,
    StatefulParDo,
)
from dataflow.signature_types import (
    UNKNOWN,
    FunctionTypes,
    combine_types,
    do_fn_types,
    emitted,
    function_types,
)
from dataflow.type_contradictions import contradict
from dataflow.type_hints import (
    bounded,
    class_of,
    fields_of,
    item_of,
    members_of,
    pair_type,
    plain,
    resolved,
    solved,
    substituted,
    text_of,
    union_of,
)

_PAIR = pair_type(Any, Any)
#: Values that could be iterated, and are one output all the same.
_SINGLE = (str, bytes, bytearray, dict)


@attrs.frozen
class ElementTypes:
    """The element types of one operation: of its input, and of each of its outputs.

    Attributes:
        accepts: the type of elements of its input, or of its first.
        outputs: the types of elements of its outputs, by tag; Any of those that are not in it.
        declared: those of them that user code declares, and that may turn out to be wrong.
    """

    accepts: Any = Any
    outputs: Mapping[str, Any] = attrs.field(factory=dict)
    declared: Mapping[str, Any] = attrs.field(factory=dict)


def types_through(operation: Operation, given: Sequence[Any], what: str) -> ElementTypes:
    """Find the element types of an operation: of its input, and of its outputs for that input.

    Args:
        operation: the operation.
        given: the types of the elements of its inputs; of elements with their views, those of the elements.
        what: names the transform in an error.

    Raises:
        PipelineError: what its code returns cannot become elements; or it needs pairs, and is given something else.
    """
    if isinstance(operation, Read):
        found = operation.source.element_type
        return ElementTypes(Any, {MAIN: found, FAILURES: BadElement}, {MAIN: found})
    if isinstance(operation, Flatten):
        return ElementTypes(Any, {MAIN: union_of(given)})
    if isinstance(operation, AssignWindows):
        return ElementTypes(Any, {MAIN: given[0]})
    if isinstance(operation, Group):
        return _through_group(operation, given[0], what)
    if isinstance(operation, StatefulParDo):
        _check_pairs(given[0], what)
        return _through_do_fn(operation.fn, operation.tags[0], given[0], what)
    if not isinstance(operation, ParDo):
        return ElementTypes()
    main = operation.tags[0]
    if isinstance(operation.fn, DoFn):
        return _through_do_fn(operation.fn, main, given[0], what)
    return _through_function(operation.fn, main, given[0], what)


def _through_group(operation: Group, given: Any, what: str) -> ElementTypes:
    _check_pairs(given, what)
    key, value = fields_of(given) or (Any, Any)
    combined = combine_types(operation.combine_fn, value)
    returns = pair_type(key, combined.returns)
    return ElementTypes(pair_type(Any, combined.accepts), {MAIN: returns}, {MAIN: returns})


def _through_do_fn(fn: DoFn, main: str, given: Any, what: str) -> ElementTypes:
    found = do_fn_types(fn, given)
    emits = emitted(_outputs(found.returns, what, f"{type(fn).__name__}.process"))
    return ElementTypes(found.accepts, {main: emits, FAILURES: BadElement}, {main: emits})


def _through_function(fn: CallableDoFn, main: str, given: Any, what: str) -> ElementTypes:
    found = function_types(fn.function, given)
    failures = {FAILURES: BadElement}
    name = getattr(fn.function, "__name__", type(fn.function).__name__)
    if fn.shape is Shape.FILTER:
        if plain(found.returns) is types.NoneType:
            raise PipelineError(
                f"{what} keeps no element: {name} is annotated to return None",
                hint="return whether the element is to be kept, and annotate bool",
            )
        kept = bounded(found.accepts) if plain(given) is Any else given
        return ElementTypes(found.accepts, {main: kept, **failures})
    returns = found.returns
    if fn.shape is Shape.FLAT_MAP:
        returns = _outputs(returns, what, name)
    emits = emitted(returns)
    return ElementTypes(found.accepts, {main: emits, **failures}, {main: emits})


def _outputs(returned: Any, what: str, where: str) -> Any:
    """The type of the outputs of a call that returns an iterable of them, or None."""
    kinds = [each for each in members_of(returned) if each is not types.NoneType]
    if kinds and all(map(_is_one_value, kinds)):
        raise PipelineError(
            f"{what} returns {text_of(returned)}, which is one value, and not outputs",
            detail=f"that is what {where} is annotated with",
            hint="annotate an iterable of outputs, such as list[...] or Iterator[...], or use df.Map for one output",
        )
    return union_of(item_of(each) for each in kinds)


def _is_one_value(hint: Any) -> bool:
    cls = class_of(hint)
    is_row = isinstance(hint, type) and hasattr(hint, "_fields")
    is_single = cls is not None and issubclass(cls, _SINGLE)
    return is_row or is_single or contradict(hint, Iterable | AsyncIterable)


def _no_pairs(given: Any, what: str, source: str = "") -> PipelineError:
    return PipelineError(
        f"{what} needs (key, value) pairs, and is given {text_of(given)}",
        detail=f"{text_of(given)} is what {source} emits" if source else "",
        hint="make pairs before it, e.g. df.Map(lambda x: (key_of(x), x)); or correct the annotation of the "
        "function before it",
    )


def _check_pairs(given: Any, what: str) -> None:
    if contradict(given, _PAIR):
        raise _no_pairs(given, what)
    key = (fields_of(given) or (Any,))[0]
    if contradict(key, Hashable):
        raise PipelineError(
            f"{what} is given keys of type {text_of(key)}, which cannot be hashed",
            hint="make tuples of lists, and tuples of sorted items of dicts and sets",
        )


def check_given(accepts: Any, given: Any, what: str, source: str) -> None:
    """Check that a transform can take what it is given.

    Args:
        accepts: the type that it takes.
        given: the type of the elements.
        what: names the transform in an error.
        source: names the transform that they come from.

    Raises:
        PipelineError: the two contradict each other.
    """
    if not contradict(given, accepts):
        return
    if len(fields_of(accepts) or ()) == 2 and contradict(given, _PAIR):
        raise _no_pairs(given, what, source)
    wanted, found = text_of(bounded(accepts)), text_of(given)
    if wanted == found:
        wanted, found = repr(accepts), repr(given)
    raise PipelineError(
        f"{what} takes {wanted}, and is given {found}",
        detail=f"{found} is what {source} emits" if source else "",
        hint="convert the elements before it, or correct the annotation that is wrong; .with_output_types(...) says "
        "what a transform emits, and .with_input_types(...) what it takes",
    )


def check_emitted(declared: Any, found: Any, what: str) -> None:
    """Check that a transform can emit what it is declared to emit.

    Args:
        declared: the type that the user has declared.
        found: what is known of its output.
        what: names the transform in an error.

    Raises:
        PipelineError: the two contradict each other.
    """
    if contradict(found, declared):
        raise PipelineError(
            f"{what} is declared to emit {text_of(declared)}, and emits {text_of(found)}",
            hint="correct the declaration, or the annotation of the function that emits them",
        )


def types_of_expand(expand: Callable[..., Any], pcollection: type, given: Any) -> FunctionTypes:
    """The element types of a composite, from the annotations of its `expand`: ``PCollection[...]``.

    Args:
        expand: the method, or the function that stands for it.
        pcollection: the class of collections.
        given: the type of the elements of its input; decides type variables.
    """
    function = getattr(expand, "__func__", expand)
    # What a user's annotations name may change meanwhile, as in a notebook; what those of the SDK name does not.
    is_own = getattr(function, "__module__", "").startswith("dataflow.")
    hints = _resolved_once(function) if is_own else resolved(function)
    names = [name for name in hints if name not in {"self", "return"}]
    accepts = _of_elements(hints.get(names[0]), pcollection) if names else Any
    returns = _of_elements(hints.get("return"), pcollection)
    if accepts is Any and returns is Any:
        return UNKNOWN
    return FunctionTypes(accepts, substituted(returns, solved(accepts, given)))


@cache
def _resolved_once(function: Callable[..., Any]) -> Mapping[str, Any]:
    return resolved(function)


def _of_elements(hint: Any, pcollection: type) -> Any:
    return get_args(hint)[0] if get_origin(hint) is pcollection else Any

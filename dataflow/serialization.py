"""Functions and users' values as bytes: the only module that imports cloudpickle.

User code is turned into bytes once, when a pipeline starts; records on the hot path use `pickle` alone.

A value of a class of this package, such as a window inside a user's tuple, is not written as the path of its class: a
store outlives the layout of the package.  It is written as a tag and plain fields (`written_as`; `dataflow.value_tags`
has them all), behind one code of pickle's extension registry.
"""

import copyreg
import pickle
from collections import ChainMap
from collections.abc import Callable
from io import BytesIO
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

from dataflow.errors import PipelineError
from windowing.errors import error_text

#: Out-of-band buffers and cheap framing; the newest protocol that every supported Python reads.
PICKLE_PROTOCOL = 5
#: What stands in pickles for `tagged`; of the codes for private use (PEP 307), and never another one.
EXTENSION_CODE = 0xF5

_makers: dict[str, Callable[..., Any]] = {}


def tagged(tag: str, *fields: Any) -> Any:
    """The value that was written under a tag with these fields; called by pickle.

    Args:
        tag: names the kind of value; never given to another kind.
        *fields: in the order in which they were written.

    Raises:
        PipelineError: no value has this tag.
    """
    make = _makers.get(tag)
    if make is None:
        raise PipelineError(
            f"a stored value is a {tag!r}, which this version of dataflow-model does not know",
            detail=f"its fields: {fields!r}"[:500],
            hint="read it with the version that wrote it, or with a later one",
        )
    return make(*fields)


copyreg.add_extension(tagged.__module__, tagged.__qualname__, EXTENSION_CODE)


#: How instances of a class are written.  Of our own, so that nobody else's pickles depend on the extension code.
_reducers: dict[type, Any] = dict(copyreg.dispatch_table)
#: The classes in it that are registered in `copyreg`, by user code or the standard library.
_public: set[type] = set(_reducers)


class _Pickler(pickle.Pickler):
    dispatch_table = _reducers


def _code_with_its_file(code: CodeType) -> Any:
    """Code as cloudpickle reduces it, but for the name of its file, which tracebacks of workers show."""
    make, fields = _reduce_code(code)
    # A text of its own: what is shared with other objects would be written in another way.
    file = "".join(code.co_filename)
    return make, tuple(file if field == _NO_FILE else field for field in fields)


_reduce_code = cloudpickle.CloudPickler.dispatch_table[CodeType]
_NO_FILE = "<dynamic-code>"


class _CodePickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
    dispatch_table: ClassVar[Any] = ChainMap(
        {CodeType: _code_with_its_file}, cloudpickle.CloudPickler.dispatch_table
    )


def read_as(tag: str, make: Callable[..., Any]) -> None:
    """Have `loads` make the values under a tag.

    Args:
        tag: as in `written_as`.
        make: a value of its fields; of fewer ones too, if there were fewer once.
    """
    assert tag not in _makers, f"two classes with the tag {tag!r}"
    _makers[tag] = make


def written_as(tag: str, kind: type, fields: Callable[[Any], tuple[Any, ...]]) -> None:
    """Have `dumps` write the instances of a class as a tag and fields, wherever the class is moved.

    Args:
        tag: its name in bytes, for ever; several classes may share one.
        kind: the class itself; not its subclasses.
        fields: of an instance, such as `dumps` takes.
    """
    _reducers[kind] = lambda value: (tagged, (tag, *fields(value)))


def tag_of(kind: type) -> str | None:
    """The tag of a class of this package whose instances are its fields; None if it has none.

    Args:
        kind: the class.
    """
    return next((tag for tag, made in _makers.items() if made is kind), None)


def class_of_tag(tag: str) -> Any:
    """The inverse of `tag_of`.

    Raises:
        KeyError: no class has this tag.
    """
    return _makers[tag]


def dumps_code(value: Any, what: str) -> bytes:
    """Bytes of ``value``, which may contain functions and classes that exist only here.

    Args:
        value: anything.
        what: how to name it in the error, e.g. "transform 'parse' (job.py:12)".

    Raises:
        PipelineError: something in ``value`` cannot be pickled.
    """
    try:
        buffer = BytesIO()
        _CodePickler(buffer, protocol=PICKLE_PROTOCOL).dump(value)
    except PipelineError as error:
        # Something in it knows why it cannot be pickled.
        raise PipelineError(
            f"{what} cannot be sent to workers", detail=error.fact, hint=error.hint
        ) from error
    except Exception as error:
        raise PipelineError(
            f"{what} cannot be sent to workers",
            detail=f"pickling failed: {error_text(error)}",
            hint="a function must not close over open files, locks, sockets or connections; "
            "open them in DoFn.setup, which runs on the worker",
        ) from error
    return buffer.getvalue()


def loads_code(blob: bytes) -> Any:
    """The inverse of `dumps_code`.  Only for bytes from an authenticated peer or our own store."""
    return cloudpickle.loads(blob)


def dumps(value: Any) -> bytes:
    """Bytes of plain data (records, state): no functions.

    Raises:
        PipelineError: something in ``value`` is no plain data.
    """
    buffer = BytesIO()
    if len(copyreg.dispatch_table) > len(_public):
        _public.update(copyreg.dispatch_table)
        _reducers.update(copyreg.dispatch_table | _reducers)
    try:
        _Pickler(buffer, PICKLE_PROTOCOL).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PipelineError(
            f"a value cannot be sent or stored: {error_text(error)}",
            detail=f"in {type(value).__name__}; records, keys and state are pickled, and name their classes",
            hint="use plain data; define classes of records at the top level of the script or of a module, under the "
            "name that they have",
        ) from error
    return buffer.getvalue()


def loads(blob: bytes) -> Any:
    """The inverse of `dumps`.  Only for bytes from an authenticated peer or our own store."""
    return pickle.loads(blob)  # noqa: S301 - peers are authenticated (ADR 0009)

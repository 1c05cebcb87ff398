"""Values as the bytes of messages: JSON, text, or the bytes themselves."""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from dataflow.errors import InputError, PipelineError

_decode_json = msgspec.json.Decoder().decode

#: From the name of a format to what makes a value of bytes, and what raises `ValueError` where it cannot.
_DECODERS: dict[str, Callable[[bytes], Any]] = {}
_ENCODERS: dict[str, Callable[[Any], bytes]] = {}
FORMATS = ("json", "text", "bytes")


def decoder_of(name: str, value_format: str) -> Callable[[bytes], Any]:
    """The function that makes a value of bytes; it raises `ValueError` or `RecursionError` where they are none.

    Args:
        name: of the transform, for messages.
        value_format: one of `FORMATS`.

    Raises:
        PipelineError: there is no such format.
    """
    check_format(name, value_format)
    return _DECODERS[value_format]


def encoder_of(name: str, value_format: str) -> Callable[[Any], bytes]:
    """The function that makes bytes of a value; it raises `InputError` where it cannot.

    Args:
        name: of the transform, for messages.
        value_format: one of `FORMATS`.

    Raises:
        PipelineError: there is no such format.
    """
    check_format(name, value_format)
    return _ENCODERS[value_format]


def check_format(name: str, value_format: object) -> None:
    """Check the name of a format.

    Args:
        name: of the transform, for messages.
        value_format: what the user gave.

    Raises:
        PipelineError: there is no such format.
    """
    if value_format not in FORMATS:
        raise PipelineError(
            f"{name} was given format={value_format!r}",
            hint=f"give one of {', '.join(map(repr, FORMATS))}",
        )


def _of_json(raw: bytes) -> Any:
    try:
        return _decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # It is no JSON, or only nearly so, as NaN is, which `json` takes, as for lines of files.
        return json.loads(raw)


def _to_json(value: Any) -> bytes:
    members = getattr(value, "_asdict", None)
    try:
        return msgspec.json.encode(value if members is None else members())
    except (TypeError, ValueError, RecursionError, msgspec.EncodeError) as error:
        raise _no_message(value, f"it cannot be written as JSON: {error}") from error


def _to_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _no_message(value, "with the format 'text' a message is a str")
    return value.encode()


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _no_message(value, "with the format 'bytes' a message is bytes")
    return value


def _no_message(value: Any, why: str) -> InputError:
    return InputError(
        f"{value!r:.200} cannot be a message",
        detail=why,
        hint="convert it in a df.Map before, or choose another format",
    )


_DECODERS |= {"json": _of_json, "text": bytes.decode, "bytes": bytes}
_ENCODERS |= {"json": _to_json, "text": _to_text, "bytes": _to_bytes}

"""JSON values, one per line."""

import json
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import attrs
import msgspec

from dataflow.errors import InputError
from dataflow.io.lines import LineSource
from dataflow.io.text_files import BOM, TextFileSource, text_of

#: A malformed line is left to the reader; that a file is of another format is reported before.
_LINES_LOOKED_AT = 10
_decode = msgspec.json.Decoder().decode


@attrs.frozen(kw_only=True)
class JsonLinesSource(LineSource):
    """One JSON value per line; empty lines are passed over."""

    def check_head(self, path: str) -> None:
        """One of the first lines parses."""
        check_first_lines(self, path)

    def records(self, path: str, lines: Sequence[bytes]) -> Sequence[Any]:
        """One value per line.  Raises `InputError` on a line that is not JSON."""
        try:
            return list(map(_decode, lines))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A line is empty, or is not JSON, or only nearly so, as NaN is, which `json` takes.
            texts = [text_of(path, line) for line in lines]
            return [parse_json(path, text) for text in texts if text.strip()]


def check_first_lines(files: TextFileSource, path: str) -> None:
    """Check that one of the first lines of a file is JSON.

    Args:
        files: opens it.
        path: of the file.

    Raises:
        InputError: none is, so the file is something else; a file without such lines is in order.
    """
    with closing(files.lines(path, 0)) as lines:
        first = [line.removeprefix(BOM) for line in islice(lines, _LINES_LOOKED_AT)]
    found: InputError | None = None
    for number, line in enumerate(first, 1):
        if line.strip():
            try:
                parse_json(path, line.decode("utf-8", errors="replace"))
            except InputError as error:
                shown = f"{error.detail}; line {number}: {line[:200]!r}"
                found = found or InputError(error.fact, detail=shown, hint=error.hint)
            else:
                return
    if found is not None:
        raise found


def parse_json(path: str, line: str, unit: str = "line") -> Any:
    """The value on a line.

    Args:
        path: for messages.
        line: the text of one line.
        unit: what it is in the input, for messages.

    Raises:
        InputError: it is no JSON.
    """
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        why = str(error)
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg} at its character {error.pos + 1}"
        raise InputError(
            f"{path} has a {unit} that is not JSON",
            detail=why,
            hint=f"write one JSON value per {unit}",
        ) from None

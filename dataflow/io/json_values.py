"""JSON values, one per line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from dataflow.errors import InputError
from dataflow.io.files import BOM, texts_of
from dataflow.io.lines import LineSource

_decode = msgspec.json.Decoder().decode


@attrs.frozen(kw_only=True)
class JsonLinesSource(LineSource):
    """One JSON value per line; empty lines are passed over."""

    def check_head(self, path: str) -> None:
        """The first line parses."""
        check_first_line(path)

    def records(self, path: str, lines: Sequence[bytes], offset: int) -> Sequence[Any]:
        """One value per line.  Raises `InputError` on a line that is not JSON."""
        try:
            return list(map(_decode, lines))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A line is empty, or is not JSON, or only nearly so, as NaN is, which `json` takes.
            return [
                parse_json(path, text) for text in texts_of(path, lines, offset) if text.strip()
            ]


def check_first_line(path: str) -> None:
    """Raise `InputError` if the first line of a file is not JSON."""
    with Path(path).open("rb") as file:
        line = file.readline().removeprefix(BOM)
    if line.strip():
        parse_json(path, line.decode("utf-8", errors="replace"))


def parse_json(path: str, line: str) -> Any:
    """The value on a line.  Raises `InputError` if there is none."""
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} has a line that is not JSON",
            detail=f"{error}; line: {line[:200]!r}",
            hint="write one JSON value per line",
        ) from None

"""ReadFromText, and the source behind it: lines as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from dataflow.io.files import ReadFromFiles
from dataflow.io.lines import LineSource
from dataflow.io.text_files import text_of


@attrs.frozen(kw_only=True)
class TextLinesSource(LineSource):
    """The lines of text files, without their ends; empty lines are records too."""

    @property
    def element_type(self) -> Any:
        """Text."""
        return str

    def check_head(self, path: str) -> None:
        """Check that the file can be opened, and unpacked."""
        self.head_bytes(path)

    def records(self, path: str, lines: Sequence[bytes]) -> Sequence[str]:
        """The text of each line.  Raises `InputError` if one is not UTF-8."""
        return [text_of(path, line).rstrip("\r\n") for line in lines]


class ReadFromText(ReadFromFiles[str]):
    """The lines of text files, without their ends.

    Args:
        path, event_time, max_disorder, max_ahead, record_ids, filesystem, compression: as for `ReadFromCsv`.  A line
            ends with LF, CR LF or CR, and an empty one is an element too.

    Raises:
        InputError: a file is missing or cannot be opened: when the pipeline is built; or a line is not UTF-8: when it
            is read, with the file, the line and its bytes.  With ``tries_per_record`` such a line, or one without an
            event time, is a dead letter instead.
    """

    source_class = TextLinesSource

"""The tests are tested: files that are read wrongly on purpose must fail the law of their records."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dataflow.io import csv_files, csv_quotes, file_reader, text_files, whole_lines
from dataflow.io.csv_files import CsvSource
from dataflow.io.csv_quotes import QuoteScan
from dataflow.io.text_files import RecordBytes
from tests.property.test_file_sources import CSV_TEXT, check_any_text

#: Far more than any of the mutations needs to be found.
EXAMPLES_MAX = 2_000

Patch = pytest.MonkeyPatch


def cut_between_cr_and_lf(patch: Patch) -> None:
    """A CR at the end of what was read is taken for a line end, though an LF follows."""
    patch.setattr(
        whole_lines,
        "end_of_lines",
        lambda data: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1,
    )


def any_quote_opens_a_field(patch: Patch) -> None:
    """Also one in the middle of a field."""
    patch.setattr(
        QuoteScan,
        "_behind",
        lambda _, byte: csv_quotes._At.QUOTED if byte == ord('"') else csv_quotes._At.FIELD_START,
    )


def every_line_is_a_record(patch: Patch) -> None:
    """Also one whose end is in a quoted field, where a record is malformed."""

    def units(_: CsvSource, lines: Iterable[bytes]) -> Iterator[RecordBytes]:
        return (RecordBytes(line, len(line)) for line in lines)

    patch.setattr(CsvSource, "units", units)


def what_is_malformed_is_passed_over(patch: Patch) -> None:
    """In silence."""
    batch = file_reader.FileReader.batch
    patch.setattr(
        file_reader.FileReader,
        "batch",
        lambda *args: attrs.evolve(batch(*args), set_aside=()),
    )


@settings(
    database=None,
    deadline=None,
    max_examples=EXAMPLES_MAX,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(text=CSV_TEXT, pieces=st.integers(1, 9), most=st.integers(1, 5))
def check(path: Path, text: str, pieces: int, most: int) -> None:
    check_any_text(path, text, pieces, most)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        cut_between_cr_and_lf,
        any_quote_opens_a_field,
        every_line_is_a_record,
        what_is_malformed_is_passed_over,
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_files_that_are_read_wrongly_are_noticed(
    mutate: Callable[[Patch], None], monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 1)
    for module in (text_files, csv_files, file_reader):
        monkeypatch.setattr(module, "PIECE_BYTES", 3)
    monkeypatch.setattr(whole_lines, "READ_BYTES", 2)
    mutate(monkeypatch)

    # A line that is read as two records has two event times where one is taken.
    with pytest.raises((AssertionError, ValueError)):
        check(tmp_path / "any.csv")

"""Pieces of a file are its lines, wherever the end of a piece is looked for, and whatever ends the lines."""

import tempfile
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.errors import InputError
from dataflow.io import whole_lines
from dataflow.io.whole_lines import WholeLines

TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n"]), max_size=30).map(b"".join)


@given(text=TEXTS, size=st.integers(1, 20), tail=st.integers(1, 6))
@example(text=b"a\nbc\nabc\na\n", size=4, tail=2)
@example(text=b"a\r\nbc\rabc\r\na\r", size=4, tail=2)
@example(text=b"aaaaaaaaaaaaa\nb\nbb\n", size=5, tail=3)
def test_pieces_are_all_lines_in_their_order(text: bytes, size: int, tail: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(whole_lines, "TAIL_BYTES", tail)
        patched.setattr(whole_lines, "_TAILS", 1)
        path = Path(folder, "text")
        path.write_bytes(text)
        with closing(WholeLines(path.open("rb"), str(path), 0, len(text))) as lines:
            pieces = list(lines.pieces(size))

    assert text == b"".join(pieces)
    ends = set(accumulate(map(len, text.splitlines(keepends=True))))
    assert ends >= set(accumulate(map(len, pieces)))


def test_a_file_that_became_shorter_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "text"
    size = whole_lines.TAIL_BYTES * 40
    path.write_bytes(b"x\n" * size)

    with closing(WholeLines(path.open("rb"), str(path), 0, 2 * size)) as lines:
        path.write_bytes(b"x\n" * 3)
        with pytest.raises(InputError, match="became shorter"):
            list(lines.pieces(size))

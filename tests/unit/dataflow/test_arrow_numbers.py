"""Numbers between Arrow and numpy: the same whatever part of an array they are, and without pandas."""

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.arrow_numbers import array_of, numbers_of

COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
]

#: A pipeline of typed rows on this process, and whether it has imported pandas.
PROGRAM = """
import sys
from pathlib import Path
from typing import NamedTuple
import dataflow as df
from runners.direct import DirectRunner

class Event(NamedTuple):
    user: int
    at: int
    value: int

path = Path(sys.argv[1], "events.jsonl")
path.write_text("".join('{"user": %d, "at": %d, "value": 1}\\n' % (n % 3, n) for n in range(100)))
p = df.Pipeline(DirectRunner())
events = p | df.ReadFromJsonLines(str(path), rows=Event, event_time="at")
sums = events | df.WindowInto(df.FixedWindows(10)) | df.GroupBy("user").aggregate_field("value", sum, "sum")
sums | df.Map(print)
p.run()
print("pandas" in sys.modules)
"""


@given(data=st.data())
def test_there_and_back(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(COLUMNS))
    listed = data.draw(st.lists(values, max_size=9))
    start = data.draw(st.integers(0, len(listed)))
    part = pa.array(listed, kind).slice(start)

    numbers = numbers_of(part)

    assert numbers.tolist() == listed[start:]
    assert array_of(numbers).equals(part)
    assert array_of(numbers[::-1]).to_pylist() == listed[start:][::-1]


def test_nulls_are_not_taken_for_numbers() -> None:
    found = numbers_of(pa.array([1.5, None]))

    assert found[0] == 1.5
    assert np.isnan(found[1])


@pytest.mark.slow
def test_typed_rows_do_without_pandas(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True
    )

    *rows, has_pandas = done.stdout.splitlines()
    assert len(rows) == 30
    assert has_pandas == "False"

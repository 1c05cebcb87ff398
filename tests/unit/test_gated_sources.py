"""Sources behind a gate: they hand over so much and no more until it is opened, and then all of it once."""

from pathlib import Path

from dataflow.source import SplitStatus
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.gated_sources import Gate


def test_a_reader_waits_for_the_gate_and_loses_nothing(tmp_path: Path) -> None:
    source = ScriptedSource([Batch([n], [n], n) for n in range(10)])
    gate = Gate(path=tmp_path / "gate", records=3, records_per_second=1e9)
    reader = gate.read("read", source, 0, None, 0)
    batches = [reader.read(1) for _ in range(8)]
    handed_over = [value for batch in batches for value in batch.values]

    assert handed_over == [0, 1, 2]
    last = batches[-1]
    assert (last.values, last.watermark_us, last.position) == ([], 2, 3)
    assert last.status is SplitStatus.ACTIVE
    gate.open()
    left = [reader.read(1) for _ in range(8)]
    assert [value for batch in left for value in batch.values] == list(range(3, 10))
    assert left[-1].status is SplitStatus.FINISHED


def test_a_reader_that_is_opened_anew_goes_on_where_the_other_was(tmp_path: Path) -> None:
    source = ScriptedSource([Batch([n], [n], n) for n in range(10)])
    gate = Gate(path=tmp_path / "gate", records=2, records_per_second=1e9)
    first = gate.read("read", source, 0, None, 0)
    position = [first.read(1) for _ in range(5)][-1].position
    second = gate.read("read", source, 0, position, 0)

    assert [value for _ in range(5) for value in second.read(1).values] == [2, 3]

"""The file injector holds the low watermark at its oldest unfinished file."""

import json
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import CsvInjector, JsonLinesInjector
from dataflow.source import SplitStatus
from runners.direct import DirectRunner
from windowing.timestamps import MAX_TIMESTAMP_US

US = 1_000_000


def write(path: Path, *times: float) -> None:
    """A log file, complete when it appears."""
    hidden = path.with_suffix(".writing")
    hidden.write_text("".join(f"{json.dumps({'time': each})}\n" for each in times))
    hidden.rename(path)


def time_of(record: dict[str, float]) -> float:
    return record["time"]


def watermarks(source: df.Source, reads: int, position: Any = None) -> list[list[int]]:
    """What each split reports in turn, in seconds; the end of time is 10 ** 9."""
    described = []
    for split in source.splits(1):
        reader = source.open(split, position, fence=0)
        batches = [reader.read(1) for _ in range(reads)]
        reader.close()
        described.append(
            [
                10**9 if each.watermark_us == MAX_TIMESTAMP_US else each.watermark_us // US
                for each in batches
            ]
        )
    return described


def test_an_unfinished_file_states_when_it_begins(tmp_path: Path) -> None:
    """Figure 10; a finished one holds nothing back."""
    write(tmp_path / "a.jsonl", 10, 20, 30)
    write(tmp_path / "b.jsonl", 40)
    source = JsonLinesInjector(tmp_path / "*.jsonl", event_time=time_of)

    assert [[10, 10, 10**9], [10**9] * 3] == watermarks(source, 3)


def test_it_may_follow_the_records(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 10, 20, 15, 30)
    source = JsonLinesInjector(tmp_path / "*.jsonl", event_time=time_of, max_disorder=5)

    assert [[5, 15, 15]] == watermarks(source, 3)


def test_a_beginning_may_be_given(tmp_path: Path) -> None:
    write(tmp_path / "7.jsonl", 10, 20)
    source = JsonLinesInjector(
        tmp_path / "*.jsonl", event_time=time_of, created=lambda path: int(path.stem)
    )

    assert [[7]] == watermarks(source, 1)


def test_an_expected_file_holds_the_watermark_until_it_was_read(tmp_path: Path) -> None:
    """Before it is there: active, at its declared time, also after a restart."""
    write(tmp_path / "a.jsonl", 100)
    source = JsonLinesInjector(
        tmp_path / "*.jsonl", event_time=time_of, expected={"b.jsonl": 50, "a.jsonl": 60}
    )
    assert not source.is_bounded
    source.check()
    first, second = source.splits(1)
    assert [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")] == [first.path, second.path]
    waiting = source.open(second, None, fence=0)
    batch = waiting.read(10)
    assert ([], 50 * US, SplitStatus.ACTIVE) == (batch.values, batch.watermark_us, batch.status)
    reader = source.open(second, batch.position, fence=0)
    assert 50 * US == reader.read(10).watermark_us

    write(tmp_path / "b.jsonl", 51, 52)

    for each in (waiting, reader):
        batch = each.read(1)
        assert ([{"time": 51}], 50 * US) == (batch.values, batch.watermark_us)
        assert SplitStatus.FINISHED is each.read(1).status
        each.close()
    again = source.open(second, batch.position, fence=0)
    assert [{"time": 52}] == again.read(9).values
    again.close()
    assert source.is_bounded


def test_a_pipeline_waits_for_what_is_expected(tmp_path: Path) -> None:
    """The record of the file that comes last is not late for the minute that another file has long passed."""
    write(tmp_path / "a.jsonl", 10, 100)
    source = JsonLinesInjector(
        tmp_path / "*.jsonl", event_time=time_of, max_disorder=0, expected={"b.jsonl": 0}
    )

    def deliver(record: dict[str, float]) -> dict[str, float]:
        if record["time"] == 100:
            write(tmp_path / "b.jsonl", 20)
        return record

    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=1))
    (
        pipeline
        | df.Read(source)
        | df.Map(deliver)
        | df.Map(lambda record: ("all", record["time"]))
        | df.WindowInto(df.FixedWindows(60))
        | df.GroupByKey()
        | df.Map(lambda pair: seen.append(sorted(pair[1])))
    )
    result = pipeline.run()

    assert [[10, 20], [100]] == seen
    assert [] == list(result.late_records())


def test_csv_files_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time\n3\n4\n")
    source = CsvInjector(tmp_path / "*.csv", event_time=lambda row: float(row["time"]))

    assert [[3, 10**9]] == watermarks(source, 2)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(df.PipelineError, match="needs a function"):
        CsvInjector(tmp_path / "*.csv", event_time="time")  # type: ignore[arg-type]
    with pytest.raises(df.PipelineError, match="negative max_disorder"):
        CsvInjector(tmp_path / "*.csv", event_time=time_of, max_disorder=-1)
    with pytest.raises(df.InputError, match="there is no file"):
        CsvInjector(tmp_path / "*.csv", event_time=time_of).check()
    with pytest.raises(df.InputError, match="there is no file"):
        CsvInjector(tmp_path / "*.csv", event_time=time_of).splits(1)
    with pytest.raises(df.TimeError):
        CsvInjector(tmp_path / "*.csv", event_time=time_of, expected={"a.csv": "noon"})

"""Records without an id, and those that come behind the horizon, as users see them."""

from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner


def at(value: Any, second: int) -> df.TimestampedValue:
    return df.TimestampedValue(value, second)


def run(stream: TestStream, **options: Any) -> tuple[list[Any], df.PipelineResult]:
    records: list[Any] = []
    p = df.Pipeline(DirectRunner(**options))
    p | "read" >> stream | df.Map(records.append)
    return records, p.run()


def stream(**changes: Any) -> TestStream:
    record_ids = df.RecordIds(**{"of": lambda record: record["id"], "slack": 10, **changes})
    return TestStream(record_ids=record_ids)


def test_a_record_without_an_id_is_a_dead_letter_beside_those_that_count() -> None:
    bad: list[Any] = [{}, {"id": None}, {"id": [1]}]
    records, result = run(
        stream().add_elements([at(each, 5) for each in [{"id": 1}, *bad, {"id": 1}, {"id": 2}]]),
        tries_per_record=2,
    )
    letters = result.dead_letters()

    assert records == [{"id": 1}, {"id": 2}]
    assert [each["element"].value for each in letters] == bad
    assert {each["tries"] for each in letters} == {2}
    assert all(each["stage"].startswith("read") for each in letters)
    assert "KeyError" in letters[0]["error"]
    assert "None cannot be the id of a record" in letters[1]["error"]


def test_without_tries_it_ends_the_run() -> None:
    with pytest.raises(df.TransformError, match=r"(?s)'read.*' \(.*cannot be the id.*record: \{"):
        run(stream().add_elements([{"id": 1}, {"id": None}]))


def test_what_comes_behind_the_horizon_can_be_replayed() -> None:
    records, result = run(
        stream()
        .add_elements([at({"id": 1}, 5)])
        .advance_watermark_to(16)
        .add_elements([at({"id": 2}, 5), at({"id": 3}, 6), at({"id": 1}, 5)])
    )
    late = result.late_records()

    assert records == [{"id": 1}, {"id": 3}]
    assert [each["element"] for each in late] == [at({"id": 2}, 5), at({"id": 1}, 5)]
    assert [each["key"] for each in late] == ["2", "1"]
    assert {each["payload"]["id"] for each in late} == {1, 2}
    for each in late:
        assert (each["window_start_us"], each["window_end_us"]) == (5_000_000, 5_000_001)
        assert (each["watermark_us"], each["count"], each["sign"]) == (16_000_000, 1, 1)
    assert sum(result.late_counts().values()) == 2


def test_in_micro_batches_too() -> None:
    script = stream().add_elements([{"id": 1}, {"id": 1}]).advance_processing_time(1)
    records, _ = run(script.add_elements([{"id": 1}, {"id": 2}]), micro_batch=10)

    assert records == [{"id": 1}, {"id": 2}]

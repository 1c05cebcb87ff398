"""Records far ahead of the clock are set aside, so that those that are right are not late."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.computations import JsonLinesInjector, JsonLinesWatcher
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.max_ahead import MaxAhead
from dataflow.source import SplitStatus
from runners.direct import DirectRunner

NOW = datetime.now(UTC).timestamp()
DAY = 86_400
US = 1_000_000


class Row(NamedTuple):
    at: float


def write(path: Path, times: list[float]) -> Path:
    path.write_text("".join(json.dumps({"at": at}) + "\n" for at in times))
    return path


def time_of(record: Any) -> float:
    return float(record["at"])


def counts_and_dead(read: Any) -> tuple[int, list[Any], int]:
    """Of a stream that has no tries: what windows count, its dead letters, and how many records are late."""
    counted: list[int] = []
    p = df.Pipeline(DirectRunner(bundle_records=1))
    pairs = p | "read" >> read | df.Map(lambda record: ("k", 1))
    hours = pairs | df.WindowInto(df.FixedWindows(3600)) | df.CombinePerKey(sum)
    hours | df.Map(lambda pair: counted.append(pair[1]))
    result = p.run()
    return sum(counted), list(result.dead_letters()), len(result.late_records())


TIMES = [NOW - 7200, NOW + 70 * 365 * DAY + 3600, NOW - 7100, NOW - 60, NOW + 2 * DAY, NOW]


def reads(path: Path) -> list[Callable[..., Any]]:
    (path.parent / "end").touch()
    pattern = path.parent / "*.jsonl"
    return [
        lambda **options: df.ReadFromJsonLines(
            path, event_time=time_of, max_disorder=60, **options
        ),
        lambda **options: df.ReadFromJsonLines(
            path, rows=Row, event_time="at", max_disorder=60, **options
        ),
        lambda **options: df.Read(
            JsonLinesWatcher(pattern, event_time=time_of, max_disorder=60, until="end", **options)
        ),
        lambda **options: df.Read(
            JsonLinesInjector(pattern, event_time=time_of, max_disorder=60, **options)
        ),
    ]


@pytest.mark.parametrize("number", range(4))
def test_what_is_right_is_not_late_behind_what_is_far_ahead(tmp_path: Path, number: int) -> None:
    path = write(tmp_path / "a.jsonl", TIMES)
    total, dead, late = counts_and_dead(reads(path)[number]())

    assert (4, 2, 0) == (total, len(dead), late)
    assert [2, 5] == [each["origin"]["line"] for each in dead]
    assert TIMES[1] == pytest.approx(each_at(dead[0]["element"].value))
    assert dead[0]["timestamp_us"] == pytest.approx(TIMES[1] * US, abs=10)
    assert "ahead of the clock by 25550 days" in dead[0]["error"]
    assert "max_ahead" in dead[0]["error"]


def each_at(record: Any) -> float:
    return float(record["at"] if isinstance(record, dict) else record.at)


@pytest.mark.parametrize("number", range(4))
def test_without_a_limit_they_are_taken_and_the_others_are_late(
    tmp_path: Path, number: int
) -> None:
    """Or the test above would not show what the limit is for."""
    path = write(tmp_path / "a.jsonl", TIMES)
    total, dead, late = counts_and_dead(reads(path)[number](max_ahead=None))

    assert [] == dead
    assert 6 == total + late
    assert late > 0


def sums(read: Any) -> tuple[dict[float, int], list[Any]]:
    """Of each hour, and the elements that were late."""
    found: dict[float, int] = {}
    p = df.Pipeline(DirectRunner(bundle_records=1))
    pairs = p | "read" >> read | df.Map(lambda each: each if isinstance(each, tuple) else ("k", 1))
    hours = pairs | df.WindowInto(df.FixedWindows(3600)) | df.CombinePerKey(sum)
    hours | df.Map(
        lambda pair, window=df.DoFn.WindowParam: found.update({window.start_us: pair[1]})
    )
    late = p.run().late_records()
    return found, [each["element"] for each in late]


def test_what_was_late_behind_it_can_be_replayed_and_added_up(tmp_path: Path) -> None:
    """What the guide says for a job that it has happened to."""
    path = write(tmp_path / "a.jsonl", TIMES)
    harmed, late = sums(reads(path)[0](max_ahead=None))
    replayed, later = sums(df.Create(late))
    right, none = sums(reads(path)[0]())

    assert late
    assert [] == later == none
    together = {start: harmed.get(start, 0) + replayed.get(start, 0) for start in harmed | replayed}
    is_ahead = {start for start in together if start > (NOW + DAY) * US}
    assert len(is_ahead) == 2
    assert right == {start: together[start] for start in together.keys() - is_ahead}


def test_the_limit_is_what_it_is_given(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", TIMES)
    limits: list[tuple[timedelta | float, int]] = [
        (timedelta(days=3), 1),
        (0, 2),
        (100 * 365 * DAY, 0),
    ]
    for limit, expected in limits:
        read = df.ReadFromJsonLines(
            path, event_time=time_of, max_disorder=timedelta(days=40_000), max_ahead=limit
        )
        assert expected == len(counts_and_dead(read)[1])
    with pytest.raises(df.PipelineError, match="negative max_ahead"):
        df.ReadFromJsonLines(path, event_time=time_of, max_disorder=1, max_ahead=-1)


def test_where_no_event_time_follows_the_records_nothing_is_set_aside(tmp_path: Path) -> None:
    """The watermark waits for the end of the input, so nobody is harmed."""
    path = write(tmp_path / "a.jsonl", TIMES)
    assert (6, [], 0) == counts_and_dead(df.ReadFromJsonLines(path, event_time=time_of))


@given(
    aheads=st.lists(st.integers(-50, 50), min_size=1, max_size=20),
    limit=st.integers(0, 40),
    most=st.integers(1, 5),
    passed=st.integers(0, 20),
)
def test_each_is_handed_over_or_set_aside_by_the_clock_alone(
    tmp_path_factory: pytest.TempPathFactory,
    aheads: list[int],
    limit: int,
    most: int,
    passed: int,
) -> None:
    """At the limit exactly it is taken; read again by who has to send the same, it is taken as when the job began."""
    path = write(tmp_path_factory.mktemp("ahead") / "a.jsonl", [1000.0 + each for each in aheads])
    clock = [1000 * US]
    source = JsonLinesSource(
        pattern=str(path),
        event_time=time_of,
        max_disorder_us=0,
        max_ahead=MaxAhead(limit * US, lambda: clock[0]),
    )
    (split,) = source.splits(1)
    for reader_of, shift in ((source, 0), (source.repeatable(), passed), (source, passed)):
        clock[0] = (1000 + shift) * US
        ceiling = limit + (shift if reader_of is source else 0)
        taken, aside, watermark_us = [], list[int](), None
        with closing(reader_of.open(split, None, fence=0)) as reader:
            status = SplitStatus.ACTIVE
            while status is not SplitStatus.FINISHED:
                batch = reader.read(most)
                status = batch.status
                assert batch.records <= most
                taken += [int(each["at"]) - 1000 for each in batch.values]
                aside += [int(each.element["at"]) - 1000 for each in batch.set_aside]
                if status is not SplitStatus.FINISHED:
                    watermark_us = batch.watermark_us
        assert [each for each in aheads if each <= ceiling] == taken
        assert [each for each in aheads if each > ceiling] == aside
        assert watermark_us is None or watermark_us <= (1000 + ceiling) * US

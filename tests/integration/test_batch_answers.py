"""The batch runner leaves what the direct runner leaves, and runs every record through once."""

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.io import text_files
from tests.batch_jobs import NOON, SCORES, Batch, assert_same, note, notes, windowed, write

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def test_sums_in_fixed_windows(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(df.FixedWindows(120))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )

    result = assert_same(batch, build, "sums")
    assert sum(row["total"] for row in result.read_table("sums")) == 51


def test_the_most_ordinary_trigger(batch: Batch) -> None:
    """Early by the clock, late by the record: in batch, processing time stands still and then ends."""

    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(
                df.Sessions(60),
                trigger=df.AfterWatermark(early=df.AfterProcessingTime(60), late=df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )

    result = assert_same(batch, build, "sums")
    assert sum(row["total"] for row in result.read_table("sums")) == 51


def test_lists_in_sessions(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(df.Sessions(60))
            | df.GroupByKey()
            | df.Map(lambda pair: (pair[0], json.dumps(sorted(pair[1]))))
            | df.Map(
                lambda pair, window=df.DoFn.WindowParam: {
                    "user": pair[0],
                    "start": window.start,
                    "text": pair[1],
                }
            )
            | write("sessions", "user", "start", "text")
        )

    assert_same(batch, build, "sessions", partitions=4)


def test_two_branches_parse_once(batch: Batch, tmp_path: Path) -> None:
    parsed = tmp_path / "parsed"

    def build(p: df.Pipeline) -> None:
        def parse(pair: tuple[str, int]) -> tuple[str, int]:
            note(parsed, pair)
            return pair

        pairs = p | df.Create(SCORES) | df.Map(parse) | df.WindowInto(df.FixedWindows(120))
        pairs | df.CombinePerKey(sum) | df.Map(windowed) | write("sums", "user", "start", "total")
        pairs | df.CombinePerKey(max) | df.Map(windowed) | write("most", "user", "start", "total")
        pairs | df.Map(windowed) | write("plain", "user", "start", "total")

    batch.run(build)
    assert sorted(notes(parsed)) == sorted(str(score.value) for score in SCORES)
    assert_same(batch, build, "sums", "most", "plain", fresh=True)


def test_a_grouping_of_a_grouping_and_a_source(batch: Batch, tmp_path: Path) -> None:
    read = tmp_path / "read"

    def build(p: df.Pipeline) -> None:
        def seen(pair: tuple[str, int]) -> tuple[str, int]:
            note(read, pair)
            return pair

        scores = p | df.Create(SCORES) | df.Map(seen) | df.WindowInto(df.FixedWindows(120))
        sums = scores | "sums" >> df.CombinePerKey(sum)
        more = scores | "most" >> df.CombinePerKey(max)
        both = (sums, more) | df.Flatten()
        twice = both | "twice" >> df.CombinePerKey(sum) | df.Map(lambda pair: ("all", pair[1]))
        (
            twice
            | "total" >> df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("totals", "user", "start", "total", key=["user", "start"])
        )

    batch.run(build)
    assert len(notes(read)) == len(SCORES)
    assert_same(batch, build, "totals", fresh=True)


def test_a_source_is_carried_past_the_grouping_it_does_not_feed(
    batch: Batch, tmp_path: Path
) -> None:
    read = tmp_path / "read"

    def build(p: df.Pipeline) -> None:
        def seen(pair: tuple[str, int]) -> tuple[str, int]:
            note(read, pair)
            return pair

        scores = p | df.Create(SCORES) | df.Map(seen)
        sums = (
            scores
            | "most" >> df.CombinePerKey(max)
            | "into the same windows" >> df.WindowInto(df.GlobalWindows())
        )
        again = scores | "as they are" >> df.WindowInto(df.GlobalWindows())
        (
            (sums, again)
            | df.Flatten()
            | "total" >> df.CombinePerKey(sum)
            | df.Map(lambda pair: {"user": pair[0], "total": pair[1]})
            | write("totals", "user", "total", key=["user"])
        )

    batch.run(build)
    assert len(notes(read)) == len(SCORES)
    assert_same(batch, build, "totals", fresh=True)


class Sort(df.DoFn):
    """Even scores to the main output, odd ones to dead letters."""

    def process(self, element: tuple[str, int]) -> Iterator[Any]:
        if element[1] % 2:
            yield df.TaggedOutput("odd", element)
        else:
            yield element


def test_dead_letters_go_to_a_table_of_their_own(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        sorted_out = p | df.Create(SCORES) | df.ParDo(Sort()).with_outputs("odd", main="even")
        (
            sorted_out.even
            | df.WindowInto(df.FixedWindows(120))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )
        (
            sorted_out.odd
            | df.Map(lambda pair: {"user": pair[0], "total": pair[1]})
            | write("odd", "user", "total")
        )

    assert_same(batch, build, "sums", "odd")


def test_retracting_panes_into_a_keyed_table(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create(SCORES)
            | df.WindowInto(
                df.Sessions(60),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
            )
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sessions", "user", "start", "total", key=["user", "start"])
        )

    assert_same(batch, build, "sessions")


def test_no_input(batch: Batch) -> None:
    def build(p: df.Pipeline) -> None:
        (
            p
            | df.Create([])
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total")
        )

    assert_same(batch, build, "sums")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_files_in_byte_ranges(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(text_files, "SPLIT_BYTES_MIN", 100)
    path = tmp_path / f"scores.{kind}"
    records = [{"user": f'a, "b"\n{i % 7}', "total": i, "at": i * 13 % 600} for i in range(500)]
    if kind == "csv":
        quoted = [
            ",".join('"' + str(value).replace('"', '""') + '"' for value in record.values())
            for record in records
        ]
        path.write_text("\n".join(["user,total,at", *quoted]) + "\n")
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    reader = df.ReadFromCsv if kind == "csv" else df.ReadFromJsonLines

    def build(p: df.Pipeline) -> None:
        (
            p
            | "read"
            >> reader(path, event_time=lambda row: NOON + timedelta(seconds=int(row["at"])))
            | df.Map(lambda row: (row["user"], int(row["total"])))
            | df.WindowInto(df.FixedWindows(120))
            | df.CombinePerKey(sum)
            | df.Map(windowed)
            | write("sums", "user", "start", "total", key=["user", "start"])
        )

    assert_same(batch, build, "sums", partitions=5)
    (splits,) = [each for name, each in batch.finished().items() if name.startswith("read")]
    assert len(splits) == 5
    # Where nobody says how many, a small input has one for each core, and so has its grouping.
    assert_same(batch, build, "sums", partitions=None, fresh=True)
    assert [os.cpu_count()] * 2 == [len(each) for each in batch.finished().values()]

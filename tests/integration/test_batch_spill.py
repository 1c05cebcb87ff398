"""Batches with more than a task keeps in memory, and with half of all records on one key."""

import re
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from tests.batch_jobs import SCORES, Batch, assert_same, note, notes, windowed, write

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

RECORDS = 2_000_000


@pytest.mark.parametrize("spill_bytes", [0, 500])
def test_groups_in_files_have_the_answers_of_groups_in_memory(
    batch: Batch, spill_bytes: int
) -> None:
    def build(p: df.Pipeline) -> None:
        pairs = p | df.Create(SCORES)
        for name, window_fn in (("sessions", df.Sessions(60)), ("fixed", df.FixedWindows(120))):
            grouped = (
                pairs | f"{name} windows" >> df.WindowInto(window_fn) | name >> df.GroupByKey()
            )
            sums = grouped | f"{name} sum" >> df.Map(lambda pair: (pair[0], sum(pair[1])))
            sums | f"{name} row" >> df.Map(windowed) | write(name, "user", "start", "total")

    assert_same(batch, build, "sessions", "fixed", spill_bytes=spill_bytes, partitions=1)


def test_a_group_in_a_file_has_the_answer_of_a_list(batch: Batch, tmp_path: Path) -> None:
    """Read twice by the function after the grouping; passed on to another, which gets a list; and its values again."""
    seen = tmp_path / "seen"

    def build(p: df.Pipeline) -> None:
        numbers = p | df.Create(range(20)) | df.FlatMap(lambda i: range(i, 20_000, 20))
        pairs = numbers | "pair" >> df.Map(lambda n: ("all" if n % 10 else f"key {n % 700}", n))
        groups = pairs | df.GroupByKey()

        def twice(pair: tuple[str, Any]) -> dict[str, Any]:
            note(seen, f"twice {type(pair[1]).__name__}")
            largest = max(pair[1])
            return {"user": pair[0], "total": sum(largest - each for each in pair[1])}

        def again(pair: tuple[int, Any]) -> dict[str, Any]:
            found = sorted((len(each), sum(each)) for each in pair[1])
            note(seen, f"again {max((len(each), type(each).__name__) for each in pair[1])[1]}")
            return {"user": str(pair[0]), "text": str(found)}

        groups | "twice" >> df.Map(twice) | write("twice", "user", "total", key=["user"])
        regrouped = groups | "same" >> df.Map(lambda pair: (len(pair[0]), pair[1]))
        again_rows = regrouped | "regroup" >> df.GroupByKey() | "again" >> df.Map(again)
        again_rows | write("again", "user", "text", key=["user"])
        each = groups | df.FlatMap(lambda pair: ((one % 7, one) for one in pair[1]))
        sorted_rows = each | "by rest" >> df.GroupByKey() | "sorted" >> df.Map(in_order)
        sorted_rows | write("sorted", "rest", "text", key=["rest"])

    def in_order(pair: tuple[int, Any]) -> dict[str, Any]:
        return {"rest": pair[0], "text": str(sorted(pair[1]))}

    tables = ("twice", "again", "sorted")
    assert_same(batch, build, *tables, spill_bytes=20_000, partitions=1)
    assert set(notes(seen)) == {"twice list", "twice FileValues", "again list"}


class NotePeak(df.DoFn):
    """Passes everything through, and notes how large its process has ever been, in MiB."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Any) -> Any:
        yield element

    def teardown(self) -> None:
        # Not getrusage: its figure survives exec, so it may be that of the Java that started the process.
        status = Path("/proc/self/status").read_text("utf-8")
        note(self._path, int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10)


@pytest.mark.parametrize("is_lifted", [True, False], ids=["combined", "grouped"])
def test_half_of_all_records_on_one_key(batch: Batch, tmp_path: Path, is_lifted: bool) -> None:
    """Combining makes one partial of them before the shuffle; grouping keeps all of them, in one task."""
    peaks = tmp_path / "peaks"

    def build(p: df.Pipeline) -> None:
        numbers = p | df.Create(range(100)) | df.FlatMap(lambda i: range(i, RECORDS, 100))
        pairs = numbers | "pair" >> df.Map(lambda n: (n // 2 % 1_000 if n % 2 else -1, n))
        if is_lifted:
            sums = pairs | df.CombinePerKey(sum)
        else:
            sums = pairs | df.GroupByKey() | "sum" >> df.Map(lambda each: (each[0], sum(each[1])))
        (
            sums
            | df.ParDo(NotePeak(peaks))
            | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
            | write("sums", "key", "total", key=["key"])
        )

    rows = batch.run(build, partitions=4).read_table("sums")

    found = {row["key"]: row["total"] for row in rows}
    assert found[-1] == sum(range(0, RECORDS, 2))
    assert len(found) == 1_001
    assert sum(found.values()) == sum(range(RECORDS))
    print(f"peak of a task: {notes(peaks)} MiB")
    assert max(map(int, notes(peaks))) < 1_024


def test_views_in_files_have_the_answers_of_views_in_memory(batch: Batch) -> None:
    """Looked up by key, and iterated; in windows, of which one has no elements and one no view."""

    def build(p: df.Pipeline) -> None:
        numbers = p | df.Create(range(8)) | df.FlatMap(lambda i: range(i, 8_000, 8))
        minutes = numbers | "minutes" >> df.Map(lambda n: df.TimestampedValue(n, n // 3_000 * 60))
        by_minute = minutes | "windows" >> df.WindowInto(df.FixedWindows(60))
        pairs = by_minute | "pair" >> df.Map(lambda n: (f"key {n % 5_000}", n))
        mains = by_minute | "few" >> df.Filter(lambda n: n % 97 == 0 and n < 6_000)

        def found(n: int, one: Any, many: Any, every: Any) -> dict[str, Any]:
            key = f"key {n % 5_000}"
            total = sum(each for _, each in every)
            return {"user": key, "total": one[key] + sum(many[key]) + total + len(one) + len(many)}

        sides = df.AsDict(pairs), df.AsMultiMap(pairs), df.AsIter(pairs)
        mains | "look up" >> df.Map(found, *sides) | write("found", "user", "total")

    assert_same(batch, build, "found", spill_bytes=20_000, partitions=1)


@pytest.mark.nightly
def test_a_view_that_is_larger_than_memory(batch: Batch, tmp_path: Path) -> None:
    """However many shards a task has, and wherever what is looked up is."""
    peaks = tmp_path / "peaks"

    def build(p: df.Pipeline) -> None:
        numbers = p | df.Create(range(100)) | df.FlatMap(lambda i: range(i, RECORDS // 5, 100))
        pairs = numbers | "pair" >> df.Map(lambda n: (f"key {n}", f"value {n:040}"))
        mains = numbers | "few" >> df.Filter(lambda n: n % 1_009 == 0)
        (
            mains
            | df.Map(lambda n, view: (n, len(view[f"key {n}"])), df.AsDict(pairs, shards=4))
            | df.ParDo(NotePeak(peaks))
            | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
            | write("sums", "key", "total", key=["key"])
        )

    rows = batch.run(build, partitions=2, spill_bytes=8 << 20).read_table("sums")

    assert {row["key"] for row in rows} == set(range(0, RECORDS // 5, 1_009))
    assert {row["total"] for row in rows} == {46}
    print(f"peak of a task: {notes(peaks)} MiB")
    assert max(map(int, notes(peaks))) < 300

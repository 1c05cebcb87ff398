"""What a sink has after kills is counted right, whatever form the sink has."""

import json
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.kills import feed, sinks
from benchmarks.kills.feed import Row, Settings

RIGHT = feed.right_rows(4)


def settings_in(folder: Path) -> Settings:
    """Of a program with its folder of rows."""
    rows = folder / "rows"
    rows.mkdir()
    return Settings(files="", rows=str(rows), scratch="", store="", attempt=0)


@given(
    st.sets(st.sampled_from(RIGHT)),
    st.lists(st.sampled_from(RIGHT)),
    st.randoms(use_true_random=False),
)
def test_what_is_lost_and_what_is_there_twice_is_not_confused(
    without: set[Row], again: list[Row], chance: random.Random
) -> None:
    once = [row for row in RIGHT if row not in without]
    found = [*once, *(row for row in again if row not in without)]
    chance.shuffle(found)

    verdict = sinks.verdict(RIGHT, found)

    assert verdict.lost == sum(row.records for row in without)
    assert verdict.doubled == sum(row.records for row in again if row not in without)
    assert verdict.rows_again == len(found) - len(once)


def test_a_row_in_parts_is_not_lost_and_one_that_counts_too_much_is_seen() -> None:
    row = RIGHT[1]
    parts = [row._replace(records=1), row._replace(records=row.records - 1)]
    more = row._replace(records=row.records + 3)
    assert row.records > 1

    assert sinks.verdict([row], parts) == sinks.Verdict(lost=0, doubled=0, rows_again=1)
    assert sinks.verdict([row], [more]) == sinks.Verdict(lost=0, doubled=3, rows_again=0)
    assert sinks.verdict([], [row]).doubled == row.records


def test_the_input_has_what_the_right_rows_count(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for window in range(4):
        feed.put_windows(files, range(window, window + 1))
    feed.put_end(files, 4)
    found: dict[tuple[str, int], int] = {}
    last_ms = -1
    for path in sorted(files.iterdir()):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            assert record["at"] >= last_ms
            last_ms = record["at"]
            place = record["key"], record["at"] // 1_000 // feed.WINDOW_S * feed.WINDOW_S
            found[place] = found.get(place, 0) + 1
    last = {place: count for place, count in found.items() if place[1] >= 4 * feed.WINDOW_S}

    assert {Row(*place, count) for place, count in found.items() if place not in last} == {*RIGHT}
    assert set(last.values()) == {1}
    assert len(last) == feed.KEYS


def test_files_that_are_hidden_or_half_written_are_not_final(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    rows = Path(settings.rows)
    (rows / "part-1").write_text("key01,10,3\nkey02,10,4\nkey03,1")
    (rows / ".part-2.inprogress").write_text("key04,10,3\n")

    assert sinks.of_files(settings) == [Row("key01", 10, 3), Row("key02", 10, 4)]


def test_files_of_spark_are_those_that_its_log_names(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    rows = Path(settings.rows)
    for name in "abc":
        (rows / f"part-{name}.csv").write_text(f'"key0{name}",10,3\n')
    log = rows / "_spark_metadata"
    log.mkdir()
    for batch, name in (("0.compact", "a"), ("1", "c")):
        entry = json.dumps({"path": f"file://{rows}/part-{name}.csv", "action": "add"})
        (log / batch).write_text(f"v1\n{entry}\n")

    assert sinks.of_log(settings) == [Row("key0a", 10, 3), Row("key0c", 10, 3)]


def test_changes_of_all_starts_add_up(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    head = "key,start_s,count,time,diff\n"
    (Path(settings.rows) / "rows-0.csv").write_text(f'{head}"key01",10,3,2,1\n"key02",10,1,2,1\n')
    changed = '"key02",10,1,4,-1\n"key02",10,2,4,1\n"key01",10,3,4,1\n"key03",1'
    (Path(settings.rows) / "rows-1.csv").write_text(head + changed)

    found = sorted(sinks.of_changes(settings))

    assert found == [Row("key01", 10, 3), Row("key01", 10, 3), Row("key02", 10, 2)]

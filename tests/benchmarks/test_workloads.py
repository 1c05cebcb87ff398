"""The data of the benchmarks are the same everywhere, and as the page about them says."""

import hashlib
from collections import Counter
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import workloads
from benchmarks.workloads import Event, event_files, events, lines_of_text, text_files

#: Of the first thousand events and words; another one means that figures measured before do not compare any more.
EVENTS_SHA256 = "076e5a8537195364ec28c24121ed18067deb7aee2347f947d433e06d6ea8983d"
TEXT_SHA256 = "4917b184dab4885826b9097f7a2d95d071dac961b5efc339714bc756b5c5a1d8"


def sha256(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_on_every_machine() -> None:
    assert sha256([event.to_json() for event in events(1_000)]) == EVENTS_SHA256
    assert sha256(list(lines_of_text(1_000))) == TEXT_SHA256


def test_another_seed_gives_other_events() -> None:
    assert list(events(100, seed=1)) != list(events(100, seed=2))


@given(st.integers(1, 3_000), st.integers(0, 1 << 32))
def test_no_event_is_further_behind_than_promised(count: int, seed: int) -> None:
    made = list(events(count, seed))

    newest = accumulate((event.event_time for event in made), max)
    behind_ms = [top - event.event_time for top, event in zip(newest, made, strict=True)]
    assert len(made) == count
    assert max(behind_ms) <= workloads.DISORDER_MAX_MS
    assert max(behind_ms) < workloads.WATERMARK_BOUND_S * 1_000
    assert all(0 <= event.user_id < workloads.USERS for event in made)
    assert all(0 <= event.value < workloads.VALUES for event in made)


def test_busiest_user_has_a_tenth_and_some_events_are_late() -> None:
    made = list(events(20_000))

    users = Counter(event.user_id for event in made)
    newest = accumulate((event.event_time for event in made), max)
    late = sum(
        top - event.event_time > workloads.DISORDER_MS
        for top, event in zip(newest, made, strict=True)
    )
    assert users.most_common(1)[0][0] == 0
    assert users[0] / len(made) == pytest.approx(0.102, abs=0.01)
    assert 0.004 < late / len(made) < 0.02


def test_files_have_all_events_once_and_in_order(tmp_path: Path) -> None:
    dataset = event_files(tmp_path, 1_001)

    expected = [event.to_json() for event in events(1_001)]
    halves = [(dataset.two / f"{half}.jsonl").read_text().splitlines() for half in (0, 1)]
    assert halves == [expected[0::2], expected[1::2]]
    assert dataset.stream is not None
    parts = sorted(dataset.stream.iterdir())
    assert sorted(parts, key=lambda path: path.stat().st_mtime) == parts
    *streamed, last = [line for path in parts for line in path.read_text().splitlines()]
    assert streamed == expected
    assert last == Event(workloads.LAST_USER, workloads.LAST_MS, 0).to_json()


@pytest.mark.slow
def test_files_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    first = text_files(tmp_path, 95)
    (first.two / "0.txt").write_text("kept")

    assert text_files(tmp_path, 95) == first
    assert (first.two / "0.txt").read_text() == "kept"


def test_nothing_has_the_name_of_a_set_that_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, lines: list[str]) -> None:
        raise OSError("no space")

    monkeypatch.setattr(workloads, "_write_stream", full)
    with pytest.raises(OSError, match="no space"):
        event_files(tmp_path, 10)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_text_has_so_many_words() -> None:
    lines = list(lines_of_text(95))

    assert [len(line.split(" ")) for line in lines] == [10] * 9 + [5]

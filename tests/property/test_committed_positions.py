"""Laws of notifications: at least once, in order, whatever the reader raises, and never of what is not durable."""

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.source import Source, SourceBatch, SourceReader
from runners.core.stages.committed_positions import CommittedPositions


class Queue(Source):
    """Acknowledges, if so declared."""

    def __init__(self, *, acknowledges: bool = True) -> None:
        self._acknowledges = acknowledges

    @property
    def acknowledges(self) -> bool:
        return self._acknowledges

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return QueueReader([])


@attrs.define
class QueueReader(SourceReader):
    """Fails where ``failures`` has True, call by call, and never after its end."""

    failures: list[bool]
    calls: list[int] = attrs.field(factory=list)
    acknowledged: list[int] = attrs.field(factory=list)

    def read(self, max_records: int) -> SourceBatch:
        raise NotImplementedError

    def committed(self, position: Any) -> None:
        self.calls.append(position)
        if self.failures and self.failures.pop(0):
            raise OSError("the queue is away")
        self.acknowledged.append(position)


def notified(reader: QueueReader, *, acknowledges: bool = True) -> CommittedPositions:
    return CommittedPositions(Queue(acknowledges=acknowledges), reader, where="orders[0]")


#: True: another commit; False: a round without one.
rounds = st.lists(st.booleans(), max_size=30)


@given(rounds=rounds, failures=st.lists(st.booleans(), max_size=20))
def test_a_reader_is_notified_in_order_and_of_the_last_position(
    rounds: list[bool], failures: list[bool]
) -> None:
    reader = QueueReader(list(failures))
    committed, durable = notified(reader), 0
    for is_commit in rounds:
        durable += is_commit
        if is_commit:
            committed.note(durable)
        committed.notify()
        assert max(reader.calls, default=0) <= durable
    reader.failures.clear()
    committed.close()

    assert reader.calls == sorted(reader.calls)
    # Each is notified again until it is acknowledged, unless a later one stands for it.
    assert reader.acknowledged == sorted(set(reader.acknowledged))
    assert reader.acknowledged[-1:] == ([durable] if durable else [])


@given(failures=st.integers(0, 12))
def test_a_reader_that_fails_is_notified_again_and_ever_more_seldom(failures: int) -> None:
    reader = QueueReader([True] * failures)
    committed = notified(reader)
    committed.note(7)
    committed.notify()
    calls = 0
    while not reader.acknowledged:
        committed.notify()
        calls += 1
    assert len(reader.calls) == failures + 1
    assert calls <= 64 * failures
    assert calls >= failures**2 / 4


def test_what_a_reader_raises_is_logged_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    committed = notified(QueueReader([True] * 100))
    with caplog.at_level(logging.WARNING):
        committed.note(7)
        committed.notify()
        committed.close()
    first, *_, last = caplog.messages
    assert first.startswith(
        "orders[0]: the reader could not acknowledge a committed position, 1 ti"
    )
    assert "OSError: the queue is away" in first
    assert last.startswith("orders[0]: the reader is closed, and has not acknowledged")


def test_nobody_is_notified_of_the_start() -> None:
    reader = QueueReader([])
    committed = notified(reader)
    committed.note(None)
    committed.notify()
    assert reader.calls == []


def test_nobody_is_notified_where_the_source_acknowledges_nothing() -> None:
    reader = QueueReader([])
    committed = notified(reader, acknowledges=False)
    committed.note(7)
    committed.notify()
    committed.close()
    assert reader.calls == []

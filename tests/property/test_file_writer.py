"""Whatever fails in a place of files, and whoever else writes there, each row is in one visible file."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import SinkError
from dataflow.files.file_writer import FileWriter
from dataflow.files.places import HIDDEN, ChangedError, FilePlace
from dataflow.files.writes import FileSink
from dataflow.sink import Batching, outbox_of
from runners.core.tables.changelog import Rows
from runners.relay.lane_relay import LaneRelay
from runners.relay.memory_outbox import MemoryOutbox
from runners.relay.outbox import LanePlace
from runners.testing.manual_clock import ManualClock

RELAYS, ROWS, BURSTS_MAX = 2, 8, 12
GOES, FAILS_BEFORE, FAILS_AFTER = "goes", "fails before", "fails after"
FORMAT = df.WriteToText("files").file_format
SINK = FileSink(path="files", file_format=FORMAT, how_large=Batching(max_rows=4))
LANE = LanePlace(job="job", sink="sink", outbox=outbox_of("outbox", SINK), number=0)


class MemoryPlace(FilePlace):
    """Files in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> tuple[bytes, Any] | None:
        found = self.files.get(name)
        return None if found is None else (found, found)

    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        if self.files.get(name) != version:
            raise ChangedError(name)
        self.files[name] = content
        return content

    def put(self, name: str, content: bytes) -> None:
        assert name.startswith(HIDDEN)
        self.files[name] = content

    def show(self, hidden: str, name: str) -> None:
        if hidden in self.files:
            assert name not in self.files, "a file that was shown is replaced"
            self.files[name] = self.files.pop(hidden)

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/"
        return [each.removeprefix(prefix) for each in self.files if each.startswith(prefix)]

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def check(self) -> None:
        pass

    @property
    def shown(self) -> list[str]:
        visible = [self.files[each] for each in self.files if not each.startswith(HIDDEN)]
        return sorted(line for each in visible for line in each.decode().splitlines())


class Turns(FilePlace):
    """A place in which one of several relays acts at a time; between any two acts another may go on."""

    def __init__(self, place: MemoryPlace, world: "World", number: int) -> None:
        self._place, self._world, self._number = place, world, number

    def _do(self, act: Callable[..., Any], *arguments: Any) -> Any:
        fate = self._world.await_turn(self._number)
        if fate == FAILS_BEFORE:
            raise ConnectionError(fate)
        found = act(*arguments)
        if fate == FAILS_AFTER:
            raise ConnectionError(fate)
        return found

    def read(self, name: str) -> tuple[bytes, Any] | None:
        found: tuple[bytes, Any] | None = self._do(self._place.read, name)
        return found

    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        return self._do(self._place.replace, name, content, version)

    def put(self, name: str, content: bytes) -> None:
        self._do(self._place.put, name, content)

    def show(self, hidden: str, name: str) -> None:
        self._do(self._place.show, hidden, name)

    def names(self, folder: str) -> list[str]:
        found: list[str] = self._do(self._place.names, folder)
        return found

    def delete(self, name: str) -> None:
        self._do(self._place.delete, name)

    def check(self) -> None:
        pass


class World:
    """Two batches of two files each, and relays that all believe that the lane is theirs."""

    def __init__(self, writer: type[FileWriter]) -> None:
        rows: Rows = {n: (0, +1, "even" if n % 2 == 0 else "odd", b"%d" % n) for n in range(ROWS)}
        self.place, self._writer = MemoryPlace(), writer
        self._outbox, self._clock = MemoryOutbox("run", lambda _: rows), ManualClock()
        self._my_turn = threading.Semaphore(0)
        self._turns = [threading.Semaphore(0) for _ in range(RELAYS)]
        self._fates = [GOES] * RELAYS
        self._working = set(range(RELAYS))
        self.errors = list[BaseException]()

    def _relay(self, place: FilePlace) -> LaneRelay:
        return LaneRelay(
            self._outbox, SINK, LANE, lambda _, lane: self._writer(place, FORMAT, lane), self._clock
        )

    def await_turn(self, number: int) -> str:
        """Let others act; called by the thread of a relay."""
        self._my_turn.release()
        self._turns[number].acquire()
        return self._fates[number]

    def _work(self, number: int) -> None:
        relay = self._relay(Turns(self.place, self, number))
        self._turns[number].acquire()
        try:
            for _ in range(4):
                with suppress(ConnectionError, df.SinkFencedError):
                    relay.step()
        except BaseException as error:  # noqa: BLE001 - it is the test's
            self.errors.append(error)
        self._working.discard(number)
        self._my_turn.release()

    def run(self, choose: Callable[[Sequence[int]], tuple[int, int, str]]) -> None:
        """Let a relay do so many acts, the last with this fate, as is chosen again and again; then one all the rest."""
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(RELAYS)]
        for each in threads:
            each.start()
        try:
            for _ in range(BURSTS_MAX):
                if not self._working:
                    break
                self._act(*choose(sorted(self._working)))
        finally:
            # Hypothesis may have no more to choose; a relay that waited for its turn would wait for ever.
            while self._working:
                self._act(min(self._working), 1, GOES)
            for each in threads:
                each.join()
        last = self._relay(self.place)
        while last.step():
            pass
        self._relay(self.place)._open(SINK, self._lane()).fence(10**6)

    def _act(self, number: int, acts: int, fate: str) -> None:
        while acts and number in self._working:
            acts -= 1
            self._fates[number] = GOES if acts else fate
            self._turns[number].release()
            self._my_turn.acquire()

    def _lane(self) -> df.Lane:
        taken = self._outbox.take_lane(LANE)
        return df.Lane(writer=taken.writer, number=0, title="lane")


def run_world(data: st.DataObject, writer: type[FileWriter]) -> None:
    world = World(writer)
    fates = st.sampled_from((GOES, GOES, GOES, FAILS_BEFORE, FAILS_AFTER))
    acts = st.integers(1, 10)
    world.run(
        lambda working: (data.draw(st.sampled_from(working)), data.draw(acts), data.draw(fates))
    )
    assert not world.errors, world.errors
    assert world.place.shown == [str(n) for n in range(ROWS)]
    assert not [each for each in world.place.files if each.count("/") == 2], "hidden files are left"


@given(st.data())
def test_each_row_is_in_one_file(data: st.DataObject) -> None:
    run_world(data, FileWriter)


class _LeavesHidden(FileWriter):
    """What the last batch has not shown is never shown."""

    def fence(self, token: int) -> int:
        self._show = lambda: None  # type: ignore[method-assign]
        number = super().fence(token)
        del self._show
        return number


class _ShowsFirst(FileWriter):
    """Files are seen before they count."""

    def _commit(self, manifest: Any, version: Any) -> None:
        for file in manifest.files:
            self._place.show(file.hidden, file.name)
        super()._commit(manifest, version)


class _CommitsUnconditionally(FileWriter):
    """The manifest is replaced, whatever it is."""

    def _commit(self, manifest: Any, version: Any) -> None:
        found = self._place.read(self._manifest_name)
        super()._commit(manifest, None if found is None else found[1])


class _CleansAll(FileWriter):
    """Hidden files of a later writer are removed too."""

    def _clean(self, token: int) -> None:
        super()._clean(token + RELAYS)


class _LeavesFiles(FileWriter):
    """What does not count is not removed."""

    def _clean(self, token: int) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "writer", [_LeavesHidden, _ShowsFirst, _CommitsUnconditionally, _CleansAll, _LeavesFiles]
)
def test_a_writer_that_is_wrong_is_noticed(writer: type[FileWriter]) -> None:
    @settings(
        max_examples=3_000,
        phases=[Phase.generate],
        derandomize=True,
        report_multiple_bugs=False,
    )
    @given(st.data())
    def law(data: st.DataObject) -> None:
        run_world(data, writer)

    with pytest.raises((AssertionError, SinkError)):
        law()

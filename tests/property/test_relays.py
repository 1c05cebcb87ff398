"""A relay sends what waits in a lane exactly once and in order, whatever fails, and whoever else relays the lane."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dataflow.errors import SinkError, SinkFencedError
from dataflow.serialization import dumps
from dataflow.sink import Batching, Lane, Sink, SinkChange, SinkWriter, outbox_of
from dataflow.testing.model_sink import ModelSink, ModelWriter, Outcome
from dataflow.times import in_words
from runners.core.tables.changelog import Rows
from runners.relay.batch_timer import BatchTimer
from runners.relay.lane_relay import LaneRelay
from runners.relay.memory_outbox import MemoryOutbox
from runners.relay.outbox import LanePlace, OutboxBatch, TakenLane
from runners.testing.manual_clock import ManualClock

_RELAYS = 3
DELAY_MS = 1_000
LARGE = Batching(max_rows=3, max_delay_ms=DELAY_MS)


class World:
    """One lane, some relays that believe that it is theirs, and chance."""

    def __init__(
        self,
        data: st.DataObject,
        relay: type[LaneRelay] = LaneRelay,
        writer: type[ModelWriter] = ModelWriter,
        outbox: type[MemoryOutbox] = MemoryOutbox,
        batching: Batching = Batching(max_rows=2),  # noqa: B008 - it is frozen
    ) -> None:
        self._data, self._relay, self._writer = data, relay, writer
        self.sink = ModelSink(fate=self._fate, between=self._between, batching=batching)
        self.clock = ManualClock()
        self.rows: Rows = {}
        self.outbox = outbox("run", lambda _: self.rows)
        self.appended: list[SinkChange] = []
        self._depth, self._is_calm = 0, False
        self._stepping: list[LaneRelay] = []
        self._place = LanePlace(
            job="job", sink="sink", outbox=outbox_of("outbox", self.sink), number=0
        )
        self._relays = [self._new_relay() for _ in range(_RELAYS)]

    def _new_relay(self) -> LaneRelay:
        return self._relay(self.outbox, self.sink, self._place, self._open, self.clock)

    def _open(self, sink: Sink[Any], lane: Lane) -> SinkWriter:
        assert isinstance(sink, ModelSink)
        return self._writer(sink, lane)

    def _fate(self, lane: Lane) -> Outcome:
        return Outcome.DONE if self._is_calm else self._data.draw(st.sampled_from(Outcome))

    def _between(self, _: str) -> None:
        if not self._is_calm and self._depth < 2 and self._data.draw(st.booleans()):
            self.act()

    def act(self) -> None:
        """Something happens, perhaps in the middle of something else."""
        self._depth += 1
        acts: Sequence[Callable[[], None]] = (
            self._append,
            self._step,
            self._step,
            self._crash,
            self.sink.let_land,
            self._wait,
        )
        self._data.draw(st.sampled_from(acts))()
        self._depth -= 1

    def _append(self) -> None:
        change = SinkChange(len(self.appended), self._data.draw(st.sampled_from((1, -1))))
        self.appended.append(change)
        self.rows[next(reversed(self.rows), -1) + 1] = (0, change.sign, dumps(change.value))  # type: ignore[operator]

    def _step(self) -> None:
        relay = self._data.draw(st.sampled_from(self._relays))
        # A relay is of one thread: in the middle of a step it begins no other.
        if relay not in self._stepping:
            self._stepping.append(relay)
            with suppress(Exception):
                relay.step(is_last=self._data.draw(st.booleans()))
            self._stepping.remove(relay)

    def _crash(self) -> None:
        self._relays[self._data.draw(st.integers(0, _RELAYS - 1))] = self._new_relay()

    def _wait(self) -> None:
        self.clock.advance(self._data.draw(st.sampled_from((1, DELAY_MS // 2, DELAY_MS))))

    def settle(self) -> None:
        """Nothing fails any more, and time passes."""
        self._is_calm = True
        relay = self._data.draw(st.sampled_from((self._relays[0], self._new_relay())))
        for _ in range(2 * len(self.appended) + 8):
            with suppress(SinkFencedError):
                relay.step()
            self.clock.advance(DELAY_MS)
        assert not self.outbox.count_waiting(self._place), "something waits for ever"
        self.sink.let_land()


def run_world(data: st.DataObject, **parts: Any) -> None:
    """Let things happen, and check that the sink has everything once."""
    world = World(data, **parts)
    for _ in range(data.draw(st.integers(1, 12))):
        world.act()
    world.settle()
    assert world.sink.changes == world.appended
    for lane in world.sink.state.values():
        assert lane.numbers == list(range(1, len(lane.numbers) + 1))


@pytest.mark.parametrize("batching", [Batching(max_rows=2), LARGE], ids=["at once", "large"])
@given(data=st.data())
def test_the_sink_has_every_change_once_and_in_order(
    batching: Batching, data: st.DataObject
) -> None:
    run_world(data, batching=batching)


class KeepsNoNumber(ModelWriter):
    """A writer of a sink that keeps neither number nor token, but what it is sent with each change."""

    def fence(self, token: int) -> int:
        self.sink.between("before the fence")
        return self.lane.delivered

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        known = [
            SinkChange((number, index, change.value), change.sign)
            for index, change in enumerate(changes)
        ]
        super().write(number, known)


def run_at_least_once(data: st.DataObject, **parts: Any) -> None:
    """Let things happen, and check that the sink has everything once, for whoever knows changes again."""
    world = World(data, **{"writer": KeepsNoNumber, **parts})
    for _ in range(data.draw(st.integers(1, 12))):
        world.act()
    world.settle()
    known: dict[tuple[int, int], SinkChange] = {}
    for sent in world.sink.changes:
        number, index, value = sent.value
        change = SinkChange(value, sent.sign)
        assert known.setdefault((number, index), change) == change
    # The first of each came in order, whatever came again.
    assert list(known.values()) == world.appended


@given(st.data())
def test_a_sink_that_keeps_no_number_has_every_change_at_least_once(data: st.DataObject) -> None:
    run_at_least_once(data)


class _DeletesBeforeTheAnswer(LaneRelay):
    def _step(self, *, is_last: bool) -> int:
        del is_last
        sent = 0
        if self._lane is None and self._outbox.count_waiting(self.place):
            self._take()
        if self._lane is not None and self._writer is not None:
            batch = self._outbox.next_batch(self._lane, self._delivered)
            if isinstance(batch, OutboxBatch):
                self._delivered = batch.number
                self._outbox.next_batch(self._lane, self._delivered)
                self._writer.write(batch.number, self._changes(batch))
                sent = len(batch.rows)
        return sent


class _SendsAgainWithoutAsking(LaneRelay):
    def step(self, *, is_last: bool = False) -> int:
        return self._step(is_last=is_last)


class _GoesOnAfterUnknown(LaneRelay):
    def _step(self, *, is_last: bool) -> int:
        try:
            return super()._step(is_last=is_last)
        except Exception:
            self._delivered += self._lane is not None
            raise

    def step(self, *, is_last: bool = False) -> int:
        return self._step(is_last=is_last)


class _ReadsBeforeTheFence(ModelWriter):
    def fence(self, token: int) -> int:
        number = self.state.number
        self.sink.between("between the number and the fence")
        super().fence(token)
        return number


class _FencesNobody(ModelWriter):
    @property
    def token(self) -> int:
        return self.state.token

    @token.setter
    def token(self, token: int) -> None:
        pass


class _ChoosesAnew(MemoryOutbox):
    """A batch that was taken and not delivered has the rows that wait by then."""

    def take_lane(self, place: LanePlace) -> TakenLane:
        lane = super().take_lane(place)
        state = self._lanes[place.job, place.sink, place.number]
        if state.in_flight:
            waiting = [key for key in self._rows(place.outbox.name) if isinstance(key, int)]
            state.in_flight = waiting[: len(state.in_flight) + 1]
        return lane


class _BelievesThatItArrived(KeepsNoNumber):
    def fence(self, token: int) -> int:
        return self.lane.delivered + 1


class _BeginsAnew(KeepsNoNumber):
    def fence(self, token: int) -> int:
        return 0


class _NumbersAnew(MemoryOutbox):
    """A batch that was taken and not delivered has another number for the next relay."""

    def take_lane(self, place: LanePlace) -> TakenLane:
        state = self._lanes.get((place.job, place.sink, place.number))
        if state is not None and state.in_flight:
            state.number += 1
        return super().take_lane(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        {"relay": _DeletesBeforeTheAnswer},
        {"writer": _BelievesThatItArrived},
        {"writer": _BeginsAnew},
        {"outbox": _NumbersAnew},
    ],
    ids=lambda broken: next(iter(broken.values())).__name__,
)
def test_a_rule_of_at_least_once_that_is_broken_is_noticed(broken: dict[str, Any]) -> None:
    _is_noticed(run_at_least_once, broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        {"relay": _DeletesBeforeTheAnswer},
        {"relay": _SendsAgainWithoutAsking},
        {"relay": _GoesOnAfterUnknown},
        {"writer": _ReadsBeforeTheFence},
        {"writer": _FencesNobody},
        {"outbox": _ChoosesAnew},
    ],
    ids=lambda broken: next(iter(broken.values())).__name__,
)
def test_a_rule_that_is_broken_is_noticed(broken: dict[str, Any]) -> None:
    _is_noticed(run_world, broken)


def _is_noticed(run: Callable[..., None], broken: dict[str, Any]) -> None:
    @settings(
        max_examples=2_000,
        phases=[Phase.generate],
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def law(data: st.DataObject) -> None:
        run(data, **broken)

    with pytest.raises((AssertionError, SinkError)):
        law()


@pytest.mark.parametrize(("number", "words"), [(0, "lost what it had"), (9, "earlier moment")])
def test_a_sink_or_a_store_of_an_earlier_moment_ends_the_relay(number: int, words: str) -> None:
    """Nothing is sent, as it might be there twice or never."""
    rows, sink = Rows(), ModelSink()
    place = LanePlace(job="job", sink="sink", outbox=outbox_of("outbox", sink), number=0)
    outbox = MemoryOutbox("run", lambda _: rows)

    def relay() -> LaneRelay:
        return LaneRelay(
            outbox, sink, place, lambda _, lane: ModelWriter(sink, lane), ManualClock()
        )

    rows[0] = (0, 1, dumps("first"))
    first = relay()
    assert first.step() == 1
    assert first.step() == 0
    (lane,) = sink.state.values()
    changes, lane.number = list(lane.changes), number
    rows[1] = (0, 1, dumps("second"))
    with pytest.raises(SinkError) as caught:
        relay().step()
    assert words in str(caught.value)
    assert lane.changes == changes


#: What happens to a lane: so many changes, or so many milliseconds.
HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("changes"), st.integers(1, 4)),
        st.tuples(st.just("ms"), st.integers(1, DELAY_MS + 1)),
    ),
    max_size=30,
)


def run_waiting(happenings: Sequence[tuple[str, int]], timer: type[BatchTimer]) -> None:
    """Have one relay look each millisecond; check that no batch is sent too early, and none too late."""
    clock, rows = ManualClock(), Rows()
    sink = ModelSink(batching=LARGE)
    place = LanePlace(job="job", sink="sink", outbox=outbox_of("outbox", sink), number=0)
    relay = LaneRelay(
        MemoryOutbox("run", lambda _: rows),
        sink,
        place,
        lambda _, lane: ModelWriter(sink, lane),
        clock,
    )
    relay._timer = timer(LARGE, clock)
    relay.step()
    appended_ms, sent = list[int](), 0

    def look() -> None:
        nonlocal sent
        while count := relay.step():
            waited_ms = clock.monotonic_ms() - appended_ms[sent]
            assert count == LARGE.max_rows or waited_ms >= DELAY_MS, "a small batch is sent early"
            sent += count
        late_ms = clock.monotonic_ms() - DELAY_MS * 21 // 20
        assert all(each > late_ms for each in appended_ms[sent:]), "a change is sent late"

    for what, number in [*happenings, ("ms", 2 * DELAY_MS)]:
        for _ in range(number):
            if what == "ms":
                clock.advance(1)
            else:
                rows[len(appended_ms)] = (0, 1, dumps(len(appended_ms)))
                appended_ms.append(clock.monotonic_ms())
            look()
    assert sent == len(appended_ms)


@given(HAPPENINGS)
def test_a_batch_waits_until_it_is_full_or_has_waited(happenings: list[tuple[str, int]]) -> None:
    run_waiting(happenings, BatchTimer)


class _NeverWaits(BatchTimer):
    def is_due(self) -> bool:
        return True


class _WaitsForEver(BatchTimer):
    def is_due(self) -> bool:
        return False


class _ForgetsSinceWhen(BatchTimer):
    def note_partial(self) -> None:
        self._since_ms = None
        super().note_partial()


class _LooksTooLate(BatchTimer):
    def is_to_look(self) -> bool:
        return self._clock.monotonic_ms() >= 4 * self._look_ms


@pytest.mark.parametrize("timer", [_NeverWaits, _WaitsForEver, _ForgetsSinceWhen, _LooksTooLate])
def test_a_timer_that_is_wrong_is_noticed(timer: type[BatchTimer]) -> None:
    @settings(max_examples=200, phases=[Phase.generate], derandomize=True)
    @given(HAPPENINGS)
    def law(happenings: list[tuple[str, int]]) -> None:
        run_waiting(happenings, timer)

    with pytest.raises(AssertionError):
        law()


def test_a_relay_logs_how_long_what_it_has_written_had_waited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of what was there before it came it does not know."""
    caplog.set_level("INFO", "runners.relay")
    clock, rows, sink = ManualClock(), Rows(), ModelSink(batching=LARGE)
    place = LanePlace(job="job", sink="sink", outbox=outbox_of("outbox", sink), number=0)
    outbox = MemoryOutbox("run", lambda _: rows)
    relay = LaneRelay(outbox, sink, place, lambda _, lane: ModelWriter(sink, lane), clock)
    rows[0] = (0, 1, dumps(0))
    assert relay.step() == 1
    assert "had waited for longer than this relay is there" in caplog.text
    rows[1] = (0, 1, dumps(1))
    assert relay.step() == 0
    clock.advance(DELAY_MS)
    assert relay.step() == 1
    waited = in_words(DELAY_MS * 1_000)
    assert (
        f"batch 2 with 1 changes is written; the first of them had waited for {waited}"
        in caplog.text
    )

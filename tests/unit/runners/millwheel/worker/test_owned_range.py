"""OwnedRange: what it reports of itself never overtakes what it has sent, and waits for nothing else."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.core.stages.percentile_watermark import ProgressSketch
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.model.signals import NO_SIGNALS, SignalMark
from runners.millwheel.store.port import RangeRow, TakenRange
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from windowing.timestamps import MIN_TIMESTAMP_US

READ = RangeId("read", 0)
CHANNELS = [Channel(READ, RangeId("sum", index)) for index in range(2)]
ACTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["signal", "percentile", "watermark", "records", "routing"]),
            st.integers(0, 3),
        ),
        st.tuples(st.sampled_from(["hold", "send", "acknowledge", "commit"]), st.integers(0, 9)),
    ),
    # A short list shows nothing: something is sent, something else noted, and only then acknowledged.
    min_size=30,
    max_size=60,
)


class Known(NamedTuple):
    """What a range has noted, each only ever further."""

    signal: int = 0
    percentile: int = -1
    watermark: int = 0
    records: int = 0
    routing: int = 0


class Model:
    """A range, and when each of its productions was sent, by what it had noted then."""

    def __init__(self) -> None:
        self.owned = OwnedRange(
            range_id=READ,
            token=1,
            bundle=0,
            outbox=Outbox([], {}),
            delivered={},
            watermark_us=0,
            sketch=ProgressSketch(),
        )
        self.known, self.changes = Known(), 0
        self.unacknowledged: dict[tuple[Channel, int], Known] = {}
        self.stored: dict[tuple[Channel, int], Known] = {}
        self.hold_us: int | None = None
        self.output_watermark_us = MIN_TIMESTAMP_US

    def act(self, what: str, argument: Any) -> None:
        owned = self.owned
        if what == "send":
            channel = CHANNELS[argument % len(CHANNELS)]
            sequence = owned.outbox.create(channel, owned.watermark_us, b"").sequence
            self.unacknowledged[channel, sequence] = self.stored[channel, sequence] = self.known
        elif what == "acknowledge" and self.unacknowledged:
            channel, up_to = list(self.unacknowledged)[argument % len(self.unacknowledged)]
            owned.outbox.acknowledge(channel, up_to)
            for place in [each for each in self.unacknowledged if each[0] == channel]:
                if place[1] <= up_to:
                    del self.unacknowledged[place]
        elif what == "commit":
            owned.outbox.take_acknowledged()
            self.stored = {place: self.stored[place] for place in self.unacknowledged}
        elif what == "hold":
            self.hold_us = owned.window_hold_us = argument if argument < 8 else None
        elif what in Known._fields:
            self.known = self.known._replace(**{what: getattr(self.known, what) + argument})
            self.changes += 1
            self.note()

    def note(self) -> None:
        owned, known = self.owned, self.known
        owned.act_on_signals(SignalMark(known.signal))
        owned.follow_routing(known.routing)
        owned.watermark_us = known.watermark
        owned.percentile_us = None if known.percentile < 0 else known.percentile
        assert owned.sketch is not None
        owned.sketch.add([0] * (known.records - owned.sketch._records))
        # As every report does.
        self.look()

    def look(self) -> None:
        """What is reported is right, however often it is asked for."""
        owned = self.owned
        progress, percentile_us = owned.passed_progress(), owned.passed_percentile_us()
        reported = Known(
            signal=owned.passed_signal(),
            percentile=-1 if percentile_us is None else percentile_us,
            watermark=owned.advance_output(),
            records=0 if progress is None else progress.records,
            routing=owned.passed_routing(),
        )
        may = Known(*map(min, zip(*[*self.unacknowledged.values(), self.known], strict=True)))
        kept = Known(*map(min, zip(*[*self.stored.values(), self.known], strict=True)))
        holds = [] if self.hold_us is None else [self.hold_us]
        # A hold may come behind the output watermark, which does not move back.
        self.output_watermark_us = max(self.output_watermark_us, min([may.watermark, *holds]))
        percentile = may.percentile if may.percentile < 0 else min([may.percentile, *holds])

        assert reported == Known(
            may.signal, percentile, self.output_watermark_us, may.records, kept.routing
        )
        for trail in (owned._signals, owned._percentiles, owned._progress, owned._routings):
            assert len(trail._waiting) <= self.changes


@given(acts=ACTS)
def test_its_output_watermark_is_as_far_as_receivers_know(acts: Sequence[tuple[str, Any]]) -> None:
    """No further than what it had noted when it sent the oldest thing that is not acknowledged; and no less."""
    model = Model()
    for what, argument in acts:
        model.act(what, argument)
        model.look()


def taken(**changes: Any) -> TakenRange:
    row = RangeRow(
        **{
            "range_id": READ,
            "keys": None,
            "split": b"",
            "token": 5,
            "bundle": 3,
            "owner": "w",
            "position": None,
            "watermark_us": 7,
            "is_finished": False,
            **changes,
        }
    )
    return TakenRange(
        row=row,
        timers=[],
        delivered={},
        sent={CHANNELS[0]: 2},
        checkpoints=[Checkpoint(CHANNELS[0], 2, 0, b"")],
        journal=[],
    )


@pytest.mark.parametrize("mark", [NO_SIGNALS, SignalMark(4, 9)])
def test_a_range_that_is_taken_over_has_nothing_to_commit(mark: SignalMark) -> None:
    """It has come as far as its former owner has committed, and passes that on when what it found is acknowledged."""
    owned = OwnedRange.taken(taken(signal_mark=mark))
    assert owned.signal_mark == owned.signal_mark_committed == mark
    assert owned.passed_signal() == 0
    owned.outbox.acknowledge(CHANNELS[0], 2)
    assert owned.passed_signal() == mark.number
    owned.act_on_signals(SignalMark(1))
    assert owned.signal_mark == max(mark, SignalMark(1))

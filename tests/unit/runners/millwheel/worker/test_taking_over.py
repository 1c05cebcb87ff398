"""A worker that is given ranges, new or its own, answers with all they cover, and goes on with no less than it had."""

import attrs
import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import LostCommitsError
from runners.millwheel.control.job import job_spec
from runners.millwheel.control.shapes import Routing, SplitKeys
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.signals import SignalNews
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.wire.messages import Assign, Failed, Ready, decode, encode
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.stored.errors import decode_error
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import ScriptedSource

HEAD, BORN = RangeId("group", 0), RangeId("group", 1)
AT = KEY_SPACE_END // 2
WHOLE = KeyRange(0, KEY_SPACE_END)


class Asked:
    """A worker that has the one key range of a grouping, and whoever asks it for something."""

    def __init__(self) -> None:
        self._network, self.store, clock = LocalNetwork(), MemoryStore(), ManualClock()
        p = df.Pipeline(DirectRunner())
        p | "read" >> df.Read(ScriptedSource([])) | "group" >> df.GroupByKey()
        execution = plan(p.graph())
        self.store.open_job(
            job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        )
        self._master = self._network.endpoint("master")
        spec = WorkerSpec(job="job", slot=0, worker="w", master="master")
        self._worker = Worker(spec, execution, self.store, self._network.endpoint("w"), clock)
        self._worker.start()
        self.take(HEAD)

    def take(self, *ranges: RangeId) -> list[object]:
        """Give it ranges, as a master does that knows of no split; returns its messages."""
        assign = Assign(
            ranges=ranges,
            inputs_us={},
            percentiles_us={},
            signals=SignalNews(),
            routing=Routing(number=1, keys={HEAD: WHOLE}),
            sent_ms=0,
            suspects=(),
        )
        return self.ask(assign)

    def ask(self, message: object) -> list[object]:
        self._master.send("w", encode(message))
        self._worker.step()
        return [decode(blob) for blob in self._master.receive(0)]


@pytest.mark.parametrize("asked", [HEAD, BORN])
def test_ranges_in_a_handover_are_in_one_answer(asked: RangeId) -> None:
    """Also in the second one, if the first is lost: one of them alone would leave a gap in the keys of a master."""
    worker = Asked()
    (lost,) = (
        each
        for each in worker.ask(SplitKeys(range_id=HEAD, born=BORN, at=AT))
        if isinstance(each, Ready)
    )
    (answer,) = (each for each in worker.take(asked) if isinstance(each, Ready))

    assert answer.shapes == lost.shapes
    assert asked in answer.ranges
    assert [each.keys for _, each in sorted(answer.shapes.items())] == [
        KeyRange(0, AT),
        KeyRange(AT, KEY_SPACE_END),
    ]


def test_a_range_that_is_behind_what_its_own_worker_has_committed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store has gone back between two of its commits, and nobody else knows of the last one."""
    worker = Asked()
    acquire = worker.store.acquire

    def behind(*args: object) -> object:
        return {
            range_id: attrs.evolve(each, row=attrs.evolve(each.row, bundle=each.row.bundle - 1))
            for range_id, each in acquire(*args).items()  # type: ignore[arg-type]
        }

    monkeypatch.setattr(worker.store, "acquire", behind)
    answers = worker.ask(SplitKeys(range_id=HEAD, born=BORN, at=AT))

    (failed,) = (each for each in answers if isinstance(each, Failed))
    assert isinstance(decode_error(failed.error), LostCommitsError)

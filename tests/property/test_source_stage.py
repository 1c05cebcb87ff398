"""Laws of the source stage: what is read counts once or is somewhere else once, and event time never goes back.

Whoever keeps the ids, in memory or in a table, the answer is the same.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import InputError
from dataflow.set_aside import SetAside
from dataflow.source import SourceBatch, SplitStatus
from runners.core.stages import source_stage
from runners.core.stages.deduplication import Deduplicator, horizon_us
from runners.core.stages.percentile_watermark import ProgressSketch
from runners.core.stages.plan import plan
from runners.core.stages.source_stage import Admitted, SeenBefore, SourceStage
from runners.core.stages.stage_clocks import StageClocks
from runners.direct import DirectRunner
from runners.millwheel.model.counts import IdCounts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.dedup.seen_ids import SeenIds
from runners.testing.scripted_source import ScriptedSource
from tests.property.test_record_ids import Table
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

RANGE = RangeId("read", 0)
#: Of ten ids one is on no record, and user code fails on another.
WITHOUT_ID, FAILING = 0, 1
SLACK_US = 20


@attrs.frozen
class Script:
    """A batch as it is drawn: records as (id, event time), ids of records set aside, a watermark, a status."""

    records: Sequence[tuple[int, int]]
    aside: Sequence[int]
    watermark_us: int
    status: SplitStatus

    def batch(self) -> SourceBatch:
        return SourceBatch(
            values=list(self.records),
            timestamps_us=[at for _, at in self.records],
            position=None,
            watermark_us=self.watermark_us,
            status=self.status,
            set_aside=[
                SetAside(error=InputError("malformed"), element=each) for each in self.aside
            ],
        )


scripts = st.lists(
    st.builds(
        Script,
        records=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=6),
        aside=st.lists(st.integers(100, 120), max_size=2),
        watermark_us=st.integers(0, 90),
        status=st.sampled_from([SplitStatus.ACTIVE, SplitStatus.ACTIVE, SplitStatus.IDLE]),
    ),
    max_size=8,
)
END = Script([], [], 0, SplitStatus.FINISHED)


def id_of(record: tuple[int, int]) -> int:
    if record[0] == WITHOUT_ID:
        raise ValueError("no id")
    return record[0]


def checked(record: tuple[int, int]) -> tuple[int, int]:
    if record[0] == FAILING:
        raise ValueError("poison")
    return record


def stage_of() -> SourceStage:
    p = df.Pipeline(DirectRunner())
    record_ids = df.RecordIds(of=id_of, slack=SLACK_US / 1_000_000)
    (
        p
        | "read" >> df.Read(ScriptedSource([]), record_ids=record_ids)
        | df.Map(checked)
        | df.WindowInto(
            df.FixedWindows(60),
            watermark_percentile=50,
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | "group" >> df.GroupByKey()
    )
    execution = plan(p.graph())
    return SourceStage(execution, execution.stages["read"], tries=1)


def in_memory(deduplicator: Deduplicator, stage: SourceStage) -> SeenBefore:
    ids = stage.ids_in_memory()
    assert ids is not None
    return ids


class InTable:
    """The ids of a stream, each batch of which is committed at once; the table forgets ids as soon as it may."""

    def __init__(self, deduplicator: Deduplicator, _: SourceStage) -> None:
        self._table = Table()
        self._seen = SeenIds(self._table, "job", RANGE, deduplicator, IdCounts())

    def deduplicate(self, bundle: Any, watermark_us: int) -> Any:
        until_us = horizon_us(SLACK_US, watermark_us)
        self._table.ids = {each: at for each, at in self._table.ids.items() if at >= until_us}
        found = self._seen.deduplicate(bundle, watermark_us)
        self._table.ids.update((each.digest, each.timestamp_us) for each in found.ids)
        self._seen.note_committed(found.ids)
        return found


@attrs.frozen
class Expected:
    """What is to become of a script, from scratch."""

    new: list[tuple[int, int]]
    late: list[tuple[int, int]]
    dead: list[Any]
    watermarks_us: list[int]

    @classmethod
    def of(cls, script: Sequence[Script]) -> "Expected":
        made, watermark_us = cls([], [], [], []), MIN_TIMESTAMP_US
        first: dict[int, int] = {}
        for each in script:
            horizon_us = watermark_us - SLACK_US
            first = {known: at for known, at in first.items() if at >= horizon_us}
            made.dead.extend(each.aside)
            for record in each.records:
                if record[0] == WITHOUT_ID:
                    made.dead.append(record)
                elif record[1] < horizon_us:
                    made.late.append(record)
                elif record[0] not in first:
                    first[record[0]] = record[1]
                    made.new.append(record)
                    made.dead.extend([record] * (record[0] == FAILING))
            is_finished = each.status is SplitStatus.FINISHED
            watermark_us = max(watermark_us, MAX_TIMESTAMP_US if is_finished else each.watermark_us)
            made.watermarks_us.append(watermark_us)
        return made


class Sketch(ProgressSketch):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    def add(self, timestamps_us: Sequence[int]) -> None:
        self.given += timestamps_us
        super().add(timestamps_us)


KEPT: list[Callable[[Deduplicator, SourceStage], SeenBefore]] = [in_memory, InTable]


def check(script: Sequence[Script], kept: Callable[..., SeenBefore]) -> None:
    stage, sketch = stage_of(), Sketch()
    assert stage.deduplicator is not None
    ids = kept(stage.deduplicator, stage)
    stage.setup()
    watermark_us = MIN_TIMESTAMP_US
    new, late, dead = list[Any](), list[Any](), list[Any]()
    watermarks_us: list[int] = []
    passed = Counter[Any]()
    for each in script:
        admitted = stage.admit(each.batch(), watermark_us=watermark_us, ids=ids, sketch=sketch)
        clocks = StageClocks.of_source(watermark_us=watermark_us, now_us=0)
        outputs = stage.process(admitted, clocks)
        new += admitted.bundle.values
        late += [arrival.accumulator for arrival in admitted.late]
        dead += [letter.element for letter in outputs.dead]
        watermarks_us.append(watermark_us := admitted.watermark_us)
        assert admitted.status is each.status
        assert len(admitted.ids) == len(admitted.bundle)
        for partials in outputs.groups.values():
            passed.update({key: count for key, _, _, count in partials})
    stage.teardown()

    expected = Expected.of(script)
    assert (new, late) == (expected.new, expected.late), "each counts once, or is late"
    assert Counter(dead) == Counter(expected.dead), "what fails is one dead letter"
    assert watermarks_us == expected.watermarks_us, "event time"
    assert sketch.given == [at for _, at in new], "what counts is what is expected to come"
    assert sum(passed.values()) == len(new) - sum(key == FAILING for key, _ in new)


@pytest.mark.parametrize("kept", KEPT)
@given(script=scripts)
def test_what_is_read_is_somewhere_once(
    kept: Callable[..., SeenBefore], script: list[Script]
) -> None:
    check([*script, END], kept)


def test_who_keeps_no_letters_ends_at_the_first_record_that_is_set_aside() -> None:
    stage = stage_of()
    stage._tries = None
    batch = Script([(2, 0)], [100], 0, SplitStatus.ACTIVE).batch()

    with pytest.raises(InputError, match="malformed"):
        stage.admit(batch, watermark_us=0, ids=stage.ids_in_memory())


# --- broken on purpose ------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def deduplicate_behind_the_batch(patch: Patch) -> None:
    """The records of a batch that moves event time are late behind themselves."""
    admit = SourceStage.admit

    def behind(stage: SourceStage, batch: SourceBatch, *, watermark_us: int, **more: Any) -> Any:
        then_us = source_stage.watermark_behind(batch, watermark_us)
        return admit(stage, batch, watermark_us=then_us, **more)

    patch.setattr(SourceStage, "admit", behind)


def go_back(patch: Patch) -> None:
    """The watermark of a split is what the source reported last."""
    patch.setattr(source_stage, "watermark_behind", lambda batch, _: batch.watermark_us)


def wait_at_the_end(patch: Patch) -> None:
    """A split that will never have more holds everything back for ever."""
    patch.setattr(
        source_stage, "watermark_behind", lambda batch, before: max(before, batch.watermark_us)
    )


def forget_what_was_set_aside(patch: Patch) -> None:
    patch.setattr(source_stage, "letters_set_aside", lambda *_, **__: [])


def forget_letters(patch: Patch) -> None:
    process = SourceStage.process
    patch.setattr(
        SourceStage,
        "process",
        lambda stage, admitted, clocks: process(stage, attrs.evolve(admitted, dead=[]), clocks),
    )


def sketch_everything(patch: Patch) -> None:
    """Copies are expected to come again."""
    admit = SourceStage.admit

    def all_of(stage: SourceStage, batch: SourceBatch, *, sketch: Any, **more: Any) -> Admitted:
        sketch.add(batch.timestamps_us)
        return admit(stage, batch, sketch=None, **more)

    patch.setattr(SourceStage, "admit", all_of)


@pytest.mark.parametrize(
    "mutate",
    [
        deduplicate_behind_the_batch,
        go_back,
        wait_at_the_end,
        forget_what_was_set_aside,
        forget_letters,
        sketch_everything,
    ],
)
def test_a_stage_that_is_broken_on_purpose_is_found(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutate(monkeypatch)

    @settings(max_examples=500, phases=[Phase.generate], database=None, derandomize=True)
    @given(script=scripts)
    def look(script: list[Script]) -> None:
        check([*script, END], in_memory)

    with pytest.raises(AssertionError):
        look()

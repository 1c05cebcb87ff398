"""What the plan of an update retracts, empties and refuses, and by which versions the job goes over."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import PipelineError
from dataflow.table import TableWrite
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.errors import JobMismatchError, StoreError, UpdateRefusedError
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.production import CellWrite, Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed, JobRow
from runners.millwheel.versions.job_versions import OpenedJob, Update, open_version, plan_version
from runners.millwheel.versions.update import UpdatePlan
from runners.stored.places import RetractionMark, encode_retraction_mark
from runners.testing.scripted_source import ScriptedSource

Build = Callable[[df.Pipeline], object]
COLUMNS = {"key": str, "value": int}
KEPT = df.ReadModifyWriteStateSpec("kept")


def windows(
    mode: df.AccumulationMode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    window_fn: df.WindowFn | None = None,
) -> df.WindowInto:
    return df.WindowInto(
        window_fn or df.GlobalWindows(),
        trigger=df.Repeatedly(df.AfterCount(1)),
        accumulation_mode=mode,
    )


def build(
    *branches: str,
    mode: df.AccumulationMode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
    window_fn: df.WindowFn | None = None,
    is_counted: bool = True,
    shared_table: bool = False,
) -> Build:
    """A grouping for each branch, with a table, and one that counts the results of all.

    "raw" is no grouping: it is counted as it is read.
    """

    def row(pair: tuple[Any, Any]) -> dict[str, Any]:
        return {"key": str(pair[0]), "value": pair[1]}

    def built(p: df.Pipeline) -> None:
        read = p | "read" >> df.Read(ScriptedSource([]))
        pairs = read | "windows" >> windows(mode, window_fn)
        results = []
        for name in branches:
            if name == "raw":
                results.append(pairs | "raw" >> df.Map(lambda pair: pair))
                continue
            grouped = pairs | name >> df.CombinePerKey(sum)
            results.append(grouped)
            table = "all" if shared_table else name
            _ = (
                grouped
                | f"{name} row" >> df.Map(row)
                | f"{name} table" >> df.WriteToPostgres(table, columns=COLUMNS, key=["key"])
            )
        if is_counted:
            together = results | "flatten" >> df.Flatten() | "total windows" >> windows()
            _ = together | "total" >> df.CombinePerKey(sum)

    return built


def pipeline_of(build: Build) -> df.Pipeline:
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline)
    return pipeline


class World:
    """A job of an old pipeline, with a cell of "lows", and updates of it."""

    def __init__(self, old: Build) -> None:
        self.store = MemoryStore()
        self.old = pipeline_of(old)
        self.opened(old, None)

    def _planned(self, build: Build) -> tuple[Any, Any]:
        execution = plan(pipeline_of(build).graph())
        spec = job_spec("job", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        return spec, execution

    def opened(self, build: Build, update: Update | None) -> OpenedJob:
        spec, execution = self._planned(build)
        return open_version(self.store, spec, execution, update, lambda _: None, lambda _: None)

    def update(self, *allow_loss: str) -> Update:
        return Update(retract_removed=True, former=self.old, allow_loss=allow_loss)

    def plan_of(self, build: Build) -> UpdatePlan:
        spec, execution = self._planned(build)
        found = plan_version(self.store, spec, execution, self.update())
        assert found is not None
        return found

    @property
    def row(self) -> JobRow:
        found = self.store.read_job("job")
        assert found is not None
        return found

    def commit(self, name: str, **parts: Any) -> None:
        range_id = RangeId(name, 0)
        taken = self.store.acquire("job", [range_id], "worker")[range_id].row
        fence = Fence(range_id=range_id, token=taken.token, bundle=taken.bundle + 1)
        production = Production(job="job", fences=[fence], **parts)
        assert self.store.commit(production) == Committed()

    def retract(self, *names: str) -> None:
        """Do what the workers of the version that retracts do."""
        for name in names:
            mark = RetractionMark(version=self.row.version, is_end=True)
            self.commit(name, positions={RangeId(name, 0): encode_retraction_mark(mark)})

    def table(self, name: str) -> Any:
        (found,) = [each for each in self.old.graph().tables() if each.name == name]
        return found


def test_the_plan_shows_what_is_retracted_from_where() -> None:
    """Panes from groupings that stay, with how many cells have them; and tables, with their rows."""
    world = World(build("sums", "lows"))
    rows = TableWrite(table=world.table("lows"), changes=[(None, ("a", 1)), (None, ("b", 2))])
    world.commit("lows", cells=[CellWrite("lows", 7, b"a", b"")], tables=[rows])
    planned = world.plan_of(build("sums"))

    assert (
        "\n  lows: its panes are retracted from total, of up to 1 cells"
        "\n  table lows is dropped, with 2 rows" in str(planned)
    )
    assert planned.losing == []
    planned.check(())


def test_a_way_that_is_new_has_a_note() -> None:
    """What it has not had may be retracted there."""

    def to_total(label: str) -> Build:
        def built(p: df.Pipeline) -> None:
            sums = (
                p
                | "read" >> df.Read(ScriptedSource([]))
                | windows()
                | "sums" >> df.CombinePerKey(sum)
            )
            _ = sums | label >> df.Map(lambda pair: pair) | "total" >> df.CombinePerKey(sum)

        return built

    planned = World(to_total("one")).plan_of(to_total("other"))
    assert "\n  sums: its panes are retracted from total, of up to 0 cells" in str(planned)
    assert "note: total has from here on what sums emits over another way" in str(planned)


def test_what_has_passed_a_changelog_is_refused() -> None:
    """A retraction would be one more change there."""

    def build_with(*labels: str) -> Build:
        def built(p: df.Pipeline) -> None:
            sums = (
                p
                | "read" >> df.Read(ScriptedSource([]))
                | windows()
                | "sums" >> df.CombinePerKey(sum)
            )
            for label in labels:
                row = sums | f"{label} log" >> df.ToChangelog() | f"{label} row" >> df.Map(logged)
                _ = row | f"{label} table" >> df.WriteToPostgres("log", columns={"key": str})

        return built

    def logged(change: Any) -> dict[str, Any]:
        return {"key": str(change)}

    world = World(build_with("one", "other"))
    with pytest.raises(
        UpdateRefusedError, match="what is written down as a change is not retracted"
    ):
        world.opened(build_with("one"), world.update())
    world.opened(build_with("one"), world.update("other log"))


def test_a_table_that_others_write_loses_the_rows_of_what_is_gone() -> None:
    """Which are retracted one by one."""
    planned = World(build("sums", "lows", shared_table=True)).plan_of(
        build("sums", shared_table=True)
    )
    assert planned.retraction is not None
    assert planned.retraction.emptied == []
    (found,) = planned.retraction.standing
    assert found.places == ["total", "table all"]


def test_panes_are_retracted_by_a_version_of_its_own() -> None:
    """The job goes over to it, and to the new one when all ranges have come to their end, and not before."""
    world = World(build("sums", "lows"))
    between = world.opened(build("sums"), world.update())
    assert between.plan.retirement is not None
    assert (world.row.version, {*world.row.computations}) == (1, {"read", "sums", "lows", "total"})
    again = world.opened(build("sums"), world.update())
    assert again.plan.retirement == between.plan.retirement
    assert world.row.version == 1
    assert [each.name for each in world.store.result_tables("job")] == ["lows", "sums"]
    world.retract("lows")
    after = world.opened(build("sums"), world.update())
    assert after.plan.retirement is None
    assert (world.row.version, {*world.row.computations}) == (2, {"read", "sums", "total"})
    assert [each.name for each in world.store.result_tables("job")] == ["sums"]


def _mixed(*branches: str, is_stateful: bool = False) -> Build:
    """What is read and the panes of branches, counted together; or seen by a DoFn with state."""

    class Seen(df.DoFn):
        handles_retractions = True

        def process(
            self,
            element: Any,
            sign: Any = df.DoFn.SignParam,
            kept: Any = df.DoFn.StateParam(KEPT),
        ) -> Any:
            kept.write((element, sign))
            yield element

    def built(p: df.Pipeline) -> None:
        pairs = p | "read" >> df.Read(ScriptedSource([])) | "windows" >> windows()
        grouped = [pairs | name >> df.CombinePerKey(sum) for name in branches]
        together = [pairs, *grouped] | "flatten" >> df.Flatten()
        _ = together | "total" >> (df.ParDo(Seen()) if is_stateful else df.CombinePerKey(sum))

    return built


@pytest.mark.parametrize("is_stateful", [False, True])
def test_what_is_never_retracted_any_more_is_converted(*, is_stateful: bool) -> None:
    """By one more version, after the one that retracts; all ranges have to come to their end in both."""
    mixed = partial(_mixed, is_stateful=is_stateful)
    world = World(mixed("lows"))
    world.commit("total", cells=[CellWrite("total", 7, b"a", b"")])
    planned = world.plan_of(mixed())
    assert ("a stateful DoFn has seen what is retracted" in str(planned)) == is_stateful
    assert planned.losing == []
    assert "lows: its panes are retracted from total" in str(planned)
    assert "total: its input cannot be retracted any more, so its state is converted" in str(
        planned
    )
    for is_converting in (False, True):
        for _ in range(2):
            found = world.opened(mixed(), world.update()).plan.retirement
            assert found is not None
            assert found.is_converting is is_converting
            assert found.converted == {"total"}
        assert world.row.version == 1 + is_converting
        with pytest.raises(UpdateRefusedError, match="has begun to retract"):
            world.opened(mixed("lows"), None)
        world.retract(*(["total"] if is_converting else ["lows", "total"]))
    assert world.opened(mixed(), world.update()).plan.retirement is None
    assert (world.row.version, {*world.row.computations}) == (3, {"read", "total"})


def test_a_grouping_that_has_other_input_that_may_be_retracted_is_not_converted() -> None:
    planned = World(_mixed("lows", "tops")).plan_of(_mixed("tops"))
    assert planned.retraction is not None
    assert (planned.retraction.converted, planned.losing) == (frozenset(), [])


@pytest.mark.parametrize("is_stateful", [False, True])
def test_what_cannot_be_converted_begins_anew(*, is_stateful: bool) -> None:
    """With the reason, and not without permission."""
    world = World(_mixed(is_stateful=is_stateful))
    world.commit("total", cells=[CellWrite("total", 7, b"a", b"")])
    with pytest.raises(UpdateRefusedError, match="does not say of which values it is made"):
        world.opened(_mixed("lows", is_stateful=is_stateful), world.update())


def test_where_nothing_is_retracted_the_plan_has_how_to_keep_the_state() -> None:
    world = World(_mixed("lows"))
    world.commit("total", cells=[CellWrite("total", 7, b"a", b"")])
    with pytest.raises(UpdateRefusedError, match="an update with retract_removed retracts"):
        world.opened(_mixed(), Update(allow_loss=["lows"]))


def test_a_mark_of_another_retraction_does_not_count() -> None:
    """A range that has retracted for an earlier update retracts again for the next."""
    world = World(build("sums", "lows", "tops"))
    world.opened(build("sums", "lows"), world.update())
    world.retract("tops")
    world.opened(build("sums", "lows"), world.update())
    world.old = pipeline_of(build("sums", "lows"))
    # Of a version that is past.
    mark = RetractionMark(version=1, is_end=True)
    world.commit("lows", positions={RangeId("lows", 0): encode_retraction_mark(mark)})
    for _ in range(2):
        assert world.opened(build("sums"), world.update()).plan.retirement is not None


def test_on_the_way_the_job_goes_nowhere_else() -> None:
    """Not back, not on with half of it, and not to a pipeline that retracts something else."""
    world = World(build("sums", "lows", "tops"))
    world.opened(build("sums"), world.update())
    for other, update in (
        (build("sums", "lows", "tops"), None),
        (build("sums"), None),
        (build("sums"), Update(allow_loss=["lows", "tops"])),
        (build("sums", "lows"), world.update()),
    ):
        with pytest.raises(UpdateRefusedError, match="has begun to retract"):
            world.opened(other, update)
    assert world.row.version == 1


@pytest.mark.parametrize(
    ("old", "new", "names", "why"),
    [
        (build("sums", "raw"), build("sums"), ["raw"], "nothing is kept of what a read"),
        (
            build("lows", mode=df.AccumulationMode.ACCUMULATING, shared_table=True),
            build(mode=df.AccumulationMode.ACCUMULATING, is_counted=False),
            [],
            "",
        ),
        (
            build("sums", "lows", mode=df.AccumulationMode.ACCUMULATING),
            build("sums", mode=df.AccumulationMode.ACCUMULATING),
            ["lows"],
            "panes that are accumulating are not retracted",
        ),
        (
            build("sums", "lows", window_fn=df.FixedWindows(60)),
            build("sums", window_fn=df.FixedWindows(60)),
            ["lows"],
            "windows that ended before 1970-01-02 00:00:00 have expired",
        ),
    ],
)
def test_what_cannot_be_standing_is_refused_by_name(
    old: Build, new: Build, names: Sequence[str], why: str
) -> None:
    """Unless it is named; then it stays, and the rest is retracted."""
    world = World(old)
    if any(each == "lows" for each in world.row.computations):
        world.commit("lows", watermarks_us={RangeId("lows", 0): 86_400_000_000})
    if not names:
        # Everything of it goes with its table, and nothing else has had it.
        assert world.opened(new, world.update()).plan.retirement is None
        return
    with pytest.raises(UpdateRefusedError) as caught:
        world.opened(new, world.update())
    assert caught.value.fact == f"not all that {names[0]!r} of job 'job' emitted can be retracted"
    assert why in str(caught.value)
    assert f"allow_loss={names}" in str(caught.value)
    assert world.row.version == 0
    world.opened(new, world.update(*names))
    assert world.row.version == 1


def test_a_changed_grouping_is_named_and_its_table_is_emptied() -> None:
    """It begins anew, so what it has counted is lost, which is allowed by its name only."""
    old = build("lows", window_fn=df.FixedWindows(60), is_counted=False)
    new = build("lows", window_fn=df.FixedWindows(30), is_counted=False)
    world = World(old)
    rows = TableWrite(table=world.table("lows"), changes=[(None, ("a", 1))])
    world.commit("lows", cells=[CellWrite("lows", 7, b"a", b"")], tables=[rows])
    with pytest.raises(UpdateRefusedError, match="would lose state"):
        world.opened(new, world.update())
    assert "table lows is emptied, with 1 rows" in str(world.plan_of(new))
    world.opened(new, world.update("lows"))
    assert world.store.read_table(world.table("lows")) == []


def test_a_table_of_another_job_too_is_not_emptied() -> None:
    """Its rows of this job go one by one, as retractions."""
    world = World(build("sums", "lows", is_counted=False))
    shared = [df.WriteToPostgres("lows", columns=COLUMNS, key=["key"], shared=True)]
    other = df.Pipeline(DirectRunner())
    _ = other | df.Create([{"key": "c", "value": 3}]) | shared[0]
    execution = plan(other.graph())
    world.store.open_job(
        job_spec("other", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    )
    planned = world.plan_of(build("sums", is_counted=False))
    assert planned.retraction is not None
    assert planned.retraction.emptied == []
    assert [each.places for each in planned.retraction.standing] == [["table lows"]]


def test_the_former_pipeline_is_needed_and_must_be_that_of_the_job() -> None:
    world = World(build("sums", "lows"))
    with pytest.raises(UpdateRefusedError, match="without their functions"):
        world.opened(build("sums"), Update(retract_removed=True))
    world.old = pipeline_of(build("sums", "lows", "tops"))
    with pytest.raises(UpdateRefusedError, match="is not the one that job 'job' has run"):
        world.opened(build("sums"), world.update())
    with pytest.raises(JobMismatchError):
        world.opened(build("sums"), None)


def test_names_that_are_allowed_are_there() -> None:
    world = World(build("sums", "raw"))
    with pytest.raises(PipelineError, match="allow_loss names 'row'"):
        world.opened(build("sums"), world.update("row"))


def test_a_table_that_is_shared_by_now_is_not_emptied() -> None:
    """Between the two steps another job has begun to write to it."""
    world = World(build("sums", "lows"))
    world.opened(build("sums"), world.update())
    world.retract("lows")
    other = df.Pipeline(DirectRunner())
    _ = (
        other
        | df.Create([{"key": "c", "value": 3}])
        | df.WriteToPostgres("lows", columns=COLUMNS, key=["key"], shared=True)
    )
    execution = plan(other.graph())
    world.store.open_job(
        job_spec("other", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
    )
    with pytest.raises((UpdateRefusedError, StoreError)):
        world.opened(build("sums"), world.update())
    assert world.row.version == 1


def _stateful(*names: str, is_kept: bool = True) -> Build:
    """Stateful DoFns whose outputs are counted together."""

    class Emits(df.DoFn):
        has_retractable_outputs = is_kept

        def process(self, element: Any, kept: Any = df.DoFn.StateParam(KEPT)) -> Any:
            kept.write(element)
            yield element

    def built(p: df.Pipeline) -> None:
        pairs = p | "read" >> df.Read(ScriptedSource([])) | "windows" >> windows()
        outputs = [pairs | name >> df.ParDo(Emits()) for name in names]
        together = [pairs, *outputs] | "flatten" >> df.Flatten()
        _ = together | "total" >> df.CombinePerKey(sum)

    return built


def test_what_a_stateful_do_fn_keeps_is_retracted_and_what_it_does_not_keep_is_refused() -> None:
    """The refusal names what would have it kept."""
    world = World(_stateful("says"))
    world.commit("says", cells=[CellWrite("says", 7, b"a", b"")])
    planned = world.plan_of(_stateful())
    assert "says: its panes are retracted from total, of up to 1 cells" in str(planned)
    planned.check(())

    with pytest.raises(
        UpdateRefusedError, match="has_retractable_outputs is not set in class Emits"
    ):
        World(_stateful("says", is_kept=False)).plan_of(_stateful()).check(())


def test_a_stateful_do_fn_that_has_kept_nothing_so_far_begins_anew() -> None:
    """And one that keeps nothing from here on, what it has emitted so far is retracted."""
    world = World(_stateful("says", is_kept=False))
    world.commit("says", cells=[CellWrite("says", 7, b"a", b"")])
    with pytest.raises(UpdateRefusedError, match="outputs was none, is kept"):
        world.opened(_stateful("says"), world.update("total"))
    world = World(_stateful("says"))
    world.commit("says", cells=[CellWrite("says", 7, b"a", b"")])
    planned = world.plan_of(_stateful("says", is_kept=False))
    assert "says: its panes are retracted from total" in str(planned)

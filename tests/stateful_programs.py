"""Random programs of state and timer operations: a DoFn that runs them, and an interpreter that knows nothing of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.cells import CellId, LateArrival, PageId
from runners.core.ground.dead_letters import DeadLetter
from runners.core.ground.timers import Timers
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.core.stateful.cell_pages import Passing
from runners.direct import DirectRunner
from runners.testing.scripted_source import ScriptedSource
from windowing.pane import NO_FIRING
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

US = 1_000_000
VALUE = df.ReadModifyWriteStateSpec("value")
BAG = df.BagStateSpec("bag")
TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
SCRIPTS = df.ReadModifyWriteStateSpec("scripts")
FIRST = df.TimerSpec("first", df.TimeDomain.EVENT)
SECOND = df.TimerSpec("second", df.TimeDomain.EVENT)
CLOCK = df.TimerSpec("clock", df.TimeDomain.PROCESSING)
WAIT = df.TimerSpec("wait", df.TimeDomain.PROCESSING)
TICKS = df.TimerFamilySpec("ticks", df.TimeDomain.EVENT)
BEEPS = df.TimerFamilySpec("beeps", df.TimeDomain.PROCESSING)
#: One of a family is named with its tag.
EVENT_TIMERS = ("first", "second", "ticks:1", "ticks:2", "ticks:3")
PROCESSING_TIMERS = ("clock", "wait", "beeps:1", "beeps:2")

#: A call with its arguments.  ("script", timer, program): what that timer's method does the next time.
#: ("call", f): the function f is called, which may raise.
Operation = tuple[Any, ...]
Program = tuple[Operation, ...]


class Interpreted(df.DoFn):
    """Runs the program that an element brings, or that was left for a timer."""

    def process(
        self,
        element: tuple[Any, Program],
        /,
        at: Any = df.DoFn.TimestampParam,
        value: Any = df.DoFn.StateParam(VALUE),
        bag: Any = df.DoFn.StateParam(BAG),
        total: Any = df.DoFn.StateParam(TOTAL),
        scripts: Any = df.DoFn.StateParam(SCRIPTS),
        first: Any = df.DoFn.TimerParam(FIRST),
        second: Any = df.DoFn.TimerParam(SECOND),
        clock: Any = df.DoFn.TimerParam(CLOCK),
        wait: Any = df.DoFn.TimerParam(WAIT),
        ticks: Any = df.DoFn.TimerParam(TICKS),
        beeps: Any = df.DoFn.TimerParam(BEEPS),
    ) -> Iterator[Any]:
        yield from _run(
            element[1],
            value,
            bag,
            total,
            scripts,
            _by_name(first, second, clock, wait, ticks, beeps),
        )

    def _called(self, timer: str, at: Any, *handles: Any) -> Iterator[Any]:
        yield timer, round(at.timestamp() * US)
        scripts = handles[3]
        left = scripts.read() or {}
        program = left.pop(timer, ())
        scripts.write(left) if left else scripts.clear()
        yield from _run(program, *handles)


def _method(spec: df.TimerSpec | df.TimerFamilySpec) -> Any:
    is_family = isinstance(spec, df.TimerFamilySpec)

    @df.on_timer(spec)
    def called(
        self: Interpreted,
        tag: Any = df.DoFn.DynamicTimerTagParam if is_family else None,
        at: Any = df.DoFn.TimestampParam,
        value: Any = df.DoFn.StateParam(VALUE),
        bag: Any = df.DoFn.StateParam(BAG),
        total: Any = df.DoFn.StateParam(TOTAL),
        scripts: Any = df.DoFn.StateParam(SCRIPTS),
        first: Any = df.DoFn.TimerParam(FIRST),
        second: Any = df.DoFn.TimerParam(SECOND),
        clock: Any = df.DoFn.TimerParam(CLOCK),
        wait: Any = df.DoFn.TimerParam(WAIT),
        ticks: Any = df.DoFn.TimerParam(TICKS),
        beeps: Any = df.DoFn.TimerParam(BEEPS),
    ) -> Iterator[Any]:
        timers = _by_name(first, second, clock, wait, ticks, beeps)
        name = f"{spec.name}:{tag}" if is_family else spec.name
        yield from self._called(name, at, value, bag, total, scripts, timers)

    return called


def _by_name(first: Any, second: Any, clock: Any, wait: Any, ticks: Any, beeps: Any) -> Any:
    timers = {"first": first, "second": second, "clock": clock, "wait": wait}
    timers |= {f"ticks:{tag}": ticks.get(tag) for tag in "123"}
    return timers | {f"beeps:{tag}": beeps.get(tag) for tag in "12"}


for _spec in (FIRST, SECOND, CLOCK, WAIT, TICKS, BEEPS):
    setattr(Interpreted, f"on_{_spec.name}", _method(_spec))


def _run(
    program: Program, value: Any, bag: Any, total: Any, scripts: Any, by_name: Any
) -> Iterator[Any]:
    states = {"value": value, "bag": bag, "total": total}
    for call, *args in program:
        if call == "read":
            yield "read", value.read(), bag.read(), total.read()
        elif call == "write":
            value.write(args[0])
        elif call == "add":
            bag.add(args[0])
        elif call == "combine":
            total.add(args[0])
        elif call == "clear":
            states[args[0]].clear()
        elif call == "set":
            by_name[args[0]].set(args[1] / US)
        elif call == "set_after":
            by_name[args[0]].set_after(args[1] / US)
        elif call == "clear timer":
            by_name[args[0]].clear()
        elif call == "call":
            args[0]()
        else:
            scripts.write((scripts.read() or {}) | {args[0]: args[1]})


def operations(depth: int = 2) -> st.SearchStrategy[Operation]:
    """Everything that can be done; the programs of timers set timers again, to some depth."""
    number = st.integers(1, 9)
    event, processing = st.sampled_from(EVENT_TIMERS), st.sampled_from(PROCESSING_TIMERS)
    plain = st.one_of(
        st.just(("read",)),
        st.tuples(st.sampled_from(["write", "add", "combine"]), number),
        st.tuples(st.just("clear"), st.sampled_from(["value", "bag", "total"])),
        st.tuples(st.just("set"), event, st.integers(0, 45)),
        st.tuples(st.just("set"), processing, st.integers(0, 30)),
        st.tuples(st.just("set_after"), processing, st.integers(0, 10)),
        st.tuples(st.just("clear timer"), event | processing),
    )
    if not depth:
        return plain
    inner = st.lists(operations(depth - 1), max_size=4).map(tuple)
    return plain | st.tuples(st.just("script"), event | processing, inner)


def programs() -> st.SearchStrategy[Program]:
    return st.lists(operations(), min_size=1, max_size=5).map(tuple)


@attrs.define
class Interpreter:
    """What the programs mean for one key and window; one event at a time, nothing clever."""

    expiry_us: int
    max_timestamp_us: int
    watermark_us: int = MIN_TIMESTAMP_US
    now_us: int = MIN_TIMESTAMP_US
    value: Any = None
    bag: list[int] = attrs.field(factory=list)
    numbers: list[int] = attrs.field(factory=list)
    scripts: dict[str, Program] = attrs.field(factory=dict)
    #: When a timer fires, and the event time of what set it; in the order in which they were set.
    timers: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    outputs: list[tuple[Any, int]] = attrs.field(factory=list)
    late: list[Program] = attrs.field(factory=list)

    def element(self, program: Program, timestamp_us: int) -> None:
        if self.watermark_us >= self.expiry_us:
            self.late.append(program)
            return
        self._run(program, timestamp_us, timestamp_us)
        self._fire_due()

    def advance(self, watermark_us: int) -> None:
        self.watermark_us = max(self.watermark_us, watermark_us)
        self._fire_due()
        if self.watermark_us >= self.expiry_us:
            self._expire()

    def pass_time(self, now_us: int) -> None:
        self.now_us = now_us
        self._fire_due()

    def _fire_due(self, called: Sequence[str] = ()) -> None:
        while True:
            until_us = min(self.watermark_us, self.expiry_us - 1)
            due = self._until(EVENT_TIMERS, until_us, called)
            if not due and self.watermark_us < self.expiry_us:
                due = self._until(PROCESSING_TIMERS, self.now_us, called)
            if not due:
                return
            self._fire(due[0])

    def _until(self, names: Sequence[str], until_us: int, called: Sequence[str]) -> list[str]:
        due = [
            name
            for name, (fire_us, _) in self.timers.items()
            if name in names and name not in called and fire_us <= until_us
        ]
        return sorted(due, key=lambda name: self.timers[name][0])

    def _expire(self) -> None:
        called: list[str] = []
        while True:
            self._fire_due(called)
            left = [
                *self._until(EVENT_TIMERS, 10 * MAX_TIMESTAMP_US, called),
                *self._until(PROCESSING_TIMERS, 10 * MAX_TIMESTAMP_US, called),
            ]
            if not left:
                break
            called.append(left[0])
            self._fire(left[0])
        self.value, self.bag, self.numbers = None, [], []
        self.timers, self.scripts = {}, {}

    def _fire(self, name: str) -> None:
        fire_us, base_us = self.timers.pop(name)
        at_us = fire_us if name in EVENT_TIMERS else self.watermark_us
        at_us = max(min(at_us, self.expiry_us), base_us)
        emitted_us = min(at_us, self.max_timestamp_us)
        self.outputs.append(((name, at_us), emitted_us))
        self._run(self.scripts.pop(name, ()), at_us, emitted_us)

    def _run(self, program: Program, at_us: int, emitted_us: int) -> None:
        for call, *args in program:
            if call == "read":
                total = sum(self.numbers)
                self.outputs.append((("read", self.value, list(self.bag), total), emitted_us))
            elif call == "write":
                self.value = args[0]
            elif call == "add":
                self.bag.append(args[0])
            elif call == "combine":
                self.numbers.append(args[0])
            elif call == "clear":
                if args[0] == "value":
                    self.value = None
                else:
                    (self.bag if args[0] == "bag" else self.numbers).clear()
            elif call in ("set", "set_after"):
                self.timers.pop(args[0], None)
                start_us = 0 if call == "set" else self.now_us
                self.timers[args[0]] = (start_us + args[1], at_us)
            elif call == "clear timer":
                self.timers.pop(args[0], None)
            else:
                self.scripts[args[0]] = args[1]


@attrs.define
class Engine:
    """The smallest engine there can be: one stateful DoFn, its cells and timers."""

    stage: GroupingStage
    cells: dict[CellId, Any] = attrs.field(factory=dict)
    timers: Timers = attrs.field(factory=Timers)
    watermark_us: int = MIN_TIMESTAMP_US
    now_us: int = MIN_TIMESTAMP_US
    #: Value, event time, window.
    outputs: list[tuple[Any, int, Window]] = attrs.field(factory=list)
    late: list[LateArrival] = attrs.field(factory=list)
    dead: list[DeadLetter] = attrs.field(factory=list)
    touched: set[CellId] = attrs.field(factory=set)
    #: The holds on the watermark behind it.
    holds: dict[Any, int] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls,
        fn: df.DoFn,
        window_into: df.WindowInto | None = None,
        *,
        is_time_sorted: bool = False,
        tries: int | None = None,
        handled: Mapping[str, Any] | None = None,
        page_bytes: int | None = None,
    ) -> "Engine":
        """Of one DoFn; ``handled`` are the arguments of its `with_exception_handling`, if it has that."""
        pipeline = df.Pipeline(DirectRunner())
        collection: Any = pipeline | df.Read(ScriptedSource([]))
        collection = collection | window_into if window_into else collection
        transform: Any = df.ParDo(fn)
        if handled is not None:
            transform = transform.with_exception_handling(**handled)
        collection | "stateful" >> transform
        execution = plan(pipeline.graph())
        stage = GroupingStage(
            execution, execution.stages["stateful"], is_time_sorted=is_time_sorted, tries=tries
        )
        engine = cls(stage)
        if page_bytes is not None:
            stage.keep_in_pages(page_bytes, engine.need_pages)
        return engine

    def need_pages(self, page_ids: Sequence[PageId], passing: Passing | None = None) -> None:
        """Pages that are not among the cells are nowhere."""
        del passing
        raise AssertionError(f"there is no {page_ids[0]}")

    def add(self, *elements: tuple[Any, Window, Any, int]) -> None:
        """Key, window, value and event time of elements that come in one bundle."""
        partials = [
            (key, window, [(value, timestamp_us, NO_FIRING, +1)], 1)
            for key, window, value, timestamp_us in elements
        ]
        self._apply(
            self.stage.machine.add(
                self.cells, partials, df.Clocks(watermark_us=self.watermark_us, now_us=self.now_us)
            )
        )

    def advance(self, watermark_us: int = MIN_TIMESTAMP_US, now_us: int = MIN_TIMESTAMP_US) -> None:
        self.watermark_us = max(self.watermark_us, watermark_us)
        self.now_us = max(self.now_us, now_us)
        while due := self.timers.pop_due(
            df.Clocks(watermark_us=self.watermark_us, now_us=self.now_us)
        ):
            self._apply(
                self.stage.machine.fire_timers(
                    self.cells, due, df.Clocks(watermark_us=self.watermark_us, now_us=self.now_us)
                )
            )

    def _apply(self, effects: Any) -> None:
        for timer, fire_us in effects.timers.items():
            self.timers.set(timer, fire_us)
        for place, hold_us in effects.holds.items():
            if hold_us is None:
                del self.holds[place]
            else:
                self.holds[place] = hold_us
        columns = zip(effects.values, effects.timestamps_us, effects.windows, strict=True)
        self.outputs.extend(columns)
        self.late.extend(effects.late)
        self.dead.extend(effects.dead)
        self.touched.update(effects.touched)

    def emitted(self, window: Window) -> list[tuple[Any, int]]:
        return [(value, at_us) for value, at_us, where in self.outputs if where == window]

"""Each kind of state against plain Python: any calls in any bundles, with any time to live, through any restarts."""

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.property.test_stateful_do_fns import stored
from tests.stateful_programs import Engine
from windowing.time_domain import TimeDomain
from windowing.timestamps import to_datetime
from windowing.window import GLOBAL_WINDOW

TTL_US = 10
#: Equal to others of them, as Python has it, but of another type.
VALUES = st.sampled_from([0, 1, 2, True, 1.0, "x", (1, "y")])
TIMES = st.integers(0, 40)
#: None: without a beginning, or an end.
RANGES = st.tuples(st.none() | TIMES, TIMES | st.none())

KINDS = ("value", "bag", "total", "set", "map", "list")
OPERATIONS: dict[str, st.SearchStrategy[Any]] = {
    "value": st.tuples(st.just("write"), VALUES) | st.just(("clear",)),
    "bag": st.tuples(st.just("add"), VALUES) | st.just(("clear",)),
    "total": st.tuples(st.just("add"), st.integers(0, 9)) | st.just(("clear",)),
    "set": st.tuples(st.sampled_from(["add", "add", "remove", "contains"]), VALUES)
    | st.just(("clear",)),
    "map": st.tuples(st.sampled_from(["put", "put", "put_if_absent"]), VALUES, VALUES)
    | st.tuples(st.sampled_from(["remove", "get", "contains"]), VALUES)
    | st.just(("clear",)),
    "list": st.tuples(st.just("add"), st.tuples(TIMES, VALUES))
    | st.tuples(st.sampled_from(["read_range", "clear_range"]), RANGES)
    | st.just(("clear",)),
}


def specs(ttl: dict[str, Any]) -> list[Any]:
    return [
        df.ReadModifyWriteStateSpec("value", **ttl),
        df.BagStateSpec("bag", **ttl),
        df.CombiningValueStateSpec("total", df.SumCombineFn(), **ttl),
        df.SetStateSpec("set", **ttl),
        df.MapStateSpec("map", **ttl),
        df.OrderedListStateSpec("list", **ttl),
    ]


def instant(micros: int) -> Any:
    return to_datetime(micros)


def called(handle: Any, kind: str, call: str, *args: Any) -> Any:
    """A call of a handle, with times as a user gives them."""
    if kind == "list" and call == "add":
        at, value = args[0]
        return handle.add((instant(at), value))
    if kind == "list" and call != "clear":
        return getattr(handle, call)(*(None if each is None else instant(each) for each in args[0]))
    return getattr(handle, call)(*args)


def read(handle: Any, kind: str) -> Any:
    return handle.items() if kind == "map" else handle.read()


def make_fn(ttl: dict[str, Any]) -> df.DoFn:
    value, bag, total, set_, map_, list_ = map(df.DoFn.StateParam, specs(ttl))

    class Called(df.DoFn):
        def process(
            self,
            element: Any,
            /,
            value: Any = value,
            bag: Any = bag,
            total: Any = total,
            set_: Any = set_,
            map_: Any = map_,
            list_: Any = list_,
        ) -> Iterator[Any]:
            handles = dict(zip(KINDS, (value, bag, total, set_, map_, list_), strict=True))
            for kind, operation in element[1]:
                yield kind, repr(called(handles[kind], kind, *operation))
                yield kind, handles[kind].is_empty
            yield {kind: repr(read(handle, kind)) for kind, handle in handles.items()}

    return Called()


@attrs.define
class Model:
    """What the state of one key is, as the plainest Python that there is."""

    domain: TimeDomain | None
    now_us: dict[TimeDomain, int] = attrs.field(
        factory=lambda: {TimeDomain.EVENT: 0, TimeDomain.PROCESSING: 0}
    )
    state: dict[str, Any] = attrs.field(factory=dict)
    ends_us: dict[str, int] = attrs.field(factory=dict)

    def call(self, kind: str, call: str, *args: Any, at_us: int) -> Any:
        is_written, returned = getattr(self, f"_{kind}")(call, *args)
        if not self.state.get(kind) and (kind not in ("value", "total") or call == "clear"):
            self.state.pop(kind, None)
            self.ends_us.pop(kind, None)
            return returned
        if is_written and self.domain is not None:
            begin_us = at_us if self.domain is TimeDomain.EVENT else self.now_us[self.domain]
            self.ends_us[kind] = max(self.ends_us.get(kind, 0), begin_us + TTL_US)
        return returned

    def forget(self) -> None:
        for kind, ends_us in list(self.ends_us.items()):
            assert self.domain is not None
            if ends_us <= self.now_us[self.domain]:
                del self.state[kind], self.ends_us[kind]

    def read(self) -> dict[str, str]:
        found: dict[str, Any] = {
            "value": self.state.get("value"),
            "bag": self.state.get("bag", []),
            "total": sum(self.state.get("total", [])),
            "set": list(self.state.get("set", {})),
            "map": list(self.state.get("map", {}).items()),
            "list": [(instant(at), value) for at, value in self._sorted()],
        }
        return {kind: repr(each) for kind, each in found.items()}

    def _sorted(self) -> list[Any]:
        return sorted(self.state.get("list", []), key=lambda each: each[0])

    def _value(self, call: str, *args: Any) -> Any:
        self.state["value"] = args[0] if args else None
        return True, None

    def _bag(self, call: str, *args: Any) -> Any:
        self.state["bag"] = [*self.state.get("bag", []), *args] if args else []
        return True, None

    def _total(self, call: str, *args: Any) -> Any:
        self.state["total"] = [*self.state.get("total", []), *args] if args else []
        return True, None

    def _set(self, call: str, *args: Any) -> Any:
        found = self.state.setdefault("set", {})
        if call == "clear":
            found.clear()
            return True, None
        has = args[0] in found
        if call == "contains":
            return False, has
        if call == "add":
            found.setdefault(args[0])
            return True, not has
        found.pop(args[0], None)
        return has, None

    def _map(self, call: str, *args: Any) -> Any:
        found = self.state.setdefault("map", {})
        if call == "clear":
            found.clear()
            return True, None
        before = found.get(args[0])
        has = args[0] in found
        if call == "put":
            found[args[0]] = args[1]
            return True, None
        if call == "put_if_absent":
            found.setdefault(*args)
            return not has, before
        if call == "remove":
            return found.pop(args[0], None) is not None or has, before
        return False, has if call == "contains" else before

    def _list(self, call: str, *args: Any) -> Any:
        found = self.state.get("list", [])
        if call == "clear":
            self.state["list"] = []
            return True, None
        if call == "add":
            self.state["list"] = [*found, args[0]]
            return True, None
        (start, end) = args[0]
        start, end = 0 if start is None else start, math.inf if end is None else end
        inside = [each for each in self._sorted() if start <= each[0] < end]
        if call == "read_range":
            return False, [(instant(at), value) for at, value in inside]
        self.state["list"] = [each for each in found if not start <= each[0] < end]
        return bool(inside), None


CALLS = st.lists(
    st.sampled_from(list(OPERATIONS)).flatmap(
        lambda kind: st.tuples(st.just(kind), OPERATIONS[kind])
    ),
    max_size=4,
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("bundle"),
            st.lists(st.tuples(st.sampled_from("ab"), CALLS, TIMES), min_size=1, max_size=3),
        ),
        st.tuples(st.just("watermark"), st.integers(1, 15)),
        st.tuples(st.just("clock"), st.integers(1, 15)),
        st.just(("restart",)),
    ),
    max_size=12,
)
LIVES = {
    "no ttl": None,
    "ttl in event time": TimeDomain.EVENT,
    "ttl in processing time": TimeDomain.PROCESSING,
}


@pytest.mark.parametrize("domain", LIVES.values(), ids=LIVES)
@given(events=EVENTS)
def test_state_is_what_plain_python_has(
    domain: TimeDomain | None, events: list[tuple[Any, ...]]
) -> None:
    ttl = {"ttl": timedelta(microseconds=TTL_US), "ttl_domain": domain} if domain else {}
    engine = Engine.of(make_fn(ttl))
    models = {key: Model(domain) for key in "ab"}
    now_us = {TimeDomain.EVENT: 0, TimeDomain.PROCESSING: 0}
    engine.advance(0, 0)
    expected = list[Any]()
    for name, *args in events:
        if name == "restart":
            engine.cells = stored(engine.cells)
        elif name == "bundle":
            for key, calls, at_us in args[0]:
                model = models[key]
                for kind, operation in calls:
                    returned = model.call(kind, *operation, at_us=at_us)
                    expected.append((kind, repr(returned)))
                    expected.append((kind, kind not in model.state))
                expected.append(model.read())
                model.forget()
            engine.add(*((key, GLOBAL_WINDOW, calls, at_us) for key, calls, at_us in args[0]))
        else:
            moved = TimeDomain.EVENT if name == "watermark" else TimeDomain.PROCESSING
            now_us[moved] += args[0]
            engine.advance(now_us[TimeDomain.EVENT], now_us[TimeDomain.PROCESSING])
            for model in models.values():
                model.now_us.update(now_us)
                model.forget()

    assert expected == [value for value, _, _ in engine.outputs]
    kept = {cell_id[0] for cell_id, cell in engine.cells.items() if cell.values}
    assert {key for key, model in models.items() if model.state} == kept

"""State of an older version of a program: what it becomes, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

import dataflow as df
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.versions.state_shape import StateShape, state_shapes
from runners.testing.scripted_source import ScriptedSource
from tests.property.test_stateful_do_fns import stored
from tests.stateful_programs import US, Engine
from windowing.window import GLOBAL_WINDOW

KINDS = ("value", "bag", "set", "map", "list", "total")


def specs(**version: Any) -> dict[str, Any]:
    total = df.CombiningValueStateSpec("total", df.SumCombineFn(), **version)
    return {
        "value": df.ReadModifyWriteStateSpec("value", **version),
        "bag": df.BagStateSpec("bag", **version),
        "set": df.SetStateSpec("set", **version),
        "map": df.MapStateSpec("map", ttl=50, **version),
        "list": df.OrderedListStateSpec("list", **version),
        "total": total,
    }


def make_fn(**version: Any) -> df.DoFn:
    params = list(map(df.DoFn.StateParam, specs(**version).values()))

    class Kept(df.DoFn):
        def process(
            self,
            element: Any,
            /,
            value: Any = params[0],
            bag: Any = params[1],
            set_: Any = params[2],
            map_: Any = params[3],
            list_: Any = params[4],
            total: Any = params[5],
        ) -> Iterator[Any]:
            if element[1] is not None:
                value.write(element[1])
                bag.add(element[1])
                set_.add(element[1])
                map_.put("key", element[1])
                list_.add((0, element[1]))
                total.add(element[1])
            yield (
                value.read(),
                bag.read(),
                set_.read(),
                map_.items(),
                [each for _, each in list_.read()],
                total.read(),
            )

    return Kept()


def times_ten(value: int) -> int:
    return value * 10


def plus_one(value: int) -> int:
    return value + 1


def failing(value: int) -> int:
    raise ValueError(f"not {value}")


VERSION_2: dict[str, Any] = {"version": 2, "migrations": {1: times_ten}}
VERSION_3: dict[str, Any] = {"version": 3, "migrations": {1: times_ten, 2: plus_one}}


def all_kinds(value: int) -> Any:
    return value, [value], [value], [("key", value)], [value], value


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ([{}, VERSION_2], 70),
        ([{}, VERSION_3], 71),
        ([{}, VERSION_2, VERSION_3], 71),
        ([VERSION_2, VERSION_3], 8),
        ([{"version": 4}, {"version": 4}], 7),
    ],
)
def test_each_kind_is_brought_up_to_date(programs: list[dict[str, Any]], expected: int) -> None:
    cells: dict[Any, Any] = {}
    outputs = list[Any]()
    for number, version in enumerate(programs):
        engine = Engine.of(make_fn(**version))
        engine.cells = stored(cells)
        engine.add(("a", GLOBAL_WINDOW, None if number else 7, US))
        cells, outputs = engine.cells, engine.outputs

    assert [all_kinds(expected)] == [value for value, *_ in outputs]
    assert len(cells["a", GLOBAL_WINDOW].values) == len(KINDS)


def test_state_lives_on_as_long_as_before() -> None:
    """The time to live of the map is not begun anew by a migration."""
    engine = Engine.of(make_fn())
    engine.add(("a", GLOBAL_WINDOW, 7, US))
    later = Engine.of(make_fn(**VERSION_2))
    later.cells, later.timers = stored(engine.cells), engine.timers
    later.advance(50 * US)
    later.add(("a", GLOBAL_WINDOW, None, 50 * US))
    later.advance(51 * US)
    later.add(("a", GLOBAL_WINDOW, None, 51 * US))

    assert [[("key", 70)], []] == [value[3] for value, *_ in later.outputs]


def test_a_migration_that_fails_changes_nothing() -> None:
    engine = Engine.of(make_fn())
    engine.add(("a", GLOBAL_WINDOW, 7, US))
    broken = Engine.of(make_fn(version=2, migrations={1: failing}), tries=2)
    broken.cells = stored(engine.cells)
    broken.add(("a", GLOBAL_WINDOW, None, US))

    (letter,) = broken.dead
    assert "the migration of state 'value' from version 1 raised ValueError" in str(letter)
    assert broken.cells["a", GLOBAL_WINDOW].values == engine.cells["a", GLOBAL_WINDOW].values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: df.BagStateSpec("n", version=0), "needs a version from 1 on, not 0"),
        (lambda: df.BagStateSpec("n", version=True), "needs a version from 1 on, not True"),
        (
            lambda: df.BagStateSpec("n", version=3, migrations={1: times_ten}),
            r"needs migrations that lead to version 3 step by step, not from \[1\]",
        ),
        (lambda: df.BagStateSpec("n", migrations={0: times_ten}), "that lead to version 1"),
        (lambda: df.BagStateSpec("n", version=2, migrations={1: 5}), "that lead to version 2"),  # type: ignore[dict-item]
        (lambda: df.WatermarkHoldStateSpec("n", version=2), "holds have no versions"),
    ],
)
def test_versions_are_a_chain(make: Any, message: str) -> None:
    with pytest.raises(df.PipelineError, match=message) as caught:
        make()
    assert caught.value.hint


class Only(df.DoFn):
    """State of one spec; a class of its own for each, as specs are defaults."""


def shape_of(spec: Any) -> StateShape:
    class Asking(Only):
        def process(self, element: Any, /, state: Any = df.DoFn.StateParam(spec)) -> None: ...

    p = df.Pipeline(DirectRunner())
    p | df.Read(ScriptedSource([])) | "only" >> df.ParDo(Asking())
    return StateShape.decoded(state_shapes(plan(p.graph()))["only"].encoded())


def total(combine_fn: df.CombineFn, **version: Any) -> Any:
    return df.CombiningValueStateSpec("n", combine_fn, **version)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (df.BagStateSpec("n"), df.BagStateSpec("n", **VERSION_2), []),
        (df.BagStateSpec("n", **VERSION_2), df.BagStateSpec("n", **VERSION_3), []),
        (df.BagStateSpec("n", **VERSION_2), df.BagStateSpec("n", **VERSION_2), []),
        (
            df.BagStateSpec("n", **VERSION_2),
            df.BagStateSpec("n"),
            ["state 'n' was of version 2, is of 1, read from 1 on"],
        ),
        (
            df.BagStateSpec("n"),
            df.BagStateSpec("n", version=3, migrations={2: plus_one}),
            ["state 'n' was of version 1, is of 3, read from 2 on"],
        ),
        (total(df.SumCombineFn()), total(df.MeanCombineFn(), **VERSION_2), []),
        (
            df.BagStateSpec("n"),
            df.SetStateSpec("n", **VERSION_2),
            ["state 'n' was Bag, is Set"],
        ),
    ],
)
def test_an_update_knows_versions(before: Any, after: Any, why: list[str]) -> None:
    assert why == shape_of(before).unreadable(shape_of(after))

"""Canonical keys: of all keys that are one key, every grouping emits the same, which is what its bytes decode to."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pendulum
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.canonical_keys import CanonicalKeys, are_canonical, canonical_key
from dataflow.coders import decode_key, encode_key, hash_key
from dataflow.columns import IntColumn, PairColumns
from dataflow.combine_fn import ListCombineFn, as_combine_fn
from dataflow.combiners import TupleCombineFn
from dataflow.graph import MAIN, Group, TransformNode
from dataflow.testing import assert_that, contains_in_any_order
from dataflow.typed_keys import emitted_key
from runners.core.columns.partials import PartialColumns
from runners.core.ground.bundle import Bundle
from runners.core.ground.key_codec import KeyCodec
from runners.core.partials.folding import Accumulation
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from runners.core.partials.stateful_inputs import StatefulInputs
from runners.core.partials.table import PartialTable
from runners.core.partials.values_by_key import ValuesByKey
from tests.ids import shown
from triggers.windowing_strategy import WindowingStrategy
from windowing.pane import NO_FIRING
from windowing.timestamps import MIN_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
#: The clocks of Berlin show this twice, an hour apart.
TWICE = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
AGAIN = TWICE.replace(fold=1)
#: They never show this.
NEVER = datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)
INSTANTS = [
    TWICE,
    AGAIN,
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC, fold=1),
    datetime(2024, 10, 26, 20, 30, tzinfo=NEW_YORK),
    pendulum.datetime(2024, 10, 27, 2, 30, tz="Europe/Berlin", fold=1),
    pd.Timestamp("2024-10-27 00:30", tz="UTC").tz_convert("Europe/Berlin"),
    NEVER,
    NEVER.replace(fold=1),
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
]
NUMBERS = [True, 1, 1.0, np.int64(1), np.True_, False, 0, -0.0, 2.5, np.float64(2.5)]
OTHERS = ["1", np.str_("a"), "a", b"a", None, date(2024, 3, 31), pendulum.date(2024, 3, 31)]


class Number(IntEnum):
    ONE = 1


class Letter(StrEnum):
    A = "a"


class Place(NamedTuple):
    number: int
    letter: str


#: To Python they are equal to keys of plain types, and to each other.
OF_CLASSES = [Decimal(1), Decimal("1.00"), Decimal("2.5"), Number.ONE, Letter.A, Place(1, "a")]
ATOMS = st.sampled_from([*INSTANTS, *NUMBERS, *OTHERS]) | st.datetimes(
    timezones=st.sampled_from([BERLIN, NEW_YORK, UTC]),
    min_value=datetime(2024, 10, 26),  # noqa: DTZ001 - without a time zone, as the test says
    max_value=datetime(2024, 11, 4),  # noqa: DTZ001 - without a time zone, as the test says
)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=4)


def is_same(one: Any, other: Any) -> bool:
    """Whether two keys are one: by value, instants by the moment."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one.astimezone(UTC) == other.astimezone(UTC)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    # numpy compares element by element.
    return not isinstance(one, tuple) and not isinstance(other, tuple) and bool(one == other)


def spelled(key: Any) -> str:
    """Everything that a user can see of a key."""
    parts = ", ".join(map(spelled, key)) if isinstance(key, tuple) else repr(key)
    return f"{type(key).__module__}.{type(key).__name__}({parts})"


@given(one=KEYS, other=KEYS)
def test_what_is_one_key_is_emitted_as_one(one: Any, other: Any) -> None:
    """And has the same bytes; what is not, is not."""
    is_one = is_same(one, other)

    assert is_one == (encode_key(one) == encode_key(other))
    assert is_one == (canonical_key(one) == canonical_key(other))
    assert is_one == (spelled(canonical_key(one)) == spelled(canonical_key(other)))


@given(key=KEYS)
@example(key=datetime(2024, 10, 27, 1, 30, tzinfo=UTC, fold=1))
def test_what_is_decoded_is_the_canonical_key(key: Any) -> None:
    """So a crash cannot be seen; and it is equal to what came."""
    canonical = canonical_key(key)

    assert spelled(canonical) == spelled(decode_key(encode_key(key)))
    assert is_same(key, canonical)
    assert spelled(canonical) == spelled(canonical_key(canonical))
    assert not are_canonical([key]) or spelled(key) == spelled(canonical)


@given(keys=st.lists(KEYS, max_size=8))
def test_what_is_remembered_by_key_is_never_that_of_another(keys: list[Any]) -> None:
    """Python's equality finds the wrong one where an hour comes twice."""
    codec, canonical = KeyCodec("here"), CanonicalKeys()
    for key in [*keys, *keys]:
        assert codec.encode(key) == (encode_key(key), hash_key(encode_key(key)))
        assert codec.hash(key) == hash_key(encode_key(key))
        assert spelled(canonical[key]) == spelled(canonical_key(key))


Record = tuple[Any, int]
BUNDLES = st.lists(st.lists(st.tuples(KEYS, st.integers(0, 5)), min_size=1, max_size=6), max_size=4)
STRATEGIES = {
    "global": WindowingStrategy(window_fn=df.GlobalWindows()),
    "fixed": WindowingStrategy(window_fn=df.FixedWindows(2)),
    "sessions": WindowingStrategy(window_fn=df.Sessions(1)),
    "calendar": WindowingStrategy(window_fn=df.CalendarWindows.days(1, time_zone="UTC")),
}


def node(combine_fn: Any) -> TransformNode:
    return TransformNode(
        label="group",
        location="here.py:1",
        operation=Group(combine_fn),
        inputs=(0,),
        outputs={MAIN: 1},
    )


def lifter(strategy: WindowingStrategy) -> Lifter:
    return Lifter(node(ListCombineFn()), Accumulation(ListCombineFn(), strategy))


def bundle_of(records: Sequence[Record], strategy: WindowingStrategy, number: int) -> Bundle:
    """Values have where they come from."""
    times_us = [second * 1_000_000 for _, second in records]
    values = [(key, (number, index)) for index, (key, _) in enumerate(records)]
    windows = [each for (each,) in strategy.window_fn.assign_bundle(times_us, values)]
    return Bundle(values, times_us, None if strategy is STRATEGIES["global"] else windows)


def check(partials: Sequence[Partial], bundles: Sequence[Sequence[Record]]) -> None:
    """Each record is in a partial of its key, and each partial has the canonical one."""
    keys = {
        (number, index): key
        for number, records in enumerate(bundles)
        for index, (key, _) in enumerate(records)
    }
    found: list[Any] = []
    for key, _, values, _ in partials:
        assert spelled(key) == spelled(canonical_key(key))
        assert all(is_same(key, keys[value]) for value in values)
        found += values
    assert sorted(found) == sorted(keys)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("watermark_us", [MIN_TIMESTAMP_US, 3_000_000], ids=["in time", "late"])
@given(bundles=BUNDLES)
def test_groupings_are_given_canonical_keys(
    name: str, watermark_us: int, bundles: list[list[Record]]
) -> None:
    strategy = STRATEGIES[name]
    for number, records in enumerate(bundles):
        bundle = bundle_of(records, strategy, number)
        partials = lifter(strategy).lift(bundle, watermark_us=watermark_us)

        check(partials, [[]] * number + [records])


@pytest.mark.parametrize("name", STRATEGIES)
@given(bundles=BUNDLES)
def test_tables_of_partials_have_canonical_keys(name: str, bundles: list[list[Record]]) -> None:
    """Records of several bundles wait in one table."""
    strategy, lift = STRATEGIES[name], lifter(STRATEGIES[name])
    table = PartialTable(lift)
    for number, records in enumerate(bundles):
        table.add(lift.lift(bundle_of(records, strategy, number), watermark_us=0))
    taken = table.take()

    assert len({(spelled(key), window) for key, window, *_ in taken}) == len(taken)
    check(taken, bundles)


@pytest.mark.parametrize("name", ["global", "fixed"])
@given(
    records=st.lists(st.tuples(KEYS, st.integers(0, 5)), min_size=1, max_size=6),
    keeps_order_of_keys=st.booleans(),
)
def test_stateful_do_fns_are_given_canonical_keys(
    name: str, records: list[Record], *, keeps_order_of_keys: bool
) -> None:
    """In one partial for each key and window, with or without a column of windows."""
    bundle = bundle_of(records, STRATEGIES[name], 0)
    inputs = StatefulInputs(node(ListCombineFn()), keeps_order_of_keys=keeps_order_of_keys)
    partials = inputs.lift(bundle, watermark_us=0)

    check([(key, w, [each[0] for each in taken], n) for key, w, taken, n in partials], [records])
    if name == "global" or not keeps_order_of_keys:
        places = [(encode_key(key), window) for key, window, *_ in partials]
        assert len(set(places)) == len(places)
    windows = bundle.windows or [GLOBAL_WINDOW] * len(records)
    assert {
        (value, time_us, NO_FIRING, +1, window)
        for (_, value), time_us, window in zip(
            bundle.values, bundle.timestamps_us, windows, strict=True
        )
    } == {(*each, window) for _, window, taken, _ in partials for each in taken}


@given(
    bundles=st.lists(
        st.lists(KEYS | st.sampled_from(OF_CLASSES), min_size=1, max_size=6), max_size=3
    ),
    windows=st.sampled_from([1, 100]),
)
@example(bundles=[[1, Decimal(1)]], windows=1)
@example(bundles=[[1], [Decimal(1)]], windows=1)
@example(bundles=[[(1, "a")], [Place(1, "a")]], windows=1)
def test_values_have_canonical_keys_in_however_many_windows(
    bundles: list[list[Any]], windows: int
) -> None:
    """Also where Python calls a key equal to one that is there already, and it is another."""
    there = [df.Window(start, start + 1) for start in range(windows)]
    values, expected = ValuesByKey(), defaultdict[str, list[tuple[int, int]]](list)
    values.add([("there", 0)] * windows, there)
    for number, keys in enumerate(bundles):
        pairs = [(key, (number, index)) for index, key in enumerate(keys)]
        values.add(pairs, [there[0]] * len(keys))
        for key, value in pairs:
            expected[seen(canonical_key(key))].append(value)

    found = {seen(key): each for key, each in values[there[0]].items() if key != "there"}
    assert expected == found


def seen(canonical: Any) -> str:
    """Type and value of the key that a user is given for a canonical one."""
    return spelled(emitted_key(canonical))


def test_columns_of_booleans_are_canonical() -> None:
    """Booleans that come are canonical, and so are those that another release has left in a store."""
    combine_fn = as_combine_fn(sum)
    lift = Lifter(node(combine_fn), Accumulation(TupleCombineFn(combine_fn), STRATEGIES["global"]))
    pairs = PairColumns((pa.array([True, False, True]),), (pa.array([1, 2, 3]),), is_single=True)
    partials = lift.lift(Bundle(pairs, IntColumn(np.zeros(3, np.int64))), watermark_us=0)
    assert isinstance(partials, PartialColumns)
    left = PartialColumns(
        (partials.keys[0].cast(pa.bool_()),),
        partials.windows,
        partials.counts,
        partials.accumulators,
        combiners=partials.combiners,
        is_single=True,
    )

    for each in (partials, PartialColumns.of_batch(*left.as_batch(), left.combiners)):
        assert {"builtins.int(0)", "builtins.int(1)"} == {spelled(key) for key, *_ in each}


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (Text("a"), "str.__str__"),
        (frozenset([1]), "tuple(sorted(key))"),
        (pd.Timestamp(1, tz="UTC"), "key.floor"),
        (pd.NaT, "time zone"),
        (np.datetime64("2024-01-01"), "astype"),
        (np.longdouble(0.5), "fields"),
        (1j, "fields"),
        (float("nan"), "fields"),
        (np.float64("nan"), "fields"),
        (datetime(2024, 1, 1), "time zone"),  # noqa: DTZ001 - without a time zone, as the test says
    ],
    ids=shown,
)
def test_what_cannot_be_canonical_is_refused(key: Any, hint: str) -> None:
    """Alone and inside; the error names the transform and says what to do."""
    for each in (key, (1, key)):
        with pytest.raises(df.KeyEncodingError, match="cannot be a key") as caught:
            encode_key(each)
        assert hint in caught.value.hint

        bundle = bundle_of([(each, 0)], STRATEGIES["global"], 0)
        for lift in (lifter(STRATEGIES["global"]), StatefulInputs(node(ListCombineFn()))):
            with pytest.raises(df.KeyEncodingError, match=r"here\.py:1"):
                len(lift.lift(bundle, watermark_us=MIN_TIMESTAMP_US))


def test_what_is_emitted_in_the_hour_that_comes_twice() -> None:
    """Two moments are two keys, each in UTC, whatever zone it came in."""
    zone = timezone(timedelta(hours=2))
    given_keys = [TWICE, AGAIN, TWICE.astimezone(zone), AGAIN.astimezone(NEW_YORK)]
    with df.Pipeline() as p:
        counts = (
            p
            | df.Create([(key, 1) for key in given_keys])
            | df.CombinePerKey(sum)
            | df.Map(lambda pair: (f"{pair[0]:%H:%M %Z}", pair[1]))
        )
        assert_that(counts, contains_in_any_order([("00:30 UTC", 2), ("01:30 UTC", 2)]))

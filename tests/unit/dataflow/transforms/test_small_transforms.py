"""The short transforms: pairs, tuples, texts, parts, rows, logs; what each emits, and what it refuses."""

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import Rows
from dataflow.testing import assert_that, contains_in_any_order
from dataflow.transforms.select import _ToRow
from tests.unit.dataflow.transforms.test_transforms import run

AT = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
PAIRS = [("a", 1), ("b", 2)]
MINUTE = df.Window(0, 60_000_000)


class Sale(NamedTuple):
    shop: str
    amount: int


@attrs.frozen
class Thing:
    shop: str
    amount: int


def at(*values: Any) -> list[Any]:
    return [df.TimestampedValue(value, AT) for value in values]


def in_a_minute(*transforms: Any, values: list[Any]) -> list[Any]:
    return run(df.WindowInto(df.FixedWindows(60)), *transforms, values=at(*values))


def test_parts_of_pairs() -> None:
    assert ["a", "b"] == run(df.Keys(), values=PAIRS)
    assert [1, 2] == run(df.Values(), values=PAIRS)
    assert [(1, "a"), (2, "b")] == run(df.KvSwap(), values=PAIRS)


@pytest.mark.parametrize("transform", [df.Keys(), df.Values(), df.KvSwap()])
def test_what_is_no_pair_is_refused(transform: Any) -> None:
    name = type(transform).__name__
    with pytest.raises(df.TransformError, match=rf"'{name}/"):
        run(df.Map(lambda element: element), transform, values=[(1, 2, 3)])
    with pytest.raises(df.PipelineError, match=rf"'{name}' .* needs \(key, value\) pairs, and"):
        run(transform, values=[(1, 2, 3)])


def test_keys_are_computed_or_constant() -> None:
    assert [(2, "ab"), (1, "c")] == run(df.WithKeys(len), values=["ab", "c"])
    assert [(None, "ab")] == run(df.WithKeys(None), values=["ab"])
    assert [(3, 1), (4, 2)] == run(df.WithKeys(lambda x, more: x + more, 2), values=[1, 2])
    assert [(AT, 1)] == run(df.WithKeys(lambda x, at=df.DoFn.TimestampParam: at), values=at(1))
    with pytest.raises(df.PipelineError, match="no function: 'k'"):
        df.WithKeys("k", 1)  # type: ignore[call-overload]
    with pytest.raises(df.PipelineError, match="yield"):
        run(df.WithKeys(generator))


def generator(element: Any) -> Any:
    yield element


def test_tuples_are_unpacked() -> None:
    assert ["a1", "b2"] == run(df.MapTuple(lambda k, v: f"{k}{v}"), values=PAIRS)
    assert ["a1!", "b2!"] == run(df.MapTuple(lambda k, v, end: f"{k}{v}{end}", "!"), values=PAIRS)
    assert ["a1?", "b2?"] == run(
        df.MapTuple(lambda k, v, end="!": f"{k}{v}{end}", end="?"), values=PAIRS
    )
    assert ["a", "b", "b"] == run(df.FlatMapTuple(lambda k, n: [k] * n), values=PAIRS)
    assert ["a", "b", "b"] == run(df.FlatMapTuple(repeated), values=PAIRS)
    assert [("a", 1, MINUTE)] == in_a_minute(
        df.MapTuple(lambda k, v, window=df.DoFn.WindowParam: (k, v, window)), values=[("a", 1)]
    )
    with pytest.raises(df.TransformError, match="missing 1 required"):
        run(df.MapTuple(lambda a, b, c: None), values=PAIRS)
    with pytest.raises(df.PipelineError, match="MapTuple needs a function, not 3"):
        df.MapTuple(3)  # type: ignore[arg-type]


def repeated(key: str, number: int) -> Any:
    for _ in range(number):
        yield key


@given(st.lists(st.integers()), st.integers(1, 7))
def test_parts_are_a_partition(values: list[int], number: int) -> None:
    """Each element is in one part, the one that the function names."""
    found: list[tuple[int, int]] = []
    with df.Pipeline() as p:
        parts = p | df.Create(values) | df.Partition(lambda x, n: x % n, number)
        assert number == len(parts)
        for place, part in enumerate(parts):
            part | f"see {place}" >> df.Map(lambda x, place: found.append((place, x)), place)

    assert Counter((x % number, x) for x in values) == Counter(found)


def test_a_part_that_is_not_there_is_refused() -> None:
    p = df.Pipeline()
    p | df.Create([5]) | df.Partition(lambda x, n: x, 2)
    with pytest.raises(df.TransformError, match=r"returned 5, and the collections are 0 to 1"):
        p.run()
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(df.PipelineError, match="positive number of collections"):
            df.Partition(lambda x, n: x, wrong)  # type: ignore[arg-type]
    with pytest.raises(df.PipelineError, match="do not fit its function"):
        df.Pipeline() | df.Create([5]) | df.Partition(lambda x: x, 2)  # type: ignore[arg-type, misc]


def test_elements_as_text() -> None:
    assert ["1", "('a', 1)"] == run(df.ToString.Element(), values=[1, ("a", 1)])
    assert ["a,1", "b,2"] == run(df.ToString.Kvs(), values=PAIRS)
    assert ["1; 2; 3"] == run(df.ToString.Iterables("; "), values=[[1, 2, 3]])
    with pytest.raises(df.PipelineError, match="text as delimiter, not 3"):
        df.ToString.Kvs(3)  # type: ignore[arg-type]


def test_elements_are_logged_on_their_way(caplog: pytest.LogCaptureFixture) -> None:
    everything: Any = df.LogElements(
        "got ", with_timestamp=True, with_window=True, with_pane_info=True, level=logging.WARNING
    )
    with caplog.at_level(logging.INFO, "dataflow.log_elements"):
        assert [1] == in_a_minute(df.LogElements(), everything, values=[1])

    assert ["INFO", "WARNING"] == [each.levelname for each in caplog.records]
    plain, full = caplog.messages
    assert "1" == plain
    assert full.startswith("got 1, timestamp=1970-01-01T00:00:05+00:00, window=[1970-01-01")
    assert "pane=" in full
    for wrong in ({"level": "INFO"}, {"prefix": 3}):
        with pytest.raises(df.PipelineError, match="LogElements"):
            df.LogElements(**wrong)


def test_times_and_windows_become_values() -> None:
    (stamped,) = in_a_minute(
        df.Reify.Timestamp(), df.Filter(lambda x: True), df.Map(repr), values=[1]
    )
    assert repr(df.TimestampedValue(1, AT)) == stamped
    assert [(1, AT, MINUTE)] == in_a_minute(df.Reify.Window(), values=[1])
    assert [("a", df.TimestampedValue(1, AT))] == in_a_minute(
        df.Reify.TimestampInValue(), values=[("a", 1)]
    )
    assert [("a", (1, AT, MINUTE))] == in_a_minute(df.Reify.WindowInValue(), values=[("a", 1)])
    assert AT == df.TimestampedValue(1, AT).timestamp == df.WindowedValue(1, AT, MINUTE).timestamp


def test_branches_see_what_goes_on() -> None:
    seen: list[Any] = []
    branch = "see" >> df.Map(seen.append)

    assert [1, 2, 3] == run(df.Tee(branch, lambda x: x | "again" >> df.Map(seen.append)))
    assert [1, 1, 2, 2, 3, 3] == sorted(seen)
    with pytest.raises(df.PipelineError, match="at least one"):
        df.Tee()
    with pytest.raises(df.PipelineError, match="not 3"):
        df.Tee(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", [Sale, Thing, lambda shop, amount: {"shop": shop, "amount": amount}]
)
def test_fields_are_selected(kind: Any) -> None:
    transform = df.Select("amount", where="shop", twice=lambda sale: 2)
    (row,) = run(transform, values=[kind("Oslo", 3)])

    assert (3, "Oslo", 2) == row == (row.amount, row.where, row.twice)


def test_selected_columns_are_those_of_the_rows() -> None:
    """Where a field is computed, or is not there, rows are made one by one."""
    columns = [pa.array(["Oslo", "Rome"]), pa.array([3, 4])]
    rows = Rows.of(Sale, Sale._fields, columns)
    select = _ToRow(("amount", "where"), ("amount", "shop"))
    selected = select.on_columns(rows, None)

    assert isinstance(selected, Rows)
    assert [select(each) for each in rows] == list(selected)
    assert [(3, "Oslo"), (4, "Rome")] == list(selected)
    for expressions in ((len,), ("city",)):
        assert _ToRow(("field",), expressions).on_columns(rows, None) is None
    assert select.on_columns(list(rows), None) is None


def test_selections_that_make_no_row_are_refused() -> None:
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]]
    wrong = [((), {}), (("a",), {"a": "b"}), ((len,), {}), ((), {"a": 3})]
    for args, kwargs in wrong:
        with pytest.raises(df.PipelineError, match="Select needs"):
            df.Select(*args, **kwargs)
    with pytest.raises(df.PipelineError, match="cannot be the fields of a row"):
        df.Select("not a name")


@df.ptransform_fn
def Multiplied(numbers: df.PCollection[int], by: int, *, plus: int = 0) -> df.PCollection[int]:  # noqa: N802 - a transform
    """Each number, multiplied."""
    return numbers | "times" >> df.Map(lambda x: x * by + plus)


def test_a_function_becomes_a_transform_with_labels() -> None:
    p = df.Pipeline()
    numbers = p | "numbers" >> df.Create([1])
    numbers | Multiplied(2)
    numbers | "tenfold" >> Multiplied(10, plus=1)

    labels = {node.label for node in p.graph().transforms}
    assert {"Multiplied/times", "tenfold/times"} <= labels
    assert "Each number, multiplied." == Multiplied.__doc__
    assert [11, 21, 31] == run(Multiplied(10, plus=1))


def test_impulse_is_one_empty_element() -> None:
    with df.Pipeline() as p:
        assert_that(p | df.Impulse(), contains_in_any_order([b""]))


def test_collections_in_a_tuple_are_grouped_in_order() -> None:
    with df.Pipeline() as p:
        left = p | "left" >> df.Create([("a", 1), ("a", 2), ("b", 3)])
        right = p | "right" >> df.Create([("a", "x")])
        grouped = (left, right) | df.CoGroupByKey() | df.MapTuple(_sorted)
        assert_that(grouped, contains_in_any_order([("a", [1, 2], ["x"]), ("b", [3], [])]))
        alone = [left] | "one" >> df.CoGroupByKey() | "key" >> df.Map(lambda group: group[0])
        assert_that(alone, contains_in_any_order(["a", "b"]), label="alone")


def _sorted(key: str, lists: tuple[list[Any], list[Any]]) -> Any:
    left, right = lists
    return key, sorted(left), right


@pytest.mark.parametrize("wrong", [(), [], {}, (1, 2), "ab", {"a": 1}])
def test_something_else_than_collections_is_not_grouped(wrong: Any) -> None:
    with pytest.raises(df.PipelineError, match="CoGroupByKey needs several PCollections"):
        wrong | df.CoGroupByKey()

"""WriteToPostgres on the direct runner: what rows do, and what is refused, when."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import SinkError
from runners.direct import DirectRunner
from tests.ids import shown

COLUMNS: dict[str, Any] = {"id": int, "name": str, "at": datetime}
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ROW = {"id": 1, "name": "ada", "at": NOON}


def write(rows: Sequence[Any], **options: Any) -> Sequence[Mapping[str, Any]]:
    """The table after writing rows."""
    pipeline = df.Pipeline(DirectRunner(bundle_records=2))
    options = {"columns": COLUMNS, **options}
    pipeline | df.Create(rows) | "write" >> df.WriteToPostgres("people", **options)
    return pipeline.run().read_table("people")


def test_rows_are_added() -> None:
    """Without a key each of them, None for NULL; other entries of a mapping are passed over."""
    rows = [ROW, ROW, {**ROW, "name": None, "more": 5}]

    assert [ROW, ROW, {**ROW, "name": None}] == write(rows)


def test_later_rows_replace_earlier_ones_of_their_key() -> None:
    """In one bundle and across bundles."""
    rows = [{**ROW, "id": number % 2, "name": str(number)} for number in range(5)]

    assert [(0, "4"), (1, "3")] == sorted((row["id"], row["name"]) for row in write(rows, key="id"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"at": datetime(2024, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - without a time zone, as the test says
        ({"id": "1"}, "column id (int) holds '1', a str"),
        ({"id": True}, "a bool"),
        ({"name": 5}, "column name (str) holds 5, a int"),
        ({"id": None}, "a key has no nulls"),
        ({"id": [1]}, "a list"),
    ],
    ids=shown,
)
def test_rows_that_do_not_fit(change: dict[str, Any], what: str) -> None:
    """The error names transform, table, column and value."""
    with pytest.raises(
        df.DataflowError, match=r"^transform 'write' \(tests.*:\d+\): a row"
    ) as caught:
        write([ROW, {**ROW, **change}], key=["id"])

    assert what in str(caught.value)


def test_elements_that_are_no_rows() -> None:
    with pytest.raises(df.TransformError, match="without the column 'at'"):
        write([{"id": 1, "name": "x"}])
    with pytest.raises(df.TransformError, match=r"^transform 'write' .* needs mappings"):
        write([(1, "x", NOON)])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"columns": {}}, "has no columns"),
        ({"columns": {"a": complex}}, "column 'a' has the type"),
        ({"columns": {"a": "int"}}, "column 'a' has the type 'int'"),
        ({"key": ["nr"]}, "the key names columns that do not exist"),
        ({"key": "nr"}, "the key names columns that do not exist"),
    ],
    ids=shown,
)
def test_tables_that_cannot_be(options: dict[str, Any], what: str) -> None:
    with pytest.raises(df.PipelineError, match=what):
        df.WriteToPostgres("t", **{"columns": COLUMNS, **options})


def test_retractions_need_a_key() -> None:
    pipeline = df.Pipeline(DirectRunner())
    grouped = (
        pipeline
        | df.Create([df.TimestampedValue(("a", 1), 1)])
        | df.WindowInto(
            df.Sessions(60), accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING
        )
        | df.GroupByKey()
        | df.Map(lambda pair: ROW)
    )
    with pytest.raises(df.PipelineError, match="only adds rows, but its input retracts results"):
        grouped | df.WriteToPostgres("t", columns=COLUMNS)
    grouped | df.WriteToPostgres("t", columns=COLUMNS, key="id")


def test_one_table_has_one_description() -> None:
    """Two transforms may write it, if they agree, also on the order of the columns."""
    rows = df.Pipeline(DirectRunner()) | df.Create([ROW])
    rows | df.WriteToPostgres("t", columns=COLUMNS)
    rows | df.WriteToPostgres("t", columns=COLUMNS)
    for options in (
        {"columns": {"id": int}},
        {"columns": dict(reversed(COLUMNS.items()))},
        {"columns": COLUMNS, "key": "id"},
    ):
        with pytest.raises(df.PipelineError, match="another transform describes differently"):
            rows | df.WriteToPostgres("t", **options)


def test_tables_that_nobody_writes() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([ROW]) | df.WriteToPostgres("t", columns=COLUMNS)
    with pytest.raises(df.PipelineError, match="writes no table 'u'") as caught:
        pipeline.run().read_table("u")

    assert "tables: ['t']" == caught.value.detail


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_writers_one_that_takes_rows_back_and_one_that_replaces_them_are_refused(
    is_first: bool,
) -> None:
    pipeline = df.Pipeline(DirectRunner())
    pairs = pipeline | df.Create([("a", 1)])
    retracted = (
        pairs
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
    )
    rows = [
        each | f"row {number}" >> df.Map(lambda pair: {"k": pair[0], "n": pair[1]})
        for number, each in enumerate((pairs, retracted))
    ]
    first, second = rows if is_first else rows[::-1]
    columns = {"k": str, "n": int}
    first | "one" >> df.WriteToPostgres("t", columns=columns, key=["k"])

    with pytest.raises(
        df.PipelineError, match="write to the same table, and one of them retracts rows"
    ):
        second | "two" >> df.WriteToPostgres("t", columns=columns, key=["k"])


def test_a_writer_that_is_not_installed_is_an_error_before_work_starts_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was installed is of an older version than the code."""
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([ROW]) | df.WriteToPostgres("t", columns=COLUMNS, dsn="host=nowhere")
    ((_, sink),) = pipeline.graph().sinks().values()
    sink.check()
    monkeypatch.setattr("dataflow.io.postgres.installed", lambda _: {})

    with pytest.raises(SinkError, match="nothing is installed that writes to another Postgres"):
        sink.check()
    with pytest.raises(SinkError, match="install this package again"):
        pipeline.run()

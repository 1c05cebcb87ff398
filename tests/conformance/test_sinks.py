"""What is written to a sink is there once, without what was retracted, on every runner."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import dataflow as df
from dataflow.sink import SinkChange
from dataflow.testing.model_sink import ModelSink
from tests.conformance.conftest import MakeRunner

VALUES = [(f"team {number % 7}", number) for number in range(200)]
SUMS = Counter[str]()
for _team, _number in VALUES:
    SUMS[_team] += _number


def sums(p: df.Pipeline) -> df.PCollection[tuple[str, int]]:
    """Sums of teams that are emitted early, after each third value, and retracted."""
    return (
        p
        | df.Create([df.TimestampedValue(value, value[1]) for value in VALUES])
        | df.WindowInto(
            df.FixedWindows(1_000),
            trigger=df.AfterWatermark(early=df.Repeatedly(df.AfterCount(3))),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
    )


def run(p: df.Pipeline) -> None:
    p.run().wait_until_finish()


class _ByTeam(ModelSink):
    def lane_key(self, element: Any) -> Any:
        return element[0]


def test_changes_arrive_once_in_order_in_lanes(make_runner: MakeRunner) -> None:
    sink = _ByTeam(lanes=3)
    p = df.Pipeline(make_runner())
    sums(p) | df.Write(sink)
    run(p)
    of_teams = defaultdict[str, list[SinkChange]](list)
    for writer, lane in sink.state.items():
        assert lane.numbers == list(range(1, len(lane.numbers) + 1)), writer
        for change in lane.changes:
            of_teams[change.value[0]].append(change)
    assert len(sink.state) > 1
    for team, changes in of_teams.items():
        present = list[int]()
        for change in changes:
            # A retraction comes behind what it retracts, and nothing is emitted beside what was not retracted.
            if change.sign > 0:
                assert not present
                present.append(change.value[1])
            else:
                present.remove(change.value[1])
        assert present == [SUMS[team]]
    assert of_teams.keys() == SUMS.keys()


@pytest.fixture
def other_dsn(postgres_dsn: str) -> Iterator[str]:
    """A database that is not that of the store."""
    name = sql.Identifier("dataflow_other")
    with psycopg.connect(postgres_dsn, autocommit=True) as opened:
        opened.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            yield make_conninfo(postgres_dsn, dbname="dataflow_other")
        finally:
            opened.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.mark.postgres
def test_rows_are_in_another_postgres(make_runner: MakeRunner, other_dsn: str) -> None:
    p = df.Pipeline(make_runner())
    totals = sums(p) | df.MapTuple(lambda team, total: {"team": team, "total": total})
    columns = {"team": str, "total": int}
    totals | df.WriteToPostgres("totals", columns=columns, key="team", dsn=other_dsn, lanes=2)
    totals | "log" >> df.WriteToPostgres("log", columns=columns, dsn=other_dsn, changelog="sign")
    plain = p | "plain" >> df.Create([{"team": "a", "total": n} for n in range(100)])
    plain | "latest" >> df.WriteToPostgres(
        "latest", columns=columns, key=["team", "total"], dsn=other_dsn
    )
    plain | "all" >> df.WriteToPostgres("every", columns=columns, dsn=other_dsn)
    run(p)
    with psycopg.connect(other_dsn) as opened:
        assert dict(opened.execute("SELECT * FROM totals").fetchall()) == SUMS
        net = opened.execute("SELECT team, total, sum(sign) FROM log GROUP BY 1, 2").fetchall()
        assert {(team, total) for team, total, sign in net if sign} == set(SUMS.items())
        assert {sign for _, _, sign in net} <= {0, 1}
        assert len(net) > len(SUMS)
        for table in ("latest", "every"):
            rows = opened.execute(f"SELECT team, total FROM {table}").fetchall()
            assert sorted(rows) == [("a", number) for number in range(100)]


def test_a_sink_that_takes_no_retractions(make_runner: MakeRunner) -> None:
    p = df.Pipeline(make_runner())
    with pytest.raises(df.PipelineError, match="takes no retractions, but its input retracts"):
        sums(p) | df.Write(ModelSink(takes_retractions=False))

"""The command line of `examples.zeitgeist`: generate queries, find what is planted in them, twice, and compare."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

import dataflow as df
from dataflow.computations import JsonLinesInjector
from examples.zeitgeist import zeitgeist
from examples.zeitgeist_model import Anomaly
from examples.zeitgeist_queries import (
    BUCKET,
    END,
    MAX_DISORDER,
    PLANTED,
    REGIONS,
    START,
    Planted,
    write_logs,
)
from examples.zeitgeist_sdk import Zeitgeist

ANOMALIES: dict[str, Any] = {"kind": str, "query": str, "start": datetime, "found": datetime}
BY_COMPUTATIONS, BY_SDK, LATE, TOTALS = "by_computations", "by_sdk", "late", "totals"
#: Ten seconds for three days.
RECORDS_PER_SECOND = 1_800


def build(p: df.Pipeline, pattern: Path, prefix: str) -> None:
    """Both, on the same queries; the names of the result tables begin with ``prefix``."""
    # All regions are expected: while the log of one is missing, nothing is taken for a dip.
    logs = JsonLinesInjector(
        pattern,
        event_time=_time_of,
        max_disorder=MAX_DISORDER,
        expected={f"{region}.jsonl": START for region in REGIONS},
    )
    queries = p | "queries" >> df.Read(logs)
    streams = p | "zeitgeist" >> zeitgeist().stream("queries", queries)
    _write_anomalies(streams["anomalies"], prefix + BY_COMPUTATIONS)
    _write_anomalies(queries | "sdk" >> Zeitgeist(), prefix + BY_SDK)
    late: Any = streams["late_queries"] | "late rows" >> df.Map(_late_row)
    late | df.WriteToPostgres(prefix + LATE, columns={"query": str, "time": str})
    totals: Any = streams["daily_totals"] | "total rows" >> df.Map(_total_row)
    totals | df.WriteToPostgres(
        prefix + TOTALS, columns={"region": str, "day": str, "queries": int}, key=("region", "day")
    )


def _time_of(query: dict[str, str]) -> datetime:
    return datetime.fromisoformat(query["time"])


def _write_anomalies(anomalies: df.PCollection[Anomaly], table: str) -> None:
    rows: Any = anomalies | f"{table} rows" >> df.Map(attrs.asdict)
    rows | f"write {table}" >> df.WriteToPostgres(table, columns=ANOMALIES)


def _late_row(query: dict[str, str]) -> dict[str, str]:
    return {"query": query["query"], "time": query["time"]}


def _total_row(total: tuple[str, Any, int]) -> dict[str, Any]:
    region, day, queries = total
    return {"region": region, "day": day.isoformat(), "queries": queries}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 if everything planted was found, nothing else, and both agree; else 1."""
    asked = _parser().parse_args(arguments)
    options: dict[str, Any] = {}
    if asked.runner != "direct":
        options = {"job": f"zeitgeist-{asked.runner}", "fresh": True}
        if asked.store:
            options["store"] = asked.store
    if asked.runner == "streaming":
        # For each log.  Files are read so fast that days pass before it is known how far event time has come.
        options["records_per_second"] = RECORDS_PER_SECOND
    try:
        with TemporaryDirectory() as folder:
            pattern = write_logs(Path(folder), asked.seed)
            pipeline = df.Pipeline(asked.runner, **options)
            # A table for each runner: what several jobs write to one table is in it together.
            prefix = f"zeitgeist_{asked.runner}_"
            build(pipeline, pattern, prefix)
            result = pipeline.run()
            result.wait_until_finish()
            return _report(result, prefix)
    except df.DataflowError as error:
        print(error, file=sys.stderr)
        return 2


def _report(result: df.PipelineResult, prefix: str) -> int:
    by_computations, by_sdk = (
        _anomalies(result, prefix + name) for name in (BY_COMPUTATIONS, BY_SDK)
    )
    totals = {
        (row["region"], row["day"]): row["queries"] for row in result.read_table(prefix + TOTALS)
    }
    print(f"{sum(totals.values()):,} queries of {(END - START).days} days:", end=" ")
    regions = sorted({region for region, _ in totals})
    print(
        ", ".join(
            f"{region} {sum(count for (each, _), count in totals.items() if each == region):,}"
            for region in regions
        )
    )
    print(
        f"late, dropped and counted: {len(result.read_table(prefix + LATE))} by the computations,",
        end=" ",
    )
    print(f"{sum(late['count'] for late in result.late_records())} by the SDK's windows\n")
    print(f"{'planted':51}{'found after, by computations':30}by the SDK")
    is_all = True
    for planted in PLANTED:
        found = [_first(planted, each) for each in (by_computations, by_sdk)]
        is_all = is_all and None not in found
        start, end = f"{planted.start:%H:%M}", f"{planted.end:%H:%M}"
        shown = [_shown_delay(planted, each) for each in found]
        print(
            f"{planted.kind:6}{planted.query:21}{start} to {end}, x {planted.factor:<7}",
            f"{shown[0]:30}{shown[1]}",
        )
    other = [
        each for each in by_computations if not any(_is_of(planted, each) for planted in PLANTED)
    ]
    print(f"\nfound and not planted: {len(other)}", *map(_shown, other), sep="\n  ")
    sets = [{_identity(each) for each in anomalies} for anomalies in (by_computations, by_sdk)]
    print(f"computations and SDK {'agree' if sets[0] == sets[1] else 'DISAGREE'}", end=" ")
    print(f"on {len(sets[0] | sets[1])} buckets", *sorted(map(str, sets[0] ^ sets[1])), sep="\n  ")
    return 0 if is_all and not other and sets[0] == sets[1] else 1


def _anomalies(result: df.PipelineResult, table: str) -> list[Anomaly]:
    found = [Anomaly(**row) for row in result.read_table(table)]
    return sorted(found, key=lambda each: (each.start, each.query))


def _identity(anomaly: Anomaly) -> tuple[Any, ...]:
    return anomaly.kind, anomaly.query, anomaly.start.isoformat()


def _is_of(planted: Planted, anomaly: Anomaly) -> bool:
    is_same = (planted.kind, planted.query) == (anomaly.kind, anomaly.query)
    return is_same and planted.start <= anomaly.start < planted.end


def _first(planted: Planted, anomalies: Sequence[Anomaly]) -> datetime | None:
    return min((each.found for each in anomalies if _is_of(planted, each)), default=None)


def _shown_delay(planted: Planted, found: datetime | None) -> str:
    if found is None:
        return "NOT FOUND"
    delay = timedelta(seconds=round((found - planted.start).total_seconds()))
    return f"{delay} ({delay / BUCKET:.1f} buckets)"


def _shown(anomaly: Anomaly) -> str:
    return f"{anomaly.kind} {anomaly.query} {anomaly.start:%d %H:%M}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.zeitgeist",
        description="Finds queries that spike or dip, with computations and with the SDK.",
    )
    parser.add_argument("--runner", choices=("direct", "batch", "streaming"), default="direct")
    parser.add_argument("--seed", type=int, default=1, help="of the queries (1)")
    parser.add_argument(
        "--store",
        default=os.environ.get("DATAFLOW_STORE"),
        metavar="DSN",
        help="a Postgres of yours, for batch and streaming; else one that comes along",
    )
    return parser

"""A stream whose sums, which are emitted early and retracted, go to tables of lakes: a driver that tests may kill.

``python -m tests.lake_job CSV STORE CATALOGUE PLACE``: the input, the DSN of the store, the catalogue (a DSN, or JSON
with what pyiceberg needs to know), and a folder or an address of S3.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

import dataflow as df
from runners.streaming import StreamingRunner
from tests.sink_job import COLUMNS, RECORDS_PER_SECOND, sums

#: Batches that are killed while they wait, and while they are written.
BATCHING = df.Batching(max_delay_ms=300, max_bytes=1 << 20, max_rows=500)
ICEBERG_TABLE, ICEBERG_BY_KEY = "shop.sums", "shop.sums_by_key"


def catalog(catalogue: str, place: str) -> dict[str, str]:
    """A catalogue as JSON says it, or in a Postgres, of tables in a place."""
    if catalogue.startswith("{"):
        named: dict[str, str] = json.loads(catalogue)
        return named
    address = f"postgresql+psycopg:///?{urlencode(conninfo_to_dict(catalogue))}"
    found = {"type": "sql", "uri": address, "warehouse": f"file://{place}/iceberg"}
    if place.startswith("s3://"):
        found["warehouse"] = f"{place}/iceberg"
        found |= {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    return found


def main(path: Path, store: str, catalogue: str, place: str) -> None:
    """Run the job "lake" to its end."""
    runner = StreamingRunner(
        job="lake", store=store, records_per_second=RECORDS_PER_SECOND, show_progress=False
    )
    p = df.Pipeline(runner)
    rows: df.PCollection[dict[str, Any]] = sums(p, path)
    rows | df.WriteToDelta(
        f"{place}/changes", columns=COLUMNS, changelog="sign", shards=2, batching=BATCHING
    )
    rows | "totals" >> df.WriteToDelta(
        f"{place}/totals", columns=COLUMNS, key=["user", "start"], batching=BATCHING
    )
    rows | df.WriteToIceberg(
        ICEBERG_TABLE,
        catalog=catalog(catalogue, place),
        columns=COLUMNS,
        changelog="sign",
        batching=BATCHING,
    )
    rows | "by key" >> df.WriteToIceberg(
        ICEBERG_BY_KEY,
        catalog=catalog(catalogue, place),
        columns=COLUMNS,
        key=["user", "start"],
        batching=BATCHING,
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

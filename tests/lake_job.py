"""A stream whose sums, which are emitted early and retracted, go to tables of lakes: a driver that tests may kill.

``python -m tests.lake_job CSV STORE CATALOGUE FOLDER``: the input, the DSNs, and where to.
"""

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
ICEBERG_TABLE = "shop.sums"


def catalog(dsn: str, folder: str) -> dict[str, str]:
    """A catalogue in a Postgres."""
    address = f"postgresql+psycopg:///?{urlencode(conninfo_to_dict(dsn))}"
    return {"type": "sql", "uri": address, "warehouse": f"file://{folder}/iceberg"}


def main(path: Path, store: str, catalogue: str, folder: str) -> None:
    """Run the job "lake" to its end."""
    runner = StreamingRunner(
        job="lake", store=store, records_per_second=RECORDS_PER_SECOND, show_progress=False
    )
    p = df.Pipeline(runner)
    rows: df.PCollection[dict[str, Any]] = sums(p, path)
    rows | df.WriteToDelta(
        f"{folder}/changes", columns=COLUMNS, changelog="sign", shards=2, batching=BATCHING
    )
    rows | "totals" >> df.WriteToDelta(
        f"{folder}/totals", columns=COLUMNS, key=["user", "start"], batching=BATCHING
    )
    rows | df.WriteToIceberg(
        ICEBERG_TABLE,
        catalog=catalog(catalogue, folder),
        columns=COLUMNS,
        changelog="sign",
        batching=BATCHING,
    )
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

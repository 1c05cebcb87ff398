"""A topology whose answers do not depend on arrival, and what they are, worked out from scratch."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import dataflow as df
from dataflow.computations import WALL_TIME, Computation, Record, Timer, Topology

#: Query, region.
Visit = tuple[int, int]
#: Seconds.
BUCKET, SILENT = 60, 30
COLUMNS = {"key": str, "start": float, "value": str}
TABLES = ("counts", "busiest", "silences")


class JsonCoder:
    """State as text."""

    def encode(self, state: Any, /) -> bytes:
        return json.dumps(state).encode()

    def decode(self, encoded: bytes, /) -> Any:
        return json.loads(encoded)


def query_of(visit: Visit) -> int:
    return visit[0]


def region_of(visit: Visit) -> int:
    return visit[1]


class BucketCounter(Computation):
    """Visits of a query by the minute, emitted when the minute is over: the paper's Windower (figure 9)."""

    inputs = {"visits": query_of}
    outputs = ["counts"]
    initial_state = dict
    state_coder = JsonCoder()

    def process_record(self, record: Record) -> None:
        bucket = str(int(record.timestamp.timestamp()) // BUCKET * BUCKET)
        self.state[bucket] = self.state.get(bucket, 0) + 1
        self.set_timer(bucket, int(bucket) + BUCKET)

    def process_timer(self, timer: Timer) -> None:
        count = self.state.pop(timer.tag)
        self.produce((int(timer.tag), timer.key, count), "counts")


class Busiest(Computation):
    """The query with the most visits in a minute; of several the first one.  Its key is the minute."""

    def process_record(self, record: Record) -> None:
        _, query, count = record.value
        self.state = min(self.state or (0, 0), (-count, query))
        # The counts of a minute are all at its end; once the low watermark has passed that, all of them are there.
        self.set_timer("all are there", record.timestamp + timedelta(seconds=1))

    def process_timer(self, timer: Timer) -> None:
        count, query = self.state
        self.state = None
        self.produce((timer.key, query, -count), "busiest")


class Silences(Computation):
    """When nothing came from a region for half a minute: a timer for each visit, which has its time as its tag."""

    inputs = {"visits": region_of}
    outputs = ["silences"]
    initial_state = list

    def process_record(self, record: Record) -> None:
        self.state.append(record.timestamp)
        self.set_timer(record.timestamp.isoformat(), record.timestamp + timedelta(seconds=SILENT))

    def process_timer(self, timer: Timer) -> None:
        since = datetime.fromisoformat(timer.tag)
        if not any(since < each < timer.time for each in self.state):
            self.produce((timer.key, since.timestamp()), "silences", timer.time)
        self.state = [each for each in self.state if each > since]


def build(pipeline: df.Pipeline, source: df.Source) -> None:
    """The topology on a source."""
    build_on(pipeline, pipeline | "read" >> df.Read(source))


def build_on(pipeline: df.Pipeline, visits: df.PCollection[Visit]) -> None:
    """Two consumers of one stream with keys of their own, and one behind the other."""
    topology = (
        Topology()
        .stream("visits", visits)
        .computation("busiest", Busiest(), inputs={"counts": lambda c: c[0]}, outputs=["busiest"])
        .computation("counter", BucketCounter())
        .computation("silences", Silences())
    )
    streams = pipeline | "top" >> topology
    for name in TABLES:
        rows = streams[name] | f"{name} rows" >> df.Map(row)
        rows | name >> df.WriteToPostgres(name, columns=COLUMNS)


def row(value: Any, at: datetime = df.DoFn.TimestampParam) -> dict[str, Any]:
    return {"key": "", "start": at.timestamp(), "value": str(value)}


def expected(visits: Iterable[tuple[Visit, int]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of the tables, sorted; a visit is with its second."""
    visits = list(visits)
    counts = Counter((at // BUCKET * BUCKET, query) for (query, _), at in visits)
    busiest: dict[int, tuple[int, int]] = {}
    for (bucket, query), count in counts.items():
        busiest[bucket] = min(busiest.get(bucket, (0, 0)), (-count, query))
    times: dict[int, set[int]] = {}
    for (_, region), at in visits:
        times.setdefault(region, set()).add(at)
    rows: dict[str, list[tuple[float, Any]]] = {
        "counts": [
            (bucket + BUCKET, (bucket, query, count)) for (bucket, query), count in counts.items()
        ],
        "busiest": [
            (bucket + BUCKET + 1, (bucket, query, -count))
            for bucket, (count, query) in busiest.items()
        ],
        "silences": [
            (at + SILENT, (region, float(at)))
            for region, all_of in times.items()
            for at in all_of
            if not any(at < each < at + SILENT for each in all_of)
        ],
    }
    return {
        name: sorted(("", float(at), str(value)) for at, value in table)
        for name, table in rows.items()
    }


class Flush(Computation):
    """Gathers numbers by their last digit, and emits the sum of each now and then, by the clock."""

    def process_record(self, record: Record) -> None:
        tag = str(record.value % 10)
        self.state = gathered = self.state or {}
        if tag not in gathered:
            self.set_timer_after(tag, 0.2)
        gathered.setdefault(tag, []).append(record.value)

    def process_timer(self, timer: Timer) -> None:
        assert timer.domain is WALL_TIME
        self.produce((timer.key, sum(self.state.pop(timer.tag))), "sums")
        self.state = self.state or None

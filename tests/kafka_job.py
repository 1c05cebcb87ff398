"""A stream from one topic to another, which tests may kill: ``python -m tests.kafka_job SERVERS STORE IN OUT``.

Of each order ``{"n": ..., "who": ...}`` the orders of that customer by then, as messages that replace each other.
"""

import json
import sys
from typing import Any

import dataflow as df
from runners.streaming import StreamingRunner

#: A broker that was away is tried again soon.
CONFIG = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "fetch.wait.max.ms": 50}


def pair(record: df.KafkaRecord) -> tuple[str, int]:
    return record.value["who"], record.value["n"]


def build(p: df.Pipeline, servers: str, orders: str, totals: str) -> None:
    (
        p
        | df.ReadFromKafka(
            orders, bootstrap_servers=servers, config=CONFIG, value="json", group_id="kafka job"
        )
        | df.Map(pair)
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterProcessingTime(0.1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.GroupByKey()
        | df.Map(total)
        | df.WriteToKafka(totals, bootstrap_servers=servers, config=CONFIG, key="who")
    )


def total(group: tuple[str, Any]) -> dict[str, Any]:
    numbers = sorted(group[1])
    return {"who": group[0], "orders": len(numbers), "sum": sum(numbers)}


def expected(orders: list[bytes]) -> dict[str, dict[str, Any]]:
    """What the totals come to, by Python alone."""
    groups: dict[str, list[int]] = {}
    for each in map(json.loads, orders):
        groups.setdefault(each["who"], []).append(each["n"])
    return {who: total((who, numbers)) for who, numbers in groups.items()}


def main() -> None:
    servers, store, orders, totals = sys.argv[1:]
    p = df.Pipeline(StreamingRunner(store=store, job="kafka", show_progress=False))
    build(p, servers, orders, totals)
    p.run().wait_until_finish()


if __name__ == "__main__":
    main()

"""Run queries of Nexmark, and compare their rows with those of the models.

python -m examples.nexmark q4 q11 --size 100000
python -m examples.nexmark q5 --columns --runner batch
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import dataflow as df
from examples.nexmark.answers import CORRECTED, FINAL
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.generator import GeneratorConfig, events
from examples.nexmark.models import MODELS
from examples.nexmark.queries import QUERIES
from examples.nexmark.source import NexmarkSource


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    found = argparse.ArgumentParser(prog="nexmark", description=__doc__.partition("\n")[0])
    add = found.add_argument
    add("queries", nargs="*", metavar="QUERY", help="q0 to q22; all if none is given")
    add("--columns", action="store_true", help="the queries in columns, of those that have them")
    add("--runner", default="direct", help="direct, batch or streaming")
    add("--size", type=int, default=10_000, help="how many events")
    add("--events-per-s", type=int, default=100, help="in event time")
    add("--disorder", type=int, default=1, help="events come shuffled in groups of so many")
    add(
        "--late-of",
        type=int,
        default=0,
        help="one event of so many is late; answers are corrected then",
    )
    add("--seed", type=int, default=0, help="another one gives other events")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns how many queries have other rows than their models.

    Args:
        arguments: of the command line; None: those of the process.
    """
    given = parser().parse_args(arguments)
    config = GeneratorConfig(
        seed=given.seed,
        size=given.size,
        events_per_s=given.events_per_s,
        disorder=given.disorder,
        late_of=given.late_of,
    )
    known = [*(COLUMN_QUERIES if given.columns else QUERIES)]
    unknown = set(given.queries) - set(known)
    if unknown:
        parser().error(f"no such query: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    happened = events(config, np.arange(given.size))
    differing = 0
    for name in given.queries or known:
        rows = Counter(_rows(name, config, given))
        is_same = rows == Counter(MODELS[name](happened))
        differing += not is_same
        verdict = "those of the model" if is_same else "NOT THOSE OF THE MODEL"
        print(f"{name}: {rows.total()} rows, {verdict}")
    return differing


def _rows(name: str, config: GeneratorConfig, given: argparse.Namespace) -> Iterator[Any]:
    p = df.Pipeline()
    options: dict[str, Any] = {} if given.runner == "direct" else {"job": f"nexmark_{name}"}
    if given.columns:
        query = COLUMN_QUERIES[name]
        source = NexmarkSource(config, query.row_type)
        event_time = df.ARRIVAL_TIME if query.by_arrival else None
        found = p | df.Read(source, event_time=event_time) | query.build()
    else:
        answers = CORRECTED if config.late_of else FINAL
        found = p | df.Read(NexmarkSource(config)) | QUERIES[name](answers)
    rows = df.collect(found, given.runner, **options)
    if name != "q12":
        return map(tuple, rows)
    totals = Counter[int]()
    for bidder, count in rows:
        totals[bidder] += count
    return iter(totals.items())


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``python -m examples.billing``, and the options of a pipeline."""

import sys
from collections.abc import Sequence
from pathlib import Path

import dataflow as df

from .pipeline import build

USAGE = Path(__file__).parent / "usage.csv"
#: The bill that is explained.
EXPLAINED = "acme,2026-03"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it, print both tables, and explain a bill that was corrected."""
    options, _ = df.parse_options(arguments)
    if options.get("runner", "direct") == "direct":
        # One record at a time, as they come, so that a late one is late.
        options = {"bundle_records": 1, **options}
    options.setdefault("lineage", "records")
    p = df.Pipeline(**options)
    build(p, USAGE)
    result = p.run()
    result.wait_until_finish()
    for table in ("bills", "bill_journal"):
        print(table)
        for row in sorted(result.read_table(table), key=lambda row: tuple(row.values())[:3]):
            print(" ", *row.values())
        print()
    print(result.explain_row("bills", EXPLAINED))


if __name__ == "__main__":
    main(sys.argv[1:])

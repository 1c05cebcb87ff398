"""The command line: ``python -m examples.card_fraud``, and the options of a pipeline."""

import sys
from collections.abc import Sequence
from pathlib import Path

import dataflow as df

from .pipeline import Case, build

PAYMENTS = Path(__file__).parent / "payments.csv"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it, and print the table; in memory, each change of a case too."""
    options, _ = df.parse_options(arguments)
    is_in_memory = options.get("runner", "direct") == "direct"
    if is_in_memory:
        # One payment at a time, as they come.
        options = {"bundle_records": 1, **options}
    p = df.Pipeline(**options)
    cases = build(p, PAYMENTS)
    if is_in_memory:
        cases | "show" >> df.Map(show)
    result = p.run()
    result.wait_until_finish()
    print("\ncases")
    for row in sorted(result.read_table("cases"), key=lambda row: (row["card"], row["opened"])):
        print(" ", line(Case(**row)))


def show(case: Case) -> None:
    """Print a case as it is now."""
    print("open  " if case.closed is None else "closed", line(case))


def line(case: Case) -> str:
    """A case as text."""
    until = f"{case.closed:%H:%M}" if case.closed else "     "
    amount = f"{case.amount_cents / 100:8.2f}"
    return f"{case.card} {case.opened:%H:%M} {until} {case.payments} {amount} {case.reason}"


if __name__ == "__main__":
    main(sys.argv[1:])

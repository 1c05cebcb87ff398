"""The command line: ``python -m examples.click_sessions``, and the options of a pipeline."""

import sys
from collections.abc import Sequence
from pathlib import Path

import dataflow as df

from .pipeline import Visit, build

CLICKS = Path(__file__).parent / "clicks.csv"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it, and print both tables; in memory, each change of the visits too."""
    options, _ = df.parse_options(arguments)
    is_in_memory = options.get("runner", "direct") == "direct"
    if is_in_memory:
        # One click at a time, as they come from a web site, so that a late one is late.
        options = {"bundle_records": 1, **options}
    p = df.Pipeline(**options)
    visits = build(p, CLICKS)
    if is_in_memory:
        visits | df.ToChangelog() | df.Map(show)
    result = p.run()
    result.wait_until_finish()
    print("\nvisits")
    for row in sorted(result.read_table("visits"), key=lambda row: (row["user"], row["began"])):
        print(" ", line(Visit(**row)))
    print("\ndashboard")
    for row in sorted(result.read_table("dashboard"), key=lambda row: row["hour"]):
        numbers = (f"{name} {row[name]:g}" for name in row if name != "hour")
        print(" ", f"{row['hour']:%H:%M}", ", ".join(numbers))


def show(change: df.Change[Visit]) -> None:
    """Print a visit that is there, or not any more."""
    print("+" if change.sign > 0 else "-", line(change.value))


def line(visit: Visit) -> str:
    """A visit as text."""
    return f"{visit.user} {visit.began:%H:%M} {visit.seconds:4} s, {visit.clicks} clicks"


if __name__ == "__main__":
    main(sys.argv[1:])

"""The program of the README: scores by team and two minutes, and one that comes late.

Prints five sums when their two minutes are over, and one of them again when a late score changes
it: the red team had 5 at noon, then 14.
"""

import dataflow as df


def show(
    total: tuple[str, int],
    window: df.Window = df.DoFn.WindowParam,
    pane: df.PaneInfo = df.DoFn.PaneParam,
) -> None:
    """Print when the window began, the team, its sum, and the timing of the pane."""
    print(f"{window.start:%H:%M}", *total, pane.timing.value)


with df.Pipeline(bundle_records=1) as p:
    (
        p
        | df.ReadFromCsv(
            "examples/team_scores.csv",
            event_time=lambda row: row["at"],
            max_disorder="1 minute",
        )
        | df.Map(lambda row: (row["team"], int(row["score"])))
        | df.WindowInto(
            df.FixedWindows("2 minutes"),
            allowed_lateness="10 minutes",
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
        | df.CombinePerKey(sum)
        | df.Map(show)
    )

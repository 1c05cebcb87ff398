"""Top Wikipedia sessions: the editor with the most edits in a row in each month."""

import dataflow as df
from examples.beam.running import main

HOUR = 3_600
DAY = 24 * HOUR
#: An editor, and when, in seconds since 1970; January 1970, and February.
EDITS = (
    *(("ada", HOUR // 2 * edit) for edit in range(4)),
    *(("ada", 9 * DAY + edit) for edit in range(2)),
    *(("mary", 3 * DAY + HOUR // 4 * edit) for edit in range(3)),
    *(("mary", 40 * DAY + 60 * edit) for edit in range(5)),
    ("ada", 41 * DAY),
)


def with_month(
    session: tuple[str, int], window: df.Window = df.DoFn.WindowParam
) -> tuple[str, int, str]:
    """An editor, the number of edits, and the day on which the session began."""
    editor, edits = session
    return editor, edits, f"{window.start:%Y-%m-%d}"


def build(p: df.Pipeline) -> df.PCollection[list[tuple[str, int, str]]]:
    """The longest session of each month, of edits that are an hour apart at most."""
    edits = p | df.Create([df.TimestampedValue(editor, at) for editor, at in EDITS])
    sessions = edits | df.WindowInto(df.Sessions(HOUR)) | df.Count.PerElement()
    return (
        sessions
        | df.Map(with_month)
        | "by month" >> df.WindowInto(df.CalendarWindows.months(time_zone="UTC"))
        | df.CombineGlobally(df.TopCombineFn(1, key=lambda session: session[1])).without_defaults()
    )


if __name__ == "__main__":
    main(build)

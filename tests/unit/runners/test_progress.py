"""Progress shows as much as the place it is written to can take."""

import io

import attrs
from rich.console import Console

from runners.progress import LINE_INTERVAL_MS, ProgressDisplay, print_line


@attrs.define
class HandClock:
    """Time moves when a test moves it."""

    ms: int = 0

    def now_us(self) -> int:
        return self.ms * 1_000

    def monotonic_ms(self) -> int:
        return self.ms


def console(*, is_terminal: bool) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=is_terminal, width=100), written


def test_plain_lines_come_now_and_then() -> None:
    plain, written = console(is_terminal=False)
    clock = HandClock()
    with ProgressDisplay("batch", unit="tasks", console=plain, clock=clock) as progress:
        for done in range(11):
            progress.update(done=done, total=12, note="[stage] x")
            clock.ms += LINE_INTERVAL_MS // 4
        progress.update(done=20)

    assert written.getvalue().splitlines() == [
        "batch: 4 of 12 tasks, [stage] x",
        "batch: 8 of 12 tasks, [stage] x",
    ]


def test_an_unknown_total_is_left_out() -> None:
    plain, written = console(is_terminal=False)
    clock = HandClock()
    with ProgressDisplay("streaming", unit="records", console=plain, clock=clock) as progress:
        clock.ms += LINE_INTERVAL_MS
        progress.update(done=7)

    assert written.getvalue() == "streaming: 7 records\n"


def test_a_terminal_has_a_bar() -> None:
    terminal, written = console(is_terminal=True)
    with ProgressDisplay("batch", unit="tasks", console=terminal) as progress:
        progress.update(done=3, total=12, note="[stage] x")

    assert "3/12" in written.getvalue()
    assert "[stage] x" in written.getvalue()


def test_silence() -> None:
    for is_terminal in (True, False):
        quiet, written = console(is_terminal=is_terminal)
        clock = HandClock()
        with ProgressDisplay(
            "batch", unit="tasks", show=False, console=quiet, clock=clock
        ) as progress:
            clock.ms += LINE_INTERVAL_MS
            progress.update(done=1, total=2)
        assert written.getvalue() == ""


def test_a_line_is_printed_as_it_is() -> None:
    plain, written = console(is_terminal=False)
    print_line("job 'x' [done] " + "y" * 200, console=plain)

    assert written.getvalue() == "job 'x' [done] " + "y" * 200 + "\n"

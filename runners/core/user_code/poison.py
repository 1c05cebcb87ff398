"""Poison records: what makes user code fail whenever it is tried, kept as a dead letter so that the rest goes on.

A stage's transforms run over a bundle.  When one of them fails, the bundle is tried again in halves, down to single
records; a record that has failed alone as often as it may is left out with all that it would have caused in the stage.
What is kept of it is a dead letter (`.dead_letters`).
A stateful DoFn is tried on one element, or timer, at a time; when it fails, state and timers are as before.

Trying is all that happens to a record of a bundle that fails: user code may see it several times, as after a crash.
Code that fails for reasons that no record is to blame for (a `CombineFn` that cannot merge, `DoFn.setup`) stops the
job.

DESIGN section 6 (poison records).
"""

from collections.abc import Callable, Mapping
from typing import Any

from dataflow.errors import DataflowError
from runners.core.ground.bundle import Bundle
from runners.core.ground.dead_letters import DeadLetter, dead_letter

#: Runs code somewhere else, without any effect here, and comes back when that has returned or raised.
#: Raises `DataflowError` if it has ended its process, or does not come back.
Trial = Callable[[Callable[[], object]], None]


def on_trial(run: Callable[[Bundle], None], trial: Trial | None) -> Callable[[Bundle], None]:
    """What runs a bundle only if it was run on trial before, and the process was still there then."""
    if trial is None:
        return run

    def tried(part: Bundle) -> None:
        trial(lambda: run(part))
        run(part)

    return tried


def run_isolated(
    run: Callable[[Bundle], None], bundle: Bundle, *, stage: str, tries: int
) -> list[DeadLetter]:
    """Run a bundle so that records that fail are left out.

    Args:
        run: must have no effect when it raises `DataflowError`.
        bundle: not empty.
        stage: the name of the read or grouping that the records come from.
        tries: how often a record is tried alone; at least 1.

    Returns:
        The records that were left out, in the order of the bundle.
    """
    waiting, dead = [bundle], []
    while waiting:
        part = waiting.pop()
        remembered = _remembered(part)
        for attempt in range(1, tries + 1):
            try:
                run(part)
                break
            except DataflowError as error:
                _restore(part, remembered)
                if len(part) > 1:
                    middle = len(part) // 2
                    waiting += [_slice(part, middle, len(part)), _slice(part, 0, middle)]
                    break
                if attempt == tries:
                    letter = dead_letter(
                        error,
                        stage=stage,
                        element=part.values[0],
                        timestamp_us=part.timestamps_us[0],
                        window=part.window_at(0),
                        sign=part.signs[0] if part.signs else +1,
                        tries=tries,
                    )
                    dead.append(letter)
    return dead


def _slice(bundle: Bundle, start: int, end: int) -> Bundle:
    return bundle.take(range(start, end), bundle.values[start:end])


def _remembered(bundle: Bundle) -> list[Mapping[str, list[list[Any]]] | None]:
    """What non-deterministic code is to be asked for again: running it changes that."""
    return [
        emitted.remembered and {label: list(kept) for label, kept in emitted.remembered.items()}
        for emitted in bundle.emitted_panes or ()
    ]


def _restore(bundle: Bundle, remembered: list[Mapping[str, list[list[Any]]] | None]) -> None:
    for emitted, before in zip(bundle.emitted_panes or (), remembered, strict=True):
        emitted.remembered = before and {label: list(kept) for label, kept in before.items()}

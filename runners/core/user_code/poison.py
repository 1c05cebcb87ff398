"""Poison records: records on which user code fails however often it is tried; kept as dead letters.

A stage's transforms run over a bundle.  When one of them fails, the bundle is tried again in halves, down to single
records; a record that has failed alone as often as allowed is left out, with all that it would have caused in the
stage.  A dead letter is kept of it (`runners.core.ground.dead_letters`).  A stateful DoFn is tried on one element, or
timer, at a time; when it fails, state and timers are as before.

The only side effect for other records of a bundle that fails is that user code may see them several times, as after a
crash.  Code that fails for reasons that no single record causes (a `CombineFn` that cannot merge, `DoFn.setup`) stops
the job.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dataflow.errors import DataflowError
from runners.core.ground.bundle import Bundle
from runners.core.ground.dead_letters import DeadLetter, dead_letter

#: Runs code somewhere else, without any effect here, and returns when that has returned or raised.
#: Raises `DataflowError` if the code has ended its process, or does not return.
Trial = Callable[[Callable[[], object]], None]


def on_trial(run: Callable[[Bundle], None], trial: Trial | None) -> Callable[[Bundle], None]:
    """A function that runs a bundle on trial first, and then runs it if the trial's process is still there.

    Args:
        run: runs a bundle.
        trial: runs code on trial; None: ``run`` is returned as it is.
    """
    if trial is None:
        return run

    def tried(part: Bundle) -> None:
        trial(lambda: run(part))
        run(part)

    return tried


def run_isolated(
    run: Callable[[Bundle], None], bundle: Bundle, *, stage: str, tries: int
) -> list[DeadLetter]:
    """Run a bundle, leaving out records on which it fails.

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
    """A copy of the outputs that nondeterministic code has remembered, since running the code changes them."""
    return [
        emitted.remembered and {label: list(kept) for label, kept in emitted.remembered.items()}
        for emitted in bundle.emitted_panes or ()
    ]


def _restore(bundle: Bundle, remembered: list[Mapping[str, list[list[Any]]] | None]) -> None:
    for emitted, before in zip(bundle.emitted_panes or (), remembered, strict=True):
        emitted.remembered = before and {label: list(kept) for label, kept in before.items()}

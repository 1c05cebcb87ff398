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
from typing import Any, Protocol

from dataflow.errors import DataflowError, TooManyFailuresError
from dataflow.metric_updates import attempt
from runners.core.ground.bundle import Bundle
from runners.core.ground.dead_letters import DeadLetter, dead_letter

_Run = Callable[[Bundle], None]


class Trial(Protocol):
    """Runs code somewhere else, without any effect here."""

    def __call__(self, run: Callable[[], object]) -> None:
        """Come back when the code has returned or raised.

        Raises:
            DataflowError: it has ended its process, or does not return.
        """

    def renew(self) -> None:
        """Give the code that is run here next as much time as a trial has."""


def on_trial(run: _Run, trial: Trial | None) -> _Run:
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
    run: _Run, bundle: Bundle, *, stage: str, tries: int, trial: Trial | None = None
) -> list[DeadLetter]:
    """Run a bundle, leaving out records on which it fails.

    On trial all of that is done in one process: what only raises costs no process of its own.  Where that process ends,
    or takes too long, each half of the bundle is given another one; a single record has one for each time that it is
    tried.

    Args:
        run: must have no effect when it raises `DataflowError`.
        bundle: not empty.
        stage: the name of the read or grouping that the records come from.
        tries: how often a record is tried alone; at least 1.
        trial: runs code on trial before it is run here; None: it is run here at once.

    Returns:
        The records that were left out, in the order of the bundle.
    """
    if trial is None:
        return _isolated(run, bundle, stage, tries)

    def renewing(part: Bundle) -> None:
        # Each part has the time of a whole bundle: whether what is left of one is enough would be up to chance.
        trial.renew()
        run(part)

    waiting, dead = [bundle], list[DeadLetter]()
    while waiting:
        part = waiting.pop()
        if len(part) == 1:
            dead += _isolated(on_trial(run, trial), part, stage, tries)
        elif _comes_back(run, part, stage, tries, trial):
            dead += _isolated(renewing, part, stage, tries)
        else:
            waiting += halves(part)
    return dead


def _comes_back(run: _Run, part: Bundle, stage: str, tries: int, trial: Trial) -> bool:
    """Whether a bundle that is isolated on trial leaves the process there."""
    try:
        trial(lambda: _isolated(run, part, stage, tries))
    except DataflowError:
        return False
    return True


def _isolated(run: _Run, bundle: Bundle, stage: str, tries: int) -> list[DeadLetter]:
    waiting, dead = [bundle], []
    while waiting:
        part = waiting.pop()
        remembered = _remembered(part)
        for number in range(1, tries + 1):
            try:
                with attempt():
                    run(part)
                break
            except TooManyFailuresError:
                raise
            except DataflowError as error:
                _restore(part, remembered)
                if len(part) > 1:
                    waiting += halves(part)
                    break
                if number == tries:
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


def halves(part: Bundle) -> list[Bundle]:
    """Both halves of a bundle, the first one last: it is taken next."""
    middle = len(part) // 2
    return [_slice(part, middle, len(part)), _slice(part, 0, middle)]


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

"""simulate: a pipeline under many seeds, as one call that a test makes."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from runners.millwheel.model.guarantees import Guarantees
from runners.stored.framing import Format
from runners.testing.simulator.errors import InvariantError, SimulationError
from runners.testing.simulator.fault import ALL_FAULTS, Fault
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.simulation import BuildLike, Scenario, Simulation


@attrs.frozen(kw_only=True)
class Summary:
    """The outcome of a number of seeds.

    Attributes:
        virtual_s: simulated seconds.
        real_s: how long that took.
        commits: bundles that were committed and checked.
        faults: how often each kind struck.
    """

    seeds: int
    virtual_s: float
    real_s: float
    commits: int
    faults: Counter[Fault]

    @classmethod
    def of(cls, summaries: Iterable["Summary"]) -> "Summary":
        """Some summaries as one."""
        each = list(summaries)
        return cls(
            seeds=sum(summary.seeds for summary in each),
            virtual_s=sum(summary.virtual_s for summary in each),
            real_s=sum(summary.real_s for summary in each),
            commits=sum(summary.commits for summary in each),
            faults=sum((summary.faults for summary in each), Counter()),
        )

    def __str__(self) -> str:
        struck = ", ".join(f"{count} {fault}" for fault, count in sorted(self.faults.items()))
        return (
            f"{self.seeds} seeds, {self.seeds / self.real_s:.0f} a second; {self.virtual_s:.0f} simulated seconds, "
            f"{self.commits} commits; faults: {struck or 'none'}"
        )


def simulate(
    build: BuildLike | str,
    *,
    seeds: int | Iterable[int] = 50,
    faults: Collection[Fault] | Mapping[Fault, float] = ALL_FAULTS,
    tables: Collection[str] | None = None,
    whole: str | None = None,
    workers: int = 2,
    tries: int | None = None,
    guarantees: Mapping[str, Guarantees] = MappingProxyType({}),
    steps: int | None = None,
    update: BuildLike | None = None,
    drain: bool = False,
    upgrade: Format | None = None,
) -> Summary:
    """Run a pipeline on a simulated cluster, again and again, with other faults each time.

    The input has to end, and to be the same whenever it is read.

    Args:
        build: a function that builds the pipeline on the `Pipeline` it is given; with a second parameter it is also
            given a `random.Random`, the same for the same seed, to draw its input from.  Or the name of one of the
            pipelines that come along (`runners.testing.simulator.pipelines`).
        seeds: how many, from 0 on; or which.
        faults: the kinds that may strike; each run has some of them, and every tenth none.  Or, of each kind that is
            to strike in every run, how often it does where it can: 0.1 is once in ten times, which is very often.
        tables: the result tables whose rows must be those of the direct runner; by default all that have a key.
        whole: the label of a grouping into lists, in whose panes or among whose late records each value must be once.
        workers: of the cluster.
        tries: of a record that makes user code fail, before it is a dead letter; by default it fails the run.
        guarantees: of computations that do without some, by label; the code in and behind them must be idempotent.
        steps: records, deliveries, timers or cells that a worker takes in one step; by default one seed in three takes
            one or two, and the others as many as in a running job.
        update: builds another version, to which the job goes over at some moment, whatever it loses by that; what it
            keeps must then be as if that had been alone.  Of tables only those in ``tables`` are compared.
        drain: whether the job is asked, at some moment, to end where it is; it must then emit all that it has read.
        upgrade: the format of the code that goes on, after everybody was killed at some moment.

    Raises:
        SimulationError: a seed violates an invariant; shows which one, how to replay it, and what has happened.
        DataflowError: the pipeline itself is wrong.
    """
    name = build if isinstance(build, str) else None
    if isinstance(build, str):
        named = PIPELINES[build]
        build, tables, whole = named.build, named.tables, named.whole
    options: dict[str, Any] = {
        "faults": dict(faults) if isinstance(faults, Mapping) else frozenset(faults),
        "tables": tables,
        "whole": whole,
        "workers": workers,
    }
    options |= {"tries": tries, "guarantees": dict(guarantees), "steps": steps}
    options |= {"update": update, "drain": drain, "upgrade": upgrade}
    struck: Counter[Fault] = Counter()
    count = commits = virtual_ms = 0
    start_s = time.perf_counter()
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        simulation = _run(build, name, seed, options)
        count += 1
        struck += simulation.cluster.dice.struck
        commits += simulation.cluster.ledger.commits
        virtual_ms += simulation.cluster.clock.monotonic_ms()
    return Summary(
        seeds=count,
        virtual_s=virtual_ms / 1_000,
        real_s=time.perf_counter() - start_s,
        commits=commits,
        faults=struck,
    )


def _run(build: BuildLike, name: str | None, seed: int, options: Mapping[str, Any]) -> Simulation:
    """Run one seed; the message of its error has how to replay it."""
    try:
        simulation = _simulation(build, seed, options)
        simulation.run()
    except (AssertionError, InvariantError) as error:
        raise SimulationError(_explained(build, name, seed, options, error)) from None
    except Exception as error:
        error.add_note(f"replay: {_replay(build, name, seed, options)}")
        raise
    return simulation


def _simulation(
    build: BuildLike, seed: int, options: Mapping[str, Any], *, is_detailed: bool = False
) -> Simulation:
    names = [each.name for each in attrs.fields(Scenario)]
    scenario = Scenario(**{name: options[name] for name in names})
    others = {name: value for name, value in options.items() if name not in names}
    return Simulation(build, seed, scenario=scenario, is_detailed=is_detailed, **others)


def _explained(
    build: BuildLike,
    name: str | None,
    seed: int,
    options: Mapping[str, Any],
    error: BaseException,
) -> str:
    """Run a seed once more, with its story."""
    again = _simulation(build, seed, options, is_detailed=True)
    keys: frozenset[str] = frozenset()
    try:
        again.run()
    except (InvariantError, SimulationError) as repeated:
        keys = repeated.keys
    except AssertionError:
        pass
    about = f" of keys {', '.join(sorted(keys))}" if keys else ""
    return "\n".join(
        [
            f"pipeline {_name(build, name)}, seed {seed}: {error}",
            "",
            f"replay: {_replay(build, name, seed, options)}",
            f"trace: {again.cluster.trace.digest}",
            "",
            f"the story{about}:",
            *again.cluster.trace.story(keys),
        ]
    )


def _replay(build: BuildLike, name: str | None, seed: int, options: Mapping[str, Any]) -> str:
    rates = options["faults"] if isinstance(options["faults"], dict) else None
    faults = sorted(options["faults"])
    usual: dict[str, Any] = {
        "tables": None,
        "whole": None,
        "workers": 2,
        "tries": None,
        "guarantees": {},
        "steps": None,
        "update": None,
        "drain": False,
        "upgrade": None,
    }
    asked = [each for each, value in usual.items() if options[each] != value]
    if name is not None and rates is None and not {*asked} - {"tables", "whole"}:
        line = f"python -m runners.testing.simulator --pipeline {name} --seed {seed}"
        is_usual = options["faults"] == ALL_FAULTS
        return line if is_usual else f"{line} --faults {','.join(faults) or 'none'}"
    what = repr(name) if name is not None else getattr(build, "__name__", "build")
    if name is not None:
        asked = [each for each in asked if each not in ("tables", "whole")]
    arguments = [what, f"seeds=[{seed}]"]
    if rates is not None:
        shown = (f"Fault.{each.name}: {rates[each]}" for each in faults)
        arguments.append(f"faults={{{', '.join(shown)}}}")
    elif options["faults"] != ALL_FAULTS:
        arguments.append(f"faults=[{', '.join(f'Fault.{each.name}' for each in faults)}]")
    for option in asked:
        value = options[option]
        arguments.append(f"{option}={getattr(value, '__name__', None) or repr(value)}")
    return f"simulate({', '.join(arguments)})"


def _name(build: BuildLike, name: str | None) -> str:
    return name or f"{build.__module__}:{getattr(build, '__qualname__', build)}"

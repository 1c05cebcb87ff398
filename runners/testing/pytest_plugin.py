"""The plugin of pytest: simulated clusters as a fixture, and a picture of what a law refuted.

Where the package is installed pytest finds it by itself (entry point ``pytest11``).  It imports pytest alone until a
test asks for it: so it costs nothing where it is not used, and coverage sees what is imported later.
"""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # loaded when they are needed
    from dataflow.testing.laws import LawViolationError
    from runners.testing.simulator import Summary

_SEEDS = 50
_SEEDS_KEY = "dataflow/failed-seeds"
#: Where the cache of pytest has the pictures.
_PICTURES = "dataflow-panes"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say how hard to look."""
    group = parser.getgroup("dataflow", "pipelines of dataflow-model")
    group.addoption(
        "--dataflow-seeds",
        type=int,
        metavar="N",
        help="clusters that a test simulates with each call of simulate_cluster (default: the setting "
        f"dataflow_seeds, else {_SEEDS})",
    )
    group.addoption(
        "--dataflow-seed",
        type=int,
        action="append",
        metavar="SEED",
        help="simulate this cluster alone, to see a failure again; may be repeated",
    )
    parser.addini(
        "dataflow_seeds", "clusters that a test simulates with each call", default=str(_SEEDS)
    )


@pytest.fixture
def simulate_cluster(request: pytest.FixtureRequest) -> Callable[..., "Summary"]:
    """`runners.testing.simulator.simulate`, with as many seeds as the command line says.

    Takes the arguments of `simulate` but ``seeds``.  The seeds with which the test has failed before come first, until
    it passes with them; pytest's cache remembers them (``--cache-clear`` forgets).

    Raises:
        SimulationError: a seed violates an invariant; shows which one, how to replay it, and what has happened.
    """
    from runners.testing.simulator import SimulationError, Summary, simulate  # noqa: PLC0415 - for those who ask

    failed_before: dict[str, list[int]] = _cache(request.config).get(_SEEDS_KEY, {})
    before = failed_before.get(request.node.nodeid, [])

    def remember(seeds: Iterable[int]) -> None:
        kept = dict.fromkeys(seeds)
        failed_before[request.node.nodeid] = list(kept)
        _cache(request.config).set(
            _SEEDS_KEY, {key: each for key, each in failed_before.items() if each}
        )

    def simulate_seeds(build: Any, **options: Any) -> Summary:
        summaries = []
        for seed in _seeds(request.config, before):
            try:
                summaries.append(simulate(build, seeds=[seed], **options))
            except SimulationError:
                remember([seed, *before])
                raise
        if not request.config.getoption("dataflow_seed"):
            remember([])
        return Summary.of(summaries)

    return simulate_seeds


def _seeds(config: pytest.Config, before: Iterable[int]) -> Iterable[int]:
    if wanted := config.getoption("dataflow_seed"):
        return list(wanted)
    count = config.getoption("dataflow_seeds")
    if count is None:
        count = int(config.getini("dataflow_seeds"))
    return dict.fromkeys([*before, *range(count)])


def _cache(config: pytest.Config) -> Any:
    """The cache of pytest; something that forgets where that is switched off."""
    return getattr(config, "cache", None) or _NoCache()


class _NoCache:
    def get(self, key: str, default: Any) -> Any:
        return default

    def set(self, key: str, value: Any) -> None:
        pass


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[Any]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the program and the panes of a counterexample below its failure.

    Args:
        item: the test.
        call: what has happened in it.
    """
    report = yield
    if call.excinfo is not None and report.failed:
        violation = _violation(call.excinfo.value)
        if violation is not None:
            report.sections.append(("panes", _shown(violation, _folder(item))))
    return report


def _violation(error: BaseException) -> "LawViolationError | None":
    """What a law has raised, also in a group: hypothesis raises several failures of a test together."""
    from dataflow.testing.laws import LawViolationError  # noqa: PLC0415 - only where something has failed

    if isinstance(error, LawViolationError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (_violation(each) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return None


def _folder(item: pytest.Item) -> Path | None:
    cache = getattr(item.config, "cache", None)
    return None if cache is None else Path(cache.mkdir(_PICTURES))


def _shown(violation: "LawViolationError", folder: Path | None) -> str:
    from runners.testing.counterexamples import picture, program  # noqa: PLC0415 - only where something has failed

    lines = []
    for number, stream in enumerate(violation.streams):
        lines += [program(violation.build, stream), ""]
        for place, key in enumerate(dict.fromkeys(violation.keys)):
            drawn = picture(violation.build, stream, key)
            if folder is not None and drawn is not None:
                path = folder / f"stream-{number}-key-{place}.svg"
                path.write_text(drawn)
                lines.append(f"panes of key {key!r}: {path}")
    return "\n".join(lines)

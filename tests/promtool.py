"""promtool, Prometheus' own checker: rules over series of a job as it was scraped, extrapolated for minutes."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import attrs
import yaml
from prometheus_client.parser import text_string_to_metric_families

from runners.observability.metrics.documents import GENERATED, RULES_FILE

RULES = Path(str(GENERATED / RULES_FILE))
STEP_S = 15
_STEPS = 80
_AFTER = "8m"
#: So fast do ages grow, of what stands still.
_OF_THE_CLOCK = (0.8, 1.2)


def program() -> str | None:
    """The program, from the variable DATAFLOW_PROMTOOL or the path; None: it is not there."""
    return os.environ.get("DATAFLOW_PROMTOOL") or shutil.which("promtool")


MISSING = "no promtool: on Debian, apt install prometheus, or set DATAFLOW_PROMTOOL to the program"


def run(*arguments: str | Path, cwd: Path | None = None) -> str:
    """What it prints; raises where it finds fault."""
    promtool = program()
    assert promtool is not None, MISSING
    done = subprocess.run(
        [promtool, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@attrs.frozen
class Scrape:
    """What was answered at an instant, in seconds since 1970."""

    at: float
    values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

    @classmethod
    def of(cls, text: str, at: float) -> "Scrape":
        values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return cls(at, values)


def extrapolated(scrapes: Sequence[Scrape]) -> list[dict[str, str]]:
    """The series of the last scrape, going on as they did: input of ``promtool test rules``, whose time begins at 0."""
    return [
        {"series": _series(*key), "values": _values(key[0], [each.values.get(key) for each in scrapes], scrapes)}
        for key in scrapes[-1].values
    ]  # fmt: skip


def _series(name: str, labels: Iterable[tuple[str, str]]) -> str:
    return f"{name}{{{','.join(f'{key}={_quoted(value)}' for key, value in labels)}}}"


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _values(name: str, found: Sequence[float | None], scrapes: Sequence[Scrape]) -> str:
    last = found[-1]
    assert last is not None
    if name.endswith("_timestamp_seconds"):
        last -= scrapes[-1].at
    slope = _slope(name, found, scrapes) * STEP_S
    if last in (float("inf"), float("-inf")):
        return " ".join(["Inf"] * _STEPS)
    return f"{last:f}{slope:+f}x{_STEPS}"


def _slope(name: str, found: Sequence[float | None], scrapes: Sequence[Scrape]) -> float:
    if len(scrapes) < 2 or None in found or float("inf") in found:
        return 0.0
    values = [each for each in found if each is not None]
    pairs = list(zip(scrapes, values, strict=True))
    slopes = [
        (later - value) / (after.at - before.at)
        for (before, value), (after, later) in pairwise(pairs)
    ]
    is_known = name.endswith(("_timestamp_seconds", "_total", "_count", "_sum", "_bucket"))
    if is_known or all(_OF_THE_CLOCK[0] < each < _OF_THE_CLOCK[1] for each in slopes):
        return (values[-1] - values[0]) / (scrapes[-1].at - scrapes[0].at)
    return 0.0


def assert_firing(
    folder: Path, scrapes: Sequence[Scrape], expected: Iterable[str], *, ignored: Iterable[str] = ()
) -> None:
    """These alerts, and no others but those that are ignored, fire if the job goes on so for eight minutes."""
    others = "|".join(ignored)
    expr = f'count by (alertname) (ALERTS{{alertstate="firing", severity!="info", alertname!~"{others}"}}) > bool 0'
    samples = [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(expected)]
    _test(
        folder, extrapolated(scrapes), [{"expr": expr, "eval_time": _AFTER, "exp_samples": samples}]
    )


def assert_evaluates(folder: Path, scrapes: Sequence[Scrape], exprs: Mapping[str, str]) -> None:
    """Each of these expressions finds something, by a name for each of them."""
    tests = [
        {"expr": f"count({expr}) > bool 0", "eval_time": _AFTER, "exp_samples": [{"labels": "{}", "value": 1}]}
        for expr in exprs.values()
    ]  # fmt: skip
    _test(folder, extrapolated(scrapes), tests)


def _test(folder: Path, series: object, tests: object) -> None:
    asked = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [{"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": tests}],
    }
    path = folder / "rules_test.yml"
    path.write_text(yaml.safe_dump(asked, sort_keys=False), encoding="utf-8")
    run("test", "rules", path)

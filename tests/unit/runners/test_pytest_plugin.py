"""The plugin of pytest, as a user's tests have it."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import runners.testing.simulator  # noqa: F401 - extensions in it can be loaded once, and pytester forgets what it loads

pytest_plugins = ["pytester"]

#: Where the checkout was installed before it had the plugin, pytest does not know of it by itself.
PLUGIN = (
    ()
    if any(each.name == "dataflow" for each in entry_points(group="pytest11"))
    else ("-p", "runners.testing.pytest_plugin")
)

BUILD = """
import dataflow as df

counted = []


def build(p):
    (
        p
        | df.Create([df.TimestampedValue(("red", n), n) for n in range(9)])
        | df.WindowInto(df.FixedWindows(3), accumulation_mode=df.AccumulationMode.ACCUMULATING)
        | "sum" >> df.CombinePerKey(FUNCTION)
        | df.Map(lambda pair, window=df.DoFn.WindowParam: {"at": window.start_us, "sum": pair[1]})
        | df.WriteToPostgres("sums", columns={"at": int, "sum": int}, key=["at"])
    )


def test_sums(simulate_cluster):
    print(simulate_cluster(build))
"""
#: A sum of which later runs of the same work say more than the first: it remembers something outside of its state.
FORGETFUL = """
runs = []


def more_each_time(values):
    runs.append(1)
    return sum(values) + len(runs) // 40
"""
LAW = """
import dataflow as df
from dataflow.testing.laws import check_order_insensitive
from dataflow.testing.strategies import elements
from hypothesis import given, settings


def latest(scores):
    return scores | df.WindowInto(df.FixedWindows(60)) | df.CombinePerKey(lambda values: list(values)[-1])


@settings(deadline=None, database=None)
@given(elements())
def test_latest(scores):
    check_order_insensitive(latest, scores)
"""


pytestmark = pytest.mark.slow


def run(pytester: pytest.Pytester, program: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(program)
    return pytester.runpytest_inprocess(*PLUGIN, "-p", "no:xdist", *options)


def test_as_many_clusters_are_simulated_as_the_command_line_wants(
    pytester: pytest.Pytester,
) -> None:
    program = BUILD.replace("FUNCTION", "sum")
    done = run(pytester, program, "--dataflow-seeds", "7", "-s")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*7 seeds,*"])
    pytester.makeini("[pytest]\ndataflow_seeds = 3")
    done = run(pytester, program, "-s")
    done.stdout.fnmatch_lines(["*3 seeds,*"])
    done = run(pytester, program, "--dataflow-seed", "11", "--dataflow-seed", "12", "-s")
    done.stdout.fnmatch_lines(["*2 seeds,*"])


def test_a_seed_that_failed_comes_first_until_the_test_passes(pytester: pytest.Pytester) -> None:
    wrong = FORGETFUL + BUILD.replace("FUNCTION", "more_each_time")
    done = run(pytester, wrong, "--dataflow-seeds", "60")
    done.assert_outcomes(failed=1)
    (seed,) = set(re.findall(r"seeds=\[(\d+)\]", done.stdout.str()))
    assert int(seed) > 0
    # With no seed but those that failed, the same cluster is simulated once more.
    done = run(pytester, BUILD.replace("FUNCTION", "sum"), "--dataflow-seeds", "0", "-s")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*1 seeds,*"])
    done = run(pytester, BUILD.replace("FUNCTION", "sum"), "--dataflow-seeds", "0", "-s")
    done.stdout.no_fnmatch_line("*1 seeds,*")


def test_a_law_that_fails_shows_a_program_and_its_panes(pytester: pytest.Pytester) -> None:
    done = run(pytester, LAW)
    done.assert_outcomes(failed=1)
    printed = done.stdout.str()
    program = printed[
        printed.index("import dataflow as df\nfrom dataflow.testing import TestStream") :
    ]
    program = program[: program.index("| df.Map(print)") + len("| df.Map(print)")]
    head, tail = program.split("\n\n", 1)
    build = LAW[LAW.index("def latest") : LAW.index("@settings")]
    again = pytester.makepyfile(again=f"{head}\n\n{build}\n{tail}\n")
    assert pytester.runpython(again).ret == 0
    pictures = [Path(each) for each in re.findall(r"panes of key .*: (\S+\.svg)", printed)]
    assert pictures
    assert all(picture.read_text().startswith("<svg") for picture in pictures)

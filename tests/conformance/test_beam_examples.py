"""Beam's own example programs emit the same on every runner."""

import subprocess
import sys
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from examples.beam import (
    autocomplete,
    combiners,
    enrichment,
    filters,
    game_stats,
    hourly_team_score,
    leader_board,
    merge_contacts,
    tf_idf,
    top_wikipedia_sessions,
    user_score,
    word_count,
)
from runners.direct import DirectRunner
from runners.testing.runner_conformance import Program, check_runner
from tests.conformance.conftest import MakeRunner

ROOT = Path(__file__).parents[2]


def _last_board(p: df.Pipeline) -> df.PCollection[Any]:
    """What is shown in the end, however often it was corrected before."""
    signs = leader_board.build(p) | df.Map(lambda shown: (shown[1:], shown[0]))
    net = signs | df.CombinePerKey(sum)
    return net | df.FlatMapTuple(lambda shown, number: [shown] * number)


def _rounded_weights(p: df.Pipeline) -> df.PCollection[Any]:
    return tf_idf.build(p) | df.MapTuple(
        lambda word, weighed: (word, weighed[0], round(weighed[1], 3))
    )


#: Words of the first document alone, each once.
_OF_WINDOWS = ("divide", "event", "time", "and", "sessions", "are", "that", "grow")

PROGRAMS: Sequence[Program] = (
    Program(
        "word count",
        lambda p: word_count.build(p) | df.Filter(lambda count: count[1] > 2),
        [("is", 3), ("time", 4)],
    ),
    Program("filters", filters.build, [(2024, 7, 2, 8.5)]),
    Program(
        "merge contacts",
        merge_contacts.build,
        [
            "ada\tada@example.com, lovelace@example.org\t+44 20 0001\t",
            "charles\tcb@example.com\t\t5 Devonshire Street",
            "mary\t\t+44 20 0002\t1 Burlington Street",
        ],
    ),
    Program(
        "combiners",
        combiners.build,
        [("carrot", 7.5, 2.5, 2), ("leek", 8.0, 4.0, 4), ("all", 15.5, 3.1, 4)],
    ),
    Program(
        "tf-idf",
        _rounded_weights,
        [
            *(
                (word, "windows", 0.11)
                for word in ["divide", "event", "time", "and", "sessions", "are", "that", "grow"]
            ),
            *((word, "triggers", 0.22) for word in ("triggers", "fire", "of")),
            ("windows", "windows", 0.081),
            ("windows", "triggers", 0.081),
            ("panes", "triggers", 0.081),
            ("panes", "panes", 0.27),
            ("retract", "panes", 0.366),
        ],
    ),
    Program(
        "autocomplete",
        lambda p: autocomplete.build(p) | df.Filter(lambda found: len(found[0]) == 1),
        [("w", ["watermark", "window"]), ("l", ["late", "lateness"]), ("p", ["pane"])],
    ),
    Program(
        "top Wikipedia sessions",
        lambda p: top_wikipedia_sessions.build(p) | df.Map(itemgetter(0)),
        [("ada", 4, "1970-01-01"), ("mary", 5, "1970-02-10")],
    ),
    Program(
        "user score",
        user_score.build,
        [("ada", 7), ("bea", 7), ("cid", 4), ("dot", 6), ("bot", 185)],
    ),
    Program(
        "hourly team score",
        hourly_team_score.build,
        [("red", 12, "00:00"), ("blue", 94, "00:00"), ("blue", 101, "01:00"), ("red", 2, "01:00")],
    ),
    Program(
        "leader board",
        _last_board,
        [
            *(("team", *each) for each in [("red", 12), ("blue", 94), ("blue", 101), ("red", 2)]),
            *(
                ("user", *each)
                for each in [("ada", 7), ("bea", 7), ("cid", 4), ("dot", 6), ("bot", 185)]
            ),
        ],
    ),
    Program(
        "enrichment",
        enrichment.build,
        [(1, "lamp", 30), (2, "chair", 80), (3, "lamp", 30), (4, "unicorn", None)],
    ),
    Program(
        "game stats",
        game_stats.build,
        [("red", 12, "00:00"), ("blue", 4, "00:00"), ("blue", 6, "01:00"), ("red", 2, "01:00")],
    ),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_an_example_emits_what_it_defines(program: Program) -> None:
    check_runner(DirectRunner, [program])


def test_all_examples_emit_so_on_every_runner(make_runner: MakeRunner) -> None:
    """In one pipeline, and so in one job."""
    check_runner(make_runner, PROGRAMS)


def test_word_count_has_metrics() -> None:
    p = df.Pipeline()
    word_count.build(p)
    found = p.run().metrics().query()
    assert [(each.key.metric.name, each.committed) for each in found["counters"]] == [
        ("empty lines", 1)
    ]
    (lengths,) = (each.committed for each in found["distributions"])
    assert (lengths.count, lengths.max) == (27, 10)


@pytest.mark.slow
def test_an_example_runs_from_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.beam.user_score", "--runner", "direct", "--job", "scores"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "('bot', 185)" in done.stdout.splitlines()


def test_every_example_is_tested() -> None:
    modules = {path.stem for path in (ROOT / "examples" / "beam").glob("*.py")}
    names = {program.name.lower().replace(" ", "_").replace("-", "_") for program in PROGRAMS}
    assert modules - names == {"__init__", "running", "game_events"}

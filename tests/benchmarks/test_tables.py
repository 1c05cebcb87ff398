"""Ratios are of pairs of good runs, tables show all, and the page has a place for each."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import bench, goals, pages, plot, tables
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.peers.registry import DEFAULT, PEERS
from benchmarks.runs import Options, planned


def a_run(peer: str, rep: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "case": "B2", "peer": peer, "variant": "", "size": 1_000, "rate": 0, "rep": rep, "seconds": seconds,
        "cpu_s": 2 * seconds, "rss_mb": 100, "check": "ok", **more,
    }  # fmt: skip


RUNS = [
    a_run("ours", 0, 2.0), a_run("spark-rdd", 0, 4.0),
    a_run("ours", 1, 3.0), a_run("spark-rdd", 1, 4.0),
    a_run("ours", 2, 9.0), a_run("spark-rdd", 2, 4.0, check="WRONG: rows: 1, not 2"),
]  # fmt: skip


def test_ratios_are_of_runs_of_the_same_round() -> None:
    found = tables.ratios(RUNS, "ours", "spark-rdd", "B2", 1_000)

    assert found == {"seconds": [0.5, 0.75], "cpu_s": [0.5, 0.75], "rss_mb": [1.0, 1.0]}


def test_runs_of_different_commands_are_no_pairs(tmp_path: Path) -> None:
    commands = [[a_run("ours", 0, 1.0)], [a_run("ours", 0, 2.0), a_run("spark-rdd", 0, 4.0)]]
    paths = []
    for number, runs in enumerate(commands):
        paths.append(tmp_path / str(number))
        paths[-1].write_text("\n".join(map(json.dumps, [{"case": pages.MACHINE}, *runs])), "utf-8")

    found = pages.read(paths)

    assert tables.ratios(found, "ours", "spark-rdd", "B2", 1_000)["seconds"] == [0.5]
    assert len(found) == 5


def test_table_has_median_and_spread_and_no_wrong_runs() -> None:
    table = tables.ratio_table(RUNS)

    row = "| B2 | 1,000 | ours | spark-rdd | 0.62 (0.50-0.75) | 0.62 (0.50-0.75) | 1.00 (1.00-1.00) | 2 |"
    assert table.splitlines()[2:] == [row]


def test_wrong_runs_are_shown_where_all_runs_are() -> None:
    assert "WRONG: rows: 1, not 2" in tables.run_table(RUNS)


def test_a_program_that_ran_with_another_size_only_has_no_row() -> None:
    runs = [*RUNS, a_run("polars", 0, 1.0, size=5)]

    rows = [row for row in tables.run_table(runs).splitlines() if "polars" in row]

    assert rows == ["| B2 | 5 | polars | 1.00 | 5 | 2.0 | 100 | 1 | ok |"]


def test_an_answer_by_the_other_rule_for_gaps_is_good() -> None:
    assert tables.is_good({"check": "ok (gap inclusive)"})
    assert not tables.is_good({"check": "TIMEOUT after 600 s"})


@pytest.mark.parametrize(
    ("ratios", "text"),
    [([], "-"), ([0.5], "0.50"), ([3.0, 1.0, 2.0], "2.00 (1.00-3.00)")],
)
def test_ratio_text(ratios: list[float], text: str) -> None:
    assert tables.ratio_text(ratios) == text


def test_latency_table_takes_medians_of_runs() -> None:
    runs = [
        {"case": "S2", "peer": "ours", "variant": "weak", "size": 0, "rate": 1_000, "rep": rep, "check": "ok",
         "p50": p50, "p95": 9.0, "p99": 10.0, "p100": 11.0}
        for rep, p50 in enumerate((3.0, 4.0, 8.0))
    ]  # fmt: skip

    assert "| 1,000 | ours weak | 4.0 | 9.0 | 10.0 | 11.0 | 3 | ok |" in tables.latency_table(runs)


def a_latency(peer: str, rep: int, p50: float, **more: Any) -> dict[str, Any]:
    run = {
        "case": "S2",
        "peer": peer,
        "variant": "",
        "size": 0,
        "rate": 1_000,
        "rep": rep,
        "check": "ok",
    }
    return {**run, "p50": p50, "p95": 9.0, "p99": 10.0, "p100": 11.0, **more}


def test_latencies_are_compared_run_by_run_and_only_with_the_same_promises() -> None:
    runs = [
        a_latency("ours", 0, 3.0),
        a_latency("floor", 0, 2.0),
        a_latency("ours", 1, 8.0),
        a_latency("floor", 1, 2.0),
        a_latency("ours", 0, 1.0, variant="weak"),
        a_latency("ours", 2, 1.0, check="WRONG"),
        a_latency("floor", 2, 1.0),
        a_latency("floor", 3, 1.0),
        a_latency("floor", 0, 1.0, rate=5),
    ]

    row = "| 1,000 | ours | floor | 2.75 (1.50-4.00) | 1.00 (1.00-1.00) | 1.00 (1.00-1.00) | 1.00 (1.00-1.00) | 2 |"
    assert tables.latency_ratio_table(runs).splitlines()[2:] == [row]


def test_goals_are_bounds_of_medians() -> None:
    stages = {"read": {"p50": 10.0}, "stage 1": {"p50": 35.0}, "stage 2": {"p50": 40.0}}
    lag = {
        "case": "LAG",
        "peer": "ours",
        "size": 0,
        "rate": 10_000,
        "rep": 0,
        "check": "ok",
        "stages": stages,
    }
    runs = [
        a_latency("ours", 0, 3.0),
        a_latency("floor", 0, 2.0),
        a_latency("ours-columns", 0, 3.0, rate=100_000),
        a_run("spark-rdd", 0, 4.0),
        a_run("ours", 0, 2.5),
        # By polars there is a goal of five million alone.
        *(
            a_run(peer, 0, seconds, size=size)
            for size in (1_000, 5_000_000)
            for peer, seconds in (("ours-columns", 3.0), ("polars", 2.0))
        ),
        lag,
    ]

    snapshot = {"case": goals.SNAPSHOT, "rep": 0, "check": "ok", "rows": 0.9, "p99": 2.5}
    lines = goals.table([*runs, snapshot]).splitlines()[2:]

    assert [each for each in lines if "not measured" not in each] == [
        "| S2 with a snapshot held by S2 without, rows a second | at least 0.9 | 0.90 | 1 | met |",
        "| S2 with a snapshot held by S2 without, 99 % | at most 2 | 2.50 | 1 | not met |",
        "| S2 at 1,000 a second, ours by floor, 50 % | at most 1.5 | 1.50 | 1 | met |",
        "| S2 at 1,000 a second, ours by floor, 99 % | at most 1.5 | 1.00 | 1 | met |",
        "| S2 at 100,000 a second, ours-columns, 99 %, milliseconds | at most 20 | 10.00 | 1 | met |",
        "| LAG at 10,000 a second, milliseconds that a stage adds, at most | at most 20 | 25.00 | 1 | not met |",
        "| B2 of 1,000, ours by spark-rdd | at most 0.6 | 0.62 | 1 | not met |",
        "| B2 of 5,000,000, ours-columns by polars | at most 1.5 | 1.50 | 1 | met |",
    ]
    # Every goal is there, and one that has no run says what measures it.
    assert len(lines) == len(goals.GOALS)
    assert any(
        "B3, ours by spark-rdd" in each
        and 'make bench CASE=B3 ARGS="--peers ours spark-rdd"' in each
        for each in lines
    )
    assert any(
        'CASE=B3 ARGS="--peers ours-columns polars --size 5000000"' in each for each in lines
    )
    assert goals.table([]) == ""


def test_a_stream_under_a_snapshot_is_in_the_goals_alone() -> None:
    """With runs of programs in other files, or by itself."""
    snapshot = {"case": goals.SNAPSHOT, "rep": 0, "check": "ok", "rows": 0.9, "p99": 2.5}
    line = pages.machine_line("two cores", "python -m benchmarks.stream_under_snapshot")

    with_runs, alone = pages.sections([*RUNS, line, snapshot]), pages.sections([line, snapshot])

    for found in (with_runs, alone):
        assert "99 % | at most 2 | 2.50 | 1 | not met |" in found.pop("Goals")
    assert with_runs == {
        title: text for title, text in pages.sections(RUNS).items() if title != "Goals"
    }
    assert alone == {}
    assert "two cores" in pages.machines([line, snapshot])


def test_plan_puts_what_is_compared_side_by_side() -> None:
    options = Options(
        cases=["B2", "S2"], peers=["ours", "spark-rdd", "spark-native"], sizes=[10], rates=[5],
        reps=2, seconds=1, warm_up_s=1, timeout_s=1, cache=Path(),
    )  # fmt: skip

    order = [(each.case, each.rep, f"{each.peer.name} {each.variant}") for each in planned(options)]

    assert order == [
        (case, rep, name)
        for case, names in (
            ("B2", ("ours ", "spark-rdd ")),
            ("S2", ("ours ", "ours weak", "spark-native ")),
        )
        for rep in (0, 1)
        for name in names
    ]


def test_every_program_can_be_named_and_has_a_module() -> None:
    root = Path(bench.__file__).parents[1]

    assert set(DEFAULT) <= set(PEERS)
    for peer in PEERS.values():
        assert (root / (peer.module.replace(".", "/") + ".py")).exists()
        assert set(peer.cases) <= set(bench.CASES)


def test_page_has_marks_for_every_table() -> None:
    machine = {"case": pages.MACHINE, "day": "2026-01-01", "machine": "two cores"}
    latency = {
        "case": "S2",
        "peer": "ours",
        "variant": "",
        "size": 0,
        "rate": 5,
        "rep": 0,
        "check": "ok",
        "p50": 1.0,
        "p95": 1.0,
        "p99": 1.0,
        "p100": 1.0,
    }
    stages = {"read": {"p50": 1.0, "p95": 2.0, "p99": 3.0}}
    lag = {
        "case": "LAG",
        "peer": "ours",
        "size": 0,
        "rate": 5,
        "rep": 0,
        "check": "ok",
        "stages": stages,
    }

    floor = latency | {"peer": "floor"}

    found = pages.sections([machine, *RUNS, latency, floor, lag])

    assert list(found) == [
        "Goals", "Ratios", "Ratios of latency", "Latency", "Watermark lag", "Runs",
    ]  # fmt: skip
    page = pages.PAGE.read_text("utf-8")
    filled = pages.filled_in(page, {**found, "Machine": "two cores"})
    assert all(table in filled for table in found.values())
    assert pages.filled_in(filled, {**found, "Machine": "two cores"}) == filled


def test_nexmark_has_a_table_and_a_page_of_its_own() -> None:
    """Thousands of events a second, and of a core; its runs are in no other table."""
    mine = [a_run("ours", 0, 2.0, size=12_000), a_run("flink-sql", 0, 1.0, size=12_000)]
    runs = [{**each, "case": "q4"} for each in mine]
    runs.append({**runs[0], "case": "q5", "check": "WRONG: rows: 3, not 4"})
    runs.append({**runs[0], "peer": "beam", "size": 2_000})
    runs.append({**a_run("ours", 0, 2.0, size=0, rate=100, rows=7, p50=1, p95=2, p99=3, p100=4)})
    runs[-1]["case"] = "q7-latency"

    found = pages.sections(runs)
    table = found["Nexmark"]
    filled = pages.filled_in(pages.NEXMARK_PAGE.read_text("utf-8"), {**found, "Machine": "two"})

    assert found.keys() == {"Nexmark", "Nexmark goals", "Nexmark latency"}
    assert found["Nexmark latency"].splitlines()[2:] == [
        "| q7 | 100 | ours | 7 | 1.0 | 2.0 | 3.0 | 4.0 | 1 | ok |"
    ]
    assert table.splitlines()[2:] == [
        "| q4 | 12,000 | 6 / 3 | 12 / 6 |",
        "| q5 | 12,000 | WRONG |  |",
        "",
        "| Query | Events | beam |",
        "| --- | ---: | ---: |",
        "| q4 | 2,000 | 1 / 0 |",
    ]
    assert table in filled


def test_nexmark_stands_for_all_its_queries() -> None:
    given = bench.parser().parse_args(["--case", "NEXMARK", "B2"])

    assert [*NEXMARK, "B2"] == list(bench.options_of(given).cases)


def test_nexmark_as_a_whole_has_all_programs_on_the_same_events() -> None:
    parts = bench.parts_of(bench.parser().parse_args(["--case", "NEXMARK"]))
    plans = throughput, _ = [list(planned(part)) for part in parts]

    assert {(each.peer.name, each.case) for part in plans for each in part} == {
        (name, case)
        for name in ("ours", "ours-columns", "flink-sql", "spark-df", "beam")
        for case in (*NEXMARK, *NEXMARK_LATENCY)
        if case in PEERS[name].cases
    }
    assert len({each.size for each in throughput}) == 1


@pytest.mark.parametrize(
    "line",
    [
        "--case B2 LAG --size 5 7 --reps 2 --peers ours",
        "--case B2 S1 --reps 3 --warm-up 2",
        "--case NEXMARK",
        "--case NEXMARK --size 7",
        "--case NEXMARK B2 --rate 5",
    ],
)
def test_commands_of_a_file_of_results_make_the_same_plans(line: str) -> None:
    parts = bench.parts_of(bench.parser().parse_args(line.split(" ")))

    for options in parts:
        again = bench.command(options).removeprefix("python -m benchmarks.bench ").split(" ")
        assert bench.parts_of(bench.parser().parse_args(again)) == [options]


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks for 'Ratios'"):
        pages.filled_in("# Nothing", {"Ratios": "a table"})


def test_picture_has_a_bar_for_each_comparison() -> None:
    runs = [*RUNS, a_run("polars", 0, 0.01)]

    drawn = plot.draw(runs)

    root = ET.fromstring(drawn)
    bars = [each for each in root.iter() if each.get("class") == "pane"]
    assert len(bars) == 2
    assert "B2 1,000: ours / polars: 200.00" in drawn
    assert plot.draw(runs) == drawn


def test_picture_of_nothing_has_a_line_for_it() -> None:
    assert "No comparison." in plot.draw([])

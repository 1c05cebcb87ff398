"""The queries of Nexmark in memory: the rows of their models, for any seed and order, and with late events."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow import columns
from examples.nexmark.__main__ import main
from examples.nexmark.answers import CORRECTED, FINAL, Answers
from examples.nexmark.column_queries import COLUMN_QUERIES
from examples.nexmark.generator import GeneratorConfig
from examples.nexmark.models import MODELS
from examples.nexmark.queries import QUERIES
from examples.nexmark.single_bids import write_files
from tests.nexmark_answers import CHANGING, LATE, Recorded, SmallReads, expected, found

pytestmark = pytest.mark.slow

#: Half a minute; auctions are open for ten seconds, so most of them are over.
SOME = GeneratorConfig(size=1_500, events_per_s=50, in_flight_auctions=30)


def configs(*, are_late: bool) -> st.SearchStrategy[GeneratorConfig]:
    """Streams of a few seconds to minutes, in order or not; few people and auctions, so that much coincides."""
    return st.builds(
        GeneratorConfig,
        seed=st.integers(0, 1 << 40),
        size=st.integers(1, 400),
        events_per_s=st.sampled_from([7, 20, 1_000]),
        disorder=st.sampled_from([1, 5, 30]),
        late_of=st.just(4) if are_late else st.just(0),
        late_by=st.sampled_from([20, 150]),
        in_flight_auctions=st.sampled_from([3, 100]),
        active_people=st.sampled_from([2, 1_000]),
    )


def run(name: str, config: GeneratorConfig, answers: Answers) -> tuple[Recorded, df.PipelineResult]:
    recorded, p = Recorded(config), df.Pipeline()
    recorded.functions(p, [name], answers)
    return recorded, p.run()


@pytest.mark.nightly
@pytest.mark.parametrize("name", QUERIES)
def test_functions_have_the_answers_of_the_model(name: str) -> None:
    """For any seed, in order and not; nothing is late."""

    @given(configs(are_late=False))
    def law(config: GeneratorConfig) -> None:
        recorded, result = run(name, config, FINAL)
        assert {} == recorded.wrong(result)

    law()


@pytest.mark.nightly
@pytest.mark.parametrize("name", CHANGING)
def test_answers_that_late_events_change_are_right_in_the_end(name: str) -> None:
    """The signed sum of all panes is the model's answer over all events, however late they come."""

    @given(configs(are_late=True))
    def law(config: GeneratorConfig) -> None:
        recorded, result = run(name, config, CORRECTED)
        assert {} == recorded.wrong(result)

    law()


@pytest.mark.parametrize("name", ["q4", "q5", "q6", "q7", "q9", "q11"])
def test_late_events_do_change_answers(name: str) -> None:
    """Or the law above would hold for want of late events: without corrections answers are wrong."""
    recorded, result = run(name, LATE, CORRECTED)
    dropped, without = run(name, LATE, FINAL)

    assert {} == recorded.wrong(result)
    assert 0 < recorded.retracted(result)[name]
    assert name in dropped.wrong(without)
    assert without.late_records()


@pytest.mark.parametrize("name", ["q15", "q16", "q17", "q18", "q19"])
def test_the_last_pane_of_answers_that_accumulate_is_the_model(name: str) -> None:
    answers = Answers(df.AccumulationMode.ACCUMULATING, "1 day")
    recorded, result = run(name, LATE, answers)
    panes = [change.value for change in recorded.recordings[name].changes(result)]

    # Of q19 a pane is several rows, with their ranks, and no pane has fewer than the one before.
    keys = {"q15": (0,), "q16": (0, 1), "q17": (0, 1), "q18": (0, 1), "q19": (0, 7)}[name]
    last = {tuple(row[place] for place in keys): tuple(row) for row in panes}
    assert len(last) < len(panes)
    assert expected(name, LATE) == found(name, last.values())


@pytest.mark.nightly
@pytest.mark.parametrize("name", COLUMN_QUERIES)
def test_columns_have_the_answers_of_the_model(name: str) -> None:
    @given(configs(are_late=False))
    def law(config: GeneratorConfig) -> None:
        recorded, p = Recorded(config), df.Pipeline()
        recorded.columns(p, [name])
        assert {} == recorded.wrong(p.run())

    law()


@pytest.mark.parametrize("name", COLUMN_QUERIES)
def test_events_in_columns_stay_there(name: str) -> None:
    """No event becomes an object before it is grouped, or is a row of the answer."""
    made: list[Any] = []
    rows_of = columns.rows_of

    def noted(row_type: Any, *args: Any) -> list[Any]:
        made.append(row_type)
        return rows_of(row_type, *args)

    recorded, p = Recorded(SOME), df.Pipeline()
    recorded.columns(p, [name])
    with patch.object(columns, "rows_of", noted):
        p.run()

    assert COLUMN_QUERIES[name].row_type not in made


def test_every_query_has_an_answer_to_compare() -> None:
    """An empty answer would be right whatever a query does."""
    config = GeneratorConfig(size=2_500, events_per_s=100)

    assert [] == [name for name in MODELS if not expected(name, config)]
    assert MODELS.keys() == QUERIES.keys()
    assert COLUMN_QUERIES.keys() <= QUERIES.keys()


def test_files_of_each_minute_have_its_bids(tmp_path: Any) -> None:
    """What q10 writes, read again."""
    config = GeneratorConfig(size=1_000, events_per_s=10)
    with df.Pipeline() as p:
        p | df.Read(SmallReads(config)) | QUERIES["q10"]() | write_files(tmp_path)

    rows = []
    for file in tmp_path.glob("dt=*/hm=*/*.csv"):
        folder = str(file.parent.relative_to(tmp_path))
        for line in file.read_text().splitlines()[1:]:
            auction, bidder, price, at_ms, extra = line.split(",")
            rows.append((folder, int(auction), int(bidder), int(price), int(at_ms), extra))
    assert expected("q10", config) == found("q10", rows)
    assert 1 < len({row[0] for row in rows})


def test_the_command_compares_with_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["q4", "--size", "1500", "--events-per-s", "50"])
    assert 0 == main(["q11", "--columns", "--size", "1500"])

    out = capsys.readouterr().out
    assert "q4: 5 rows, those of the model" in out
    assert "q11" in out

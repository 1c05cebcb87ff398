"""The example of change data capture, whose job is killed: its tables are what SQL says of the shop."""

import random

import pytest
from rich.console import Console

from examples import orders_cli


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tables_are_those_of_the_queries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(orders_cli, "ROUNDS", 2)
    monkeypatch.setattr(orders_cli, "ROUND_S", 1.0)
    seed = random.randrange(1 << 32)
    assert orders_cli.demo(Console(width=200), seed) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("identical to the query of the shop") == 2

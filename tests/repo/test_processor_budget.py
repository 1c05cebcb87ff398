"""What takes too much processor time is red in the daily loop, unless it has a mark or the machine is slow."""

from pathlib import Path

import pytest

from tests import processor_budget
from tests.processor_budget import MARKS, ProcessorBudget

SAMPLE = """
import subprocess, sys, time
import pytest

def burn(seconds=0.1):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

@pytest.fixture(scope="module")
def dear():
    burn()

def test_that_waits(dear): time.sleep(0.3)
def test_that_computes(): burn()
def test_that_starts_what_computes():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.1: pass"], check=True)
def test_that_fails(): burn(); assert 0
@pytest.mark.slow
def test_that_is_marked(): burn()
"""


class Outcomes:
    """Plugin that keeps what became of each test, and its text."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            name = report.nodeid.partition("::test_that_")[2]
            self.found[name] = report.outcome, report.longreprtext


def outcomes(folder: Path, only: str = "") -> dict[str, tuple[str, str]]:
    """What becomes of the tests of the sample, or of some of them."""
    marks = "".join(f"  {mark}\n" for mark in MARKS)
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{marks}")
    path = folder / "test_sample.py"
    path.write_text(SAMPLE)
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", only]
    found = Outcomes()
    pytest.main(
        ["-c", f"{folder}/pytest.ini", *options, str(path)],
        plugins=[ProcessorBudget(budget_s=0.06), found],
    )
    return found.found


@pytest.mark.slow
def test_what_computes_too_long_is_red(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a process of its own too; what waits, has a mark, or whose fixture is dear, is not."""
    monkeypatch.setattr(processor_budget, "slowness", lambda: 1.0)
    found = outcomes(tmp_path)

    assert {name: "s of processor time" in text for name, (_, text) in found.items()} == {
        "waits": False,
        "computes": True,
        "starts_what_computes": True,
        "fails": False,
        "is_marked": False,
    }
    passed = [name for name, (outcome, _) in found.items() if outcome == "passed"]
    assert passed == ["waits", "is_marked"]


@pytest.mark.slow
def test_on_a_slow_machine_it_may_take_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processor_budget, "slowness", lambda: 100.0)

    assert [outcome for outcome, _ in outcomes(tmp_path, "computes").values()] == ["passed"] * 2


def test_no_machine_is_given_less_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_budget, "LOOP_S", 1_000.0)

    assert processor_budget.slowness() == 1.0

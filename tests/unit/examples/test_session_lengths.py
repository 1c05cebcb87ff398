"""The histogram of session lengths follows what the sessions retract."""

import runpy

import pytest

from tests.repo.test_readme import ROOT


def test_the_histogram_is_what_the_how_to_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """Two short visits become a long one."""
    runpy.run_module("examples.session_lengths", run_name="__main__")
    shown = (ROOT / "docs/how-to/retract-answers.md").read_text()

    assert f"```text\n{capsys.readouterr().out}```" in shown

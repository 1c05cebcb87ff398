"""The histogram of session lengths follows what the sessions retract."""

import runpy

import pytest

from tests.repo.test_readme import ROOT


def test_the_histogram_is_what_the_how_to_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """Two short visits become a long one."""
    # By its path: pytest's import hook, which has no `get_code`, may be what finds it by name.
    runpy.run_path(str(ROOT / "examples/session_lengths.py"), run_name="__main__")
    shown = (ROOT / "docs/how-to/retract-answers.md").read_text()

    assert f"```text\n{capsys.readouterr().out}```" in shown

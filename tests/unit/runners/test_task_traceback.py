"""The traceback of a worker, as the driver shows it: with the user's frames, and with none of ours."""

import traceback
from pathlib import Path

import runners
from runners.errors import JobFailedError
from runners.task_traceback import task_traceback
from windowing.errors import in_brief

OURS = Path(runners.__file__).parent / "millwheel" / "worker" / "worker.py"
TEXT = f"""Traceback (most recent call last):
  File "{OURS}", line 194, in step
    worked = self._round(arrived)
  File "{__file__}", line 3, in parse
    return int(text)
ValueError: no number
"""


def test_frames_of_ours_are_not_shown_and_stay_in_the_text() -> None:
    error = JobFailedError("it failed")
    error.__cause__ = task_traceback(TEXT)
    shown = "".join(traceback.format_exception(in_brief(error)))

    assert "worker.py" not in shown
    assert f'File "{__file__}", line 3, in parse' in shown
    assert str(OURS) in str(error.__context__)

"""A clock that jumps, for servers of tests: libfaketime, of Debian, loaded into their processes."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

HOUR_S = 3_600


@attrs.frozen
class FakeClock:
    """The clock of every process that is started within `starting`."""

    file: Path

    def jump(self, offset_s: int) -> None:
        """Be so far ahead of the real one, or behind it."""
        partial = self.file.with_suffix(".new")
        partial.write_text(f"{offset_s:+d}\n")
        partial.replace(self.file)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Processes that are started have it; this one does not."""
        ours = {
            "LD_PRELOAD": _library(),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        run: Any = subprocess.run

        def with_ours(*words: Any, env: dict[str, str] | None = None, **options: Any) -> Any:
            return run(*words, env=env and {**env, **ours}, **options)

        with pytest.MonkeyPatch.context() as patch:
            for name, value in ours.items():
                patch.setenv(name, value)
            # The embedded Postgres is given an environment of its own.
            patch.setattr(subprocess, "run", with_ours)
            yield


@contextmanager
def fake_clock() -> Iterator[FakeClock]:
    """A clock that is right at first; a skip where libfaketime is not installed."""
    _library()
    with tempfile.TemporaryDirectory(prefix="dataflow-clock-") as folder:
        # Postgres may be another user.
        Path(folder).chmod(0o755)
        clock = FakeClock(Path(folder, "clock"))
        clock.jump(0)
        yield clock


def _library() -> str:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found and "CI" not in os.environ:
        pytest.skip("libfaketime is not installed: tools/fault_setup.sh installs it")
    return str(found[0])

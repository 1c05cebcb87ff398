"""Without an archive of classes Java starts later, and that is all."""

import sys
from pathlib import Path

import pytest

from runners.embedded.java import Java
from runners.spark import class_archive


@pytest.mark.parametrize(
    "cache",
    [
        pytest.param("/" + "x" * 300, id="cannot be looked for"),
        pytest.param("/dev/null/cache", id="below a file"),
        pytest.param("/proc/nowhere", id="not there"),
    ],
)
def test_a_cache_that_cannot_be_looked_into_has_no_archive(
    cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service of systemd may not look into its user's home, and runs nevertheless."""
    monkeypatch.setenv("XDG_CACHE_HOME", cache)

    java = Java(program=Path(sys.executable), major=25)
    assert class_archive._found(java) is None

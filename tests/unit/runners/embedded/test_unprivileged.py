"""The account that Postgres runs as where the caller is root: all processes have the same, whoever comes first."""

import os
import pwd
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners.embedded.unprivileged import Account, hand_over, server_account
from runners.errors import EmbeddedServiceError

PROCESSES = 4
FIRST_UID = 900


class Accounts:
    """A fake of the system's accounts whose `useradd` races as the real one does: it looks, and then waits to write."""

    def __init__(self) -> None:
        self.uid: int | None = None
        self.made = 0
        self._writes = threading.Lock()
        self._all_look = threading.Barrier(PROCESSES)

    def getpwnam(self, name: str) -> Any:
        if self.uid is None:
            raise KeyError(name)
        return SimpleNamespace(pw_uid=self.uid, pw_gid=self.uid)

    def useradd(self, command: list[str], **options: Any) -> None:
        if self.uid is not None:
            raise subprocess.CalledProcessError(9, command, stderr="user exists")
        # Broken: nobody else is here.
        with suppress(threading.BrokenBarrierError):
            self._all_look.wait(timeout=0.2)
        with self._writes:
            self.uid, self.made = FIRST_UID + self.made, self.made + 1


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """The accounts of a machine where that of Postgres is not there yet, seen by root."""
    made = Accounts()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", made.getpwnam)
    monkeypatch.setattr(subprocess, "run", made.useradd)
    return made


def test_all_that_come_first_have_the_same_account(accounts: Accounts) -> None:
    with ThreadPoolExecutor(PROCESSES) as processes:
        found = list(processes.map(lambda _: server_account(), range(PROCESSES)))

    assert accounts.made == 1
    assert found == [Account(uid=FIRST_UID, gid=FIRST_UID)] * PROCESSES


def test_an_account_that_is_there_is_taken(accounts: Accounts) -> None:
    accounts.uid = 71

    assert server_account() == Account(uid=71, gid=71)
    assert accounts.made == 0


def test_where_none_can_be_made_it_is_an_error_with_the_reason(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(command: list[str], **options: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="cannot lock /etc/passwd")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(EmbeddedServiceError, match="cannot lock /etc/passwd"):
        server_account()


def test_who_is_not_root_needs_none(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)

    assert server_account() is None


def test_what_an_account_of_another_number_left_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data stays when a container is made anew, and the account of the new one may have another number."""
    earlier, account = os.geteuid(), Account(uid=4_242, gid=4_242)
    monkeypatch.setattr(os, "geteuid", lambda: earlier + 1)
    (tmp_path / "data" / "base").mkdir(parents=True)
    (tmp_path / "data" / "PG_VERSION").write_text("17")
    (tmp_path / "data" / "link").symlink_to("/etc")
    handed_over = []
    monkeypatch.setattr(os, "chown", lambda path, *_, **options: handed_over.append(Path(path)))

    hand_over(tmp_path, account)

    assert sorted(handed_over) == [tmp_path, *sorted(tmp_path.rglob("*"))]
    assert handed_over.count(tmp_path / "data" / "link") == 1


def test_what_is_the_accounts_already_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(uid=os.geteuid(), gid=os.getegid())
    (tmp_path / "data" / "base").mkdir(parents=True)
    monkeypatch.setattr(os, "chown", lambda path, *_, **options: None)
    monkeypatch.delattr(os, "walk")

    hand_over(tmp_path, account)

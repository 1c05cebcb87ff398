"""The account that Postgres runs as where the caller is root: all processes have the same, whoever comes first."""

import os
import pwd
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from runners.embedded.unprivileged import Account, server_account
from runners.errors import EmbeddedServiceError

PROCESSES = 4
FIRST_UID = 900


class Accounts:
    """What `useradd` does with one name: it looks first, and only then waits for its turn to write."""

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

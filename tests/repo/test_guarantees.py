"""The page of guarantees names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
#: A path, with or without the name of a test in it; or another test of the path named before.
_NAMED = re.compile(r"`((?:tests|runners)/[\w/.]+)?(?:::(\w+))?`")


def named() -> list[tuple[str, str]]:
    found, last = [], ""
    for path, test in _NAMED.findall(PAGE):
        last = path or last
        if path or test:
            found.append((last, test))
    return found


def test_there_are_some() -> None:
    assert len(named()) > 30


def test_each_exists() -> None:
    def exists(path: str, test: str) -> bool:
        file = ROOT / path
        return file.exists() and (not test or f"def {test}(" in file.read_text(encoding="utf-8"))

    assert [each for each in named() if not exists(*each)] == []

"""The Python files of the repository, each read and parsed once for all the rules about them.

Rules of several test modules look at a file together, and then its tree is let go: those of all files are a million
objects.  A rule is registered when its module is imported; the fixture ``found_by`` has all of them look, once.
"""

import ast
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


@attrs.frozen
class ProgramFile:
    """A Python file.

    Attributes:
        path: from the root of the repository, with slashes.
        text: what is in it.
    """

    path: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The tree of the whole file."""
        return ast.parse(self.text, self.path)

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))


#: Finds something in a file: complaints, or what others are compared with.
Rule = Callable[[ProgramFile], Iterator[T]]


@functools.cache
def paths(*folders: str) -> Sequence[Path]:
    """The Python files in folders, and in those below."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


#: What a rule that was registered finds in all its files, in their order.
FoundBy = Callable[[Rule[T]], list[T]]
_folders: dict[Rule[Any], tuple[str, ...]] = {}


def for_files_in(*folders: str) -> Callable[[Rule[T]], Rule[T]]:
    """Decorates a rule that looks at all Python files of these folders; see `look_at_all`."""

    def register(rule: Rule[T]) -> Rule[T]:
        _folders[rule] = folders
        return rule

    return register


def look_at_all() -> FoundBy[Any]:
    """Have all rules that are registered look at their files."""
    rules = defaultdict[Path, list[Rule[Any]]](list)
    for rule, folders in _folders.items():
        for path in paths(*folders):
            rules[path].append(rule)
    found: dict[Rule[Any], list[Any]] = {rule: [] for rule in _folders}
    for path, several in rules.items():
        file = ProgramFile(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for rule in several:
            found[rule] += rule(file)
    return found.__getitem__

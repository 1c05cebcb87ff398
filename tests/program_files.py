"""The Python files of the repository, each read and parsed once for all the rules about them.

Rules of several test modules look at a file together, and then its tree is let go: those of all files are a million
objects.  A rule is registered when its module is imported; the fixture ``found_by`` has all of them look, once.

What was found is kept for the next run: a rule depends on nothing but the file and the module that the rule is in.
"""

import ast
import functools
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
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


#: What was found in a file by each of its rules, and what it depends on.
_Kept = dict[str, tuple[str, list[list[Any]]]]


def look_at_all(kept_in: Path) -> FoundBy[Any]:
    """Have all rules that are registered look at their files.

    Args:
        kept_in: the folder for what is found, which is not looked for again in files that are as they were.
    """
    rules = defaultdict[Path, list[Rule[Any]]](list)
    for rule, folders in _folders.items():
        for path in paths(*folders):
            rules[path].append(rule)
    found: dict[Rule[Any], list[Any]] = {rule: [] for rule in _folders}
    code = _code()
    # By what is asked: a run of one module has fewer rules.
    place = kept_in / sha256(" ".join(map(_name, _folders)).encode()).hexdigest()
    before, after = _read(place), _Kept()
    for path, several in rules.items():
        file = ProgramFile(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        version = sha256(f"{code} {file.text}".encode()).hexdigest()
        kept = before.get(file.path)
        if kept is None or kept[0] != version:
            kept = version, [list(rule(file)) for rule in several]
        after[file.path] = kept
        for rule, of_rule in zip(several, kept[1], strict=True):
            found[rule] += of_rule
    if after != before:
        _write(place, after)
    return found.__getitem__


def _name(rule: Rule[Any]) -> str:
    return f"{rule.__module__}.{rule.__qualname__}"


def _code() -> str:
    """The modules of all rules, and this one."""
    digest = sha256()
    for name in sorted({__name__, *(rule.__module__ for rule in _folders)}):
        source = sys.modules[name].__file__
        assert source is not None
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()


def _read(place: Path) -> _Kept:
    try:
        found: _Kept = pickle.loads(place.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError):
        return {}
    return found


def _write(place: Path, found: _Kept) -> None:
    """In one act: several processes run tests at a time."""
    with NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(pickle.dumps(found))
    Path(file.name).replace(place)

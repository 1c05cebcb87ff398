"""House rules that a linter does not know; a failure lists every place as file:line.

Each rule is a function from a file to its complaints, so that the rules are tested as well.
"""

import ast
import io
import itertools
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.program_files import ROOT, FoundBy, ProgramFile, for_files_in

FUNCTION_LINES_MAX = 70
#: Files with lengths of time in texts that are compared or stored, and that nobody is meant to read.
LENGTHS = ("dataflow/graph.py", "runners/millwheel/versions/state_shape.py")
#: Files that may commit to a store.
COMMITS = ("commit_or_resolve.py",)
FOLDERS = (
    "windowing",
    "triggers",
    "dataflow",
    "runners",
    "examples",
    "benchmarks",
    "tests",
    "tools",
    "docs",
)

Complaint = tuple[int, str]
#: What follows a number that is a length of time.
_UNIT = re.compile(r" (us|µs|ms|s|secs?|seconds?|mins?|minutes?|h|hours?|days?)\b")


def comments(source: ProgramFile, pattern: str) -> Iterator[int]:
    """The lines of the comments in which the pattern is found."""
    # Tokens cost ten times as much as a tree, and hardly a file has a comment that is looked for.
    if not re.search(pattern, source.text):
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and re.search(pattern, token.string):
            yield token.start[0]


def long_function(source: ProgramFile) -> Iterator[Complaint]:
    """Too long to be seen at once: name its parts."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}"


def undocumented_module(source: ProgramFile) -> Iterator[Complaint]:
    """The first lines of a file say what it is for."""
    if not ast.get_docstring(source.tree):
        yield 1, "no module docstring"


def bare_except(source: ProgramFile) -> Iterator[Complaint]:
    """It would catch KeyboardInterrupt as well."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "bare except"


def note_without_issue(source: ProgramFile) -> Iterator[Complaint]:
    """A note that has no number of an issue is never read again."""
    for line in comments(source, r"\b(TODO|FIXME|XXX)\b(?!.*#\d+)"):
        yield line, "no issue number, as in TODO(#12)"


def rule_off_without_reason(source: ProgramFile) -> Iterator[Complaint]:
    """Whoever reads the line should know why the linter is wrong there."""
    for line in comments(source, r"# noqa(?!: [A-Z0-9]+(, [A-Z0-9]+)* - \S)"):
        yield line, "no reason, as in # noqa: SLF001 - it sees everything"


def opening_that_points_elsewhere(source: ProgramFile) -> Iterator[Complaint]:
    """A docstring begins with what the thing does or is; it is read alone, in a list or an editor."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node) or ""
            if re.match(r"(That|Those|The same|As)\b", text):
                yield getattr(node, "lineno", 1), f"begins with: {text.splitlines()[0]}"


def length_not_in_words(source: ProgramFile) -> Iterator[Complaint]:
    """What people read is ``1 minute 30 seconds``, by `dataflow.times.in_words`, and not ``90 s``."""
    path = PurePosixPath(source.path)
    is_product = path.parts[0] in ("windowing", "triggers", "dataflow", "runners")
    if not is_product or "testing" in path.parts or source.path in LENGTHS:
        return
    for node in source.nodes:
        if isinstance(node, ast.JoinedStr):
            for value, unit in itertools.pairwise(node.values):
                text = str(unit.value) if isinstance(unit, ast.Constant) else ""
                if isinstance(value, ast.FormattedValue) and _UNIT.match(text):
                    yield value.lineno, f"the length {ast.unparse(value.value)} is not in words"


def commit_beside_the_one_way(source: ProgramFile) -> Iterator[Complaint]:
    """`commit_or_resolve` alone commits to a store: it never sends again what may have landed."""
    path = PurePosixPath(source.path)
    if "runners" not in path.parts[:1] or "testing" in path.parts or path.name in COMMITS:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of, verb = ast.unparse(node.func.value).rpartition(".")[2], node.func.attr
            if verb in ("commit", "submit", "resolve") and of.strip("_").endswith("store"):
                yield node.lineno, f"calls {of}.{verb}"


RULES: list[Callable[[ProgramFile], Iterator[Complaint]]] = [
    long_function,
    undocumented_module,
    bare_except,
    note_without_issue,
    rule_off_without_reason,
    opening_that_points_elsewhere,
    length_not_in_words,
    commit_beside_the_one_way,
]


@for_files_in(*FOLDERS)
def untidy(source: ProgramFile) -> Iterator[tuple[str, str]]:
    """What breaks which rule in a file."""
    for rule in RULES:
        for line, what in rule(source):
            yield rule.__name__, f"{source.path}:{line}: {what}"


def titles(markdown: str) -> list[int]:
    """Return the lines of the first-level titles outside fenced code."""
    found: list[int] = []
    fence = ""
    for number, line in enumerate(markdown.splitlines(), 1):
        mark = re.match(r" {0,3}(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and fence and mark[1].startswith(fence):
            fence = ""
        elif not fence and re.match(r"# \S", line):
            found.append(number)
    return found


def pages() -> list[Path]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *inside])


@pytest.fixture(scope="module")
def complaints(found_by: FoundBy[tuple[str, str]]) -> dict[str, list[str]]:
    """Of each rule, by its name."""
    found: dict[str, list[str]] = {rule.__name__: [] for rule in RULES}
    for rule, complaint in found_by(untidy):
        found[rule].append(complaint)
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_python_files_follow(
    rule: Callable[[ProgramFile], Iterator[Complaint]], complaints: dict[str, list[str]]
) -> None:
    of_rule = complaints[rule.__name__]

    assert not of_rule, "\n" + "\n".join([f"{rule.__doc__}", *of_rule])


def test_every_markdown_file_has_one_title() -> None:
    complaints = [
        f"{path.relative_to(ROOT)}: titles in lines {found}"
        for path in pages()
        if len(found := titles(path.read_text("utf-8"))) != 1
    ]

    assert not complaints, "\n" + "\n".join(complaints)


OFFENDER = "runners/sample.py"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (long_function, "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX),
        (undocumented_module, "x = 1\n"),
        (bare_except, "try:\n    pass\nexcept:\n    pass\n"),
        (note_without_issue, "x = 1  # TODO: later\n"),
        (rule_off_without_reason, "x = 1  # noqa: N816\n"),
        (rule_off_without_reason, "x = 1  # noqa\n"),
        (commit_beside_the_one_way, "self._store.commit(production)\n"),
        (length_not_in_words, 'text = f"took {timeout_ms / 1_000:g} s for it"\n'),
        (length_not_in_words, 'text = f"took {1e-6 * taken_us}" " seconds"\n'),
        (opening_that_points_elsewhere, 'def f():\n    """That of one worker."""\n'),
        (opening_that_points_elsewhere, 'class A:\n    """As the port shows it."""\n'),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_rule_finds_an_offender(
    rule: Callable[[ProgramFile], Iterator[Complaint]], text: str
) -> None:
    assert list(rule(ProgramFile(OFFENDER, text)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_leaves_good_code_alone(rule: Callable[[ProgramFile], Iterator[Complaint]]) -> None:
    text = '''\
        """Doc."""

        def f() -> str:
            try:
                return "TODO"  # TODO(#12): say more
            except ValueError:
                return ""
    '''

    assert not list(rule(ProgramFile(OFFENDER, textwrap.dedent(text))))


def test_titles_are_not_looked_for_in_code() -> None:
    assert titles("# One\n\n```sh\n# a comment\n```\n\n## Two\n") == [1]
    assert titles("# One\n\ntext\n\n# Two\n") == [1, 5]

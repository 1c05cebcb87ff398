"""Attributes are described in one way, where a reader and a tool find them.

The rule: what the body of a class declares is described under ``Attributes:`` in the docstring of the class (under
``Args:`` where it is what the constructor takes).  A ``#:`` stands beside a line where there is no such docstring: a
constant of a module, a member of an enum, an attribute that a constructor assigns.  What is refused: ``#:`` in the body
of any other class, strings below an attribute, sentences of a docstring that begin with the name of an attribute, as
those of a list ("``name``: text") or in prose ("``name`` is text"), and names under ``Attributes:`` that the class
does not have.
"""

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.program_files import FoundBy, ProgramFile, for_files_in, paths

PACKAGES = ("windowing", "triggers", "dataflow", "runners")
#: One or more names, and then a colon or a word, at the beginning of a paragraph, a line or a sentence.
LISTED = re.compile(
    r"(?:^(?=\S+:)|\A|(?<=\n\n)|(?<=[.;]\n)|(?<=[.;]) +)(``\w+``(?:(?:,| and) ``\w+``)*)(:| )",
    re.MULTILINE,
)
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): ", re.MULTILINE)


@for_files_in(*PACKAGES)
def complaints(file: ProgramFile) -> Iterator[str]:
    """What of a file breaks the rule, each with its place."""
    lines = file.text.splitlines()
    for node in file.nodes:
        if isinstance(node, ast.ClassDef):
            where = f"{file.path}:{node.lineno} {node.name}"
            yield from (f"{where}: {what}" for what in _in_body(node, lines))
            yield from (f"{where}: {what}" for what in _in_docstring(node))


def _in_body(node: ast.ClassDef, lines: Sequence[str]) -> Iterator[str]:
    if any("Enum" in ast.unparse(base) for base in node.bases):
        return
    for before, statement in zip([None, *node.body], node.body, strict=False):
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        first = node.lineno if before is None else before.end_lineno or node.lineno
        beside = lines[first : statement.end_lineno]
        if any(re.search(r"^\s*#:|  #:", line) for line in beside):
            yield f"#: beside {ast.unparse(statement)[:30]}"
    for before, statement in zip(node.body, node.body[1:], strict=False):
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if is_text and isinstance(before, ast.Assign | ast.AnnAssign):
            yield f"a string below {ast.unparse(before)[:30]}"


def _in_docstring(node: ast.ClassDef) -> Iterator[str]:
    doc = ast.get_docstring(node) or ""
    declared, known = set(_declared(node)), {*_declared(node), *_of_methods(node)}
    prose = re.split(r"^(?:Args|Attributes|Raises):\n", doc, flags=re.MULTILINE)[0]
    for listed in LISTED.finditer(prose):
        if (known if listed[2] == ":" else declared).intersection(re.findall(r"\w+", listed[1])):
            yield f"in prose: {listed[1]}"
    section = re.search(r"^Attributes:\n((?: +.*\n?|\n)*)", doc, re.MULTILINE)
    for entry in ENTRY.finditer("" if section is None else section[1]):
        yield from (f"no attribute {name}" for name in entry[1].split(", ") if name not in known)


def _declared(node: ast.ClassDef) -> Iterator[str]:
    """What the body of a class declares; of an enum, nothing."""
    if any("Enum" in ast.unparse(base) for base in node.bases):
        return
    for statement in node.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def _of_methods(node: ast.ClassDef) -> Iterator[str]:
    """Methods and properties, what they assign to ``self``, and what the constructor takes."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
            for each in ast.walk(statement):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                    yield each.attr
            if statement.name == "__init__":
                yield from (each.arg for each in (*statement.args.args, *statement.args.kwonlyargs))


def test_attributes_are_described_in_one_way(found_by: FoundBy[str]) -> None:
    found = found_by(complaints)

    assert len(paths(*PACKAGES)) > 300
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('class A:\n    """Is.\n\n    Attributes:\n        x: one.\n    """\n\n    x: int\n', None),
        ('class A:\n    """Is."""\n\n    #: One.\n    x: int\n', "#: beside x: int"),
        ("class A:\n    x: int = 1  #: One.\n", "#: beside x: int = 1"),
        ('class A:\n    x: int\n    """One."""\n', "a string below x: int"),
        ('class A:\n    """Is.\n\n    ``x``: one.\n    """\n\n    x: int\n', "in prose: ``x``"),
        ('class A:\n    """Is; ``x``, ``y``: two."""\n\n    x: int\n', "in prose: ``x``, ``y``"),
        ('class A:\n    """Is.\n\n    It is ``x``: one.\n    """\n\n    x: int\n', None),
        ('class A:\n    """Is.\n\n    Attributes:\n        y: one.\n    """\n\n    x: int\n', "no attribute y"),
        ("class A:\n    def __init__(self) -> None:\n        #: One.\n        self.x = 1\n", None),
        ("class A(StrEnum):\n    #: One.\n    X = 'x'\n", None),
        ("#: One.\nX = 1\n", None),
        ('class A:\n    """Is.\n\n    ``x`` is one.\n    """\n\n    x: int\n', "in prose: ``x``"),
    ],
)  # fmt: skip
def test_the_rule_finds_an_offender(text: str, complaint: str | None) -> None:
    found = [each.partition(": ")[2] for each in complaints(ProgramFile("x", text))]

    assert found == ([] if complaint is None else [complaint])

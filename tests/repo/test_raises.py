"""Public functions of the SDK have a ``Raises:`` section with the errors that they raise themselves.

The rule: a function or method of `dataflow`, `windowing` or `triggers` with a ``raise`` in its body (not in a function
within it) has a ``Raises:`` section, a constructor in its own docstring or in that of its class; an error that is made
right there is in it by the name of its class.  What need not be in it: `NotImplementedError` and `AssertionError`,
which no caller handles, and what is raised again as it came.
"""

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.program_files import FoundBy, ProgramFile, for_files_in, paths

PACKAGES = ("windowing", "triggers", "dataflow")
#: Bugs, of the caller or of this package.
NOBODY_HANDLES = {"AssertionError", "NotImplementedError"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@for_files_in(*PACKAGES)
def undocumented(file: ProgramFile) -> Iterator[str]:
    """What of a file breaks the rule, each with its place."""

    def found(body: Sequence[ast.stmt], owner: ast.ClassDef | None) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from found(node.body, node)
            elif isinstance(node, FunctionNode) and _is_public(node):
                doc = ast.get_docstring(node) or ""
                if owner is not None and node.name == "__init__":
                    doc += "\n\n" + (ast.get_docstring(owner) or "")
                if missing := _missing(node, doc):
                    yield f"{file.path}:{node.lineno}: Raises of {node.name} without {', '.join(missing)}"

    yield from found(file.tree.body, None)


def _is_public(node: FunctionNode) -> bool:
    return node.name == "__init__" or not node.name.startswith("_")


def _missing(node: FunctionNode, doc: str) -> list[str]:
    section = re.search(r"^Raises:\n((?: +.*\n?|\n)*)", doc, re.MULTILINE)
    described = "" if section is None else section[1]
    raised = dict.fromkeys(_raised(node.body))
    return [each for each in raised if section is None or (each and each not in described)]


def _raised(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The classes of the errors that statements raise; "" for one that another function makes."""
    nodes: list[ast.AST] = [*body]
    for node in nodes:
        if isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(made).split(".")[-1]
            if name not in NOBODY_HANDLES:
                yield name if re.fullmatch(r"[A-Z]\w*Error", name) else ""
        nodes.extend(ast.iter_child_nodes(node))


def test_errors_are_documented(found_by: FoundBy[str]) -> None:
    complaints = found_by(undocumented)

    assert len(paths(*PACKAGES)) > 100
    assert not complaints, "\n" + "\n".join(complaints)


DOC = '    """Do.\n\n    Raises:\n        WindowError: it is not there.\n    """\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def f() -> None:\n    raise WindowError('x')\n", "f without WindowError"),
        (f"def f() -> None:\n{DOC}    raise WindowError('x')\n", None),
        (f"def f() -> None:\n{DOC}    raise errors.WindowError('x')\n", None),
        (f"def f() -> None:\n{DOC}    raise InputError('x') from None\n", "f without InputError"),
        ("def f() -> None:\n    if x:\n        raise no_time('x')\n", "f without "),
        (f"def f() -> None:\n{DOC}    raise no_time('x')\n", None),
        ("class A:\n    def __init__(self) -> None:\n        raise ValueError\n", "__init__ without ValueError"),
        (f"class A:\n{DOC}    def __init__(self) -> None:\n        raise WindowError\n", None),
        ("def f() -> None:\n    try:\n        x()\n    except ValueError:\n        raise\n", None),
        ("def f() -> None:\n    raise NotImplementedError\n", None),
        ("def f() -> None:\n    def g() -> None:\n        raise ValueError\n", None),
        ("def _f() -> None:\n    raise ValueError\n", None),
    ],
)  # fmt: skip
def test_the_rule_finds_an_offender(text: str, complaint: str | None) -> None:
    found = [each.partition("Raises of ")[2] for each in undocumented(ProgramFile("x", text))]

    assert found == ([] if complaint is None else [complaint])

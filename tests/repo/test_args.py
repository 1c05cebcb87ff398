"""Public functions say what their arguments are: units, shapes, and what None means, which a type does not say.

The rule: a function or method of the packages below that has two or more parameters besides ``self`` and ``cls`` has an
``Args:`` section that names every one of them; a constructor has it in its own docstring or in that of its class.
What need not have one:

* names that begin with an underscore, and what is in such classes or in functions;
* a method of a class, if a method of the same name with the same parameters, or more, is documented in another class:
  the base or the port that it implements, so that the same text does not stand in ten places;
* overloads, methods that the engine calls for timers, and classes of ``attrs``, whose fields are documented.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("windowing", "triggers", "dataflow", "runners")
#: Not for users, and no ports: their callers are the package itself, and they say it in the first line.
OUTSIDE = (
    "runners/millwheel/store/memory/",
    "runners/millwheel/store/postgres/",
    "runners/millwheel/worker/",
    "runners/testing/",
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Documented:
    """A public function with its parameters, and what its docstring says of them."""

    place: str
    owner: str | None
    name: str
    parameters: Sequence[str]
    doc: str

    @property
    def described(self) -> Collection[str]:
        """The parameters that the ``Args:`` section names."""
        section = re.search(r"^Args:\n((?: +.*\n?|\n)*)", self.doc, re.MULTILINE)
        if section is None:
            return ()
        indent = min(len(line) - len(line.lstrip()) for line in section[1].splitlines() if line)
        entries = re.findall(rf"^ {{{indent}}}(\**\w+(?:, \**\w+)*):", section[1], re.MULTILINE)
        return {name.strip("*") for entry in entries for name in entry.split(", ")}


def functions(path: str, text: str) -> Iterator[Documented]:
    """All public functions and methods of a file, also those with fewer parameters."""

    def found(body: Sequence[ast.stmt], owner: ast.ClassDef | None) -> Iterator[Documented]:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from found(node.body, node)
            elif isinstance(node, FunctionNode) and _is_public(node):
                doc = ast.get_docstring(node) or ""
                if owner is not None and node.name == "__init__":
                    doc += "\n\n" + (ast.get_docstring(owner) or "")
                parameters = _parameters(node, is_method=owner is not None)
                name = None if owner is None else owner.name
                yield Documented(f"{path}:{node.lineno}", name, node.name, parameters, doc)

    yield from found(ast.parse(text).body, None)


def _is_public(node: FunctionNode) -> bool:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    if "overload" in decorators or "on_timer" in decorators:
        return False
    return node.name == "__init__" or not node.name.startswith("_")


def _parameters(node: FunctionNode, *, is_method: bool) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if is_method and "staticmethod" not in map(ast.unparse, node.decorator_list):
        named = named[1:]
    return [each.arg for each in (*named, arguments.vararg, arguments.kwarg) if each is not None]


def undocumented(found: Sequence[Documented]) -> Iterator[str]:
    """What of these breaks the rule, each with its place."""
    bases = defaultdict(list)
    for each in found:
        if each.owner is not None and each.described:
            bases[each.name].append(set(each.parameters))
    for each in found:
        missing = [name for name in each.parameters if name not in each.described]
        if len(each.parameters) < 2 or not missing:
            continue
        wanted = set(each.parameters)
        is_inherited = each.owner is not None and each.name != "__init__"
        if is_inherited and not each.described and any(base >= wanted for base in bases[each.name]):
            continue
        yield f"{each.place}: Args of {each.name} without {', '.join(missing)}"


def without_such_parameter(found: Sequence[Documented]) -> Iterator[str]:
    """Names in ``Args:`` that are no parameters: these have been renamed, or are gone."""
    for each in found:
        if each.name != "__init__" and (stale := set(each.described) - set(each.parameters)):
            yield f"{each.place}: {each.name} has no parameter {', '.join(sorted(stale))}"


@pytest.fixture(scope="module")
def found() -> list[Documented]:
    paths = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    return [
        each
        for path in paths
        if not (place := path.relative_to(ROOT).as_posix()).startswith(OUTSIDE)
        for each in functions(place, path.read_text("utf-8"))
    ]


def test_arguments_are_documented(found: list[Documented]) -> None:
    complaints = list(undocumented(found))

    assert len(found) > 1_000
    assert not complaints, "\n" + "\n".join(complaints)


def test_what_is_documented_is_a_parameter(found: list[Documented]) -> None:
    complaints = list(without_such_parameter(found))

    assert not complaints, "\n" + "\n".join(complaints)


BASE = '''
class Port:
    def send(self, address: str, message: bytes) -> None:
        """Send.

        Args:
            address: where to.
            message: at most a MB.

        Raises:
            OSError: it did not arrive.
        """
'''


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def f(a: int, b: int) -> None:\n    ...\n", "a, b"),
        (
            'def f(a: int, b: int) -> None:\n    """Do.\n\n    Args:\n        a: one.\n    """\n',
            "b",
        ),
        ("class A:\n    def __init__(self, a: int, b: int) -> None:\n        ...\n", "a, b"),
        (f"{BASE}class A:\n    def send(self, address: str, message: bytes) -> None: ...\n", None),
        (
            f"{BASE}class A:\n    def send(self, a: str, message: bytes) -> None: ...\n",
            "a, message",
        ),
        ("def _f(a: int, b: int) -> None: ...\n", None),
        ("def f(a: int) -> None: ...\n", None),
    ],
)
def test_the_rule_finds_an_offender(text: str, complaint: str | None) -> None:
    complaints = [each.partition("without ")[2] for each in undocumented([*functions("x", text)])]

    assert complaints == ([] if complaint is None else [complaint])


def test_a_name_that_is_no_parameter_is_found() -> None:
    text = 'def f(a: int, b: int) -> None:\n    """Do.\n\n    Args:\n        a: one.\n        c: two.\n    """\n'

    assert list(without_such_parameter([*functions("x", text)])) == ["x:1: f has no parameter c"]

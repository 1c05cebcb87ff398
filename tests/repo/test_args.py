"""Public functions say what their arguments are: units, shapes, and what None means, which a type does not say.

The rule: a function or method of the packages below that has two or more parameters besides ``self`` and ``cls`` has an
``Args:`` section that names every one of them; a constructor has it in its own docstring or in that of its class.
What need not have one:

* names that begin with an underscore, and what is in such classes or in functions;
* a method whose contract, which documents all of its parameters, is found by name, so that the same text does not stand
  in ten places: the method of this name in a base, in a port (a ``Protocol`` of which the class, or one that is derived
  from it, has all methods), or in the class that the docstring of its class names ("The part of `Store` that",
  "Stands in for a `RangeWriter`"); or the method that its own docstring names ("see `StoreResult.move`");
* overloads, methods that the engine calls for timers, and the constructors that ``attrs`` makes.

Of the classes of ``attrs`` that users are given or make, each field is in ``Args:`` or ``Attributes:`` where there are
two or more; a field ``size_us`` may stand there as ``size``, which the constructor takes.
"""

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs
import pytest

import dataflow
import dataflow.computations
import dataflow.testing
from tests.program_files import FoundBy, ProgramFile, for_files_in

PACKAGES = ("windowing", "triggers", "dataflow", "runners")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Owner:
    """A class, as its methods need it: its name, its bases by name, and the one that it names as its contract."""

    name: str
    bases: Sequence[str]

    @classmethod
    def of(cls, node: ast.ClassDef) -> "Owner":
        """The owner of the methods in a class statement."""
        bases = [_last_name(each) for each in node.bases]
        part = re.match(
            r"(?:The part of|Stands in for an?) `([\w.]+)`", ast.get_docstring(node) or ""
        )
        return cls(node.name, [*bases, *([part[1].split(".")[-1]] if part else ())])


def _last_name(base: ast.expr) -> str:
    """The name of a base, without its module and its parameters."""
    return ast.unparse(base.value if isinstance(base, ast.Subscript) else base).split(".")[-1]


@attrs.frozen
class Documented:
    """A public function with its parameters, and what its docstring says of them."""

    place: str
    owner: Owner | None
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


@for_files_in(*PACKAGES)
def functions(file: ProgramFile) -> Iterator[Documented]:
    """All public functions and methods of a file, also those with fewer parameters."""

    def found(body: Sequence[ast.stmt], owner: ast.ClassDef | None) -> Iterator[Documented]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                # The class itself, for its bases: it need not have a public method.
                yield Documented(f"{file.path}:{node.lineno}", Owner.of(node), "", (), "")
                if not node.name.startswith("_"):
                    yield from found(node.body, node)
            elif isinstance(node, FunctionNode) and _is_public(node):
                doc = ast.get_docstring(node) or ""
                if owner is not None and node.name == "__init__":
                    doc += "\n\n" + (ast.get_docstring(owner) or "")
                parameters = _parameters(node, is_method=owner is not None)
                of = None if owner is None else Owner.of(owner)
                yield Documented(f"{file.path}:{node.lineno}", of, node.name, parameters, doc)

    yield from found(file.tree.body, None)


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


class Contracts:
    """The classes of a package, to find which of them a method has its contract from."""

    def __init__(self, found: Iterable[Documented]) -> None:
        self._bases: dict[str, set[str]] = defaultdict(set)
        self._methods: dict[str, dict[str, list[Documented]]] = defaultdict(dict)
        for each in found:
            if each.owner is not None:
                self._bases[each.owner.name].update(each.owner.bases)
                self._methods[each.owner.name].setdefault(each.name, []).append(each)
        self._above = {name: self._all_bases(name) for name in self._methods}
        self._ports = {
            name: methods.keys() - {"__init__"}
            for name, methods in self._methods.items()
            if "Protocol" in self._bases[name]
        }

    def document(self, method: Documented) -> bool:
        """Whether a base, a port or a method that its docstring refers to documents all parameters of a method."""
        if method.owner is None or method.name == "__init__":
            return False
        referred = {(name, each) for name, each in re.findall(r"see `(\w+)\.(\w+)`", method.doc)}
        contracts = {(name, method.name) for name in self._contracts_of(method.owner.name)}
        return any(
            set(method.parameters) <= set(each.described)
            for name, method_name in contracts | referred
            for each in self._methods.get(name, {}).get(method_name, ())
        )

    def _contracts_of(self, name: str) -> Iterable[str]:
        """The bases of a class, and the ports of it and of the classes that are made of it."""
        yield from self._above[name]
        for whole in (name, *(each for each, above in self._above.items() if name in above)):
            parts = (whole, *self._above[whole])
            methods = set[str]().union(*(self._methods.get(each, {}) for each in parts))
            yield from (each for each, port in self._ports.items() if port and port <= methods)

    def _all_bases(self, name: str) -> set[str]:
        above, new = set[str](), set(self._bases.get(name, ()))
        while new:
            above |= new
            new = {base for each in new for base in self._bases.get(each, ())} - above
        return above


def undocumented(found: Sequence[Documented]) -> Iterator[str]:
    """What of these breaks the rule, each with its place."""
    contracts = Contracts(found)
    for each in found:
        missing = [name for name in each.parameters if name not in each.described]
        if len(each.parameters) < 2 or not missing:
            continue
        if not each.described and contracts.document(each):
            continue
        yield f"{each.place}: Args of {each.name} without {', '.join(missing)}"


def without_such_parameter(found: Sequence[Documented]) -> Iterator[str]:
    """Names in ``Args:`` that are no parameters: these have been renamed, or are gone."""
    for each in found:
        if each.name != "__init__" and (stale := set(each.described) - set(each.parameters)):
            yield f"{each.place}: {each.name} has no parameter {', '.join(sorted(stale))}"


@pytest.fixture(scope="module")
def found(found_by: FoundBy[Documented]) -> list[Documented]:
    return found_by(functions)


def test_arguments_are_documented(found: list[Documented]) -> None:
    complaints = list(undocumented(found))

    assert len(found) > 1_000
    assert not complaints, "\n" + "\n".join(complaints)


def test_what_is_documented_is_a_parameter(found: list[Documented]) -> None:
    complaints = list(without_such_parameter(found))

    assert not complaints, "\n" + "\n".join(complaints)


def undocumented_fields(cls: type) -> list[str]:
    """The public fields of a class of ``attrs`` with several that its docstring does not describe."""
    fields = [each.name for each in attrs.fields(cls) if each.init and each.name[0] != "_"]
    entries = re.findall(r"^ {4,}(\w+(?:, \w+)*):", inspect.getdoc(cls) or "", re.MULTILINE)
    described = {name for entry in entries for name in entry.split(", ")}
    return [
        name
        for name in (fields if len(fields) > 1 else ())
        if not described & {name, name.removesuffix("_us")}
    ]


def of_users() -> Iterator[type]:
    """The classes of ``attrs`` among the public names."""
    for module in (dataflow, dataflow.computations, dataflow.testing):
        for name in module.__all__:
            if isinstance(found := getattr(module, name), type) and attrs.has(found):
                yield found


def test_fields_of_public_classes_are_documented() -> None:
    found = {each.__name__: undocumented_fields(each) for each in of_users()}

    assert len(found) > 20
    assert {name: missing for name, missing in found.items() if missing} == {}


def test_a_field_that_is_not_documented_is_found() -> None:
    @attrs.frozen
    class Span:
        """A span.

        Attributes:
            start: in microseconds.
        """

        start_us: int
        end_us: int

    assert undocumented_fields(Span) == ["end_us"]


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
#: A port with another method.
PROTOCOL = BASE.replace("Port:", "Port(Protocol):") + "    def close(self) -> None: ...\n"
SEND = "\n    def send(self, address: str, message: bytes) -> None: ...\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def f(a: int, b: int) -> None:\n    ...\n", "a, b"),
        (
            'def f(a: int, b: int) -> None:\n    """Do.\n\n    Args:\n        a: one.\n    """\n',
            "b",
        ),
        ("class A:\n    def __init__(self, a: int, b: int) -> None:\n        ...\n", "a, b"),
        (f"{BASE}class A(Port):{SEND}", None),
        (f"{BASE}class A(Port):\n    x = 1\nclass B(A):{SEND}", None),
        (f"{BASE}class A(Port):{SEND.replace('address', 'a')}", "a, message"),
        # A method of the same name in a class that has nothing to do with this one.
        (f"{BASE}class A:{SEND}", "address, message"),
        (f'{BASE}class A:\n    """The part of `x.Port` that sends."""{SEND}', None),
        (f'{BASE}class A:{SEND[:-4]}\n        """See, or see `Port.send`."""\n', None),
        (
            f'{BASE}class A:{SEND[:-4]}\n        """See, or see `Port.put`."""\n',
            "address, message",
        ),
        (f"{PROTOCOL}class A:{SEND}    def close(self) -> None: ...\n", None),
        (f"{PROTOCOL}class A:{SEND}", "address, message"),
        (f"{PROTOCOL}class A:{SEND}class B(A):\n    def close(self) -> None: ...\n", None),
        ("def _f(a: int, b: int) -> None: ...\n", None),
        ("def f(a: int) -> None: ...\n", None),
    ],
)
def test_the_rule_finds_an_offender(text: str, complaint: str | None) -> None:
    complaints = [
        each.partition("without ")[2] for each in undocumented([*functions(ProgramFile("x", text))])
    ]

    assert complaints == ([] if complaint is None else [complaint])


def test_a_name_that_is_no_parameter_is_found() -> None:
    text = 'def f(a: int, b: int) -> None:\n    """Do.\n\n    Args:\n        a: one.\n        c: two.\n    """\n'

    assert list(without_such_parameter([*functions(ProgramFile("x", text))])) == [
        "x:1: f has no parameter c"
    ]

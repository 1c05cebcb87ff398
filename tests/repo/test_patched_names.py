"""What tests replace is there: a breakage that replaces nothing finds nothing, and only a slow test would notice."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

ROOT = Path(__file__).parents[2]
#: Files whose breakages are tried by slow tests.
FILES = [*(ROOT / "tests/simulation").glob("*.py"), *(ROOT / "tests/repo").glob("*mutations.py")]


def replaced(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """The object and the name in each ``setattr`` that must replace something; the object may be named by its path."""
    for call in ast.walk(tree):
        match call:
            case ast.Call(
                func=ast.Attribute(attr="setattr"),
                args=[what, ast.Constant(value=str(name)), *_],
                keywords=[],
            ):
                yield what, name
            case ast.Call(
                func=ast.Attribute(attr="setattr"),
                args=[ast.Constant(value=str(path)), ast.AST()],
            ):
                owner, _, name = path.rpartition(".")
                yield ast.Constant(owner), name


def missing(tree: ast.AST, module: ModuleType) -> list[str]:
    """What is replaced and not there, of all that has a name in the module."""
    found = []
    for what, name in replaced(tree):
        try:
            target = eval(ast.unparse(what), vars(module))
            target = resolve_name(target) if isinstance(target, str) else target
        except NameError:
            continue  # a variable of a function
        except (ImportError, AttributeError):
            target = None
        if not hasattr(target, name):
            found.append(f"{ast.unparse(what)}.{name}")
    return found


def test_what_is_replaced_is_there() -> None:
    found = {}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if "setattr(" in text:
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            found[path.stem] = missing(ast.parse(text), module)

    assert len(found) > 10
    assert {name: names for name, names in found.items() if names} == {}


def test_a_name_that_is_not_there_is_found() -> None:
    text = """
patch.setattr(json, "loads", f)
patch.setattr(json, "reads", f)
patch.setattr(x, "y", f)
patch.setattr("json.decoder.JSONDecoder.decode", f)
patch.setattr("json.decoder.Decoder.decode", f)
patch.setattr("json.decoder.reads", f)
"""
    module = ModuleType("example")
    vars(module)["json"] = importlib.import_module("json")

    assert missing(ast.parse(text), module) == [
        "json.reads",
        "'json.decoder.Decoder'.decode",
        "'json.decoder'.reads",
    ]

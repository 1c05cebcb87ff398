"""The core asks functions what they can do, and knows no shipped one by its name but those with a reason in ADR 0045.

A function that the core knows can do what a user's cannot.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any

import pytest

from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.combine_fn import CombineFn
from triggers.trigger import Trigger
from windowing.window_fn import WindowFn

ROOT = Path(__file__).parents[2]
#: What users may write themselves.
KINDS = (WindowFn, CombineFn, ColumnCombineFn, Trigger)
PACKAGES = ("dataflow.", "triggers.", "windowing.")
#: Who knows which; the reasons are in the ADR.
KNOWN = {
    ("runners/core/partials/folding.py", "CoGroupFn"),
    ("runners/core/partials/folding.py", "JoinFn"),
    ("runners/core/partials/folding.py", "ListCombineFn"),
    ("runners/core/partials/occurrences.py", "CallableCombineFn"),
    ("runners/core/partials/occurrences.py", "CountCombineFn"),
    ("runners/core/partials/occurrences.py", "SumCombineFn"),
    ("runners/core/partials/signed_groups.py", "CoGroupFn"),
    ("runners/core/partials/signed_groups.py", "JoinFn"),
    ("runners/core/single_firing/single_panes.py", "DefaultTrigger"),
}


def functions_of(source: str) -> Iterator[str]:
    """The names of shipped functions that a module imports."""
    for node in ast.walk(ast.parse(source)):
        names: list[tuple[str, Any]] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
            module = import_module(str(node.module))
            names = [(each.name, getattr(module, each.name, None)) for each in node.names]
        for name, found in names:
            if isinstance(found, type) and issubclass(found, KINDS) and not isabstract(found):
                yield name


def test_the_core_knows_no_functions_but_those_with_a_reason() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / "runners/core").rglob("*.py")
        for name in functions_of(path.read_text())
    }

    assert found == KNOWN, "let the function say what it can do, or give the reason in ADR 0045"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from dataflow.combiner_columns import SumColumns, array_of", ["SumColumns"]),
        ("from windowing.fixed import FixedWindows", ["FixedWindows"]),
        ("from dataflow.combine_fn import CombineFn, can_retract_input", []),
        ("from windowing.window_fn import MergingWindowFn", []),
        (
            "def late():\n    from triggers.default_trigger import DefaultTrigger",
            ["DefaultTrigger"],
        ),
    ],
)
def test_functions_are_found(line: str, names: list[str]) -> None:
    assert list(functions_of(line)) == names


def test_the_decision_names_them() -> None:
    (decision,) = (ROOT / "docs/adr").glob("0045-*.md")
    text = decision.read_text()

    assert [name for _, name in KNOWN if f"`{name}`" not in text] == []

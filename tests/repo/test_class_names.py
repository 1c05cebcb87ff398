"""One name, one thing: no two classes at the top of modules of the product share a name, so that it can be looked up.

Names with an underscore are known in their module alone.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("windowing", "triggers", "dataflow", "runners")
#: Names that two classes may have, where they are, and why.
SHARED = {
    "Flatten": (
        {"dataflow/graph.py", "dataflow/transforms/flatten.py"},
        "the transform that users write, and the operation of the graph that it becomes",
    ),
    "ParDo": (
        {"dataflow/graph.py", "dataflow/transforms/par_do.py"},
        "the transform that users write, and the operation of the graph that it becomes",
    ),
    "Read": (
        {"dataflow/graph.py", "dataflow/io/create.py"},
        "the transform that users write, and the operation of the graph that it becomes",
    ),
}


def twins(files: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
    """The names that several classes have, and the files of these.

    Args:
        files: paths, and what is in them.
    """
    found = defaultdict[str, list[str]](list)
    for path, text in files:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return {name: set(paths) for name, paths in found.items() if len(paths) > 1}


def test_no_two_classes_have_one_name() -> None:
    files = [
        (path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]

    assert len(files) > 100
    assert twins(files) == {name: paths for name, (paths, _) in SHARED.items()}


def test_twins_are_found() -> None:
    files = [
        ("a.py", "class Merge: pass\nclass _Run: pass\n"),
        ("b.py", "class Merge: pass\nclass _Run: pass\nclass Split:\n    class Merge: pass\n"),
    ]

    assert twins(files) == {"Merge": {"a.py", "b.py"}}

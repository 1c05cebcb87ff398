"""One name, one thing: no two classes at the top of modules of the product share a name, so that it can be looked up.

Names with an underscore are known in their module alone.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.program_files import FoundBy, ProgramFile, for_files_in

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


@for_files_in(*PRODUCT)
def public_classes(file: ProgramFile) -> Iterator[tuple[str, str]]:
    """The name of each class at the top of a file, and the path of the file."""
    for node in file.tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, file.path


def twins(classes: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
    """The names that several classes have, and the files of these.

    Args:
        classes: names, and paths.
    """
    found = defaultdict[str, list[str]](list)
    for name, path in classes:
        found[name].append(path)
    return {name: set(paths) for name, paths in found.items() if len(paths) > 1}


def test_no_two_classes_have_one_name(found_by: FoundBy[tuple[str, str]]) -> None:
    classes = found_by(public_classes)

    assert len(classes) > 100
    assert twins(classes) == {name: paths for name, (paths, _) in SHARED.items()}


def test_twins_are_found() -> None:
    files = [
        ProgramFile("a.py", "class Merge: pass\nclass _Run: pass\n"),
        ProgramFile(
            "b.py", "class Merge: pass\nclass _Run: pass\nclass Split:\n    class Merge: pass\n"
        ),
    ]

    classes = [each for file in files for each in public_classes(file)]

    assert twins(classes) == {"Merge": {"a.py", "b.py"}}

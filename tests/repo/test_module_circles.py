"""No two modules import each other, not for their types alone either: who reads one need not hold the other in mind.

import-linter's contracts are about packages; inside a package, and under ``TYPE_CHECKING``, this looks.
"""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

PACKAGES = ("windowing", "triggers", "dataflow", "runners")


def test_modules_import_each_other_in_no_circle() -> None:
    graph = grimp.build_graph(*PACKAGES)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert "dataflow.ptransform" in imports["dataflow.pipeline"], "imports for types are not seen"
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))

"""Which modules of tests need not be imported, since a mark of the whole module leaves all their tests out."""

import re

#: An expression of `-m` by which a mark only ever leaves a test out.
_NO_MARKS = re.compile(r"not \w+( and not \w+)*")
_MODULE_MARKS = re.compile(r"^pytestmark = (\[.*?\]|[^\[\n]*)$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"pytest\.mark\.(\w+)")


def leaves_all_out(expression: str, program: str) -> bool:
    """Whether no test of a module is asked for.

    Args:
        expression: as for `-m` of pytest.
        program: the text of the module.
    """
    of_module = _MODULE_MARKS.search(program) if _NO_MARKS.fullmatch(expression) else None
    return of_module is not None and not set(_MARK.findall(of_module[0])).isdisjoint(
        expression.split()
    )

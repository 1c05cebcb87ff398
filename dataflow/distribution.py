"""The installed package as a whole: its name in the package index, its version, its extras, and that nothing hides it.

It is called otherwise than what is imported: its distribution has the four packages `windowing`, `triggers`, `dataflow`
and `runners`, whose names somebody's own module may have too.  That is an error here, with the path of that module, and
not one about a name that is missing there.

Imports nothing of this package: it is what `dataflow` imports first.
"""

import os
from importlib.util import find_spec

#: In the package index.
NAME = "dataflow-model"
#: Read by `pyproject.toml` too.
VERSION = "0.1.0"

_PACKAGES = ("windowing", "triggers", "runners")


def install_command(extra: str) -> str:
    """The command that installs what is missing.

    Args:
        extra: that has it, as in `pyproject.toml`.
    """
    return f'pip install "{NAME}[{extra}]"'


def check_not_shadowed() -> None:
    """Check that the other packages are those beside this one.

    Raises:
        ImportError: a module or directory of the user's is found in the place of one.
    """
    ours = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - the package may be in an archive, and this is in each process
    for package in _PACKAGES:
        spec = find_spec(package)
        if spec is None:
            continue  # an installation that lacks something has errors of its own
        places = list(spec.submodule_search_locations or ())
        expected = os.path.join(ours, package)  # noqa: PTH118 - likewise
        if any(_is_same(expected, place) for place in places):
            continue
        found = spec.origin or ", ".join(places)
        text = (
            f"a module of yours hides the package {package!r} of {NAME}",
            f"detail: Python finds {found} first; {NAME} has its own in {expected}",
            f"what to do: give yours another name than {', '.join(_PACKAGES)} and dataflow, or put it into a package",
        )
        raise ImportError(
            "\n  ".join(text),
            name=package,
            path=found,
        )


def _is_same(expected: str, place: str) -> bool:
    return expected == place or os.path.realpath(expected) == os.path.realpath(place)


check_not_shadowed()

"""The command ``init``: a small project that runs, to begin with."""

import argparse
import keyword
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from string import Template

from dataflow import distribution
from dataflow.errors import DataflowError

#: Where each template goes; ``$name`` is that of the project.
_FILES: Mapping[str, str] = {
    "README.md.tmpl": "README.md",
    "Makefile.tmpl": "Makefile",
    "pyproject.toml.tmpl": "pyproject.toml",
    "gitignore.tmpl": ".gitignore",
    "pipeline.py.tmpl": "$name.py",
    "test_pipeline.py.tmpl": "tests/test_$name.py",
    "scores.csv.tmpl": "data/scores.csv",
}


def init(asked: argparse.Namespace) -> None:
    """Write a project into a new folder, and print its files.

    Args:
        asked: the parsed command line, with ``name``.

    Raises:
        DataflowError: the name cannot be that of a module and a table, or there is such a folder.
    """
    name, folder = asked.name, Path(asked.name)
    if (
        not name.isidentifier()
        or not name.islower()
        or not name.isascii()
        or keyword.iskeyword(name)
    ):
        raise DataflowError(
            f"{name!r} cannot be the name of a project",
            detail="it is the name of its Python module, of its job and of its table",
            hint="use small letters, digits and underscores, such as team_scores",
        )
    if name in {"dataflow", "runners", "triggers", "windowing", "tests", "data"}:
        raise DataflowError(
            f"a module {name!r} would hide one that the project needs", hint="choose another name"
        )
    if folder.exists() and any(folder.iterdir()):
        raise DataflowError(
            f"there is a folder {name} already, with something in it",
            hint="choose another name, or begin in another folder",
        )
    values = {"name": name, "version": distribution.VERSION}
    templates = resources.files("runners.cli") / "project"
    for template, place in _FILES.items():
        path = folder / Template(place).substitute(values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template((templates / template).read_text()).substitute(values))
        print(path)
    print(f"next: cd {name} && make test")


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    parser = add(
        "init",
        "begin a project: a pipeline, tests of it, and a Makefile",
        "The pipeline reads a small file and writes a table; the tests script a stream, generate others, and simulate "
        "clusters in which everything fails.",
        "dataflow init team_scores",
    )
    parser.add_argument(
        "name", metavar="NAME", help="of the folder, the module, the job and the table"
    )
    parser.set_defaults(do=init, needs_store=False)

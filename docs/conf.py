"""The site of the documentation: Sphinx with MyST, since these pages are Markdown, and the theme Furo.

``make docs`` builds it; a warning, such as a link that leads nowhere or a name that does not exist, is an error.
"""

import argparse
import os
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

# The package of this checkout, not an installed one.
from dataflow import __version__  # noqa: E402 - as above
from runners.cli.command_line import parser  # noqa: E402 - likewise

project = "dataflow-model"
author = "The authors of dataflow-model"
project_copyright = "Apache License 2.0"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
# Single backquotes in docstrings are names, most of them of the API.
default_role = "code"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"dataflow-model {release}"
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
# Each page leads to its source where there is an address for that: the one that pyproject.toml declares.
if (
    repository := tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    .get("urls", {})
    .get("Repository")
):
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": f"v{release}",
        "source_directory": "docs/",
    }
templates_path = ["_templates"]
html_static_path = ["_static"]
exclude_patterns = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


class CommandHelp(Directive):
    """``command-help``: what ``dataflow COMMAND --help`` prints, for each command under a title of its own."""

    has_content = False

    def run(self):  # noqa: ANN201, D102 - as docutils has it
        os.environ["COLUMNS"] = "100"
        (commands,) = (
            action
            for action in parser()._actions  # noqa: SLF001 - argparse has no other way to ask for commands
            if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - likewise
        )
        sections = []
        for name, command in commands.choices.items():
            section = nodes.section(ids=[f"command-{name}"], names=[name])
            section += nodes.title(text=name)
            text = command.format_help()
            section += nodes.literal_block(text, text, language="text")
            sections.append(section)
        return sections


#: Pages that stand elsewhere in the repository, where people look for them, by their names here.
COPIED = {
    "explanation/architecture": "ARCHITECTURE.md",
    "explanation/contributing": "CONTRIBUTING.md",
    "examples/README": "examples/README.md",
    "examples/flight_delays": "examples/flight_delays.md",
    "examples/orders_cdc": "examples/orders_cdc.md",
    **{
        f"examples/{folder.name}": f"examples/{folder.name}/README.md"
        for folder in (ROOT / "examples").iterdir()
        if (folder / "README.md").is_file()
    },
}


def relinked(docname):  # noqa: ANN001, ANN201 - Sphinx reads this file
    """The text of a page, wherever it stands, with links and pictures that lead to the same from its place here."""
    here = DOCS / f"{docname}.md"
    page = ROOT / COPIED.get(docname, here)
    places = {ROOT / path: DOCS / f"{name}.md" for name, path in COPIED.items()}

    def moved(link):  # noqa: ANN001, ANN202 - likewise
        target, hash_, anchor = link[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        there = (page.parent / target).resolve()
        if page == here and there not in places:
            return link[0]
        return f"]({os.path.relpath(places.get(there, there), here.parent)}{hash_}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, page.read_text())


def contents(app, docname, source):  # noqa: ANN001, ANN201, ARG001 - Sphinx's signature
    """Fill pages that are copies, and have the pages that a README links to in its own folder be its contents."""
    source[0] = relinked(docname)
    if docname.endswith("/README"):
        pages = dict.fromkeys(re.findall(r"\]\(([\w-]+)\.md\)", source[0]))
        listed = "\n".join(pages)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def without_expand(app, what, name, obj, skip, options):  # noqa: ANN001, ANN201, ARG001 - Sphinx's signature
    """Leave out what every transform has to define and nobody calls; `PTransform` itself says what it is for."""
    if name in {"expand", "default_label"}:
        return not getattr(obj, "__qualname__", "").startswith("PTransform.")
    return None


def plain_sections(app, what, name, obj, options, lines):  # noqa: ANN001, ANN201, ARG001 - Sphinx's signature
    """Give a docstring's sections the titles that Sphinx knows.

    "Raises, where the pipeline runs:" says more than Sphinx's "Raises:", and stays as the first sentence of it.
    """
    for number, line in enumerate(lines):
        qualified = re.fullmatch(r"(\s*)Raises, (.+):", line)
        if qualified:
            lines[number] = f"{qualified[1]}Raises:"


def own_branch(app, pagename, templatename, context, doctree):  # noqa: ANN001, ANN201, ARG001 - Sphinx's signature
    """Open only a page's own branch of the list of pages: all two hundred of them, in each, are half of the work."""
    if "toctree" in context:
        whole = context["toctree"]
        context["toctree"] = lambda **options: whole(**options | {"collapse": True})


def setup(app):  # noqa: ANN001, ANN201 - Sphinx's signature
    """Tell Sphinx of what is ours."""
    app.add_directive("command-help", CommandHelp)
    app.connect("source-read", contents)
    app.connect("autodoc-skip-member", without_expand)
    app.connect("autodoc-process-docstring", plain_sections, priority=100)
    app.connect("html-page-context", own_branch, priority=400)  # before the theme's

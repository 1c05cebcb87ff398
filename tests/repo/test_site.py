"""The site: nothing is missing in it, it names nothing that there is not, and it is built without a warning."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import dataflow as df

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def test_every_public_name_has_one_place_in_the_reference() -> None:
    directive = re.compile(r"^\.\. (?:auto\w+|py:data):: (\w+)$", re.MULTILINE)
    pages = (DOCS / "reference").glob("*.md")
    places = Counter(name for page in pages for name in directive.findall(page.read_text()))
    assert places == Counter(name for name in df.__all__ if name != "__version__")


@pytest.mark.parametrize(
    "folder", ["how-to", "examples", "connectors", "reference", "tutorial", "adr"]
)
def test_every_page_of_a_folder_is_in_its_list(folder: str) -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / folder / "README.md").read_text()))
    assert listed >= {page.name for page in (DOCS / folder).glob("*.md")} - {"README.md"}


def test_pages_name_what_there_is() -> None:
    wrong = [
        f"{page.relative_to(DOCS)}: df.{name}"
        for page in PAGES
        if page.parent.name != "adr"
        for name in re.findall(r"\bdf\.([A-Za-z_]\w*)", page.read_text())
        if not hasattr(df, name)
    ]
    assert wrong == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*build, "-d", str(tmp_path / "read"), str(DOCS), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in (
        "index",
        "tutorial/first-answers",
        "reference/grouping",
        "explanation/architecture",
    ):
        assert (tmp_path / "site" / f"{page}.html").is_file()
    # Nothing comes from another host, so it can be read without a network.
    index = (tmp_path / "site" / "index.html").read_text()
    assert re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', index) == []

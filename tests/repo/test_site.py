"""The site: nothing is missing in it, it names nothing that there is not, and it is built without a warning."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select, WebDriverWait

import dataflow as df
from tests.waiting import WAIT_MAX_S
from tools import browser
from tools import site as sites

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


@pytest.mark.nightly
@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", str(tmp_path / "site")],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    site = tmp_path / "site" / df.__version__
    for page in (
        "index",
        "tutorial/first-answers",
        "reference/grouping",
        "explanation/architecture",
    ):
        assert (site / f"{page}.html").is_file()
    # Nothing comes from another host, so it can be read without a network.
    index = (site / "index.html").read_text()
    assert re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', index) == []


def test_versions_are_listed_newest_first(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.2.1", "drafts"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").write_text("")
    (tmp_path / "0.11.0").mkdir()  # a build that failed has no first page

    assert sites.list_versions(tmp_path) == ["0.10.0", "0.9.0", "0.2.1"]
    assert json.loads((tmp_path / "versions.json").read_text()) == ["0.10.0", "0.9.0", "0.2.1"]
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())
def test_a_reader_changes_the_version_without_a_server(tmp_path: Path) -> None:
    """Two versions that lie beside each other on a disk; one alone has no choice."""
    site = tmp_path / "site"
    assert sites.build(site) == 0
    shutil.copytree(site / df.__version__, site / "99.0.0")
    page = (site / df.__version__ / "how-to" / "choose-windows.html").as_uri()

    def choices(driver: WebDriver) -> list[str]:
        driver.get(page)
        WebDriverWait(driver, WAIT_MAX_S).until(
            lambda driver: driver.execute_script("return document.readyState") == "complete"
        )
        return [
            each.text for each in driver.find_elements(By.CSS_SELECTOR, ".sidebar-versions option")
        ]

    (tmp_path / "profile").mkdir()
    with browser.chromium(tmp_path / "profile") as driver:
        (site / "versions.js").write_text(f'showVersions(["{df.__version__}"]);')
        assert choices(driver) == []
        sites.list_versions(site)
        assert choices(driver) == ["99.0.0", df.__version__]
        Select(
            driver.find_element(By.CSS_SELECTOR, ".sidebar-versions select")
        ).select_by_visible_text("99.0.0")
        WebDriverWait(driver, WAIT_MAX_S).until(
            lambda driver: "/99.0.0/index.html" in driver.current_url
        )

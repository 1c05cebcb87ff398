"""A headless Chromium, driven by selenium: for tests of the page and its figures."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)


def missing() -> str:
    """What is not installed that a browser needs; empty: nothing."""
    wanted = {"chromium": "chromium", "chromedriver": "chromium-driver"}
    packages = [package for program, package in wanted.items() if shutil.which(program) is None]
    return f"no {' and no '.join(packages)}: on Debian, apt install them" if packages else ""


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[Chrome]:
    """A browser, ended with the block.

    Args:
        profile: an empty folder for what it keeps.
        flags: more of its command line.
    """
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*_FLAGS, f"--user-data-dir={profile}", *flags):
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()

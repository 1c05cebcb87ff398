"""Scripts that are in git from elsewhere are those of the package and version that `tools/vendor_js.py` names."""

import hashlib

from tools.vendor_js import PACKAGES, STATIC


def test_vendored_files_are_those_that_are_named() -> None:
    for package in PACKAGES:
        assert {*package.files.values()} == {*package.sha256}
        for name, wanted in package.sha256.items():
            assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == wanted, name
        assert any("LICENSE" in name for name in package.sha256), package.name


def test_every_script_of_the_page_is_ours_or_named() -> None:
    named = {name for package in PACKAGES for name in package.sha256}
    assert {path.name for path in STATIC.glob("*.js")} - named == {"ui.js"}

"""Copy the scripts that the page is served with out of their npm packages, whose integrity is checked.

They are in git, so that nobody who installs this package needs npm.  To take another version, change `PACKAGES` (npm
shows the hash: ``npm view NAME@VERSION dist.integrity``) and run ``python tools/vendor_js.py``.
"""

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

STATIC = Path(__file__).parent.parent / "runners" / "ui" / "static"


class Package(NamedTuple):
    """A package of npm, and what is taken from it.

    Attributes:
        integrity: of the whole package, as npm states it.
        files: name in ``static/`` by path in the package.
        sha256: of each of these, by its name.
    """

    name: str
    version: str
    integrity: str
    files: dict[str, str]
    sha256: dict[str, str]


PACKAGES = (
    Package(
        name="idiomorph",
        version="0.8.0",
        integrity="sha512-R47JBL+6jHDQvcnbppIUtXXcxi5h6+wuCEEZXnRhUltsgzPFKzThL5PuHppP9ypJuy+7WawcY1TsSBD/iQbMhw==",
        files={
            "package/dist/idiomorph.min.js": "idiomorph.min.js",
            "package/LICENSE": "idiomorph.LICENSE.txt",
        },
        sha256={
            "idiomorph.min.js": "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96",
            "idiomorph.LICENSE.txt": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
        },
    ),
)


def vendor(package: Package, into: Path) -> None:
    """Copy the files of a package.

    Args:
        package: which one.
        into: a folder.

    Raises:
        SystemExit: the package is not the one whose hash is here.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        packed = subprocess.run(  # noqa: S603 - constants of this file
            ["npm", "pack", "--silent", wanted],  # noqa: S607 - wherever npm is
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        archive = Path(folder) / packed.stdout.strip().splitlines()[-1]
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != package.integrity:
            sys.exit(f"{wanted} has the hash sha512-{digest}, and {package.integrity} is expected")
        with tarfile.open(archive) as opened:
            for path, name in package.files.items():
                member = opened.extractfile(path)
                assert member is not None, path
                (into / name).write_bytes(member.read())


if __name__ == "__main__":
    for each in PACKAGES:
        vendor(each, STATIC)
        print(f"{each.name} {each.version}")

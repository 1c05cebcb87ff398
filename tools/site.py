"""Build the site of the documentation into a folder of its version, beside those of other versions.

python -m tools.site build/site

``build/site/0.1.0/`` is this version; ``index.html`` leads to the newest one.  ``versions.json`` lists what there is,
newest first, for programs; pages read the same from ``versions.js``, since a browser that has opened a file may load a
script that lies beside it and nothing else.  To publish a new version, copy its folder to the others and run this with
``--list``.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NUMBER = re.compile(r"\d+(?:\.\d+)+")
_REDIRECT = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>dataflow-model</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">dataflow-model {version}</a>
</html>
"""


def declared_version() -> str:
    """The version of this checkout."""
    text = (ROOT / "dataflow" / "distribution.py").read_text("utf-8")
    (found,) = re.findall(r'^VERSION = "(.+)"$', text, re.MULTILINE)
    return str(found)


def versions_in(site: Path) -> list[str]:
    """The versions that a site has, newest first.

    Args:
        site: the folder with a folder for each version.
    """
    found = [each.parent.name for each in site.glob("*/index.html")]
    numbers = [each for each in found if _NUMBER.fullmatch(each)]
    return sorted(numbers, key=lambda each: [int(part) for part in each.split(".")], reverse=True)


def list_versions(site: Path) -> Sequence[str]:
    """Write which versions there are, and the page that leads to the newest.

    Args:
        site: the folder with a folder for each version.

    Returns:
        The versions, newest first.
    """
    found = versions_in(site)
    listed = json.dumps(found)
    (site / "versions.json").write_text(f"{listed}\n", "utf-8")
    (site / "versions.js").write_text(f"showVersions({listed});\n", "utf-8")
    if found:
        (site / "index.html").write_text(_REDIRECT.format(version=found[0]), "utf-8")
    return found


def build(site: Path) -> int:
    """Build this version; a warning is an error.

    Args:
        site: the folder with a folder for each version.

    Returns:
        The exit status of Sphinx.
    """
    read = site.with_name(f"{site.name}.read")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run(
        [*sphinx, "-d", str(read), str(ROOT / "docs"), str(site / declared_version())], check=False
    ).returncode


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--list", action="store_true", help="build nothing; list what is there")
    given = parser.parse_args()
    status = 0 if given.list else build(given.site)
    if status == 0:
        list_versions(given.site)
        print(given.site / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

"""An environment in which the SDK is installed as users have it: from a wheel."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel of this checkout, and what it depends on from this one."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "-w", str(folder), str(copy_of_checkout(folder))], check=True
    )
    (wheel,) = folder.glob("*.whl")
    environment = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    # A checkout on the path would be taken for the package that is installed already.
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = ["install", "--no-deps", "--no-index", "--ignore-installed", str(wheel)]
    subprocess.run([*pip, "--python", str(python), *install], check=True, cwd=folder, env=elsewhere)
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def copy_of_checkout(folder: Path) -> Path:
    """The files of the checkout, without what was made in it, so that building leaves nothing in it either.

    Args:
        folder: gets a folder with them.
    """
    copy = folder / "source"
    copy.mkdir()
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    tar = ["tar", "-c", "--null", "--ignore-failed-read", "-T", "-"]
    packed = subprocess.run(tar, cwd=ROOT, input=files, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=copy, input=packed.stdout, check=True)
    return copy

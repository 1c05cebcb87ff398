"""Build the wheel and the archive of sources of a commit, twice, and compare: their bytes depend on nothing else.

python tools/dist.py dist

A package index shows the README, and has none of the files that it links to.  So its links are made absolute by the
address that `pyproject.toml` declares as ``urls.Repository``, and where none is declared they become the names of files
in the archive of sources.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(folder: Path, at_s: str) -> list[Path]:
    """Both files, built in a folder from the commit that is checked out."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    readme = source / "README.md"
    readme.write_text(for_an_index(readme.read_text("utf-8"), address_of_files(source)), "utf-8")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source)],
        env={**os.environ, "SOURCE_DATE_EPOCH": at_s},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    files = sorted((folder / "dist").iterdir())
    for file in files:
        if file.name.endswith(".tar.gz"):
            file.write_bytes(reproducible(file.read_bytes(), int(at_s)))
    return files


def address_of_files(source: Path) -> str | None:
    """The address under which the files of a version are read; None: none is declared.

    Args:
        source: the folder of the sources.

    Returns:
        With ``{kind}`` for how it is shown: ``blob`` as a page, ``raw`` as it is.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository")
    if repository is None:
        return None
    distribution = (source / "dataflow" / "distribution.py").read_text("utf-8")
    (version,) = re.findall(r'^VERSION = "(.+)"$', distribution, re.MULTILINE)
    return f"{repository.rstrip('/')}/{{kind}}/v{version}/"


def for_an_index(page: str, address: str | None) -> str:
    """A page whose links lead somewhere without the files beside it.

    Args:
        page: Markdown, with links that are relative to the root of the repository.
        address: as of `address_of_files`.
    """

    def replaced(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        if address is None:
            name = target.partition("#")[0]
            return text if text == name else f"{text} (`{name}`)"
        return f"{mark}[{text}]({address.format(kind='raw' if mark else 'blob')}{target})"

    # What stands between fences is code, and not a link.
    parts = re.split(r"(^```.*?^```$)", page, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", replaced, part)
        for part in parts
    )


def reproducible(packed: bytes, at_s: int) -> bytes:
    """An archive of the same files without what the moment and the machine have left in it: setuptools keeps these."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as tar,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as kept,
    ):
        for member in sorted(tar.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = at_s, 0, 0, "", ""
            member.pax_headers = {}
            kept.addfile(member, tar.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=at_s)


def main(target: Path) -> int:
    """Build into a folder; the exit status is 1 where two builds differ."""
    at_s = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        one, other = (built(Path(folder, name), at_s) for name in ("one", "other"))
        if [each.read_bytes() for each in one] != [each.read_bytes() for each in other]:
            print("two builds of one commit differ", file=sys.stderr)
            return 1
        target.mkdir(parents=True, exist_ok=True)
        for file in one:
            shutil.copy(file, target)
            print(hashlib.sha256(file.read_bytes()).hexdigest(), target / file.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

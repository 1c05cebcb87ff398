"""Build the wheel and the archive of sources of a commit, twice, and compare: their bytes depend on nothing else.

python tools/dist.py dist
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(folder: Path, at_s: str) -> list[Path]:
    """Both files, built in a folder from the commit that is checked out."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(source, filter="data")
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

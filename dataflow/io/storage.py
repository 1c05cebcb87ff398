"""Storage: finds, opens and measures the files of a read, on this machine or wherever an Arrow file system reaches.

The one place that opens input files.  A path of this machine is opened by Python; `s3://` and `gs://` go through
`pyarrow.fs`, with the credentials that it finds; any other file system is given as such.

What a pattern matches has one order: by name.  In folders, names that begin with a dot or an underscore are passed
over, as those of files that are not complete, or say something about the others.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import glob
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import pyarrow as pa
from pyarrow import fs

from dataflow.errors import InputError

#: Schemes of addresses that are read by themselves.
SCHEMES = ("s3", "gs", "gcs")
#: Where an S3 service of one's own is, in the words that other programs know; the first that is set.
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
#: The same for GCS, whose own clients know it; such a service asks for no credentials.
GCS_ENDPOINT_VARIABLE = "STORAGE_EMULATOR_HOST"

#: Each request to an object store costs a round trip, so it asks for so many bytes.
_REMOTE_READ_BYTES = 4 << 20
#: Arrow would try for a quarter of an hour, also where there are no credentials.
_RETRIED = timedelta(minutes=1)
_HIDDEN = (".", "_")
_MAGIC = "*?["


@attrs.frozen
class Storage:
    """Where the files of a read are.

    Attributes:
        filesystem: an Arrow file system, in which all paths are; None: this machine, or what the address says.
    """

    filesystem: Any = None

    def find(self, pattern: str) -> list[str]:
        """The files that a pattern stands for, by name: a file, all files of a folder, or what it matches.

        Args:
            pattern: a path with ``*``, ``?``, ``[...]``, and ``**`` for folders at any depth.

        Raises:
            InputError: there is none, or the place cannot be listed.
        """
        found = self.listed(pattern)
        if not found:
            raise InputError(f"there is no file {pattern!r}", hint=_hint_on(pattern))
        return found

    def listed(self, pattern: str) -> list[str]:
        """Like `find`, for files that may be still to come: there may be none.

        Args:
            pattern: as for `find`.

        Raises:
            InputError: the place cannot be listed.
        """
        try:
            system, inner, prefix = self._located(pattern)
            return _local(pattern) if system is None else _remote(system, inner, prefix)
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise not_opened(pattern, error) from None

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading, at its start.

        Args:
            path: one of `find`.

        Raises:
            OSError: it cannot be opened.
        """
        system, inner, _ = self._located(path)
        if system is None:
            return Path(path).open("rb")
        return io.BufferedReader(system.open_input_file(inner), _REMOTE_READ_BYTES)

    def open_arrow(self, path: str) -> Any:
        """Open a file as Arrow reads files itself.

        Args:
            path: one of `find`.

        Raises:
            OSError: it cannot be opened.
        """
        system, inner, _ = self._located(path)
        return pa.OSFile(path, "rb") if system is None else system.open_input_file(inner)

    def is_remote(self, path: str) -> bool:
        """Whether a path is not one of this machine.

        Args:
            path: of a file, or a pattern.
        """
        return self.filesystem is not None or "://" in path

    def size(self, path: str) -> int:
        """The number of bytes of a file.

        Raises:
            OSError: it cannot be asked for.
        """
        system, inner, _ = self._located(path)
        if system is None:
            return Path(path).stat().st_size
        with system.open_input_file(inner) as file:
            return int(file.size())

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """The number of bytes of each file; those of one object store are asked for side by side.

        Args:
            paths: some of `find`.

        Raises:
            FileNotFoundError: one has gone.
            OSError: they cannot be asked for.
        """
        found: list[int] = []
        located = map(self._located, paths)
        for system, group in groupby(located, key=itemgetter(0)):
            inner = [each for _, each, _ in group]
            if system is None:
                found += (Path(each).stat().st_size for each in inner)
                continue
            infos = system.get_file_info(inner)
            if any(each.size is None for each in infos):
                raise FileNotFoundError(f"a file has gone: {', '.join(inner)}")
            found += (each.size for each in infos)
        return found

    def _located(self, path: str) -> tuple[Any, str, str]:
        """The file system of a path, if it is not this machine's; the path in it; and what stands before that."""
        if self.filesystem is not None:
            return self.filesystem, path, ""
        scheme, is_address, inner = path.partition("://")
        if not is_address:
            return None, path, ""
        if scheme not in SCHEMES:
            raise InputError(
                f"files are not read from {scheme}://",
                detail=f"path: {path!r}",
                hint=f"of addresses, {', '.join(f'{each}://' for each in SCHEMES)} are read by themselves; give other "
                "places as filesystem=, an Arrow file system (pyarrow.fs), and the path in it",
            )
        return _file_system(scheme, inner.partition("/")[0]), inner, f"{scheme}://"


@lru_cache(maxsize=64)
def _file_system(scheme: str, bucket: str) -> Any:
    """The object store of a bucket, with credentials as Arrow finds them."""
    if scheme != "s3":
        return _gcs(os.environ.get(GCS_ENDPOINT_VARIABLE))
    endpoint = next(filter(None, map(os.environ.get, ENDPOINT_VARIABLES)), None)
    if endpoint is not None:
        return fs.S3FileSystem(endpoint_override=endpoint)
    # A bucket is answered for in its own region only.
    return fs.S3FileSystem(region=fs.resolve_s3_region(bucket))


def _gcs(endpoint: str | None) -> Any:
    if not endpoint:
        return fs.GcsFileSystem(retry_time_limit=_RETRIED)
    scheme, _, host = endpoint.rpartition("://")
    return fs.GcsFileSystem(
        anonymous=True,
        scheme=scheme or "http",
        endpoint_override=host,
        retry_time_limit=_RETRIED,
    )


def gcs_service_key() -> str | None:
    """The key of a GCS service of one's own, as clients in Rust take it; None: it is Google's.

    Such a service is asked without credentials.
    """
    endpoint = os.environ.get(GCS_ENDPOINT_VARIABLE)
    if not endpoint:
        return None
    scheme, _, host = endpoint.rpartition("://")
    nobody = {"client_email": "", "private_key": "", "private_key_id": ""}
    url = f"{scheme or 'http'}://{host}"
    return json.dumps({"gcs_base_url": url, "disable_oauth": True, **nobody})


def _local(pattern: str) -> list[str]:
    # A name may have brackets, and be no pattern.
    paths = [pattern] if Path(pattern).exists() else glob(pattern, recursive=True)  # noqa: PTH207 - the pattern may be absolute
    return sorted({file for path in paths for file in _files_in(path)})


def _files_in(path: str) -> Iterator[str]:
    """A file itself, or all that are in a folder."""
    if not Path(path).is_dir():
        # For `glob`, a folder that is not there matches none/**.
        if not path.endswith(os.sep):
            yield path
        return

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        yield from (str(Path(folder, name)) for name in names if not name.startswith(_HIDDEN))


def _remote(system: Any, path: str, prefix: str) -> list[str]:
    path = path.rstrip("/")
    (info,) = system.get_file_info([path])
    if info.type == fs.FileType.File:
        return [prefix + path]
    parts = path.split("/")
    plain = next((n for n, part in enumerate(parts) if set(part) & set(_MAGIC)), len(parts))
    if info.type == fs.FileType.Directory:
        plain = len(parts)
    folder = "/".join(parts[:plain])
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
    names = [each.path for each in system.get_file_info(selector) if each.is_file]
    skipped = len(parts[:plain])
    return sorted(
        prefix + name
        for name in names
        if _is_in(name.strip("/").split("/")[skipped - (not parts[0]) :], parts[plain:])
    )


def _is_in(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a file, by the parts of its path, is one that a pattern matches, or in such a folder."""
    if not pattern:
        return not any(part.startswith(_HIDDEN) for part in parts)
    if not parts:
        return False
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        is_here = _is_in(parts, rest) if rest else not any(part[:1] == "." for part in parts)
        return is_here or (parts[0][:1] != "." and _is_in(parts[1:], pattern))
    is_hidden = parts[0].startswith(".") and not first.startswith(".")
    return not is_hidden and fnmatchcase(parts[0], first) and _is_in(parts[1:], rest)


def not_opened(path: str, error: Exception) -> InputError:
    """The error about a file that cannot be opened.

    Args:
        path: of the file.
        error: of the operating system, or of Arrow.
    """
    return InputError(
        f"{path} cannot be read",
        detail=str(error),
        hint="check that it is a file, and that you may read it",
    )


def _hint_on(pattern: str) -> str:
    if "://" in pattern:
        return "check the address; credentials are looked up where the pipeline runs"
    return "check the path; it is looked up where the pipeline runs"

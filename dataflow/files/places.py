"""Places that files are written to: a folder of this machine, or an object store.

What a place has to be able to do is little: keep files that nobody sees yet, show one in one step, and replace a small
file only if it is still what was read.  The last is what shuts out a writer that has lost its lane; an object store
does it by a conditional put (``If-None-Match`` and ``If-Match``, or generations), a folder under a lock.
"""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.errors import PipelineError, SinkRefusedError
from dataflow.io.extras import require
from dataflow.io.storage import ENDPOINT_VARIABLES, gcs_service_key

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Schemes of addresses that are written to by themselves.
SCHEMES = ("s3", "gs", "gcs")
#: Where there is what readers do not see.
HIDDEN = ".dataflow"


class ChangedError(Exception):
    """A file is not what it was when it was read; it was not replaced."""


class FilePlace(ABC):
    """Files by name, which may have parts, divided by ``/``."""

    @abstractmethod
    def read(self, name: str) -> tuple[bytes, Any] | None:
        """A small file, and its version; None: there is none.

        Args:
            name: of the file.
        """

    @abstractmethod
    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        """Replace a file in one step, if it still has this version.

        Args:
            name: of the file.
            content: the new one.
            version: as `read` or `replace` returned it; None: there must be no such file.

        Returns:
            The new version.

        Raises:
            ChangedError: it has another one.
        """

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Write a file that nobody reads yet; once this returns, it survives a crash of the machine.

        Args:
            name: of the file, hidden.
            content: all of it.
        """

    @abstractmethod
    def show(self, hidden: str, name: str) -> None:
        """Have a hidden file appear under its name, complete at once.  Idempotent: it may have been done.

        Args:
            hidden: its name before.
            name: its name afterwards.
        """

    @abstractmethod
    def check(self) -> None:
        """See whether the place can be reached, and be written to.

        Raises:
            OSError: it cannot.
        """

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names of the files that are directly in a folder.

        Args:
            folder: of hidden files.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a hidden file, if it is there.

        Args:
            name: of the file.
        """


class Folder(FilePlace):
    """A folder of this machine, or one that is mounted.  Writers may be anywhere if its file system has locks.

    Args:
        path: of the folder, which need not be there.
    """

    def __init__(self, path: str) -> None:
        self._root = Path(path)

    def read(self, name: str) -> tuple[bytes, Any] | None:
        """A small file; its version is what is in it."""
        try:
            content = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        return content, content

    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        """Rename a new file over the former, under a lock.

        Raises:
            ChangedError: the former is another one.
        """
        path = self._path(name)
        with self._locked(path):
            found = self.read(name)
            if (None if found is None else found[1]) != version:
                raise ChangedError(name)
            following = path.with_name(f"{path.name}.next")
            self._write(following, content)
            following.replace(path)
            _sync(path.parent)
        return content

    def put(self, name: str, content: bytes) -> None:
        """Write a file, and have the disk keep it."""
        path = self._path(name)
        self._make_folder(path.parent)
        self._write(path, content)
        _sync(path.parent)

    def show(self, hidden: str, name: str) -> None:
        """Rename it.

        Raises:
            SinkRefusedError: there is a file of this name, from elsewhere.
        """
        before, after = self._path(hidden), self._path(name)
        if not before.exists():
            return
        if after.exists() and before.exists():
            raise SinkRefusedError(
                f"there is a file {str(after)!r} already",
                hint="it was not written by this run; remove it, or write to another folder",
            )
        self._make_folder(after.parent)
        # Whoever fences the lane shows it too.
        with suppress(FileNotFoundError):
            before.rename(after)
        _sync(after.parent)

    def check(self) -> None:
        """Make the folder, and see whether it takes files.

        Raises:
            PermissionError: it does not.
        """
        self._make_folder(self._root)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise PermissionError(f"{str(self._root)!r} cannot be written to")

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it is not there."""
        with suppress(FileNotFoundError):
            return sorted(each.name for each in self._path(folder).iterdir() if each.is_file())
        return []

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / name

    def _make_folder(self, path: Path) -> None:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in missing:
            _sync(each.parent)

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        self._make_folder(path.parent)
        # Closing it, also by the end of the process, gives the lock back.
        with path.with_name(f"{path.name}.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _sync(folder: Path) -> None:
    """Have the disk keep the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Objects(FilePlace):
    """Objects with a prefix in an object store.

    Args:
        store: the store, by obstore.
        prefix: what all keys begin with.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix.strip("/")

    def read(self, name: str) -> tuple[bytes, Any] | None:
        """A small object; its version is its ETag, or its generation."""
        try:
            found = self._store.get(self._key(name))
        except FileNotFoundError:
            return None
        return bytes(found.bytes()), _version_of(found.meta)

    def replace(self, name: str, content: bytes, version: Any | None) -> Any:
        """Put it on the condition that its version is this one, or that it is not there.

        Raises:
            ChangedError: the condition is false.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - an extra

        try:
            return _version_of(
                self._store.put(
                    self._key(name),
                    content,
                    mode="create" if version is None else version,
                    use_multipart=False,
                )
            )
        except (AlreadyExistsError, PreconditionError) as error:
            raise ChangedError(name) from error

    def put(self, name: str, content: bytes) -> None:
        """Put it, in parts if it is large."""
        self._store.put(self._key(name), content)

    def show(self, hidden: str, name: str) -> None:
        """Copy it within the store: an object is there completely, or not at all."""
        before = self._key(hidden)
        with suppress(FileNotFoundError):
            self._store.copy(before, self._key(name))
            self._store.delete(before)

    def check(self) -> None:
        """List the hidden objects.

        Raises:
            OSError: they cannot be listed.
        """
        try:
            self.names(HIDDEN)
        except Exception as error:
            raise OSError(str(error)) from error

    def names(self, folder: str) -> list[str]:
        """The names behind a prefix."""
        prefix = self._key(folder) + "/"
        pages = self._store.list(prefix)
        return sorted(each["path"].removeprefix(prefix) for page in pages for each in page)

    def delete(self, name: str) -> None:
        """Delete an object."""
        with suppress(FileNotFoundError):
            self._store.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name


def _version_of(known: Any) -> dict[str, str]:
    return {each: known[each] for each in ("e_tag", "version") if known[each] is not None}


def place_of(path: str, store: Any = None) -> FilePlace:
    """The place that a path, or an address, names.

    Args:
        path: a folder, ``s3://bucket/prefix`` or ``gs://bucket/prefix``; with ``store`` a prefix there.
        store: an object store of obstore; None: what the path says.

    Raises:
        PipelineError: files are not written there, or what is needed for that is not installed.
    """
    if store is not None:
        return Objects(store, path)
    scheme, is_address, inner = path.partition("://")
    if not is_address:
        return Folder(path)
    bucket, _, prefix = inner.partition("/")
    if scheme not in SCHEMES or not bucket:
        raise PipelineError(
            f"files are not written to {path!r}",
            hint=f"of addresses, {', '.join(f'{each}://bucket/prefix' for each in SCHEMES)} are written to by "
            "themselves; give others as store=, an object store of obstore, and the prefix in it",
        )
    return Objects(_bucket(scheme, bucket), prefix)


def _bucket(scheme: str, bucket: str) -> ObjectStore:
    require("obstore", "object-stores", f"writing to {scheme}://")
    from obstore.store import GCSStore, S3Store  # noqa: PLC0415 - an extra

    if scheme != "s3":
        key = gcs_service_key()
        if key is None:
            return GCSStore(bucket)
        return GCSStore(bucket, service_account_key=key, client_options={"allow_http": True})
    endpoint = next(filter(None, map(os.environ.get, ENDPOINT_VARIABLES)), None)
    if endpoint is None:
        return S3Store(bucket)
    return S3Store(
        bucket,
        endpoint=endpoint,
        client_options={"allow_http": endpoint.startswith("http://")},
    )

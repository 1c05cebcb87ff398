"""FileWriter: the batches of one lane as files, each exactly once.

A lane has a manifest: a small object with the token of its writer, the number of its last batch, and the files of that
batch.  Replacing it, on the condition that it is what was read, is the one atomic act.

* A batch is written to hidden files; then the manifest is replaced; then the files are shown.  So whoever reads the
  folder sees no file before it is complete, and none of a batch that does not count.
* The fence replaces the manifest too, with its token.  From then on the former writer's condition is false: it can
  neither commit nor, as it shows only what it has committed, show anything new.
* Whoever fences a lane shows what the last batch has not shown, as that has been committed, and removes hidden files
  of lower tokens that no manifest names.

Nothing depends on the files being the same when a batch is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from dataflow.errors import SinkFencedError
from dataflow.files.places import HIDDEN, ChangedError, FilePlace
from dataflow.sink import Lane, SinkChange, SinkWriter

if TYPE_CHECKING:
    from dataflow.files.formats import FileFormat

#: Of the name of a run, in the names of its files: no two runs have the same.
_RUN_LETTERS = 12


class WrittenFile(msgspec.Struct, frozen=True):
    """A file of a batch: its name while it is hidden, its own, and what is in it."""

    hidden: str
    name: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """Token, number and files of a lane, as the object beside its files keeps them.

    Attributes:
        lane: job, sink and lane, for people.
        token: of the writer whose lane it is.
        number: of the last batch; 0: there is none.
        files: of that batch.
    """

    lane: str
    token: int = 0
    number: int = 0
    files: tuple[WrittenFile, ...] = ()


class FileWriter(SinkWriter):
    """Writes one lane.

    Args:
        place: where to.
        file_format: of the files.
        lane: the lane.
    """

    def __init__(self, place: FilePlace, file_format: FileFormat, lane: Lane) -> None:
        self._place, self._format, self._lane = place, file_format, lane
        self._run = sha256(lane.writer.encode()).hexdigest()[:_RUN_LETTERS]
        self._hidden = f"{HIDDEN}/{self._run}"
        self._manifest_name = f"{HIDDEN}/{self._run}.json"
        self._manifest, self._version = Manifest(lane.title), None

    def fence(self, token: int) -> int:
        """Put the token into the manifest, and then show what its last batch has not shown.

        Raises:
            SinkFencedError: the manifest has this token, or a higher one.
        """
        while True:
            manifest, version = self._read()
            if manifest.token >= token:
                raise SinkFencedError(f"{self._lane.title} was fenced by another writer")
            taken = msgspec.structs.replace(manifest, token=token)
            with suppress(ChangedError):
                self._commit(taken, version)
                break
        self._show()
        self._clean(token)
        return taken.number

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Write hidden files, commit them with the number, and show them.

        Raises:
            SinkFencedError: the manifest is not what this writer has made of it.
        """
        files = list[WrittenFile]()
        encoded = self._format.files_of(changes)
        for place, (stem, rows, content) in enumerate(encoded):
            file = WrittenFile(
                hidden=f"{self._hidden}/{self._manifest.token}-{number}-{place}",
                name=f"{stem}-{self._lane.number:03}-{number:08}-{self._run}{self._format.suffix}",
                rows=rows,
                size_bytes=len(content),
            )
            self._place.put(file.hidden, content)
            files.append(file)
        after = msgspec.structs.replace(self._manifest, number=number, files=tuple(files))
        try:
            self._commit(after, self._version)
        except ChangedError:
            for file in files:
                self._place.delete(file.hidden)
            raise SinkFencedError(f"{self._lane.title} was fenced by another writer") from None
        self._show()

    def _read(self) -> tuple[Manifest, Any]:
        found = self._place.read(self._manifest_name)
        if found is None:
            return Manifest(self._lane.title), None
        return msgspec.json.decode(found[0], type=Manifest), found[1]

    def _commit(self, manifest: Manifest, version: Any) -> None:
        content = msgspec.json.encode(manifest)
        self._version = self._place.replace(self._manifest_name, content, version)
        self._manifest = manifest

    def _show(self) -> None:
        for file in self._manifest.files:
            self._place.show(file.hidden, file.name)

    def _clean(self, token: int) -> None:
        """Remove what former writers have not committed; a later one may be at work, whose files have its token."""
        named = {file.hidden for file in self._manifest.files}
        for name in self._place.names(self._hidden):
            hidden = f"{self._hidden}/{name}"
            if int(name.split("-", 1)[0]) < token and hidden not in named:
                self._place.delete(hidden)

"""FolderReader: reads one share of a folder, file after file, while files are added to it.

**Invariants**

* A record is read once: a name is done, or is the current one with an offset, or is to be read from its start.
* What comes next depends on the position and on what is in the folder, not on what was read before.
* An offset is at the end of a record, also in a file that grows.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from dataflow.computations.name_set import NameRun, NameSet
from dataflow.errors import InputError
from dataflow.io.file_reader import unreadable_file
from dataflow.io.text_files import FileSplit, TextFileSource
from dataflow.set_aside import SetAside
from dataflow.source import Backlog, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import MIN_TIMESTAMP_US, clamp_timestamp_us

#: Files read to their end that are watched for growing after it, which would be data lost.
_GUARDED_FILES = 100


@attrs.frozen(kw_only=True)
class FolderShare:
    """The part of a folder that one reader reads, and how its files are read; see `CsvWatcher`.

    Attributes:
        is_mine: whether a file of this name is to be read by this reader.
        has_ended: whether no file will come any more.
        files: how to read one of them.
    """

    folder: Path
    is_mine: Callable[[str], bool]
    has_ended: Callable[[], bool]
    files: Callable[[Path], TextFileSource]
    created_us: Callable[[Path], int] | None
    disorder_us: int | None
    settle_us: int
    poll_us: int
    now_us: Callable[[], int]


@attrs.frozen(kw_only=True)
class FolderPosition:
    """How far a share has been read.

    Attributes:
        done: the names of files read to their end.
        name, offset: the one that is being read, and the byte of its next record.
        newest_us: the newest event time, which limits how far back the others may go.
        begun_us: the latest beginning of a file.
    """

    done: tuple[NameRun, ...] = ()
    name: str | None = None
    offset: int | None = None
    newest_us: int = MIN_TIMESTAMP_US
    begun_us: int = MIN_TIMESTAMP_US


class FolderReader(SourceReader):
    """Reads one share of a folder, file after file; see the module.

    Args:
        share: what to read, and how.
        position: as an earlier reader has returned it; None: the start.
    """

    def __init__(self, share: FolderShare, position: FolderPosition | None) -> None:
        position = position or FolderPosition()
        self._share, self._done, self._runs = share, NameSet(position.done), position.done
        self._name, self._offset = position.name, position.offset
        self._newest_us, self._begun_us = position.newest_us, position.begun_us
        #: Beginning, name and size of files that are there and not begun, in the order in which they are read.
        self._waiting: list[tuple[int, str, int]] = []
        #: Of all that wait together.
        self._waiting_bytes = 0
        self._sizes: deque[tuple[str, int]] = deque(maxlen=_GUARDED_FILES)
        self._inner: SourceReader | None = None
        #: A file of another format, which has not been reported yet.
        self._unreadable: list[SetAside] = []
        self._is_whole = self._has_ended = self._is_packed = False
        self._looked_us: int | None = None
        #: The bytes of the current file, when it was looked at last.
        self._size = 0

    def read(self, max_records: int) -> SourceBatch:
        """Records of one file; none where there is nothing at the moment."""
        has_looked = self._look()
        if self._inner is None and not self._go_on(may_have_grown=has_looked):
            if self._unreadable:
                unreadable, self._unreadable = self._unreadable, []
                return self._batch([], [], SplitStatus.ACTIVE, unreadable)
            return self._batch([], [], self._quiet_status())
        assert self._inner is not None
        batch = self._inner.read(max_records)
        self._offset = batch.position
        self._newest_us = max([self._newest_us, *batch.timestamps_us])
        if batch.status is SplitStatus.FINISHED:
            self._end_piece()
        return self._batch(batch.values, batch.timestamps_us, SplitStatus.ACTIVE, batch.set_aside)

    def close(self) -> None:
        """Close the current file."""
        if self._inner is not None:
            self._inner.close()
            self._inner = None

    def _batch(
        self,
        values: Sequence[object],
        timestamps_us: Sequence[int],
        status: SplitStatus,
        set_aside: Sequence[SetAside] = (),
    ) -> SourceBatch:
        return SourceBatch(
            values=values,
            timestamps_us=timestamps_us,
            position=FolderPosition(
                done=self._runs,
                name=self._name,
                offset=self._offset,
                newest_us=self._newest_us,
                begun_us=self._begun_us,
            ),
            watermark_us=self._watermark_us(),
            status=status,
            set_aside=set_aside,
            backlog=self._backlog(),
        )

    def _backlog(self) -> Backlog | None:
        """The bytes that are there, as of the last look; None: how many there are in a packed file is not known."""
        if self._name is None:
            return Backlog(size_bytes=self._waiting_bytes)
        if self._is_packed:
            return None
        return Backlog(size_bytes=self._waiting_bytes + max(0, self._size - (self._offset or 0)))

    def _quiet_status(self) -> SplitStatus:
        if self._name is not None:
            return SplitStatus.ACTIVE  # it grows, and what it will have is not late
        return SplitStatus.FINISHED if self._has_ended else SplitStatus.IDLE

    def _watermark_us(self) -> int:
        disorder_us = self._share.disorder_us
        follows_us = MIN_TIMESTAMP_US
        if disorder_us is not None and self._newest_us > MIN_TIMESTAMP_US:
            follows_us = clamp_timestamp_us(self._newest_us - disorder_us)
        if self._share.created_us is None:
            return follows_us
        unread_us = [begins_us for begins_us, _, _ in self._waiting[:1]]
        if self._name is not None:
            begins_us = self._share.created_us(self._share.folder / self._name)
            unread_us.append(max(begins_us, follows_us))
        return min(unread_us, default=self._begun_us)

    def _look(self) -> bool:
        """Look at the folder, now and then; returns whether it was time for that."""
        now_us, share = self._share.now_us(), self._share
        if self._looked_us is not None and 0 <= now_us - self._looked_us < share.poll_us:
            return False
        self._looked_us = now_us
        # The marker before the names: what was there before it is among them.
        self._has_ended = share.has_ended()
        created_us = share.created_us
        self._waiting = sorted(
            (
                MIN_TIMESTAMP_US if created_us is None else created_us(share.folder / name),
                name,
                _size_bytes(share.folder / name),
            )
            for name in _names(share.folder)
            if share.is_mine(name) and name != self._name and name not in self._done
        )
        self._waiting_bytes = sum(size_bytes for _, _, size_bytes in self._waiting)
        self._refuse_grown()
        return True

    def _refuse_grown(self) -> None:
        for name, size in self._sizes:
            path = self._share.folder / name
            if path.exists() and path.stat().st_size > size:
                raise InputError(
                    f"{path} has grown after it was read to its end",
                    detail=f"it had {size} bytes; what came after them is not read",
                    hint="write a file under another name and rename it when it is complete, or give "
                    "with settle=... how long a complete one is left unchanged",
                )

    def _go_on(self, *, may_have_grown: bool) -> bool:
        """Open the next piece of the current file, or of the next one; returns whether there is one."""
        if self._name is not None and not may_have_grown:
            return False
        while True:
            if self._name is None:
                if not self._waiting:
                    return False
                begins_us, self._name, size_bytes = self._waiting.pop(0)
                self._waiting_bytes -= size_bytes
                self._begun_us = max(self._begun_us, begins_us)
                if self._share.created_us is not None:
                    self._newest_us = MIN_TIMESTAMP_US
            if self._open_piece(self._share.folder / self._name):
                return True
            if self._is_waiting():
                return False

    def _is_waiting(self) -> bool:
        """Whether the current file may grow, or something about the file before it is still to be reported."""
        return self._name is not None or bool(self._unreadable)

    def _open_piece(self, path: Path) -> bool:
        """Open the part of the current file that is there and not read; a file with nothing more is done."""
        files = self._share.files(path)
        try:
            found = path.stat()
        except FileNotFoundError:
            raise InputError(
                f"{path} was deleted before it was read to its end",
                detail=f"{self._offset or 0} bytes of it have been read",
                hint="put it back, and delete files only when the job is done with them",
            ) from None
        silent_us = self._share.now_us() - found.st_mtime_ns // 1_000
        self._is_whole = silent_us >= self._share.settle_us or not self._share.settle_us
        self._size = end = found.st_size
        self._is_packed = files.is_packed(str(path))
        if self._is_packed and not self._is_whole:
            return False  # what is packed has records when it is complete
        if not self._is_whole:
            end = files.record_end(str(path), self._offset or 0, end)
        if self._offset is None:
            if not self._is_whole and not end:
                return False
            unreadable = unreadable_file(files, path)
            if unreadable is not None:
                if self._is_whole:
                    self._unreadable = [unreadable]
                    self._offset = end
                    self._end_file()
                return False
            self._offset = files.head_bytes(str(path))
        end_bytes: int | None = end
        if self._is_packed:
            end_bytes = None  # it is known when it has been unpacked
        elif self._offset >= end:
            if self._is_whole:
                self._end_file()
            return False
        split = FileSplit(str(path), self._offset, end_bytes)
        self._inner = files.open(split, self._offset, fence=0)
        return True

    def _end_piece(self) -> None:
        self.close()
        if self._is_whole:
            self._end_file()

    def _end_file(self) -> None:
        assert self._name is not None
        self._sizes.append((self._name, self._size))
        self._done.add(self._name)
        self._runs = self._done.runs()
        self._name = self._offset = None


def _size_bytes(path: Path) -> int:
    """The size of a file; 0 if it is gone, which is an error where it is opened."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_file()]
    except OSError as error:
        raise InputError(
            f"the folder {str(folder)!r} cannot be read",
            detail=str(error),
            hint="put it back; the job goes on where it was",
        ) from error

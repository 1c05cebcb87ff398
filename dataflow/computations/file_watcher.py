"""An injector for files that appear while the job runs, without having been announced.

A job's splits are fixed when it is created, so a split is not a file but a share of the folder: the names whose hash
falls to it.  Its position has the names that are done, and how far the current file has been read; the reader that
continues from there reads every other name, each once.

**What the low watermark follows.**  With ``created``, the rule of figure 10 of the MillWheel paper: the minimum over
the files that are there and not read to their end.  With ``max_disorder``, an estimate: what is still to come is not
further behind the newest record than that.  A share with nothing to read is idle and holds nothing back.

MillWheel, section 5.2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from hashlib import blake2b
from os import fsencode
from pathlib import Path
from typing import Any, ClassVar, Self

from dataflow.computations.folder_reader import FolderReader, FolderShare
from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import system_now_us
from dataflow.io.csv_files import CsvSource
from dataflow.io.json_values import JsonLinesSource
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD, MaxAhead
from dataflow.io.text_files import TextFileSource
from dataflow.source import Source, SourceReader
from windowing.errors import error_text
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us, to_timestamp_us


class FileWatcher(Source):
    """The base of `CsvWatcher` and `JsonLinesWatcher`, which define the format of the files.

    Args:
        pattern: path of the files, with ``*`` and ``?`` in the name only.
        event_time: from a record to its event time.
        max_disorder: how far event times go back over all files.
        max_ahead: how far event times may be ahead of the clock; None: as far as they are.
        created: from a path to the earliest event time in the file.
        until: name of the file after which the input ends; None: it does not end.
        settle: how long a file must be unchanged to count as complete.
        poll: how often the folder is listed.
        shares: into how many splits the folder is divided.
        now_us: the clock, in microseconds.

    Raises:
        PipelineError: ``event_time`` is no function, nothing bounds the disorder of an input without an end, or another
            argument is of no use.
    """

    source_class: ClassVar[type[TextFileSource]]

    def __init__(
        self,
        pattern: str | Path,
        *,
        event_time: Callable[[Any], TimestampLike],
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        created: Callable[[Path], TimestampLike] | None = None,
        until: str | None = None,
        settle: DurationLike = 0,
        poll: DurationLike = 1,
        shares: int = 1,
        now_us: Callable[[], int] = system_now_us,
    ) -> None:
        name = type(self).__name__
        if not callable(event_time):
            raise PipelineError(
                f"{name} needs a function of a record for event_time, not {event_time!r}"
            )
        if max_disorder is None and created is None and until is None:
            raise PipelineError(
                f"{name} does not know how far event time has come",
                detail="its input does not end, and it was given neither max_disorder nor created",
                hint="give how far event times go back, e.g. max_disorder=timedelta(minutes=5)",
            )
        if isinstance(shares, bool) or not isinstance(shares, int) or shares < 1:
            raise PipelineError(f"{name} cannot divide a folder into {shares!r} shares")
        self._folder, self._names = Path(pattern).parent, Path(pattern).name
        if any(each in str(self._folder) for each in "*?["):
            raise PipelineError(
                f"{name} watches one folder, and {str(pattern)!r} is a pattern for several",
                hint="use a pattern in the name of the files only, or a watcher for each folder",
            )
        self._event_time, self._created, self._until = event_time, created, until
        self._disorder_us = None if max_disorder is None else _not_negative(name, max_disorder)
        self._ahead = MaxAhead.of(name, max_ahead, now_us)
        self._settle_us, self._poll_us = _not_negative(name, settle), _not_negative(name, poll)
        self._shares, self._now_us, self._is_repeatable = shares, now_us, False

    @property
    def is_bounded(self) -> bool:
        """Whether a file is named that marks the end of the input (``until``)."""
        return self._until is not None

    @property
    def input_name(self) -> str:
        """The pattern, and into how many shares it is divided."""
        return f"{self._folder / self._names} in {self._shares} shares"

    @property
    def has_trusted_watermark(self) -> bool:
        """True: it looks at each record, if there is a limit for event times."""
        return True

    @property
    def keeps_set_aside(self) -> bool:
        """Whether there is a limit for event times."""
        return self._ahead is not None and self._disorder_us is not None

    def check(self) -> None:
        """Check that the folder is there.

        Raises:
            InputError: it is not.
        """
        if not self._folder.is_dir():
            raise InputError(
                f"there is no folder {str(self._folder)!r} to watch",
                hint="make it before the job starts; it is looked up where the pipeline runs",
            )

    def splits(self, desired: int) -> Sequence[tuple[int, int]]:
        """The shares by number, with the time now."""
        began_us = self._now_us()
        return [(share, began_us) for share in range(self._shares)]

    def open(self, split: int | tuple[int, int], position: Any, *, fence: int) -> SourceReader:
        """Go on with one share of the folder; jobs of earlier versions have a number alone as ``split``.

        Args:
            split: the number of the share, or it and the number of all shares.
            position: as the reader has returned it; None: the start.
            fence: files need none.
        """
        number, began_us = (split, self._now_us()) if isinstance(split, int) else split
        share = FolderShare(
            folder=self._folder,
            is_mine=lambda name: self._is_read(name) and _share_of(name, self._shares) == number,
            has_ended=self._has_ended,
            files=partial(self._files, began_us),
            created_us=None if self._created is None else self._created_us,
            disorder_us=self._disorder_us,
            settle_us=self._settle_us,
            poll_us=self._poll_us,
            now_us=self._now_us,
        )
        return FolderReader(share, position)

    def repeatable(self) -> Self:
        """A watcher that reads the files in the same order every time, as far as they are there.

        A batch needs the file that says that no more will come; a backfill ends where there is no file.
        """
        repeatable = copy.copy(self)
        repeatable._is_repeatable = True  # noqa: SLF001 - its own class
        return repeatable

    def _is_read(self, name: str) -> bool:
        is_hidden = name.startswith(".") and not self._names.startswith(".")
        return name != self._until and not is_hidden and fnmatchcase(name, self._names)

    def _has_ended(self) -> bool:
        return self._until is not None and (self._folder / self._until).exists()

    def _files(self, began_us: int, path: Path) -> TextFileSource:
        ahead = self._ahead if self.keeps_set_aside else None
        return self.source_class(
            pattern=str(path),
            event_time=self._event_time,
            max_disorder_us=None,
            max_ahead=ahead and (ahead.since(began_us) if self._is_repeatable else ahead),
        )

    def _created_us(self, path: Path) -> int:
        assert self._created is not None
        try:
            return to_timestamp_us(self._created(path))
        except Exception as error:
            raise InputError(
                f"it is not known when {path} begins",
                detail=f"created raised {type(error).__name__}: {error_text(error)}",
                hint="correct the function, or let the pattern leave such files out",
            ) from error


def _not_negative(name: str, duration: DurationLike) -> int:
    duration_us = to_duration_us(duration)
    if duration_us < 0:
        raise PipelineError(f"{name} was given a negative duration, {duration!r}")
    return duration_us


def _share_of(name: str, shares: int) -> int:
    return int.from_bytes(blake2b(fsencode(name), digest_size=8).digest()) % shares


class CsvWatcher(FileWatcher):
    """Rows of the CSV files that appear in a folder, for `Topology.injector` and `Read`; as a stream, or to its end.

    Each file is read once, and is known by its name: one that is read is not looked at again, whatever becomes of it.
    Of the files that are there the one that begins first is the next, and of several such the first by name.  Names
    that are numbered take little room in the store, others as much as they are long: see `docs/how-to/watch-a-folder`.

    Args:
        pattern: names of files in one folder, e.g. ``inbox/*.csv``; the folder must exist.
            A file must be complete when it appears under its name: write it under another, such as one that begins
            with a dot, and rename it.  For those that grow, see ``settle``.
        event_time: gives a record's event time (an aware datetime, text, or seconds since 1970).
        max_disorder: how far event times go back behind the newest record that was read, at most, as you expect; with
            ``created``, behind the newest of the same file.
        max_ahead: with ``max_disorder``, how far an event time may be ahead of the clock; a record further ahead is a
            dead letter, whether or not these are switched on, and the low watermark does not follow it.  None: every
            event time is taken.
        created: gives a file's beginning from its path: an instant that no record of it is before.  The low watermark
            is at the earliest of the files that are not read to their end; when all are, it is at the latest
            beginning there was, as files are expected in this order.
        until: a file of this name in the folder means that no file will come any more; when the others are read, the
            input ends.  Without it, it never does.
        settle: files may grow: one is at its end when it has not been changed for so long, and until then only
            complete lines are read.  0: files are complete when they appear.
        poll: how often to look for new files.
        shares: how many parts the names are divided into, each read by one worker; files of different shares may
            overtake each other.
        now_us: the clock, in microseconds since 1970; one of a test's own, for example.  Pickled with the source.

    Raises:
        PipelineError: an argument is of another kind, or nothing determines how far event time has come.
        TimeError: a duration is none.
        InputError: there is no such folder, a file is malformed, was deleted before it was read to its end, or has
            grown after that.

    MillWheel, section 5.2 and figure 10.
    """

    source_class = CsvSource


class JsonLinesWatcher(FileWatcher):
    """Values of files with one JSON value per line; arguments as for `CsvWatcher`."""

    source_class = JsonLinesSource

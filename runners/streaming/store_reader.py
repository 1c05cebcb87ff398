"""StoreReader: brings a job's signals and requests from the store to its master, and answers back.

About once a second it writes the last polls of the job's splits, for people (`dataflow ranges`).
Between two looks it does the `runners.millwheel.control.housekeeping` of the job.

It reads and writes in a thread of its own: a store that does not answer for a while must not keep the master from its
workers, who take a silent master for a dead one.

**Invariant:** signals and requests reach the master in the order of their numbers, each once, and all that are in the
store when the reader starts before anything else happens.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

import attrs

from runners.errors import StoreError, StoreRestartedError
from runners.millwheel.control.housekeeping import Housekeeper
from runners.millwheel.master.master import Master
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import Answer, StoredRequest
from runners.millwheel.model.signals import Signal
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import Trouble
from runners.millwheel.store.port import Store

#: Between two looks into the store: bounds how long a signal or request goes unnoticed.
READ_INTERVAL_MS = 150
#: The last polls of splits are written after so many looks.
POLLS_EVERY = 7
#: How long the end of the job waits for a look under way; after that the thread ends by itself.
_JOIN_TIMEOUT_MS = 1_000

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class StoreReader:
    """A context manager, used by the thread of the master.

    Args:
        store: for the reader alone, which closes it.
        job: the job's name in it.
        master: of the job; has not made a step yet.
        desk: answers the requests.
        housekeeper: of the job.
    """

    def __init__(
        self,
        store: Store,
        job: str,
        master: Master,
        desk: RequestDesk,
        housekeeper: Housekeeper,
    ) -> None:
        self._store, self._job, self._master, self._desk = store, job, master, desk
        self._housekeeper = housekeeper
        self._signals: SimpleQueue[Signal] = SimpleQueue()
        self._requests: SimpleQueue[StoredRequest] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
        self._troubles: SimpleQueue[Trouble] = SimpleQueue()
        #: Taken from the queue, and perhaps not in the store yet.
        self._unwritten: list[Trouble] = []
        #: Taken from the queue, and perhaps not in the store yet.
        self._unanswered: tuple[int, Answer] | None = None
        self._last_signal = self._last_request = 0
        #: Whether the polls are wanted, those there were then, and those that are in the store.
        self._wants_polls = threading.Event()
        self._polls: Mapping[RangeId, SplitPoll] = {}
        self._noted_polls: Mapping[RangeId, SplitPoll] = {}
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Pass on to the master what is in the store already, and begin to read on.

        Raises:
            StoreError: the store cannot be read.
        """
        self._last_signal = self._master.latest_signal
        try:
            self._read()
            self._noted_polls = self._store.read_polls(self._job)
        except BaseException:
            self._store.close()
            raise
        self._master.remember_polls(self._noted_polls)
        self._desk.inherit(_all_of(self._requests))
        self.pass_on()
        self._thread = threading.Thread(target=self._run, name="dataflow-store-reader", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._take_answers()
        self._take_troubles()
        self._take_polls()
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_MS / 1_000)

    def pass_on(self) -> None:
        """Pass on to the master what was read since the last call, and have its answers written; never waits.

        Raises:
            StoreRestartedError: the store is not the one that the master began with.
            Exception: reading failed for a reason that will not pass.
        """
        if self._failure is not None:
            raise self._failure
        if signals := list(_all_of(self._signals)):
            self._master.on_signals(signals)
        self._desk.on_requests(_all_of(self._requests))
        self._housekeeper.retired = self._master.retired
        self._take_answers()
        self._take_troubles()
        if self._wants_polls.is_set():
            self._take_polls()

    def _take_polls(self) -> None:
        self._wants_polls.clear()
        self._polls = self._master.polls

    def _take_answers(self) -> None:
        for answer in self._desk.answers():
            self._answers.put(answer)

    def _take_troubles(self) -> None:
        for trouble in self._master.troubles.take():
            self._troubles.put(trouble)
            total = self._master.troubles.total(trouble)
            # The first, and then more and more rarely: a thousand repetitions are ten lines.
            if total.bit_length() > (total - trouble.count).bit_length():
                _LOG.warning("job %s: %s", self._job, attrs.evolve(trouble, count=total))

    def _run(self) -> None:
        is_cut_off = is_last = False
        looks = 0
        try:
            while not is_last:
                # Once more after the end: the request that has caused it waits for the answer.
                is_last = self._stopped.wait(READ_INTERVAL_MS / 1_000)
                try:
                    self._answer()
                    self._write_troubles()
                    looks += 1
                    if is_last or looks % POLLS_EVERY == 0:
                        self._write_polls()
                    if not is_last:
                        self._read()
                        self._housekeeper.step(self._store)
                    is_cut_off = False
                except StoreRestartedError:
                    raise
                except StoreError as error:
                    # The store connects again by itself; what is sent meanwhile is kept there.
                    if not is_cut_off:
                        _LOG.warning(
                            "signals and requests of job %s cannot be read from the store, which is tried again: %s",
                            self._job,
                            error,
                        )
                    is_cut_off = True
        except Exception as error:  # noqa: BLE001 - handed to the thread of the master
            self._failure = error
        finally:
            self._store.close()

    def _read(self) -> None:
        """Read once from the store."""
        if self._master.is_listening:
            for signal in self._store.read_signals(self._job, self._last_signal):
                self._signals.put(signal)
                self._last_signal = signal.number
        for request in self._store.read_requests(self._job, self._last_request):
            self._requests.put(request)
            self._last_request = request.number

    def _write_troubles(self) -> None:
        self._unwritten += _all_of(self._troubles)
        if self._unwritten:
            self._store.note_troubles(self._job, self._unwritten)
            self._unwritten = []

    def _write_polls(self) -> None:
        polls = self._polls
        if polls != self._noted_polls:
            self._store.note_polls(self._job, polls)
            self._noted_polls = polls
        self._wants_polls.set()

    def _answer(self) -> None:
        while True:
            if self._unanswered is None:
                self._unanswered = next(_all_of(self._answers), None)
            if self._unanswered is None:
                return
            self._store.answer_request(self._job, *self._unanswered)
            self._unanswered = None


def _all_of(queue: SimpleQueue[_T]) -> Iterator[_T]:
    """The items of a queue; never waits."""
    try:
        while True:
            yield queue.get_nowait()
    except Empty:
        return

"""Driver: a master and its helpers, as in a real driver, but with all of it in one thread."""

from runners.core.ground.clock import Clock
from runners.errors import StoreError, StoreRestartedError
from runners.millwheel.control.discovery import SplitDiscovery
from runners.millwheel.master.master import Master
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.model.requests import Answer
from runners.millwheel.store.port import Store


class Driver:
    """Brings signals and requests from the store to a master that has not made a step yet, and answers back.

    Args:
        master: has not made a step yet.
        store: where the job is.
        job: its name.
        clock: the virtual time.
        discovery: of splits that come and go.

    Raises:
        StoreError: the store is out of reach.
    """

    def __init__(
        self, master: Master, store: Store, job: str, clock: Clock, discovery: SplitDiscovery
    ) -> None:
        self.master, self._store, self._job = master, store, job
        self.desk, self.discovery = RequestDesk(master, clock), discovery
        self._unanswered: list[tuple[int, Answer]] = []
        self._on_signals()
        self.desk.inherit(store.read_requests(job, 0))

    def discover(self) -> None:
        """Have what is known of splits that come and go followed, as far as the store can be reached.

        Raises:
            StoreRestartedError: it is not the one that the master began with.
        """
        try:
            self.discovery.ask(self._store)
        except StoreRestartedError:
            raise
        except StoreError:
            pass

    def look(self) -> None:
        """Look into the store, if it can be reached.

        Raises:
            StoreRestartedError: it is not the one that the master began with.
        """
        self.discovery.pass_on(self.master)
        try:
            self._on_signals()
            self.desk.on_requests(self._store.read_requests(self._job, self.desk.latest))
            self._unanswered += self.desk.answers()
            while self._unanswered:
                self._store.answer_request(self._job, *self._unanswered[0])
                del self._unanswered[0]
        except StoreRestartedError:
            raise
        except StoreError:
            pass

    def _on_signals(self) -> None:
        if self.master.is_listening:
            found = self._store.read_signals(self._job, self.master.latest_signal)
            self.master.on_signals(found)

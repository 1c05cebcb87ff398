"""OpenWindows: the state of a grouping's windows until they have fired, however it is kept.

An engine hands over what arrives and how far time has come, and gets steps; it neither knows nor asks how windows are
kept (`choice.py` knows):

* `Cells`: a cell and timers for each window. This is always possible.
* `Replayed`: the partials as they come, where windows fire once and all input is there before the first fires.
* `Columns`: cells, and beside them columns of windows that have none, where windows fire once in a stream.

A stream drives them with owners that come and go (`StreamWindows`), which no other engine has.

**Laws**, for all ways that are possible for a grouping:

* The same arrivals and clocks emit the same panes, but for the order of keys.
* What `spill` yields, restored anywhere in its order, goes on as the windows that it was taken from would have.

The engine makes effects durable, if it does; nothing here reads a clock or does I/O.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from runners.core.ground.cells import CellId
from runners.core.partials.partial import Partial
from runners.core.stages.entries import Entry
from runners.core.stages.grouping import Step
from runners.core.stages.stage_clocks import StageClocks


class Arrival(NamedTuple):
    """Partials that have come for a grouping.

    Attributes:
        owner: to whom their keys belong: what is not in cells is kept by owner; None where there is only one.
        received: the bytes that they came as, if they are all that came in these; they are the entry of a journal.
    """

    partials: Sequence[Partial]
    owner: Any = None
    received: bytes | None = None


class OneKey(Protocol):
    """The windows of one key, whose partials the engine keeps elsewhere until all of them are there.

    Attributes:
        key: the key.
        is_list: whether accumulators are lists of values; `fire` then takes any other sequence in place of a list.
        order: the place of a partial in the order in which `joined` takes them.
    """

    key: Any
    is_list: bool
    order: Callable[[Partial], tuple[int, int]]

    def joined(
        self, partials: Iterable[Partial], join: Callable[[Any, Any], Any]
    ) -> Iterator[Partial]:
        """Merge the partials, sorted by `order`, into one for each window; see `PartialMerging.joined`.

        Args:
            partials: all of the key.
            join: makes one of two accumulators, and may change the first.
        """

    def windows(self, parts: Iterator[Sequence[Partial]]) -> Iterator[Sequence[Partial]]:
        """The partials of windows, some at a time, as `fire` takes them.

        Args:
            parts: all partials, as `joined` returns them, but with their accumulators.

        Raises:
            TransformError: the `CombineFn` failed.
        """

    def merged(self, accumulators: Sequence[Any]) -> Any:
        """Merge accumulators into one; may change the first.

        Raises:
            TransformError: the `CombineFn` failed.
        """

    def fire(self, partials: Sequence[Partial], clocks: StageClocks) -> Step:
        """Fire windows of which these are all the partials, one for each.

        Args:
            partials: as `windows` returns them.
            clocks: the clocks.
        """


class OpenWindows(ABC):
    """The open windows of one grouping, in memory."""

    @abstractmethod
    def take(self, arrivals: Sequence[Arrival], clocks: StageClocks) -> Step:
        """Add partials, whose keys were encoded by their sender, to their windows; fires what is due because of them.

        Args:
            arrivals: in the order in which they came.
            clocks: the clocks; everything that is due at the watermark has fired.
        """

    @abstractmethod
    def advance(
        self,
        clocks: StageClocks,
        *,
        timers_max: int | None = None,
        panes_max: int | None = None,
    ) -> Step | None:
        """Fire some of what is due; returns None, having done nothing, when nothing is due any more.

        Args:
            clocks: the clocks.
            timers_max: the most timers that fire, or rows of windows without timers; None: all.
            panes_max: the most panes that windows without timers emit of columns, unless more are of windows with one
                end; None: any number.

        Returns:
            The step, with how far it came (`Step.reached_us`).
        """

    @abstractmethod
    def signal(
        self, name: str, clocks: StageClocks, receivers: Iterable[CellId] | None = None
    ) -> Step:
        """Notify windows of a signal.

        Args:
            name: of the signal, one of those that the grouping listens to.
            clocks: the clocks.
            receivers: the cells that receive it; None: all.
        """

    @property
    def hold_us(self) -> int | None:
        """The first hold on the watermark behind the grouping, in microseconds; None: there is none."""
        return None

    @property
    def next_processing_us(self) -> int | None:
        """When the first timer of processing time is due, in microseconds; None: there is none."""
        return None

    def count_overdue(self, clocks: StageClocks, most: int) -> int:
        """How many timers are due and have not fired.

        Args:
            clocks: the clocks.
            most: where counting ends, about.
        """
        return 0

    @abstractmethod
    def __len__(self) -> int:
        """How many cells there are."""

    @abstractmethod
    def keys(self) -> Iterator[Any]:
        """The keys of everything that is kept; a key may come several times."""

    @abstractmethod
    def contents(self) -> Iterator[Entry]:
        """Yield everything that is kept but timers, folded as far as possible; it stays here.

        Raises:
            TransformError: the `CombineFn` failed.
        """

    @abstractmethod
    def spill(self) -> Iterator[Entry]:
        """Yield everything that is kept, and keep none of it: each part is gone from here when it is yielded."""

    @abstractmethod
    def restore(self, entry: Entry) -> None:
        """Apply an entry of what was spilled.

        Raises:
            StoreError: such windows cannot have such entries.
        """

    def large_key(self) -> OneKey | None:
        """The key that most of memory is used for, if it can be taken out; call it after `contents`."""
        return None

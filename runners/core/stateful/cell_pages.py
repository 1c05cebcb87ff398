"""CellPages: the pages of the state of one cell, as `dataflow.paged_state` uses them; the mapping of cells has them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from dataflow.errors import TransformError
from dataflow.paged_state import Paged, Pages
from dataflow.user_state import PAGES
from runners.core.ground.cells import CellId, Page, PageId
from runners.core.user_code.poison import Trial

T = TypeVar("T")

#: How many pages are read together where all of them are.
_TOGETHER = 8


class Passing(Enum):
    """How pages are read that will not be changed."""

    LOOKUP = "one of them"
    SCAN = "one after the other, all of them"


class NeedPages(Protocol):
    """Brings pages that exist into the mapping of cells."""

    def __call__(self, page_ids: Sequence[PageId], /, passing: Passing | None = None) -> None:
        """Bring them there.

        Args:
            page_ids: the pages, which are missing.
            passing: how they are read, if they will not be changed, and may go again when the next one is read.
        """


#: Takes pages that have changed, or are gone, though the step has not ended.
LetGo = Callable[[Iterable[CellId]], None]


class PagesUnreadError(BaseException):
    """Pages could not be read.  It passes user code that catches exceptions, as that has not failed.

    Args:
        error: why.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def raising_unread(run: Callable[[], T]) -> T:
    """What a function returns.

    Args:
        run: the function.

    Raises:
        Exception: why pages could not be read, if it has not returned because of that.
    """
    try:
        return run()
    except PagesUnreadError as unread:
        raise unread.error from unread


class ReadingTrial(Trial):
    """Runs code on trial that may read pages: that these cannot be read is not the end of its process.

    Args:
        trial: runs it.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def __call__(self, run: Callable[[], object]) -> None:
        """Come back when the code has returned or raised."""
        self._trial(partial(raising_unread, run))

    def renew(self) -> None:
        """Give the code that is run here next as much time as a trial has."""
        self._trial.renew()


def all_are_there(page_ids: Sequence[PageId], /, passing: Passing | None = None) -> None:
    """Bring no pages into the mapping, as all are there.

    Args:
        page_ids: the pages, which are missing.
        passing: as for `NeedPages`.
    """
    del passing
    raise AssertionError(f"there is no {page_ids[0]}")


class _Kept:
    """Pages as they were at some moment, as far as they have changed since, and which had been touched then."""

    def __init__(self, touched: Mapping[CellId, None]) -> None:
        self.touched = dict(touched)
        #: Their bytes, how many they had when they were measured, and whether they had changed since.
        self.pages: dict[PageId, tuple[bytes, int, bool]] = {}
        #: Those that have been made since.
        self.made: dict[PageId, None] = {}


def name_of_pages(state: Any, number: int | None) -> Any:
    """The name under which the pages of a state are.

    Args:
        state: the name of the state.
        number: that of the window, where a cell has several; None: it has one.
    """
    if number is None:
        return state
    return (*state, number) if type(state) is tuple else (state, number)


class CellPages(Pages):
    """The pages of one cell.

    Call `begin` when a step begins with the cell, and `bind` for what stands for state in pages.
    """

    def __init__(self) -> None:
        self._cells: MutableMapping[CellId, Any] = {}
        self._cell_id: CellId = (None, None)
        self._need: NeedPages = all_are_there
        self._let_go: LetGo | None = None
        #: The pages that have changed in this step, or are gone.
        self._touched: dict[CellId, None] = {}
        #: The pages of each state that have changed since they were measured.
        self._unmeasured: dict[Any, dict[int, None]] = {}
        #: What pages were before the calls that may be undone.
        self._kept: WeakSet[_Kept] = WeakSet()

    def begin(
        self,
        cell_id: CellId,
        cells: MutableMapping[CellId, Any],
        need: NeedPages,
        let_go: LetGo | None = None,
    ) -> None:
        """Note where the pages are.

        Args:
            cell_id: of the cell.
            cells: has them, or is given those that are missing.
            need: gives it these.
            let_go: takes pages that have changed before the step has ended; None: all stay until then.
        """
        self._cell_id, self._cells, self._need, self._let_go = cell_id, cells, need, let_go

    def let_go(self) -> None:
        """Let pages that have changed go, where they may before the step has ended; nothing uses them now."""
        if self._let_go is not None:
            self._let_go(self.take_touched())

    def bind(self, values: dict[Any, Any]) -> None:
        """Give state in pages its pages.

        Args:
            values: of the cell, by name.
        """
        number = values.get(PAGES)
        for state, value in values.items():
            if isinstance(value, Paged):
                value.bind(self, name_of_pages(state, number))

    def take_touched(self) -> dict[CellId, None]:
        """The pages that have changed in this step, or are gone; the next step begins with none."""
        touched, self._touched = self._touched, {}
        return touched

    def read(self, state: Any, numbers: Iterable[int]) -> list[Any]:
        """The entries of some pages."""
        return [page.entries for page in self._pages([self._id(state, each) for each in numbers])]

    def change(self, state: Any, number: int) -> Any:
        """The entries of a page, to be changed."""
        page_id = self._id(state, number)
        (page,) = self._pages([page_id])
        self._keep(page_id, page)
        self._note(page_id)
        page = self._cells[page_id] = page.changing()
        return page.entries

    def put(self, state: Any, number: int, entries: Any) -> None:
        """Make a page."""
        page_id = self._id(state, number)
        assert page_id not in self._cells, f"{page_id} is there already"
        self._cells[page_id] = Page(entries)
        for kept in self._kept:
            kept.made[page_id] = None
        self._note(page_id)

    def drop(self, state: Any, numbers: Iterable[int]) -> int:
        """Delete pages."""
        nbytes, unmeasured = 0, self._unmeasured.get(state, {})
        for number in numbers:
            page_id = self._id(state, number)
            page = self._cells.pop(page_id, None)
            if page is not None:
                nbytes += page.measured
                self._keep(page_id, page)
            self._touched[page_id] = None
            unmeasured.pop(number, None)
        return nbytes

    def measure(self, state: Any) -> list[tuple[int, int, int]]:
        """The bytes of pages that have changed."""
        found = []
        for number in self._unmeasured.get(state, ()):
            page_id = self._id(state, number)
            page: Page = self._cells[page_id]
            self._keep(page_id, page)
            before, page.measured = page.measured, len(page.pack())
            found.append((number, before, page.measured))
        self._unmeasured.pop(state, None)
        return found

    def undo(self) -> Callable[[], None]:
        """A function that has all pages as they are now; what is changed is kept for as long as it is there."""
        kept = _Kept(self._touched)
        self._kept.add(kept)

        def undo() -> None:
            # What was deleted and is not in memory has never gone.
            self._touched = dict(kept.touched)
            for page_id in kept.made:
                self._cells.pop(page_id, None)
                self._unmeasured.get(page_id.state, {}).pop(page_id.number, None)
            kept.made.clear()
            for page_id, (packed, measured, is_unmeasured) in kept.pages.items():
                page = self._cells[page_id] = Page(packed=packed)
                page.measured = measured
                # It may have been let go meanwhile, as it was changed.
                self._note(page_id)
                if not is_unmeasured:
                    # Nobody measures the state of a window that has not changed, so it would stay so for good.
                    del self._unmeasured[page_id.state][page_id.number]
            kept.pages.clear()

        return undo

    def _keep(self, page_id: PageId, page: Page) -> None:
        is_unmeasured = page_id.number in self._unmeasured.get(page_id.state, ())
        for kept in self._kept:
            if page_id not in kept.pages and page_id not in kept.made:
                kept.pages[page_id] = page.pack(), page.measured, is_unmeasured

    def _note(self, page_id: PageId) -> None:
        self._touched[page_id] = None
        self._unmeasured.setdefault(page_id.state, {})[page_id.number] = None

    def _id(self, state: Any, number: int) -> PageId:
        return PageId(self._cell_id[0], self._cell_id[1], state, number)

    def _pages(self, page_ids: list[PageId]) -> list[Page]:
        cells = self._cells
        missing = [page_id for page_id in page_ids if page_id not in cells]
        if missing:
            try:
                self._need(missing)
            except Exception as error:
                raise PagesUnreadError(error) from error
        return [cells[page_id] for page_id in page_ids]


class PagesInPassing:
    """The pages of one state, to be read one by one in one step by user code, behind the step of the machine.

    They do not change in that step.  They may be deleted in it by the machine: `leave` is called before, and user code
    reads them still.

    Args:
        size: how many there are; their numbers begin with 0.
        id_of: makes the id of a page of its number.
        cells: has them, or is given those that are missing.
        need: gives it these.
        is_over: whether the step is over, after which nothing is read any more.
        what: names what is in them.
    """

    def __init__(
        self,
        size: int,
        id_of: Callable[[int], PageId],
        cells: MutableMapping[CellId, Any],
        need: NeedPages,
        is_over: Callable[[], bool],
        what: str,
    ) -> None:
        self._size, self._id_of, self._cells, self._need = size, id_of, cells, need
        self._is_over, self._what = is_over, what
        #: The pages that were in memory when all of them were deleted; None: they are still there.
        self._left: dict[PageId, Page] | None = None

    def leave(self) -> None:
        """Keep what is in memory, as the pages are about to be deleted in this step."""
        page_ids, cells = map(self._id_of, range(self._size)), self._cells
        self._left = {each: cells[each] for each in page_ids if each in cells}

    def read(self, number: int) -> Any:
        """The entries of a page, which must not be changed.

        Args:
            number: of the page.

        Raises:
            TransformError: the step is over.
            PagesUnreadError: it could not be read.
        """
        return self._read([number], Passing.LOOKUP)[0]

    def each(self) -> Iterator[Any]:
        """The entries of one page after the other, as `read` returns them; a few are read together."""
        return self.between(0, self._size)

    def between(self, first: int, end: int) -> Iterator[Any]:
        """The entries of some pages, one after the other, as `each` has them.

        Args:
            first: the number of the first page.
            end: one past that of the last.
        """
        for start in range(first, end, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, end))
            yield from self._read(numbers, Passing.SCAN)

    def _read(self, numbers: Iterable[int], passing: Passing) -> list[Any]:
        if self._is_over():
            raise TransformError(
                f"{self._what} was used after the call that it was given to",
                detail="it is large, so it is looked up, and by now it may have changed",
                hint="keep what you need of it, e.g. a dict or list of it, and not the view itself",
            )
        page_ids = [self._id_of(number) for number in numbers]
        there = self._cells if self._left is None else self._left
        found = {each: there[each] for each in page_ids if each in there}
        missing = [each for each in page_ids if each not in found]
        if missing:
            try:
                self._need(missing, passing)
            except Exception as error:
                raise PagesUnreadError(error) from error
            # Those that are deleted in this step are not to come back.
            take = self._cells.__getitem__ if self._left is None else self._cells.pop
            found.update({each: take(each) for each in missing})
        return [found[each].entries for each in page_ids]

"""What the checks share: a small job, an owner of its ranges, and ways to complain."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.errors import DataflowError
from dataflow.table import TableSpec
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Production
from runners.millwheel.store.port import Committed, Fenced, JobSpec, RangeSpec, Store, TakenRange

#: Gives another connection to the same store.
StoreFactory = Callable[[], Store]

JOB = "conformance"
RANGES = even_ranges(2)
LOW, HIGH = RangeId("count", 0), RangeId("count", 1)
SPLIT = RangeId("read", 0)
SIGNALS = frozenset({"flush", "peek"})
SCORES = TableSpec(name="scores", columns={"team": str, "total": int}, key=("team",))
LOG = TableSpec(name="score_log", columns={"team": str, "points": int})


class ConformanceError(AssertionError):
    """The store under test breaks the contract of the port."""


def expect(condition: bool, message: str) -> None:  # noqa: FBT001 - as in assert
    """Like ``assert``, but also under ``python -O``.

    Args:
        condition: what must be true.
        message: what is wrong if it is not.
    """
    if not condition:
        raise ConformanceError(message)


def expect_equal(actual: object, expected: object, what: str) -> None:
    """Refuse a value that is not the expected one.

    Args:
        actual: what the store has given.
        expected: what the port promises.
        what: what is compared, for the message.
    """
    expect(actual == expected, f"{what}: expected {expected!r}, not {actual!r}")


def expect_error(kind: type[DataflowError], action: Callable[[], object], what: str) -> None:
    """Refuse an action that does not raise an error of a kind; any other error goes on to the caller.

    Args:
        kind: of the error.
        action: called once.
        what: what is done, for the message.
    """
    try:
        action()
    except kind:
        return
    raise ConformanceError(f"{what}: expected {kind.__name__}, nothing was raised")


def job_spec(job: str = JOB, *, fingerprint: str = "f1", mode: str = "streaming") -> JobSpec:
    """A job with two key ranges, a split and two tables, that listens to two signals.

    Args:
        job: its name; a job with another name than the first shares the tables.
        fingerprint: of its pipeline.
        mode: "batch" or "streaming".
    """
    return JobSpec(
        job=job,
        mode=mode,
        fingerprint=fingerprint,
        ranges=[
            RangeSpec(range_id=LOW, keys=RANGES[0]),
            RangeSpec(range_id=HIGH, keys=RANGES[1]),
            RangeSpec(range_id=SPLIT, split=b"file 1\x00"),
        ],
        # Other jobs write to the tables of the first one, and declare them as shared.
        tables=[attrs.evolve(each, is_shared=job != JOB) for each in (SCORES, LOG)],
        signals=SIGNALS,
    )


class Owner:
    """An owner of ranges, as a worker would be: knows its tokens and counts its bundles.

    Args:
        store: as one process has it.
        ranges: what it acquires, when it is made.
        name: of the worker.
    """

    def __init__(self, store: Store, *ranges: RangeId, name: str = "worker") -> None:
        self.store = store
        self.taken = store.acquire(JOB, ranges, name)
        self.bundles = {range_id: self.taken[range_id].row.bundle for range_id in ranges}

    def production(self, **parts: object) -> Production:
        """The next production, on all ranges; does not count."""
        fences = [
            Fence(range_id=range_id, token=self.taken[range_id].row.token, bundle=bundle + 1)
            for range_id, bundle in self.bundles.items()
        ]
        return attrs.evolve(Production(job=JOB, fences=fences), **parts)  # type: ignore[arg-type]

    def cells(self, range_id: RangeId = LOW) -> dict[tuple[int, bytes], bytes]:
        """The cells of one of the ranges."""
        token = self.taken[range_id].row.token
        found = self.store.read_cell_page(JOB, range_id, token, 0, 1_000_000)
        if isinstance(found, Fenced):
            raise ConformanceError(f"{range_id} is not its owner's to read")
        return dict(found)

    def commit(self, **parts: object) -> Production:
        """Commit the next production; it must land."""
        production = self.production(**parts)
        expect_equal(self.store.commit(production), Committed(), "commit by the owner")
        for range_id in self.bundles:
            self.bundles[range_id] += 1
        return production


def opened(connect: StoreFactory) -> Store:
    """A store in which the job is open."""
    store = connect()
    store.open_job(job_spec())
    return store


def cell(key: bytes, value: bytes | None, key_hash: int = 7) -> CellWrite:
    """Make the write of a cell of the computation with key ranges.

    Args:
        key: that of the cell, any bytes.
        value: any bytes; None deletes the cell.
        key_hash: below the middle of the hashes: a key of `LOW`.
    """
    return CellWrite("count", key_hash, key, value)


def take_over(store: Store, range_id: RangeId = LOW) -> TakenRange:
    """Take a range over, as the only way to see what is stored; its owner is fenced.

    Args:
        store: in which the job is.
        range_id: the range.
    """
    return store.acquire(JOB, [range_id], "inspector")[range_id]


def cells_of(store: Store, range_id: RangeId = LOW) -> dict[tuple[int, bytes], bytes]:
    """The cells of a range, as a new owner finds them; its former owner is fenced.

    Args:
        store: in which the job is.
        range_id: the range.
    """
    return Owner(store, range_id, name="inspector").cells(range_id)


def at_once(actions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each action in a thread of its own, starting together; their results in order."""
    results: dict[int, Any] = {}
    errors: list[BaseException] = []
    gate = threading.Barrier(len(actions))

    def run(index: int, action: Callable[[], Any]) -> None:
        try:
            gate.wait()
            results[index] = action()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(index, action), daemon=True)
        for index, action in enumerate(actions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    expect(len(results) == len(actions), "verbs that ran at the same time did not end")
    return [results[index] for index in range(len(actions))]

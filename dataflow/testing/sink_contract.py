"""SinkContract: what every sink must do, as checks that any sink can be run against.

    class TestMySink(SinkContract):
        def make(self) -> SinkUnderTest: ...

or, without a test framework, ``MySinkContract().check_all()``.  The checks use a new sink each, and only its contract.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import attrs

from dataflow.errors import SinkFencedError, SinkRefusedError
from dataflow.sink import Lane, Sink, SinkChange, SinkWriter


@attrs.frozen(kw_only=True)
class SinkUnderTest:
    """A sink with nothing in it, and a look at what it has.

    Attributes:
        sink: the sink.
        values: at least eight different values that it takes, in the form of `SinkChange.value`; of different keys, if
            it has keys.
        open_writer: opens a writer of it.
        read: what is there when all changes are applied, in any order: emitted and not retracted.
        refused: a value that it takes never; None: there is none.
    """

    sink: Sink[Any]
    values: Sequence[Any]
    read: Callable[[], Sequence[Any]]
    open_writer: Callable[[Lane], SinkWriter] = attrs.field()
    refused: Any = None

    @open_writer.default
    def _open(self) -> Callable[[Lane], SinkWriter]:
        return self.sink.open

    _writers: list[SinkWriter] = attrs.field(factory=list, init=False)

    def opened(self, lane: Lane) -> SinkWriter:
        """A writer that is closed when the check ends."""
        self._writers.append(self.open_writer(lane))
        return self._writers[-1]

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers:
            writer.close()


class SinkContractError(AssertionError):
    """The sink breaks its contract."""


class SinkContract(ABC):
    """Checks of a sink; subclass it, and give it the sink.

    Attributes:
        rounds: how often a writer is fenced while it writes.
    """

    rounds: int = 5

    @abstractmethod
    def make(self) -> SinkUnderTest:
        """A new sink with nothing in it."""

    def check_all(self) -> None:
        """Run all checks.

        Raises:
            SinkContractError: the sink breaks its contract.
        """
        for name in dir(self):
            if name.startswith("test_"):
                getattr(self, name)()

    def test_a_batch_and_its_number_are_there(self) -> None:
        """What was written is there, and the next writer gets the number of the last batch; at first it is 0."""
        with closing(self.make()) as under_test:
            first = opened(under_test, token=1, number=0)
            first.write(1, changes(under_test, 0, 3))
            first.write(2, changes(under_test, 3, 4))
            first.close()
            expect_values(under_test, 4)
            second = opened(under_test, token=2, number=2)
            second.write(3, changes(under_test, 4, 6))
            second.close()
            expect_values(under_test, 6)
            opened(under_test, token=3, number=3).close()

    def test_a_fenced_writer_writes_nothing(self) -> None:
        """A writer with a lower token is refused, whether it has written before or not; what it had written stays."""
        with closing(self.make()) as under_test:
            former = opened(under_test, token=1, number=0)
            former.write(1, changes(under_test, 0, 2))
            writer = opened(under_test, token=2, number=1)
            expect_fenced(
                lambda: former.write(2, changes(under_test, 2, 3)), "a writer that is fenced"
            )
            expect_values(under_test, 2)
            writer.write(2, changes(under_test, 3, 5))
            expect_fenced(
                lambda: former.write(3, changes(under_test, 2, 3)), "a writer that is fenced"
            )
            former.close()
            writer.close()
            expect(
                Counter(map(repr, under_test.read()))
                == Counter(map(repr, [*under_test.values[:2], *under_test.values[3:5]])),
                "what a fenced writer was refused is there, or something is missing",
            )

    def test_a_token_fences_once(self) -> None:
        """A token that is not higher than all before is refused, and changes nothing."""
        with closing(self.make()) as under_test:
            writer = opened(under_test, token=5, number=0)
            for token in (5, 4):
                late = under_test.opened(lane_of(0))
                expect_fenced(lambda late=late, token=token: late.fence(token), f"token {token}")  # type: ignore[misc]
                late.close()
            writer.write(1, changes(under_test, 0, 1))
            writer.close()
            expect_values(under_test, 1)

    def test_lanes_are_independent(self) -> None:
        """Each lane has a number of its own, and is fenced by itself."""
        with closing(self.make()) as under_test:
            one = opened(under_test, token=1, number=0)
            other = opened(under_test, token=7, number=0, lane=1)
            one.write(1, changes(under_test, 0, 1))
            other.write(1, changes(under_test, 1, 2))
            one.write(2, changes(under_test, 2, 3))
            one.close()
            other.close()
            expect_values(under_test, 3)
            opened(under_test, token=2, number=2).close()
            opened(under_test, token=8, number=1, lane=1).close()

    def test_what_is_retracted_is_gone(self) -> None:
        """A retraction removes what was emitted before, in the same batch or another; an emission may come again."""
        with closing(self.make()) as under_test:
            if not under_test.sink.takes_retractions:
                return
            one, two = under_test.values[:2]
            writer = opened(under_test, token=1, number=0)
            writer.write(1, [SinkChange(one, +1), SinkChange(two, +1), SinkChange(one, -1)])
            expect_there(under_test, [two])
            writer.write(2, [SinkChange(two, -1), SinkChange(one, +1)])
            expect_there(under_test, [one])
            writer.write(3, [SinkChange(one, -1), SinkChange(one, +1)])
            expect_there(under_test, [one])
            writer.close()

    def test_a_refused_batch_is_not_there(self) -> None:
        """Of a batch with a value that the sink does not take nothing is written, and its number is free.

        Raises:
            SinkContractError: it was written.
        """
        with closing(self.make()) as under_test:
            if under_test.refused is None:
                return
            writer = opened(under_test, token=1, number=0)
            try:
                writer.write(1, [*changes(under_test, 0, 2), SinkChange(under_test.refused, +1)])
            except SinkRefusedError:
                pass
            else:
                raise SinkContractError("the value that is never taken was taken")
            finally:
                writer.close()
            expect_values(under_test, 0)
            writer = opened(under_test, token=2, number=0)
            writer.write(1, changes(under_test, 0, 2))
            writer.close()
            expect_values(under_test, 2)

    def test_closing_is_idempotent(self) -> None:
        """A writer can be closed twice, and before it has done anything."""
        with closing(self.make()) as under_test:
            unused = under_test.opened(lane_of(0))
            unused.close()
            unused.close()
            writer = opened(under_test, token=1, number=0)
            writer.close()
            writer.close()

    def test_a_fence_waits_or_wins(self) -> None:
        """The number that a fence returns does not change, though a former writer is at work all the time."""
        for _ in range(self.rounds):
            with closing(self.make()) as under_test:
                self._fence_at_work(under_test)

    def _fence_at_work(self, under_test: SinkUnderTest) -> None:
        former, written = opened(under_test, token=1, number=0), list[int]()
        has_begun = threading.Event()

        def work() -> None:
            try:
                for number in range(1, len(under_test.values) + 1):
                    former.write(number, changes(under_test, number - 1, number))
                    written.append(number)
                    has_begun.set()
            except Exception:  # noqa: BLE001 - it is fenced, sooner or later, in whatever words
                return
            finally:
                has_begun.set()
                former.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        has_begun.wait(60)
        writer = under_test.opened(lane_of(0))
        number = writer.fence(2)
        thread.join(60)
        expect(not thread.is_alive(), "a fenced writer does not come to an end")
        expect(
            number >= len(written), f"the fence returned {number}, but {len(written)} were written"
        )
        expect_values(under_test, number)
        writer.close()
        opened(under_test, token=3, number=number).close()


def lane_of(number: int) -> Lane:
    """A lane of a job of the contract.

    Args:
        number: of the lane.
    """
    return Lane(
        writer=f"contract-{number}", number=number, title=f"lane {number} of the sink under test"
    )


def opened(under_test: SinkUnderTest, *, token: int, number: int, lane: int = 0) -> SinkWriter:
    """A writer that has fenced its lane, and got the right number.

    Args:
        under_test: the sink.
        token: of the writer.
        number: that it should get.
        lane: its number.
    """
    writer = under_test.opened(lane_of(lane))
    found = writer.fence(token)
    expect(found == number, f"the fence with token {token} returned {found} in place of {number}")
    return writer


def changes(under_test: SinkUnderTest, start: int, stop: int) -> list[SinkChange]:
    """Emissions of some of the values.

    Args:
        under_test: the sink with its values.
        start: the first.
        stop: the one behind the last.
    """
    return [SinkChange(value, +1) for value in under_test.values[start:stop]]


def expect(condition: bool, message: str) -> None:  # noqa: FBT001 - as in assert
    """Like ``assert``, but also under ``python -O``.

    Args:
        condition: what must be true.
        message: what is wrong if it is not.

    Raises:
        SinkContractError: it is not.
    """
    if not condition:
        raise SinkContractError(message)


def expect_values(under_test: SinkUnderTest, count: int) -> None:
    """Refuse a sink that does not have the first values, each once.

    Args:
        under_test: the sink.
        count: how many.
    """
    expect_there(under_test, under_test.values[:count])


def expect_there(under_test: SinkUnderTest, values: Sequence[Any]) -> None:
    """Refuse a sink that does not have exactly these values.

    Args:
        under_test: the sink.
        values: in any order.
    """
    found = under_test.read()
    expect(
        Counter(map(repr, found)) == Counter(map(repr, values)),
        f"the sink has {list(found)!r} in place of {list(values)!r}",
    )


def expect_fenced(act: Callable[[], object], what: str) -> None:
    """Refuse an act that does not raise `SinkFencedError`.

    Args:
        act: called once.
        what: who acts, for the message.

    Raises:
        SinkContractError: it was not fenced.
    """
    try:
        act()
    except SinkFencedError:
        return
    raise SinkContractError(f"{what} was not refused with SinkFencedError")

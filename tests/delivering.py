"""Delivers values to a sink as a relay does, while something fails."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress

from dataflow.errors import SinkRefusedError
from dataflow.sink import Lane, SinkChange, SinkWriter
from dataflow.testing.sink_contract import SinkUnderTest
from tests.waiting import until

#: Batches of one value each, before and behind the one that fails.
BEFORE, AFTER = 3, 3


def deliver(
    under_test: SinkUnderTest, strike: Callable[[], None], heal: Callable[[], None]
) -> float:
    """Write some batches, strike, and see that the writer notices; heal, fence, ask for the number and go on.

    Returns:
        How long the writer took to notice, in seconds; 0: it did not, and the batch is there.
    """
    with closing(under_test):
        lane = Lane(writer="lane", number=0, title="the lane")
        writer, number = opened(under_test, lane, 1)
        assert number == 0
        for number in range(1, BEFORE + 1):
            writer.write(number, [SinkChange(under_test.values[number - 1], +1)])
        strike()
        begun_s = time.monotonic()
        noticed_s = 0.0
        try:
            writer.write(BEFORE + 1, [SinkChange(under_test.values[BEFORE], +1)])
        except SinkRefusedError:
            raise
        except Exception as error:  # noqa: BLE001 - any, as a relay takes it
            noticed_s = time.monotonic() - begun_s
            print(f"noticed after {noticed_s:.1f} s: {type(error).__name__}: {error}")
        heal()
        writer.close()
        writer, number = opened(under_test, lane, 2)
        assert number in ({BEFORE, BEFORE + 1} if noticed_s else {BEFORE + 1}), number
        for following in range(number + 1, BEFORE + 1 + AFTER + 1):
            writer.write(following, [SinkChange(under_test.values[following - 1], +1)])
        writer.close()
        wanted = Counter(map(repr, under_test.values[: BEFORE + 1 + AFTER]))
        assert Counter(map(repr, under_test.read())) == wanted
    return noticed_s


def opened(under_test: SinkUnderTest, lane: Lane, token: int) -> tuple[SinkWriter, int]:
    """A writer that has fenced, with the number that it has; tried again, with higher tokens, as relays do."""
    found: list[tuple[SinkWriter, int]] = []
    tokens = iter(range(token, 1_000))

    def is_open() -> bool:
        writer = under_test.opened(lane)
        try:
            found.append((writer, writer.fence(next(tokens))))
        except SinkRefusedError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            print(f"not fenced: {type(error).__name__}: {error}")
            with suppress(Exception):
                writer.close()
            time.sleep(0.2)
        return bool(found)

    until(is_open)
    return found[0]

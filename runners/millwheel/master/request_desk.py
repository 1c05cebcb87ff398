"""RequestDesk: takes requests to a running job to its master, and returns the answers to them.

The invariants are those of `runners.millwheel.model.requests`.
"""

from collections.abc import Callable, Iterable, Sequence

import attrs

from runners.core.ground.clock import Clock
from runners.millwheel.control.shapes import ShapeError
from runners.millwheel.master.master import Master
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import CANCELLED, GONE, NOT_YET, Answer, StoredRequest, Verb

#: How long a request waits for its answer; a change that takes longer goes on all the same.
PATIENCE_MS = 30_000


@attrs.frozen
class _Pending:
    """A change under way: how to see that it is done, and the answer to give then."""

    is_there: Callable[[], bool]
    answer: Answer
    due_by_ms: int


class RequestDesk:
    """Lives beside the master, in its thread: has it carry requests out, and collects the answers.

    Args:
        master: of the job.
        clock: for how long a person is kept waiting.
    """

    def __init__(self, master: Master, clock: Clock) -> None:
        self._master, self._clock = master, clock
        self._pending: dict[int, _Pending] = {}
        self._answers: list[tuple[int, Answer]] = []
        #: The number of the last request that it knows.
        self.latest = 0
        self.is_draining = self.is_cancelled = False
        #: Whether a person has said where ranges are to be.
        self.has_moved = False

    def inherit(self, found: Iterable[StoredRequest]) -> None:
        """Take in the requests that the store has when the driver starts."""
        for each in found:
            self.latest = each.number
            if each.answer is not None:
                continue
            if each.request.verb in (Verb.DRAIN, Verb.CANCEL):
                self._carry_out(each)
            else:
                self._answers.append((each.number, GONE))

    def on_requests(self, found: Iterable[StoredRequest]) -> None:
        """Take in the requests that the store has after `latest`, in order."""
        for each in found:
            self.latest = each.number
            if each.answer is None:
                self._carry_out(each)

    def answers(self) -> Sequence[tuple[int, Answer]]:
        """Return the answers since the last call, with the numbers of their requests; never waits."""
        now_ms = self._clock.monotonic_ms()
        for number, pending in list(self._pending.items()):
            if pending.is_there():
                self._answers.append((number, pending.answer))
            elif now_ms > pending.due_by_ms:
                self._answers.append((number, NOT_YET))
            else:
                continue
            del self._pending[number]
        answers, self._answers = self._answers, []
        return answers

    def _carry_out(self, asked: StoredRequest) -> None:
        request = asked.request
        if request.verb is Verb.DRAIN:
            self.is_draining = True
            self._master.drain()
            return
        if request.verb is Verb.CANCEL:
            self.is_cancelled = True
            self._answers.append((asked.number, CANCELLED))
            return
        try:
            reason = f"somebody has asked for it: request {asked.number}, {request}"
            is_there, text = self._change(request.verb, request.arguments, reason)
        except (ShapeError, ValueError) as error:
            self._answers.append((asked.number, Answer(is_done=False, text=str(error))))
        else:
            due_by_ms = self._clock.monotonic_ms() + PATIENCE_MS
            answer = Answer(is_done=True, text=text)
            self._pending[asked.number] = _Pending(is_there, answer, due_by_ms)

    def _change(
        self, verb: Verb, arguments: Sequence[str], reason: str
    ) -> tuple[Callable[[], bool], str]:
        """Begin a change; returns how to see that it is done, and the text of the answer then.

        Args:
            verb: what is to be done.
            arguments: with what.
            reason: for people.

        Raises:
            ValueError: it cannot be done, or not now.
        """
        master = self._master
        range_id = RangeId.parse(arguments[0])
        if range_id not in master.ranges:
            raise ShapeError(f"there is no range {range_id}")
        if verb is Verb.MOVE:
            slot = int(arguments[1])
            if not master.move([range_id], slot, reason) and master.ranges[range_id] != slot:
                raise ShapeError(
                    f"{range_id} is being moved to another worker, or being split or merged"
                )
            self.has_moved = True
            return (
                lambda: master.ranges.get(range_id) == slot and master.is_stable(range_id),
                f"{range_id} is in slot {slot}",
            )
        if verb is Verb.SPLIT:
            at = int(arguments[1]) if len(arguments) > 1 else None
            born = master.split(range_id, at, reason)
            return lambda: born in master.key_ranges, f"{range_id} is split, the new one is {born}"
        gone = RangeId.parse(arguments[1])
        master.merge(range_id, gone, reason)
        return lambda: gone not in master.key_ranges, f"{range_id} has the keys of {gone}"

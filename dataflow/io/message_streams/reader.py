"""MessageReader: what readers of servers with numbered messages have in common.

A subclass asks the server for the messages behind a position; here they become elements with event times, or are set
aside, and here is the watermark:

* Without ``event_time`` a message happened when the server took it.  Where the server says that nothing is left, the
  watermark follows its clock, as whatever comes then has a later time: so it never sticks.  A message that the server
  took when its clock had been set back is at the watermark, as it came no earlier.
* With ``event_time`` the watermark is behind the newest message; where nothing is left, the split is idle.

A server that is away is asked again, after a pause; meanwhile there is nothing to read.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.errors import InputError
from dataflow.io.max_ahead import newest_up_to
from dataflow.io.outages import Outages
from dataflow.io.record_reader import event_times_us
from dataflow.set_aside import RAW_BYTES_MAX, SetAside
from dataflow.source import Backlog, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    TimestampLike,
    clamp_timestamp_us,
)


@attrs.frozen
class Message:
    """A message as the server has it.

    Attributes:
        place: where it is in its stream, as text.
        content: for `MessageForm.decode`.
        raw: its bytes, for a dead letter.
        time_us: when the server took it, in microseconds since 1970.
    """

    place: str
    content: Any
    raw: bytes
    time_us: int


@attrs.frozen(kw_only=True)
class Poll:
    """An answer of the server.

    Attributes:
        messages: in order; none: there is nothing now.
        position: behind them.
        now_us: the server's clock, where nothing is left behind the position; None: there may be something.
        backlog: what is left.
        is_over: whether the split has come to its end.
    """

    messages: Sequence[Message]
    position: Any
    now_us: int | None = None
    backlog: Backlog | None = None
    is_over: bool = False


@attrs.frozen(kw_only=True)
class MessageForm:
    """How messages become elements.

    Attributes:
        name: of the stream, for people.
        decode: from the content of a message to the element; raises `ValueError` if it is malformed.
        event_time: from an element to its event time; None: when the server took it.
        max_disorder_us: how far the watermark stays behind.
        has_server_times: whether the server's times mean anything; if not, and there is no ``event_time``, elements are
            at the beginning of time.
    """

    name: str
    decode: Callable[[Any], Any]
    event_time: Callable[[Any], TimestampLike] | None = None
    max_disorder_us: int = 0
    has_server_times: bool = True

    @property
    def has_event_times(self) -> bool:
        """Whether elements have any."""
        return self.event_time is not None or self.has_server_times


class MessageReader(SourceReader):
    """Reads one split of a stream of messages.

    Args:
        form: how messages become elements.
        position: behind which is read; None: at the beginning.

    Attributes:
        lost: what is raised where the server is away for the moment.
    """

    lost: tuple[type[BaseException], ...] = (OSError,)

    def __init__(self, form: MessageForm, position: Any) -> None:
        self._form, self.position = form, position
        self._watermark_us, self._ceiling_us = MIN_TIMESTAMP_US, MAX_TIMESTAMP_US
        self._outages = Outages(form.name)
        self._is_over = False

    @abstractmethod
    def poll(self, max_records: int) -> Poll:
        """Ask for the messages behind `position`, which it does not move; connects if it is not connected.

        Args:
            max_records: how many are wanted, at most.

        Raises:
            InputError: the stream cannot be read on.
            Exception: the server is away (`lost`).
        """

    def ignore_after(self, ceiling_us: int) -> bool:
        """Follow no time of a message, or of the server, that is later."""
        self._ceiling_us = ceiling_us
        return self._form.has_event_times

    def read(self, max_records: int) -> SourceBatch:
        """Elements, if there are any; nothing while the server is away.

        Raises:
            InputError: the stream cannot be read on: messages are gone that were not read, or it is another one.
        """
        if self._is_over or self._outages.is_pausing:
            return self._batch(Poll(messages=(), position=self.position, is_over=self._is_over))
        try:
            poll = self.poll(max_records)
        except self.lost as error:
            self.close()
            self._outages.failed(error)
            poll = Poll(messages=(), position=self.position)
        else:
            self._outages.over()
        self.position, self._is_over = poll.position, poll.is_over
        return self._batch(poll)

    def _batch(self, poll: Poll) -> SourceBatch:
        values, times_us, aside = self._elements(poll.messages)
        self._advance(poll, times_us)
        status = SplitStatus.ACTIVE
        if poll.is_over:
            status = SplitStatus.FINISHED
        elif poll.now_us is not None and not poll.messages:
            status = SplitStatus.IDLE
        return SourceBatch(
            values=values,
            timestamps_us=times_us,
            position=poll.position,
            watermark_us=MAX_TIMESTAMP_US if poll.is_over else self._watermark_us,
            status=status,
            set_aside=aside,
            backlog=poll.backlog,
            outage=self._outages.outage,
        )

    def _advance(self, poll: Poll, times_us: Sequence[int]) -> None:
        form = self._form
        if form.event_time is None:
            is_behind = poll.now_us is None
            times_us = [each.time_us for each in poll.messages] if is_behind else [poll.now_us or 0]
        newest_us = newest_up_to(times_us, self._ceiling_us)
        if form.has_event_times and newest_us is not None:
            self._watermark_us = max(self._watermark_us, newest_us - form.max_disorder_us)

    def _elements(
        self, messages: Sequence[Message]
    ) -> tuple[list[Any], list[int], Sequence[SetAside]]:
        """The elements of messages, and their event times."""
        values, aside, kept = list[Any](), list[SetAside](), list[Message]()
        for message in messages:
            try:
                values.append(self._form.decode(message.content))
            except (ValueError, RecursionError) as error:
                aside.append(self._malformed(message, error))
            else:
                kept.append(message)
        event_time = self._form.event_time
        if event_time is None:
            if not self._form.has_server_times:
                return values, [MIN_TIMESTAMP_US] * len(kept), aside
            # Where the server's clock was set back, what comes now is not earlier than what was said of it.
            behind_us = self._watermark_us
            return values, [clamp_timestamp_us(max(m.time_us, behind_us)) for m in kept], aside
        try:
            return values, list(event_times_us(self._form.name, event_time, values)), aside
        except Exception:  # noqa: BLE001 - which record it is, and in which words, is found one by one
            return self._one_by_one(kept, values, aside, event_time)

    def _one_by_one(
        self,
        messages: Sequence[Message],
        values: Sequence[Any],
        aside: list[SetAside],
        event_time: Callable[[Any], TimestampLike],
    ) -> tuple[list[Any], list[int], Sequence[SetAside]]:
        good, times_us = list[Any](), list[int]()
        for message, value in zip(messages, values, strict=True):
            place = f"{self._form.name}, {message.place},"
            try:
                times_us += event_times_us(place, event_time, [value])
            except InputError as error:
                aside.append(SetAside(error=error, cause=error.__cause__, element=value))
            else:
                good.append(value)
        return good, times_us, aside

    def _malformed(self, message: Message, error: BaseException) -> SetAside:
        return SetAside(
            error=InputError(
                f"{self._form.name} has a message that cannot be decoded",
                detail=f"{message.place}: {error}; it is {message.raw[:200]!r}",
                hint="correct who sends it, or read the messages as bytes and sort them out in the pipeline",
            ),
            element=message.raw[:RAW_BYTES_MAX],
        )

"""State and timers of a DoFn: the specs that it declares, and the handles of timers.

`dataflow.state_handles` has the handles of state.

A *spec* names a piece of state or a timer; it is a value, kept on the class or in the module.  A *handle* is that state
or timer of one key and window, for the duration of one call.

State is kept for each key and window, and freed when the window has expired (end of window + allowed lateness).
Values are pickled when they are committed, so they must be plain data.  What a step changes is written: of a bag, set,
map or ordered list that is large the part that has changed, of all else of the key all.

Names are Apache Beam's (`apache_beam.transforms.userstate`).  MillWheel, sections 3.2 (persistent state) and 4.5
(timers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, NoReturn, TypeVar

import attrs

from dataflow.combine_fn import CombineFn, as_combine_fn
from dataflow.errors import PipelineError
from dataflow.times import in_words
from windowing.time_domain import TimeDomain
from windowing.timestamps import (
    DurationLike,
    TimestampLike,
    format_timestamp,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)

CallbackT = TypeVar("CallbackT", bound=Callable[..., Any])

_TIMER_ATTRIBUTE = "__dataflow_on_timer__"
_EXPIRATION_ATTRIBUTE = "__dataflow_on_window_expiration__"
_MERGE_ATTRIBUTE = "__dataflow_on_window_merge__"


def _check_name(spec: object, _attribute: attrs.Attribute[Any], name: object) -> None:
    if not isinstance(name, str) or not name:
        raise PipelineError(
            f"{type(spec).__name__} needs a name, not {name!r}",
            hint=f'e.g. {type(spec).__name__}("seen"); state is found again by it after a restart',
        )


def _check_domain(spec: Any, _attribute: attrs.Attribute[Any], time_domain: object) -> None:
    # Asked for by name, so that what the engine keeps for itself stays out of reach.
    if time_domain is not TimeDomain.EVENT and time_domain is not TimeDomain.PROCESSING:
        raise PipelineError(
            f"{type(spec).__name__}({spec.name!r}) needs a time domain, not {time_domain!r}",
            hint="df.TimeDomain.EVENT follows the watermark, df.TimeDomain.PROCESSING the clock",
        )


def _check_keeps(spec: Any, _attribute: attrs.Attribute[Any], keeps_window: object) -> None:
    if keeps_window and not (spec.holds_watermark and spec.time_domain is TimeDomain.PROCESSING):
        raise PipelineError(
            f"{type(spec).__name__}({spec.name!r}) keeps its window, and is no timer of processing time that holds the "
            "watermark",
            detail="what it emits would be late behind its window"
            if not spec.holds_watermark
            else "",
            hint=f"df.{type(spec).__name__}({spec.name!r}, df.TimeDomain.PROCESSING, holds_watermark=True, "
            "keeps_window=True)",
        )


def _own_copy(migrations: Mapping[int, Callable[[Any], Any]]) -> dict[int, Callable[[Any], Any]]:
    return dict(migrations)


@attrs.frozen
class StateSpec:
    """What all specs of state have.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl: how long after it was last written, or added to, the state is cleared; `timedelta`, text or seconds; None:
            it is kept until it is cleared or its window expires.  Reading does not prolong it.
        ttl_domain: event time, where it begins with the event time of the element or timer that the write belongs to,
            or of the latest of these, and ends when the watermark has come so far; or processing time.  As with a
            timer, elements of the very instant come after it.  In batch the clock does not move before all input is
            there.
        version: of what is kept: raise it when a later program keeps something else under the name.
        migrations: functions by the version that they read, which return what the next version has, up to ``version``;
            they are called with each value that is kept: each one of a bag, set, map (of which the keys stay) or
            ordered list, or the accumulator.  State is brought up to date when it is first used, so a function may
            be called again after a failure.
    """

    name: str = attrs.field(validator=_check_name)
    ttl_us: int | None = attrs.field(
        default=None, kw_only=True, alias="ttl", converter=attrs.converters.optional(to_duration_us)
    )
    ttl_domain: TimeDomain = attrs.field(
        default=TimeDomain.EVENT, kw_only=True, validator=_check_domain
    )
    version: int = attrs.field(default=1, kw_only=True)
    # Functions: two that were shipped apart are equal to nothing.
    migrations: Mapping[int, Callable[[Any], Any]] = attrs.field(
        factory=dict, kw_only=True, eq=False, repr=False, converter=_own_copy
    )

    @property
    def oldest(self) -> int:
        """The oldest version from which state can be brought up to date."""
        return min(self.migrations, default=self.version)

    @version.validator
    def _check_version(self, attribute: attrs.Attribute[Any], version: object) -> None:
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise PipelineError(
                f"{type(self).__name__}({self.name!r}) needs a version from 1 on, not {version!r}",
                hint="raise it by one when what is kept changes, and add a migration from the version before",
            )

    @migrations.validator
    def _check_migrations(
        self, attribute: attrs.Attribute[Any], migrations: Mapping[Any, Any]
    ) -> None:
        from_versions = list(range(self.version - len(migrations), self.version))
        is_chain = sorted(migrations, key=repr) == sorted(from_versions, key=repr)
        if not is_chain or not all(map(callable, migrations.values())) or self.oldest < 1:
            raise PipelineError(
                f"{type(self).__name__}({self.name!r}) needs migrations that lead to version {self.version} step by "
                f"step, not from {list(migrations)}",
                hint=f"e.g. version=2, migrations={{1: to_version_2}}; a function for each version "
                f"before {self.version} that there may still be state of",
            )

    @ttl_us.validator
    def _check_ttl(self, attribute: attrs.Attribute[Any], ttl_us: int | None) -> None:
        if ttl_us is not None and ttl_us <= 0:
            raise PipelineError(
                f"{type(self).__name__}({self.name!r}) needs a positive ttl, not {in_words(ttl_us)}",
                hint="leave it out to keep the state until its window expires",
            )


def _check_merge(spec: Any, _attribute: attrs.Attribute[Any], merge: object) -> None:
    if merge is not None and not callable(merge):
        raise PipelineError(
            f"{type(spec).__name__}({spec.name!r}) needs a function of two values as its merge, not {merge!r}",
            hint="e.g. merge=max; it is called with the value of the earlier window and that of the later one",
        )


@attrs.frozen
class ReadModifyWriteStateSpec(StateSpec):
    """One value: ``read()`` (None if there is none), ``write(value)``, ``clear()``.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: how a later program reads it; see `StateSpec`.
        merge: where windows merge, makes one value of two: those of the earlier and of the later window; associative,
            as more than two windows merge in any grouping.  None: the state cannot be used in windows that merge.
    """

    # A function: two that were shipped apart are equal to nothing.
    merge: Callable[[Any, Any], Any] | None = attrs.field(
        default=None, kw_only=True, eq=False, repr=False, validator=_check_merge
    )


@attrs.frozen
class BagStateSpec(StateSpec):
    """A list of values: ``read()`` (in the order they were added), ``add(value)``, ``clear()``.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: how a later program reads it; see `StateSpec`.
    """


@attrs.frozen
class SetStateSpec(StateSpec):
    """Values that can be hashed, each once: ``read()``, ``add(value)``, ``remove(value)``, ``contains(value)``.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: how a later program reads it; see `StateSpec`.
    """


@attrs.frozen
class MapStateSpec(StateSpec):
    """Values by keys that can be hashed: ``get(key)``, ``put(key, value)``, ``remove(key)``, ``items()``.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: how a later program reads it; see `StateSpec`.
        merge: where windows merge, makes one value of the two that a key has in the earlier and in the later window;
            associative.  None: the state cannot be used in windows that merge.
    """

    # A function: two that were shipped apart are equal to nothing.
    merge: Callable[[Any, Any], Any] | None = attrs.field(
        default=None, kw_only=True, eq=False, repr=False, validator=_check_merge
    )


@attrs.frozen
class OrderedListStateSpec(StateSpec):
    """Values by timestamp: ``add((timestamp, value))``, ``read_range(start, end)``, ``clear_range(start, end)``.

    A range has no beginning where ``start`` is None, and no end where ``end`` is.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: how a later program reads it; see `StateSpec`.
    """


def _if_function(fn: Any) -> Any:
    """A function as a `CombineFn`; everything else as it is, for the check that follows."""
    return as_combine_fn(fn) if callable(fn) and not isinstance(fn, type) else fn


@attrs.frozen
class CombiningValueStateSpec(StateSpec):
    """A combination of values by a `CombineFn`: ``read()`` (the result so far), ``add(value)``, ``clear()``.

    Only the accumulator is kept.

    Args:
        name: of the state, by which it is stored; not empty.
        combine_fn: combines the values that are added; a function as for `CombinePerKey`, which is called on all values
            and has them kept, but for ``sum``, ``min``, ``max``, ``any``, ``all`` and `dataflow.associative` ones.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: how a later program reads it; see `StateSpec`.
    """

    combine_fn: CombineFn = attrs.field(converter=_if_function)

    @combine_fn.validator
    def _check(self, attribute: attrs.Attribute[Any], combine_fn: object) -> None:
        if not isinstance(combine_fn, CombineFn):
            raise PipelineError(
                f"CombiningValueStateSpec({self.name!r}) needs a CombineFn, not {combine_fn!r}",
                hint="e.g. df.SumCombineFn() or df.CountCombineFn(); classes must be called",
            )


@attrs.frozen
class WatermarkHoldStateSpec(StateSpec):
    """An event time that holds the output watermark: ``add(timestamp)``, ``read()`` (the earliest), ``clear()``.

    While it is there, what comes behind the transform does not see the watermark pass it, so that what the DoFn still
    emits with this event time, or a later one, is not late there.  `TimestampedValue` may go back so far.

    Args:
        name: of the state, by which it is stored; not empty.
        ttl, ttl_domain: how long it is kept; see `StateSpec`.
        version, migrations: not for holds: an instant has one version.
    """

    def __attrs_post_init__(self) -> None:
        if self.version != 1:
            raise PipelineError(
                f"WatermarkHoldStateSpec({self.name!r}) has version {self.version}, and holds have no versions",
                hint="leave version and migrations out: what is kept is an instant",
            )


@attrs.frozen
class TimerSpec:
    """A timer of event time or of processing time; one instant for each key and window.  See `on_timer`.

    Args:
        name: of the timer, by which it is stored; not empty.
        time_domain: event time or processing time.
        holds_watermark: whether it may be set with an output timestamp, which holds the output watermark until it has
            fired.  A worker that takes over such state reads all of it.
        keeps_window: whether its window does not expire while it is set with an output timestamp, so that it always
            fires by the clock: in a stream whose input has ended, too, which then ends when it has.  In batch its time
            has come when all input is there.  When a job is drained it does not fire any more.  Only for a timer of
            processing time that holds the watermark, in windows that do not merge.

    Raises:
        PipelineError: one of them is something else.
    """

    name: str = attrs.field(validator=_check_name)
    time_domain: TimeDomain = attrs.field(validator=_check_domain)
    holds_watermark: bool = attrs.field(default=False, kw_only=True)
    keeps_window: bool = attrs.field(default=False, kw_only=True, validator=_check_keeps)


@attrs.frozen
class TimerFamilySpec:
    """Any number of timers of one time domain for each key and window, distinguished by tags that are made at run time.

    One method, marked with `on_timer`, is called for all of them; it asks for the tag with ``DynamicTimerTagParam``.

    Args:
        name: of the timers, by which they are stored; not empty.
        time_domain: event time or processing time.
        holds_watermark: as for `TimerSpec`.
        keeps_window: likewise.

    Raises:
        PipelineError: as for `TimerSpec`.
    """

    name: str = attrs.field(validator=_check_name)
    time_domain: TimeDomain = attrs.field(validator=_check_domain)
    holds_watermark: bool = attrs.field(default=False, kw_only=True)
    keeps_window: bool = attrs.field(default=False, kw_only=True, validator=_check_keeps)


AnyTimerSpec = TimerSpec | TimerFamilySpec


@attrs.frozen
class StateParam:
    """Default of a parameter that asks for a piece of state; `df.DoFn.StateParam`."""

    spec: StateSpec = attrs.field()

    @spec.validator
    def _check(self, attribute: attrs.Attribute[Any], spec: object) -> None:
        if not isinstance(spec, StateSpec):
            raise PipelineError(
                f"StateParam needs the spec of a state, not {spec!r}",
                hint='e.g. SEEN = df.BagStateSpec("seen"), then seen=df.DoFn.StateParam(SEEN)',
            )


@attrs.frozen
class TimerParam:
    """Default of a parameter that asks for a timer, or for a family of them; `df.DoFn.TimerParam`."""

    spec: AnyTimerSpec = attrs.field()

    @spec.validator
    def _check(self, attribute: attrs.Attribute[Any], spec: object) -> None:
        if not isinstance(spec, AnyTimerSpec):
            raise PipelineError(
                f"TimerParam needs the spec of a timer, not {spec!r}",
                hint='e.g. END = df.TimerSpec("end", df.TimeDomain.EVENT), then '
                "end=df.DoFn.TimerParam(END)",
            )


def on_timer(spec: AnyTimerSpec) -> Callable[[CallbackT], CallbackT]:
    """Mark the method of a DoFn that is called when a timer, or one of a family, fires.

    The method may ask for state and timers, for KeyParam, WindowParam, TimestampParam, WatermarkParam and
    FireTimestampParam, and that of a family for DynamicTimerTagParam; its outputs are like those of ``process``.

    Raises:
        PipelineError: ``spec`` is not the spec of a timer.
    """
    if not isinstance(spec, AnyTimerSpec):
        raise PipelineError(
            f"on_timer needs the spec of a timer, not {spec!r}",
            hint='e.g. END = df.TimerSpec("end", df.TimeDomain.EVENT), then @df.on_timer(END)',
        )

    def mark(callback: CallbackT) -> CallbackT:
        setattr(callback, _TIMER_ATTRIBUTE, spec)
        return callback

    return mark


def on_window_expiration(callback: CallbackT) -> CallbackT:
    """Mark the method of a DoFn that is called when a window expires of which a key still has state.

    It is called once for each such key and window, when the watermark has passed the end of the window and the allowed
    lateness: after all elements and all timers, and before the state is deleted.  A key without state has nothing left
    to say, and none is called for it.  The method may ask for state, KeyParam, WindowParam, TimestampParam and
    WatermarkParam; its outputs are in the window, and have its last instant as event time.  After a failure it is run
    again on the same state, and what it emits is there once.
    """
    setattr(callback, _EXPIRATION_ATTRIBUTE, True)
    return callback


def on_window_merge(callback: CallbackT) -> CallbackT:
    """Mark the method of a DoFn that is called when windows of a key that are open have become another window.

    It is called for the element that has brought this about, before ``process``: when the window of the element bridges
    open windows, and when one of them grows by it; not for the first element of a window.  State and timers have
    merged by then, and are those of the new window: here a timer is set anew for its end.  The method may ask for state
    and timers, for KeyParam, WindowParam (the new window), TimestampParam and WatermarkParam; it returns nothing.
    After a failure it is run again on the same state; the element for which it fails for good becomes a dead letter, or
    a bad element of ``with_exception_handling``, and the windows stay as they were.
    """
    setattr(callback, _MERGE_ATTRIBUTE, True)
    return callback


def members_of_class(cls: type) -> dict[str, object]:
    """What a class and its bases have in their bodies, by name, in the order of names.

    As it stands there: no property runs, and nothing is bound to the class.

    Args:
        cls: a user's DoFn.
    """
    found: dict[str, object] = {}
    for each in reversed(cls.__mro__):
        found.update(vars(each))
    return dict(sorted(found.items()))


def is_of_merge(method: object) -> bool:
    """Whether a method was marked with `on_window_merge`."""
    return getattr(method, _MERGE_ATTRIBUTE, False) is True


def is_of_expiration(method: object) -> bool:
    """Whether a method was marked with `on_window_expiration`."""
    return getattr(method, _EXPIRATION_ATTRIBUTE, False) is True


def timer_of(method: object) -> AnyTimerSpec | None:
    """The timer, or the family of timers, that a method was marked for with `on_timer`."""
    return getattr(method, _TIMER_ATTRIBUTE, None)


#: When a timer fires, and the event time of what set it; both in microseconds.
SetTimer = tuple[int, int]
#: The key of a timer: the name of its spec; for one of a family the name of the family and its tag.
TimerName = str | tuple[str, str]
#: The family of the timers that clear state whose time to live is over, by the name of the state; no spec has it.
TTL = ""
#: What holds the output watermark is kept beside the state of a cell, by this word and the name of a state or timer.
HOLD = "hold"
#: The name, among the values of a window that merges, of the number of its pages, which no other one has.
PAGES = ("pages",)
#: The name of what a DoFn has emitted for a key and window, where that is kept (`DoFn.has_retractable_outputs`).
EMITTED = ("emitted",)
#: State of a version above 1 is kept by this word, its name and the version.
VERSION = "version"


@attrs.frozen
class TimerHandle:
    """Handle of a `TimerSpec`, or of one timer of a family: one instant, or none.

    A timer fires once for each time it was set, in time order with the other timers of its key and time domain.
    Setting it again moves it.  One that is set for the past fires at once: after the call that set it has returned.

    When the window expires, timers that are still set fire a last time, whatever they are set for; timers that are then
    set for later do not fire any more.  One that keeps its window is waited for instead.
    """

    _timers: MutableMapping[TimerName, SetTimer]
    _name: TimerName
    _time_domain: TimeDomain
    _base_us: int
    _now_us: int
    _holds: dict[Any, Any] | None = None

    @property
    def now(self) -> datetime:
        """The time by the runner's clock, in UTC, from which `set_after` counts.

        In batch it is the beginning of time while elements come in, and the end of it when timers fire that keep their
        window.
        """
        return to_datetime(self._now_us)

    def set(self, time: TimestampLike, *, output_timestamp: TimestampLike | None = None) -> None:
        """Fire at an instant of the timer's domain.

        Args:
            time: an aware datetime, text, or seconds since 1970.
            output_timestamp: the event time of what the timer's method emits: from that of the element or timer on
                that sets it, and for a timer of event time not after ``time``.  Until it has fired, or is cleared, it
                holds the output watermark there, so that what it emits is not late.  None: the instant at which it
                fires, which needs no hold.

        Raises:
            PipelineError: the output timestamp is out of these bounds, or the timer's spec does not declare
                ``holds_watermark``.
            TimeError: ``time`` or ``output_timestamp`` is not an instant.
        """
        self._set_us(to_timestamp_us(time), output_timestamp)

    def set_after(
        self, delay: DurationLike, *, output_timestamp: TimestampLike | None = None
    ) -> None:
        """Fire when this much processing time has passed from now on; only for a timer of processing time.

        The clock is the runner's: in batch it does not move until the input has ended.

        Args:
            delay: `timedelta`, text or seconds; not negative.
            output_timestamp: as for `set`.

        Raises:
            PipelineError: the timer is one of event time, or the delay is negative; or as for `set`.
            TimeError: ``delay`` is not a duration, or ``output_timestamp`` not an instant.
        """
        delay_us = to_duration_us(delay)
        if self._time_domain is not TimeDomain.PROCESSING or delay_us < 0:
            raise PipelineError(
                f"timer {self._name!r} ({self._time_domain.name}) cannot be set after {delay!r}",
                hint="a delay counts from now in processing time; for event time add it to an instant: "
                "timer.set(timestamp + delay)",
            )
        # Beyond the end of time as well: timers that can only fire in the end still do so in order.
        self._set_us(self._now_us + delay_us, output_timestamp)

    def clear(self) -> None:
        """Delete the timer, so that it does not fire."""
        self._timers.pop(self._name, None)
        if self._holds is not None:
            self._holds.pop((HOLD, self._name), None)

    def _set_us(self, fire_us: int, output_timestamp: TimestampLike | None) -> None:
        output_us = None
        if output_timestamp is not None:
            output_us = self._checked_us(to_timestamp_us(output_timestamp), fire_us)
        self.clear()  # so that of several timers of one instant the one that was set last fires last
        self._timers[self._name] = fire_us, self._base_us
        if output_us is not None and self._holds is not None:
            self._holds[HOLD, self._name] = output_us

    def _checked_us(self, output_us: int, fire_us: int) -> int:
        if self._holds is None:
            raise PipelineError(
                f"timer {self._name!r} is set with an output timestamp, and its spec does not declare that it holds "
                "the watermark",
                hint=f"add holds_watermark=True: df.TimerSpec({self._name!r}, "
                f"df.TimeDomain.{self._time_domain.name}, holds_watermark=True)",
            )
        if output_us < self._base_us:
            self._refuse(
                f"before the event time that it is set at, {format_timestamp(self._base_us)}",
                output_us,
            )
        if self._time_domain is TimeDomain.EVENT and output_us > fire_us:
            self._refuse(f"after it fires, at {format_timestamp(fire_us)}", output_us)
        return output_us

    def _refuse(self, where: str, output_us: int) -> NoReturn:
        raise PipelineError(
            f"timer {self._name!r} is set with an output timestamp {where}",
            detail=f"output_timestamp={format_timestamp(output_us)}",
            hint="what it emits has an event time between that of what sets it (TimestampParam) and that at which it "
            "fires",
        )


@attrs.frozen
class TimerMap:
    """Handle of a `TimerFamilySpec`: its timers by their tags."""

    _timers: MutableMapping[TimerName, SetTimer]
    _spec: TimerFamilySpec
    _base_us: int
    _now_us: int
    _holds: dict[Any, Any] | None = None

    def get(self, tag: str) -> TimerHandle:
        """The timer with a tag, set or not.

        Raises:
            PipelineError: the tag is not text.
        """
        if not isinstance(tag, str):
            raise PipelineError(
                f"the tag of a timer of {self._spec.name!r} is not text: {tag!r}",
                hint="e.g. str(number), or the instant as text; the method of the timer is given it back",
            )
        name = (self._spec.name, tag)
        return TimerHandle(
            self._timers, name, self._spec.time_domain, self._base_us, self._now_us, self._holds
        )

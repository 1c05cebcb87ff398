"""RequestResponse and Enrichment: ask another system about each element, in good manners.

Requests of a bundle are sent together, in batches where the other system takes several at once; a response is
remembered for a while; what fails is tried again, later and later; and where the other side fails often, fewer
requests are sent.  All of it is asynchronous user code (`dataflow.async_calls`): outputs are in the order of the
elements, and a bundle is committed when all of its responses are there.
"""

import asyncio
import inspect
import os
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import attrs

from dataflow.do_fn import DoFn, is_async, nondeterministic
from dataflow.errors import PipelineError, RequestFailedError
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.times import in_words
from dataflow.transforms.par_do import ParDo
from windowing.errors import error_text
from windowing.timestamps import DurationLike, to_duration_us

_US = 1_000_000
#: Multiples of it are spread most evenly.
_GOLDEN = 0.6180339887498949
T = TypeVar("T")


def _always(_: Exception) -> bool:
    return True


@attrs.frozen(kw_only=True)
class RequestOptions:
    """How requests are made.

    Attributes:
        batch_size: how many requests the caller is given at once, as a list; it returns a list of as many responses, in
            their order.  1: the caller is given one request and returns one response.
        max_concurrency: how many elements of a bundle are worked on together, at most.
        timeout_s: how long a call may take, in seconds.
        tries: how often a request is sent, at most.
        backoff_s, backoff_max_s: how long to wait before the second try, and at most, in seconds; the wait doubles with
            each try, and is shortened by chance by up to half, so that workers do not come back together.
        should_retry: whether an exception is worth another try.
        cache_ttl_s: how long a response is remembered, in seconds; None: not at all.
        cache_entries: how many responses are remembered on each worker, at most; those used last are kept.
        is_throttled: whether a worker sends fewer requests while many of them fail.
    """

    batch_size: int
    max_concurrency: int
    timeout_s: float
    tries: int
    backoff_s: float
    backoff_max_s: float
    should_retry: Callable[[Exception], bool]
    cache_ttl_s: float | None
    cache_entries: int
    is_throttled: bool

    @classmethod
    def of(
        cls,
        *,
        batch_size: int = 1,
        max_concurrency: int = 64,
        timeout: DurationLike = 30,
        tries: int = 5,
        backoff: DurationLike = 0.5,
        backoff_max: DurationLike = 30,
        should_retry: Callable[[Exception], bool] = _always,
        cache_ttl: DurationLike | None = None,
        cache_entries: int = 10_000,
        throttle: bool = True,
    ) -> "RequestOptions":
        """The options as `RequestResponse` takes them.

        Args:
            batch_size: how many requests are sent at once, at most.
            max_concurrency: how many elements are worked on together, at most.
            timeout: how long a call may take.
            tries: how often a request is sent, at most.
            backoff: how long to wait before the second try.
            backoff_max: how long to wait at most.
            should_retry: whether an exception is worth another try.
            cache_ttl: how long a response is remembered; None: not at all.
            cache_entries: how many are remembered.
            throttle: whether fewer requests are sent while many fail.

        Raises:
            PipelineError: a number is below one, or a time not positive.
        """
        counts = {
            "batch_size": batch_size,
            "max_concurrency": max_concurrency,
            "tries": tries,
            "cache_entries": cache_entries,
        }
        times = {"timeout": timeout, "backoff": backoff, "backoff_max": backoff_max}
        if cache_ttl is not None:
            times["cache_ttl"] = cache_ttl
        seconds = {name: to_duration_us(each) / _US for name, each in times.items()}
        for name, number in {**counts, **seconds}.items():
            if number < 1 if name in counts else number <= 0:
                raise PipelineError(
                    f"{name}={number!r} of a RequestResponse is too little",
                    hint="give a number of at least one, or a time above zero",
                )
        return cls(
            **counts,
            timeout_s=seconds["timeout"],
            backoff_s=seconds["backoff"],
            backoff_max_s=seconds["backoff_max"],
            should_retry=should_retry,
            cache_ttl_s=seconds.get("cache_ttl"),
            is_throttled=throttle,
        )


class RequestResponse(OneOutput[PCollection[Any], Any]):
    """The response to each element, which is a request.

    Example::

        async def users(ids: list[int]) -> list[User]: ...

        clicks | df.RequestResponse(users, batch_size=100, cache_ttl="10 minutes")

    A request may be sent more than once: again after a failure, and when a bundle is run again.  Of what comes back
    only what is committed counts, once.  Where the input may be retracted, the response that was emitted is remembered,
    and that one is retracted.

    A caller that is not asynchronous runs in threads, and one that takes longer than ``timeout`` runs on in its own.
    Requests that are remembered (``cache_ttl``), or are there twice in a bundle, are sent once; they must be hashable.

    Args:
        caller: a function, or an object with ``__call__``, of a request, or of a list of at most ``batch_size``; it may
            be ``async``, and may have ``setup`` and ``teardown``, for connections, which run on the worker.
        **options: ``batch_size``, 1; ``max_concurrency``, 64; ``timeout``, 30 seconds; ``tries``, 5; ``backoff``, 0.5
            seconds, which doubles with each try up to ``backoff_max``, 30; ``should_retry``, of an exception, always;
            ``cache_ttl``, none; ``cache_entries``, 10,000; ``throttle``, True.  `RequestOptions.of` describes them.

    Raises:
        PipelineError: the caller cannot be called, or an option is too little.
        TimeError: a time is none.
    """

    def __init__(self, caller: Callable[[Any], Any], **options: Any) -> None:
        self._fn = RequestDoFn(caller, _itself, _only_response, RequestOptions.of(**options))

    def default_label(self) -> str:
        """``RequestResponse(caller)``."""
        return f"RequestResponse({_name(self._fn.caller)})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the DoFn."""
        return pcoll | ParDo(self._fn)


class Enrichment(OneOutput[PCollection[Any], Any]):
    """Each element, with what another system says about it.

    Example::

        orders | df.Enrichment(products, request=lambda order: order["product"], cache_ttl=600)

    Args:
        caller: as that of `RequestResponse`.
        request: makes the request of an element; without it the element is the request.
        join: makes the output of an element and the response.  Without it mappings are merged, where what the element
            has stays as it is, and of everything else a pair is made.
        **options: those of `RequestResponse`.

    Raises:
        PipelineError: the caller cannot be called, or an option is too little.
        TimeError: a time is none.
    """

    def __init__(
        self,
        caller: Callable[[Any], Any],
        request: Callable[[Any], Any] | None = None,
        join: Callable[[Any, Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self._fn = RequestDoFn(
            caller, request or _itself, join or _merged, RequestOptions.of(**options)
        )

    def default_label(self) -> str:
        """``Enrichment(caller)``."""
        return f"Enrichment({_name(self._fn.caller)})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the DoFn."""
        return pcoll | ParDo(self._fn)


@nondeterministic
class RequestDoFn(DoFn):
    """Sends requests; the work of `RequestResponse`.

    Args:
        caller: of the user.
        request: makes a request of an element.
        join: makes the output.
        options: how requests are made.

    Raises:
        PipelineError: the caller cannot be called.
    """

    def __init__(
        self,
        caller: Callable[[Any], Any],
        request: Callable[[Any], Any],
        join: Callable[[Any, Any], Any],
        options: RequestOptions,
    ) -> None:
        if not callable(caller):
            raise PipelineError(
                f"RequestResponse needs a function of a request, not {caller!r}",
                hint="give a function, or an object with __call__; either may be async",
            )
        self.caller, self._request, self._join, self._options = caller, request, join, options
        self.max_concurrency = options.max_concurrency

    async def setup(self) -> None:
        """Set the caller up, and what requests are made with."""
        options = self._options
        self._threads = ThreadPoolExecutor(options.max_concurrency)
        self._sender = _Sender(self._called, options)
        self._cache = Cache(
            options.cache_ttl_s, options.cache_entries, asyncio.get_running_loop().time
        )
        self._under_way: dict[Any, asyncio.Task[Any]] = {}
        await _hook(self.caller, "setup")

    async def process(self, element: Any, /) -> list[Any]:
        """The output for an element."""
        request = self._request(element)
        if self._options.cache_ttl_s is None:
            return [self._join(element, await self._sender.send(request))]
        key = _cache_key(request)
        found = self._cache.get(key)
        if found is None:
            task = self._under_way.get(key)
            if task is None:
                task = self._under_way[key] = asyncio.create_task(self._sender.send(request))
                task.add_done_callback(partial(self._answered, key))
            # Others may wait for it, too.
            found = (await asyncio.shield(task),)
        return [self._join(element, found[0])]

    async def teardown(self) -> None:
        """Tear the caller down."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await _hook(self.caller, "teardown")

    def _answered(self, key: Any, task: "asyncio.Task[Any]") -> None:
        del self._under_way[key]
        if not task.cancelled() and task.exception() is None:
            self._cache.put(key, task.result())

    async def _called(self, request: Any) -> Any:
        if is_async(self.caller):
            return await self.caller(request)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.caller, request)


class _Sender:
    """Sends requests in batches, and again where that fails.

    Args:
        call: the caller, with a request, or with a list of requests where they are batched.
        options: how.
    """

    def __init__(self, call: Callable[[Any], Awaitable[Any]], options: RequestOptions) -> None:
        self._call, self._options = call, options
        self._spread = Spread(os.getpid())
        self._throttle = Throttle(self._spread)
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._batches: set[asyncio.Task[None]] = set()

    async def send(self, request: Any) -> Any:
        """The response to a request."""
        if self._options.batch_size == 1:
            return await self._tried(request)
        loop = asyncio.get_running_loop()
        if not self._waiting:
            # Whoever else is about to send something does so first.
            loop.call_soon(self._send_waiting)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((request, future))
        if len(self._waiting) == self._options.batch_size:
            self._send_waiting()
        return await future

    def _send_waiting(self) -> None:
        if self._waiting:
            task = asyncio.create_task(self._send_batch(self._waiting))
            self._waiting = []
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _send_batch(self, batch: Sequence[tuple[Any, "asyncio.Future[Any]"]]) -> None:
        try:
            responses = await self._tried([request for request, _ in batch])
            if not isinstance(responses, Sequence) or len(responses) != len(batch):
                raise RequestFailedError(  # noqa: TRY301 - it goes to each of the requests
                    f"the caller was given {len(batch)} requests, and has to return a list of as many responses, in "
                    f"their order; it returned {responses!r}"[:500]
                )
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for a response
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), response in zip(batch, responses, strict=True):
            if not future.done():
                future.set_result(response)

    async def _tried(self, request: Any) -> Any:
        options, clock = self._options, asyncio.get_running_loop().time
        for attempt in range(1, options.tries + 1):
            while options.is_throttled and self._throttle.is_refused(clock()):  # noqa: ASYNC110 - time is the event
                await asyncio.sleep(options.backoff_s)
            try:
                found = await asyncio.wait_for(self._call(request), options.timeout_s)
            except Exception as error:
                self._throttle.count(clock(), is_accepted=False)
                if attempt == options.tries or not options.should_retry(error):
                    raise _given_up(error, attempt, options) from error
                wait_s = min(options.backoff_s * 2 ** (attempt - 1), options.backoff_max_s)
                await asyncio.sleep(wait_s * (1 + self._spread.next()) / 2)
            else:
                self._throttle.count(clock(), is_accepted=True)
                return found
        raise AssertionError("unreachable")


class Spread:
    """Numbers between 0 and 1 that are spread evenly; those of two workers are others.

    Only waits depend on them, and nothing that is emitted.

    Args:
        start: of the worker.
    """

    def __init__(self, start: int) -> None:
        self._last = start * _GOLDEN % 1

    def next(self) -> float:
        """The next one."""
        self._last = (self._last + _GOLDEN) % 1
        return self._last


class Throttle:
    """Keeps back requests that would probably fail: the more, the more of the last ones have failed.

    With ``n`` requests in the last while, of which ``k`` have succeeded, one is kept back with the probability
    ``(n - 2 k) / (n + 1)``: nothing happens until more than half of them fail, and some always go out, to find out when
    the other side is well again.

    Args:
        spread: decides which requests are kept back.
        window_s: how long a request counts, in seconds.
    """

    def __init__(self, spread: Spread, window_s: float = 60.0) -> None:
        self._spread, self._window_s = spread, window_s
        self._last: deque[tuple[float, bool]] = deque()
        self._accepted = 0

    def count(self, now_s: float, *, is_accepted: bool) -> None:
        """Count a request.

        Args:
            now_s: the time, in seconds of any clock that goes on.
            is_accepted: whether it has succeeded.
        """
        self._last.append((now_s, is_accepted))
        self._accepted += is_accepted
        self._forget(now_s)

    def probability(self, now_s: float) -> float:
        """The probability with which a request is kept back.

        Args:
            now_s: the time, as for `count`.
        """
        self._forget(now_s)
        return max(0.0, (len(self._last) - 2 * self._accepted) / (len(self._last) + 1))

    def is_refused(self, now_s: float) -> bool:
        """Whether a request is to be kept back for now.

        Args:
            now_s: the time, as for `count`.
        """
        refused = self._spread.next() < self.probability(now_s)
        if refused:
            # As the other side would have refused it; otherwise it would never be kept back for long.
            self.count(now_s, is_accepted=False)
        return refused

    def _forget(self, now_s: float) -> None:
        while self._last and self._last[0][0] <= now_s - self._window_s:
            self._accepted -= self._last.popleft()[1]


class Cache:
    """Responses that are remembered for a while; those used last are kept.

    Args:
        ttl_s: how long, in seconds; None: nothing is remembered.
        entries_max: how many, at most.
        clock: the time in seconds, of any clock that goes on.
    """

    def __init__(
        self,
        ttl_s: float | None,
        entries_max: int,
        clock: Callable[[], float],
    ) -> None:
        self._ttl_s, self._entries_max, self._clock = ttl_s, entries_max, clock
        self._entries: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Any) -> tuple[Any] | None:
        """The response, in a tuple; None if none is remembered.

        Args:
            key: of the request.
        """
        found = self._entries.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return (found[1],)

    def put(self, key: Any, response: Any) -> None:
        """Remember a response.

        Args:
            key: of the request.
            response: to it.
        """
        if self._ttl_s is None:
            return
        self._entries[key] = self._clock() + self._ttl_s, response
        self._entries.move_to_end(key)
        if len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)


def _given_up(error: Exception, tries: int, options: RequestOptions) -> RequestFailedError:
    name = type(error).__name__
    if isinstance(error, TimeoutError) and not error_text(error):
        name = f"no response within {in_words(round(options.timeout_s * _US))}"
    times = f"{tries} times; the last time: " if tries > 1 else ""
    return RequestFailedError(f"a request has failed {times}{name} {error_text(error)}".rstrip())


def _cache_key(request: Any) -> Any:
    try:
        hash(request)
    except TypeError:
        raise RequestFailedError(
            f"a request that is remembered has to be hashable, and not a {type(request).__name__}: make it of texts, "
            "numbers and tuples, e.g. with request=, or leave out cache_ttl"
        ) from None
    # Python calls 1, 1.0 and True equal.
    return type(request), request


async def _hook(caller: Any, name: str) -> None:
    hook = getattr(caller, name, None)
    if callable(hook):
        returned = hook()
        if inspect.isawaitable(returned):
            await returned


def _itself(element: T) -> T:
    return element


def _only_response(_: Any, response: Any) -> Any:
    return response


def _merged(element: Any, response: Any) -> Any:
    if isinstance(element, Mapping) and isinstance(response, Mapping):
        return {**response, **element}
    return element, response


def _name(caller: Any) -> str:
    return getattr(caller, "__name__", type(caller).__name__)

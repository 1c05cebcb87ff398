"""Asynchronous user code: calls for all elements of a bundle at once, so many of them as are allowed together.

A bundle is given to its consumers when all of its calls have ended, so what was emitted is committed with what it was
made of, as with any other code; outputs are in the order of the elements, whichever call ended first.

Each process has one event loop for a transform, which runs while a bundle does: clients that are made in it (in
``async def setup``, or at the first call) last as long as the worker.
"""

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dataflow.do_fn import CallableDoFn, DoFn, Outcome, is_async

#: How many calls of one bundle are awaited together, if a DoFn does not say.
MAX_CONCURRENCY = 64


def async_calls(fn: DoFn | CallableDoFn) -> "AsyncCalls | None":
    """How the calls of user code run together; None if it is not asynchronous.

    Args:
        fn: the user code.
    """
    if isinstance(fn, CallableDoFn):
        return AsyncCalls(MAX_CONCURRENCY) if is_async(fn.function) else None
    return AsyncCalls(fn.max_concurrency) if is_async(fn.process) else None


class AsyncCalls:
    """Runs asynchronous calls to their ends.

    Args:
        max_concurrency: how many calls are awaited together, at most.
    """

    def __init__(self, max_concurrency: int) -> None:
        self.max_concurrency = max_concurrency
        self._loop: asyncio.AbstractEventLoop | None = None
        #: For a process in which a loop is running already, as in a notebook.
        self._thread: ThreadPoolExecutor | None = None
        self._process = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return AsyncCalls, (self.max_concurrency,)

    def outcomes(self, call: Callable[[Any], Any], elements: Sequence[Any]) -> Sequence[Outcome]:
        """What the calls for elements have returned or raised, in the order of the elements.

        When one fails, those behind it are cancelled, and those before it go on: so the first failure is the same
        whichever was the fastest.

        Args:
            call: returns something to be awaited, or to be iterated asynchronously, of which a list is made.
            elements: of one bundle.
        """
        bundle = _Bundle(call, elements, self.max_concurrency)
        self.run(bundle.run())
        return bundle.outcomes

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop, and return its result.

        Args:
            coroutine: that is awaited.
        """
        if self._process != os.getpid():
            # What a process was forked from keeps its loop.
            self._loop, self._thread, self._process = asyncio.new_event_loop(), None, os.getpid()
        if self._thread is None and _is_loop_running():
            self._thread = ThreadPoolExecutor(1)
        if self._thread is None:
            return self._run(coroutine)
        return self._thread.submit(self._run, coroutine).result()

    async def sleep(self, seconds: float) -> None:
        """Wait, while other calls go on.

        Args:
            seconds: how long.
        """
        await asyncio.sleep(seconds)

    def close(self) -> None:
        """Close the loop."""
        loop, self._loop, self._process = self._loop, None, 0
        if loop is not None:
            loop.close()
        if self._thread is not None:
            self._thread.shutdown()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop = self._loop
        assert loop is not None
        try:
            return loop.run_until_complete(coroutine)
        except BaseException:
            # Interrupted: nothing goes on behind the back of whoever handles that.
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            raise


class _Bundle:
    """The calls of one bundle.

    Args:
        call: for an element.
        elements: of the bundle.
        max_concurrency: how many calls are awaited together, at most.
    """

    def __init__(
        self, call: Callable[[Any], Any], elements: Sequence[Any], max_concurrency: int
    ) -> None:
        self._call, self._elements = call, elements
        self._free = asyncio.Semaphore(max_concurrency)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._failed = len(elements)
        self.outcomes: list[Outcome] = [(None, None)] * len(elements)

    async def run(self) -> None:
        for index, element in enumerate(self._elements):
            await self._free.acquire()
            if index > self._failed:
                break
            task = self._tasks[index] = asyncio.create_task(self._one(index, element))
            task.add_done_callback(partial(self._ended, index))
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _one(self, index: int, element: Any) -> None:
        try:
            self.outcomes[index] = await _result(self._call(element)), None
        except asyncio.CancelledError as error:
            if index < self._failed:
                self._fail(index, RuntimeError(f"it was cancelled: {error!r}"))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - raised again where the element is known
            self._fail(index, error)

    def _ended(self, index: int, _: "asyncio.Task[None]") -> None:
        # Also for a task that was cancelled before it began, whose code has never run.
        del self._tasks[index]
        self._free.release()

    def _fail(self, index: int, error: BaseException) -> None:
        self.outcomes[index] = None, error
        self._failed = min(self._failed, index)
        for later, task in self._tasks.items():
            if later > self._failed:
                task.cancel()


async def _result(returned: Any) -> Any:
    if inspect.isawaitable(returned):
        returned = await returned
    if hasattr(returned, "__aiter__"):
        return [each async for each in returned]
    return returned


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

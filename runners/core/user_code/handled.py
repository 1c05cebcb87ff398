"""Handled calls: user code of a transform whose failures are elements of an output of their own.

It is called like a FlatMap: what it returns for an element are its outputs, and its failure, with a tag.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from dataflow.do_fn import Shape, TaggedOutput
from dataflow.exception_handling import FAILURES, ExceptionHandling
from dataflow.graph import TransformNode
from dataflow.views import WithViews
from runners.core.user_code.returned import outputs_of


@attrs.frozen
class Handled:
    """Turns what user code of a transform raises into elements.

    Attributes:
        node: the transform.
        handling: what is handled, and how.
    """

    node: TransformNode
    handling: ExceptionHandling

    def outputs(
        self,
        element: Any,
        collect: Callable[[list[Any]], object],
        undo: Callable[[], object] | None = None,
    ) -> list[Any]:
        """The outputs for an element, and its failure, if it has failed each time.

        Args:
            element: of which a failure is.
            collect: calls the user's code, and adds what it emits to a list, one by one.
            undo: called when it has failed; None: it has changed nothing.
        """
        attempt = 0
        while True:
            outputs: list[Any] = []
            try:
                collect(outputs)
            except self.handling.exc_class as error:
                if undo is not None:
                    undo()
                if attempt == self.handling.retries:
                    return self.failed(element, error, outputs)
            else:
                return outputs
            attempt += 1
            self.handling.wait(attempt)

    def failed(self, element: Any, error: BaseException, outputs: list[Any]) -> list[Any]:
        """The outputs of a call that has failed for the last time.

        Args:
            element: as it came.
            error: what was raised.
            outputs: what was emitted before.
        """
        kept = outputs if self.handling.partial else []
        return [*kept, TaggedOutput(FAILURES, self.failure(element, error))]

    def failure(self, element: Any, error: BaseException) -> Any:
        """The `BadElement` of an element.

        Args:
            element: as it came.
            error: what was raised.
        """
        plain = element.element if type(element) is WithViews else element
        return self.handling.bad(plain, error, self.node.label)


@attrs.frozen
class HandledCall:
    """Calls user code, and returns its outputs and failures.

    Attributes:
        handled: the transform, and how its exceptions are handled.
        call: the user code, of any shape.
        shape: of ``call``.
        where: the method or function, as an error names it.
    """

    handled: Handled
    call: Callable[..., Any]
    shape: Shape
    where: str

    def __call__(self, element: Any, **params: Any) -> list[Any]:
        """The outputs for an element, and its failure, if it has failed each time."""
        return self.handled.outputs(
            element, lambda outputs: self.collect(outputs, element, self.call(element, **params))
        )

    def collect(self, outputs: list[Any], element: Any, returned: Any) -> None:
        """Add the outputs that a call has returned, one by one.

        Args:
            outputs: what has been emitted when the next one fails is in it.
            element: that the call was for.
            returned: by the call.
        """
        if self.shape is Shape.MAP:
            outputs.append(returned)
        elif self.shape is Shape.FILTER:
            outputs.extend([element] if returned else [])
        else:
            outputs.extend(outputs_of(self.handled.node, returned, self.where))


@attrs.frozen
class HandledAsyncCall:
    """Calls asynchronous user code, and returns its outputs and failures when it is awaited.

    Attributes:
        inner: what is called, and how its exceptions are handled.
        sleep: waits so many seconds, while other calls go on.
    """

    inner: HandledCall
    sleep: Callable[[float], Awaitable[None]]

    async def __call__(self, element: Any, **params: Any) -> list[Any]:
        """The outputs for an element, and its failure, if it has failed each time."""
        handled, attempt = self.inner.handled, 0
        while True:
            outputs: list[Any] = []
            try:
                await self._collect(outputs, element, params)
            except handled.handling.exc_class as error:
                if attempt == handled.handling.retries:
                    return handled.failed(element, error, outputs)
            else:
                return outputs
            attempt += 1
            await self.sleep(handled.handling.delay_s(attempt))

    async def _collect(self, outputs: list[Any], element: Any, params: dict[str, Any]) -> None:
        returned = self.inner.call(element, **params)
        if inspect.isawaitable(returned):
            returned = await returned
        if not hasattr(returned, "__aiter__"):
            self.inner.collect(outputs, element, returned)
        elif self.inner.shape is Shape.FLAT_MAP:
            async for each in returned:
                outputs.append(each)  # noqa: PERF401 - what it has emitted when it fails may be kept
        else:
            self.inner.collect(outputs, element, [each async for each in returned])

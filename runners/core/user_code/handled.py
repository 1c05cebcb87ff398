"""HandledCall: user code of a transform whose failures are elements of an output of their own.

It is called like a FlatMap: what it returns for an element are its outputs, and its failure, with a tag.
"""

from collections.abc import Callable
from typing import Any

import attrs

from dataflow.do_fn import Shape, TaggedOutput
from dataflow.exception_handling import FAILURES, ExceptionHandling
from dataflow.graph import TransformNode
from dataflow.views import WithViews
from runners.core.user_code.returned import outputs_of


@attrs.frozen
class HandledCall:
    """Calls user code, and returns its outputs and failures.

    Attributes:
        node: the transform.
        handling: what is handled, and how.
        call: the user code, of any shape.
        shape: of ``call``.
        where: the method or function, as an error names it.
    """

    node: TransformNode
    handling: ExceptionHandling
    call: Callable[..., Any]
    shape: Shape
    where: str

    def __call__(self, element: Any, **params: Any) -> list[Any]:
        """The outputs for an element, and its failure, if it has failed each time."""
        attempt = 0
        while True:
            outputs: list[Any] = []
            try:
                self._collect(outputs, element, params)
            except self.handling.exc_class as error:
                if attempt == self.handling.retries:
                    kept = outputs if self.handling.partial else []
                    return [*kept, TaggedOutput(FAILURES, self.failure(element, error))]
            else:
                return outputs
            attempt += 1
            self.handling.wait(attempt)

    def failure(self, element: Any, error: BaseException) -> Any:
        """The `BadElement` of an element.

        Args:
            element: as it came.
            error: what was raised.
        """
        plain = element.element if type(element) is WithViews else element
        return self.handling.bad(plain, error, self.node.label)

    def _collect(self, outputs: list[Any], element: Any, params: dict[str, Any]) -> None:
        returned = self.call(element, **params)
        if self.shape is Shape.MAP:
            outputs.append(returned)
        elif self.shape is Shape.FILTER:
            outputs.extend([element] if returned else [])
        else:
            # What has been emitted when the next one fails is in the list.
            outputs.extend(outputs_of(self.node, returned, self.where))

"""The traceback of what was raised in a worker, on its way to the driver as text: a traceback cannot be pickled."""

import traceback

from dataflow.errors import DataflowError


class TaskTraceback(Exception):  # noqa: N818 - never raised by itself
    """Where in the worker it happened: the cause of what the driver raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def traceback_of(error: BaseException) -> str:
    """The frames of an error as text: of the user's own, where an error of ours was raised because of it.

    The frames between these and our own error are left out: they are ours, and do not help.
    """
    if isinstance(error.__cause__, TaskTraceback):
        text: str = error.__cause__.args[0]
        return text
    is_of_ours = isinstance(error, DataflowError) and error.__cause__ is not None
    return "".join(traceback.format_exception((error.__cause__ or error) if is_of_ours else error))

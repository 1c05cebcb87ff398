"""Libraries that are extras, and what to install where one is missing."""

from importlib.util import find_spec

from dataflow.distribution import install_command
from dataflow.errors import PipelineError


def require(library: str, extra: str, name: str) -> None:
    """Raise an error if a library is not installed.

    Args:
        library: as it is imported.
        extra: that has it.
        name: of the transform that needs it.

    Raises:
        PipelineError: it is not.
    """
    if find_spec(library) is None:
        raise PipelineError(
            f"{name} needs {library}, which is not installed",
            hint=f"{install_command(extra)}; workers need it too",
        )

"""What a command line names in the user's code: ``MODULE:NAME``."""

import importlib
import sys
from pathlib import Path
from typing import Any

from dataflow.errors import DataflowError
from windowing.errors import error_text


def find_named(named: str, what: str) -> Any:
    """What a module of the user's has under a name.

    Args:
        named: ``MODULE:NAME``.
        what: it should be, for the error.

    Raises:
        DataflowError: it is not there, or its module cannot be imported.
    """
    module, _, name = named.partition(":")
    # As `python -m` does, so that a program in this directory is found.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataflowError(
            f"there is no {what} {named!r}",
            detail=f"{type(error).__name__}: {error_text(error)}",
            hint=f"name it as MODULE:{what.upper()}, with a module that Python finds from this directory",
        ) from error

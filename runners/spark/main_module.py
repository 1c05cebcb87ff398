"""The user's `__main__` where workers are: the classes of a script or a notebook, found there by their names.

Records, values of state and all other stored values are plain pickles, which name their classes: `__main__.Sale`.
In a worker `__main__` is the program that Spark has started.  So the classes of the driver's `__main__` are sent along
once with the pipeline, by value, and a worker's `__main__` is a module that has them, before anything is read.
What was stored by one run is read by the next, and by a worker that takes over, as the name is the same.

Absent: functions and instances. A pickle names them only if a class defines that in `__reduce__`; such code belongs
into a module.
"""

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from dataflow.errors import PipelineError
from dataflow.serialization import dumps_code

_MAIN = "__main__"
#: Kept for code of the program that the worker was started with, which still runs.
_WHAT_WAS_MAIN = "__dataflow_started_as__"


def classes_of_main() -> dict[str, type]:
    """The classes that this process's `__main__` defines, by qualified name, but for those that cannot be sent.

    Code that needs one of those fails where it is used, with an error that names it.
    """
    found: dict[str, type] = {}
    waiting = list(_defined_in("", vars(sys.modules[_MAIN])))
    while waiting:
        name, value = waiting.pop()
        if "." in name or _can_be_sent(value):
            found[name] = value
            waiting += _defined_in(f"{name}.", vars(value))
    return found


def become_main(classes: Mapping[str, type]) -> None:
    """Have plain pickles find these classes in `__main__`, and nothing of other pipelines.

    Nothing happens in the process that they come from.
    """
    main: Any = sys.modules[_MAIN]
    outer = {name: value for name, value in classes.items() if "." not in name}
    if all(getattr(main, name, None) is value for name, value in outer.items()):
        return
    for name, value in classes.items():
        if "." in name:
            value.__qualname__ = name  # pickling loses it for a class inside of another
    module = ModuleType(_MAIN, "The classes of the user's script.")
    vars(module).update(outer)
    setattr(module, _WHAT_WAS_MAIN, getattr(main, _WHAT_WAS_MAIN, main))
    sys.modules[_MAIN] = module


def _defined_in(prefix: str, names: Mapping[str, Any]) -> Iterator[tuple[str, type]]:
    for name, value in list(names.items()):
        if (
            isinstance(value, type)
            and value.__module__ == _MAIN
            and value.__qualname__ == prefix + name
        ):
            yield prefix + name, value


def _can_be_sent(value: type) -> bool:
    try:
        dumps_code(value, value.__name__)
    except PipelineError:
        return False
    return True

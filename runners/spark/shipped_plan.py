"""ShippedPlan: a pipeline on its way to workers.

Functions of importable modules travel by name, and a worker starts with another import path than the user's script, so
the path goes with them.
"""

import sys
from pathlib import Path

import attrs

from dataflow.serialization import dumps_code, loads_code
from runners.core.plan import ExecutionPlan


@attrs.frozen
class ShippedPlan:
    """A pickled plan, and where its modules are found."""

    code: bytes = attrs.field(repr=False)
    import_path: tuple[str, ...]

    @classmethod
    def of(cls, plan: ExecutionPlan) -> "ShippedPlan":
        """Pickle a plan.  Raises `PipelineError` if something in it cannot be."""
        path = tuple(str(Path(place).resolve()) for place in sys.path)
        return cls(dumps_code(plan, "the pipeline"), path)

    def load(self) -> ExecutionPlan:
        """The plan, in a worker."""
        sys.path.extend(place for place in self.import_path if place not in sys.path)
        plan: ExecutionPlan = loads_code(self.code)
        return plan

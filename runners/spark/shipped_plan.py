"""ShippedPlan: a pipeline on its way to workers.

Functions of importable modules travel by name, and a worker starts with another import path than the user's script, so
the path goes with them: enough where executors see the driver's files.  Where they do not, see `shipped_code`.
What the script itself defines goes along by value: functions with the pipeline, classes of records in `main_module`.
"""

import gc
import sys
from pathlib import Path

import attrs

from dataflow.serialization import dumps_code, loads_code
from runners.core.stages.plan import ExecutionPlan
from runners.log_format import TEXT, wanted_format
from runners.spark.main_module import become_main, classes_of_main
from runners.spark.shipped_code import code_missing
from runners.worker_log import wanted_level

#: Bundles and state are very many objects, few of which die young and none of which are in cycles: Python's usual
#: thresholds have the collector look at them over and over, for a third to a half of a worker's time.
COLLECTOR_THRESHOLDS = (50_000, 20, 20)


@attrs.frozen
class ShippedPlan:
    """A pickled plan, and where its modules are found."""

    code: bytes = attrs.field(repr=False)
    import_path: tuple[str, ...]
    log_level: str = "INFO"
    log_format: str = TEXT

    @classmethod
    def of(cls, plan: ExecutionPlan, log_level: str | None = None) -> "ShippedPlan":
        """Pickle a plan.

        Args:
            plan: of the pipeline.
            log_level: what of that level or above workers log, in the format of this process; None: that of the
                environment.

        Raises:
            PipelineError: something in it cannot be pickled.
        """
        path = tuple(str(Path(place).resolve()) for place in sys.path)
        # In one pickle, so that a class is the same one for functions and for records.
        return cls(
            dumps_code((plan, classes_of_main()), "the pipeline"), path, wanted_level(log_level),
            wanted_format(),
        )  # fmt: skip

    def load(self) -> ExecutionPlan:
        """The plan, in a worker, whose process is made ready for it.

        Raises:
            CodeMissingError: it uses a module that is not here.
        """
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        sys.path.extend(place for place in self.import_path if place not in sys.path)
        try:
            plan: ExecutionPlan
            plan, classes = loads_code(self.code)
        except ModuleNotFoundError as error:
            raise code_missing(error.name or str(error), f"by {sys.executable} there") from error
        become_main(classes)
        return plan
